//! Instruction decoding.

use iced_x86::{Decoder, DecoderOptions};

use super::insn::Insn;
use crate::addr::Svma;

/// Consecutive instructions. A byte at which none begins yields an invalid instruction of one byte.
pub struct Insns<'d>(Decoder<'d>);

/// Decodes `bytes`, located at `at`.
#[inline]
pub fn decode(bytes: &[u8], at: Svma) -> Insns<'_> {
    Insns(Decoder::with_ip(64, bytes, at.0, DecoderOptions::NONE))
}

/// The first instruction in `bytes`, located at `at`; invalid if none begins there.
pub fn first(bytes: &[u8], at: Svma) -> Insn {
    Insn(Decoder::with_ip(64, bytes, at.0, DecoderOptions::NONE).decode())
}

impl Insns<'_> {
    /// Decodes the next instruction into `insn`. Returns false at the end.
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
