//! Copies of code in trampolines, which a signal may interrupt.

use core::sync::atomic::{AtomicU64, Ordering};

use abi::image::{COPY_LOWERED, CopiedCode, CopiedPc, ORIGINAL_BITS, Spilled};

/// The address of the newest copies, set by the command.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static ipath_copies: AtomicU64 = AtomicU64::new(0);

/// The state in the original code of a thread that was interrupted in a copy.
pub struct Original {
    /// The program counter.
    pub pc: u64,
    /// The register whose value is on the stack; `None` if all registers have the values of the
    /// original code.
    pub spilled: Option<Spilled>,
}

impl Original {
    /// The DWARF column of the register, and the distance from the stack pointer to its value.
    /// `None` if callers do not need the register. The columns of the others are their numbers
    /// (psABI, figure 3.36), and the frame pointer is never spilled.
    pub fn saved(&self) -> Option<(usize, i64)> {
        let spilled = self.spilled?;
        let is_saved = matches!(spilled.register, 3 | 12..=15);
        is_saved.then_some((spilled.register.into(), spilled.saved_at.into()))
    }

    /// Bytes from the stack pointer in the copy up to that of the original code.
    pub fn lowered(&self) -> u64 {
        let lower = self.spilled.filter(|spilled| spilled.saved_at == 0);
        lower.map_or(0, |_| COPY_LOWERED)
    }
}

/// The original of the copied instruction at `pc`. `None` if there is none.
pub fn original(pc: u64) -> Option<Original> {
    let mut next = ipath_copies.load(Ordering::Acquire);
    while next != 0 {
        let at = next as *const CopiedCode;
        // SAFETY: the command has written it before it has published its address, and keeps it.
        let copies = unsafe { &*at };
        if (copies.start..copies.end).contains(&pc) {
            // SAFETY: the program counters follow, as for `copies`.
            let pcs = unsafe {
                let first = at.add(1).cast::<CopiedPc>();
                core::slice::from_raw_parts(first, copies.count as usize)
            };
            let index = pcs.partition_point(|known| known.at < pc);
            let found = pcs.get(index).filter(|known| known.at == pc)?;
            return Some(Original {
                pc: found.original & ((1 << ORIGINAL_BITS) - 1),
                spilled: Spilled::decode(found.original),
            });
        }
        next = copies.next;
    }
    None
}
