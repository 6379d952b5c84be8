//! Possible targets of a punned jump, whose displacement partly consists of the bytes after the
//! window.
//!
//! ```text
//!           window     depends
//! before:   c3         55 48 89 e5        ret; push rbp; mov rbp, rsp
//! after:    e9         55 48 89 e5        jmp +0xe5894855; a jump to `depends` runs the same code
//! ```

use std::ops::Range;

use crate::addr::{Avma, Bias, Svma};

/// The lowest target of a punned jump: user space begins here at the earliest (vm.mmap_min_addr).
const LOWEST: i64 = 1 << 16;
/// The end of possible targets: user space ends here (Documentation/arch/x86/x86_64/mm.rst).
const HIGHEST: i64 = 1 << 47;

/// The bytes that a punned jump depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pun {
    /// The range of bytes after the window that form the rest of the displacement. They must not
    /// change.
    pub depends: Range<Svma>,
    /// The values of the bytes in `depends`.
    pub bytes: Vec<u8>,
    /// The address after the jump's last byte.
    next: Svma,
}

impl Pun {
    /// A pun whose jump ends with `bytes`, the contents of `depends`.
    pub(crate) fn new(depends: Range<Svma>, bytes: Vec<u8>) -> Self {
        let next = depends.end;
        Self {
            depends,
            bytes,
            next,
        }
    }

    /// The addresses that the jump can reach in a module loaded with `bias`. `None` if none of them
    /// can be mapped.
    pub fn targets(&self, bias: Bias) -> Option<Range<Avma>> {
        // The low bytes of the displacement are free, the high bytes are given.
        let free = 8 * (4 - self.bytes.len());
        let given = self.bytes.iter().rev();
        let given = given.fold(0u32, |word, byte| word << 8 | u32::from(*byte));
        let lowest = i64::from((given << free) as i32);
        let first = bias.to_avma(self.next).0 as i64 + lowest;
        let end = first + (1 << free);
        let first = first.max(LOWEST);
        let end = end.min(HIGHEST);
        (first < end).then_some(Avma(first as u64)..Avma(end as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::JUMP;

    fn pun(at: u64, bytes: &[u8]) -> Pun {
        let end = Svma(at + JUMP);
        Pun::new(Svma(end.0 - bytes.len() as u64)..end, bytes.to_vec())
    }

    #[test]
    fn four_given_bytes_spell_one_address() {
        let spelled = pun(0x1000, &[0x55, 0x48, 0x89, 0xe5]).targets(Bias(0x7f00_0000_0000));
        let at = 0x7f00_0000_1005u64.wrapping_add_signed(i64::from(0xe589_4855u32 as i32));
        assert_eq!(spelled, Some(Avma(at)..Avma(at + 1)));
    }

    #[test]
    fn one_given_byte_leaves_a_range() {
        let spelled = pun(0x1000, &[0x12]).targets(Bias(0));
        assert_eq!(spelled, Some(Avma(0x1200_1005)..Avma(0x1300_1005)));
    }

    #[test]
    fn nothing_outside_of_user_space_is_spelled() {
        assert_eq!(pun(0x40_1000, &[0x89, 0xe5]).targets(Bias(0)), None);
        assert_eq!(pun(0, &[0x7f]).targets(Bias(0x7fff_ffff_0000)), None);
        let below = pun(0xf000, &[0]).targets(Bias(0));
        assert_eq!(below, Some(Avma(0x1_0000)..Avma(0x100_f005)));
    }
}
