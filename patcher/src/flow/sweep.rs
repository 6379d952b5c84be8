//! Linear decoding.

use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, Instruction};

use crate::addr::Svma;
use crate::image::Image;

/// What decoding a function from its first to its last byte gave.
#[derive(Debug)]
pub struct Swept {
    /// All instructions of all ranges, ascending.
    pub insns: Vec<Instruction>,
    /// Did every range decode without an error, up to exactly its end?
    pub complete: bool,
}

/// Decodes `ranges` from start to end; `None` where the file has no bytes for one of them.
pub fn linear(image: &Image<'_>, ranges: &[Range<Svma>]) -> Option<Swept> {
    let mut insns = Vec::new();
    let mut complete = true;
    for range in ranges {
        let bytes = image.bytes(range.start, range.end.0.checked_sub(range.start.0)?)?;
        let mut decoder = decoder(bytes, range.start);
        let mut insn = Instruction::default();
        while decoder.can_decode() {
            decoder.decode_out(&mut insn);
            if insn.is_invalid() {
                complete = false;
                break;
            }
            insns.push(insn);
        }
    }
    insns.sort_unstable_by_key(Instruction::ip);
    Some(Swept { insns, complete })
}

/// The one instruction at `at`; `None` where it is invalid or not in the file.
pub fn one(image: &Image<'_>, at: Svma) -> Option<Instruction> {
    let bytes = (1..=15).rev().find_map(|len| image.bytes(at, len))?;
    let insn = decoder(bytes, at).decode();
    (!insn.is_invalid()).then_some(insn)
}

fn decoder(bytes: &[u8], at: Svma) -> Decoder<'_> {
    Decoder::with_ip(64, bytes, at.0, DecoderOptions::NONE)
}
