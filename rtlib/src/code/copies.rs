//! Copies of code in trampolines, which a signal may interrupt.

use core::sync::atomic::{AtomicU64, Ordering};

use abi::image::{COPY_LOWERED, CopiedCode, CopiedPc, ORIGINAL_BITS};

/// The address of the newest copies, set by the command.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static ipath_copies: AtomicU64 = AtomicU64::new(0);

/// The state in the original code of a thread that was interrupted in a copy.
pub struct Original {
    /// The program counter.
    pub pc: u64,
    /// The number of the register whose value is at the stack pointer; `None` if all registers have
    /// the values of the original code.
    pub spilled: Option<usize>,
}

impl Original {
    /// Bytes from the stack pointer in the copy up to that of the original code.
    pub fn lowered(&self) -> u64 {
        self.spilled.map_or(0, |_| COPY_LOWERED)
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
            let register = (found.original >> ORIGINAL_BITS) as usize;
            return Some(Original {
                pc: found.original & ((1 << ORIGINAL_BITS) - 1),
                spilled: register.checked_sub(1),
            });
        }
        next = copies.next;
    }
    None
}
