//! What a hook saves, and the parts of hooks that follow all other code of a trampoline, because
//! they run rarely.

use abi::arch::stack::RED_ZONE;

use super::uses::Registers;
use crate::addr::Avma;

pub(super) const RAX: u8 = 0;
/// The registers that a hook may use, in this order of preference: all but rsp, rbp, which
/// profilers follow, and r12, whose encoding as a base differs. Those that compilers use last come
/// first: nothing waits for them after they have been spilled.
pub(super) const SCRATCH: [u8; 13] = [11, 10, 9, 8, 15, 14, 13, 7, 6, 2, 1, 0, 3];

/// The registers that a hook uses, and what it must save first.
#[derive(Debug)]
pub(super) struct Spill {
    /// The registers.
    pub(super) used: Vec<u8>,
    /// Those that it pushes.
    pub(super) saved: Vec<u8>,
    /// True if the flags are in rax meanwhile.
    pub(super) saves_flags: bool,
}

impl Spill {
    /// For a hook that uses `count` registers, of which those in `free` need not be saved, and the
    /// flags neither if they `are_free`.
    pub(super) fn of(Registers(free): Registers, are_free: bool, count: usize) -> Self {
        let is_free = |register: u8| free & 1 << register != 0;
        let saves_flags = !are_free;
        let mut used: Vec<u8> = SCRATCH.into_iter().filter(|&r| is_free(r)).collect();
        used.extend(SCRATCH.into_iter().filter(|&r| !is_free(r)));
        // The flags are saved in rax.
        used.retain(|&register| !(saves_flags && register == RAX));
        used.truncate(count);
        let with_flags = saves_flags.then_some(RAX);
        let saved = used.iter().copied().chain(with_flags);
        Self {
            saved: saved.filter(|&r| !is_free(r)).collect(),
            used,
            saves_flags,
        }
    }

    /// True if nothing is pushed, so that the red zone is still below the stack pointer.
    pub(super) fn is_empty(&self) -> bool {
        self.saved.is_empty()
    }

    /// The bytes by which the stack pointer is lower meanwhile.
    pub(super) fn lowered(&self) -> i32 {
        if self.is_empty() {
            return 0;
        }
        RED_ZONE as i32 + 8 * self.saved.len() as i32
    }
}

/// A search for the bank of a thread that is not the first one.
#[derive(Debug)]
pub(super) struct LookUp {
    /// The thread pointer, and the register for the bank.
    pub(super) registers: (u8, u8),
    pub(super) table: Avma,
    /// Where the search begins, where control continues with the bank, and where without one.
    pub(super) labels: [usize; 3],
}

/// A call of the stub by a hook that has its work done by instructions otherwise.
#[derive(Debug)]
pub(super) struct Slow {
    /// What the hook has saved.
    pub(super) spill: Spill,
    /// The label of the row, and the cell of the stub.
    pub(super) stub: (usize, Avma),
    /// Where the call begins, and where control continues after it.
    pub(super) labels: [usize; 2],
    /// With a hash table, a look at another entry before the call.
    pub(super) next: Option<Next>,
}

/// A look at another entry of a hash table of paths.
#[derive(Debug)]
pub(super) struct Next {
    /// The registers: the number of the path plus 1, the address of the entry tried first less that
    /// of the counter `first` in a bank, and the bank.
    pub(super) registers: (u8, u8, u8),
    /// The first counter of the table.
    pub(super) first: u32,
    /// The start of the look, and the place to continue at with the entry.
    pub(super) labels: [usize; 2],
}
