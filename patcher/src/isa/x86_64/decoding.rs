//! Decoding.

use iced_x86::{Decoder, DecoderOptions};

use super::insn::Insn;
use crate::addr::Svma;

/// The instructions in some bytes, one after the other. What is none of them is invalid and one byte long.
pub struct Insns<'d>(Decoder<'d>);

/// Decodes `bytes`, which stand at `at`.
#[inline]
pub fn decode(bytes: &[u8], at: Svma) -> Insns<'_> {
    Insns(Decoder::with_ip(64, bytes, at.0, DecoderOptions::NONE))
}

/// The instruction that `bytes` at `at` begin with; invalid where there is none.
pub fn first(bytes: &[u8], at: Svma) -> Insn {
    Insn(Decoder::with_ip(64, bytes, at.0, DecoderOptions::NONE).decode())
}

impl Insns<'_> {
    /// Decodes the next instruction in place; false at the end.
    #[inline]
    pub fn read(&mut self, insn: &mut Insn) -> bool {
        let is_one = self.0.can_decode();
        if is_one {
            self.0.decode_out(&mut insn.0);
        }
        is_one
    }
}

impl Iterator for Insns<'_> {
    type Item = Insn;

    #[inline]
    fn next(&mut self) -> Option<Insn> {
        self.0.can_decode().then(|| Insn(self.0.decode()))
    }
}
