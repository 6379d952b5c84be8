//! Breakpoints in place of a jump to a trampoline, if there is no room for a jump. The handler of
//! their signal redirects the thread to the trampoline.

use core::sync::atomic::AtomicU64;

use abi::image::{TRAP_BUCKETS, Trap, TrapActions};

/// The trampolines of breakpoints.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static ipath_traps: [Trap; TRAP_BUCKETS] = [const {
    Trap {
        address: AtomicU64::new(0),
        target: AtomicU64::new(0),
    }
}; TRAP_BUCKETS];

/// The actions of SIGTRAP.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static ipath_trap_actions: TrapActions = TrapActions {
    new: [const { AtomicU64::new(0) }; 4],
    old: [const { AtomicU64::new(0) }; 4],
};
