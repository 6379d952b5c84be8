//! Where a punned jump can lead: its displacement is in part what stands after the window.

use std::ops::Range;

use crate::addr::{Avma, Bias, Svma};

/// No punned jump leads below this: user space begins here at the earliest (vm.mmap_min_addr).
const LOWEST: i64 = 1 << 16;
/// Nor to this or above: user space ends here (Documentation/arch/x86/x86_64/mm.rst).
const HIGHEST: i64 = 1 << 47;

/// What a punned jump depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pun {
    /// The bytes after the window that are the rest of the displacement. They must stay.
    pub depends: Range<Svma>,
    /// What they are.
    pub bytes: Vec<u8>,
    /// After the jump's last byte.
    next: Svma,
}

impl Pun {
    /// `bytes` are what stands at `depends`, up to the last byte of the jump.
    pub(crate) fn new(depends: Range<Svma>, bytes: Vec<u8>) -> Self {
        let next = depends.end;
        Self {
            depends,
            bytes,
            next,
        }
    }

    /// The addresses to which the jump can lead in a module loaded with `bias`. `None` where none of
    /// them can be mapped.
    pub fn targets(&self, bias: Bias) -> Option<Range<Avma>> {
        // The displacement's low bytes are free, its high bytes given.
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
