//! `vfork`, `clone` and `clone3`: the probe at the entry of the functions that call them. And `fork`: the one at its exits.
//!
//! A child that shares the process's memory runs while the thread that has called one of them waits, and has the thread's
//! thread pointer: its calls look like that thread's.
//!
//! A child with a copy of the memory has no segment. It may have been made by a signal handler that has interrupted the recording of a
//! call, and comes back there.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use abi::probe::Children;

use crate::arch::stored::{FIRST_ARGUMENT, THIRD_ARGUMENT};
use crate::os::parameters::ipath_parameters;
use crate::os::thread_pointer::thread_pointer;
use crate::os::{foreign, parameters, sys};
use crate::thread::{self, registry::REGISTRY};

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

/// Has memory stand in the segment's place in a child that has come out of a probed function, where its thread has been in the runtime:
/// it may be the midst of that which it comes back to. What is written there is nobody's.
#[cold]
#[inline(never)]
#[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
pub fn keep_room() {
    static IS_DONE: AtomicU32 = AtomicU32::new(0);
    if IS_DONE.load(Relaxed) != 0 {
        return;
    }
    IS_DONE.store(1, Relaxed);
    let room = ipath_parameters.room.load(Relaxed);
    // Its thread id is not the one that the thread had.
    let thread = REGISTRY.get(thread_pointer());
    let was_inside = !thread.is_null();
    if room != 0 && sys::may_call() && was_inside && sys::getpid() != sys::own_pid() {
        sys::map_anonymous_at(ipath_parameters.segment.load(Relaxed), room);
        thread::keep_room(thread);
    }
}
