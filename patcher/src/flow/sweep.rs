//! Linear decoding.

use std::ops::Range;

use crate::addr::Svma;
use crate::image::Image;
use crate::isa::{self, Insn, LONGEST_INSN};

/// The result of decoding a function linearly.
#[derive(Debug)]
pub struct Swept {
    /// The instructions of all ranges, ascending.
    pub insns: Vec<Insn>,
    /// True if every range decodes without an error and ends with an instruction's last byte.
    pub complete: bool,
}

/// Decodes each of `ranges` up to its end or the first invalid instruction. `None` if the file has
/// no bytes for one of them.
pub fn linear(image: &Image<'_>, ranges: &[Range<Svma>]) -> Option<Swept> {
    let mut insns = Vec::new();
    let mut complete = true;
    for range in ranges {
        let bytes = image.bytes(range.start, range.end.0.checked_sub(range.start.0)?)?;
        let mut decoder = isa::decode(bytes, range.start);
        let mut insn = Insn::default();
        while decoder.read(&mut insn) {
            if insn.is_invalid() {
                complete = false;
                break;
            }
            insns.push(insn);
        }
    }
    insns.sort_unstable_by_key(Insn::at);
    Some(Swept { insns, complete })
}

/// The instruction at `at`. `None` if it is invalid or not in the file.
pub fn one(image: &Image<'_>, at: Svma) -> Option<Insn> {
    let bytes = (1..=LONGEST_INSN)
        .rev()
        .find_map(|len| image.bytes(at, len))?;
    let insn = isa::first(bytes, at);
    (!insn.is_invalid()).then_some(insn)
}
