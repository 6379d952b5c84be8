//! Breakpoints that stand for a jump to a trampoline, where no jump has room: the handler of their
//! signal sends the thread there.

use core::sync::atomic::AtomicU64;

use abi::image::{TRAP_BUCKETS, Trap, TrapActions};

/// Where breakpoints lead.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static ipath_traps: [Trap; TRAP_BUCKETS] = [const {
    Trap {
        address: AtomicU64::new(0),
        target: AtomicU64::new(0),
    }
}; TRAP_BUCKETS];

/// What SIGTRAP did before.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static ipath_trap_actions: TrapActions = TrapActions {
    new: [const { AtomicU64::new(0) }; 4],
    old: [const { AtomicU64::new(0) }; 4],
};
