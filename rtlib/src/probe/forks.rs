//! `vfork`, `clone` and `clone3`: the probe at the entry of the functions that call them.
//!
//! A child that shares the process's memory runs while the thread that has called one of them waits, and has the thread's
//! thread pointer: its calls look like that thread's.

use abi::probe::Children;

use super::next::{FIRST_ARGUMENT, THIRD_ARGUMENT};
use crate::os::{foreign, parameters, sys};

/// Of what shares the memory while the thread waits (include/uapi/linux/sched.h).
const CLONE_VM: u64 = 0x100;
const CLONE_VFORK: u64 = 0x4000;

/// Whether a child may come of a call that shares the memory and is to be told from the thread. Where no system call may be
/// made it cannot be: its calls count as the thread's.
///
/// # Safety
/// `slot` is the address of the return address of such a function's call, at its entry.
#[cold]
#[inline(never)]
#[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
pub unsafe fn shares(function: u32, slot: u64) -> bool {
    const CLONE: u8 = Children::Clone as u8;
    const CLONE3: u8 = Children::Clone3 as u8;
    const ALL: u64 = CLONE_VM | CLONE_VFORK;
    // SAFETY: the caller's promise: the stub has stored the arguments.
    let argument = |at: u64| unsafe { ((slot - at) as *const u64).read() };
    let asked_for = match parameters::children(function) {
        // The program may have the kernel find out that nothing is there.
        CLONE3 => {
            let mut word = [0; size_of::<u64>()];
            let _ = foreign::try_read(argument(FIRST_ARGUMENT), &mut word);
            u64::from_le_bytes(word)
        }
        CLONE => argument(THIRD_ARGUMENT),
        _ => ALL,
    };
    sys::may_call() && asked_for & ALL == ALL
}
