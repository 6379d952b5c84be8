//! `vfork`, `clone` and `clone3`: the probe at the entry of the functions that make these system
//! calls. `fork`: the probe at its exits.
//!
//! A child that shares the process's memory runs while the calling thread waits, and has that
//! thread's thread pointer. So its calls look like calls of the thread.
//!
//! A child with a copy of the memory has no segment. It may have been created in a signal handler
//! that interrupted the recording of a call, and it returns there.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use abi::probe::Children;

use crate::arch::stored::{FIRST_ARGUMENT, THIRD_ARGUMENT};
use crate::os::parameters::ipath_parameters;
use crate::os::thread_pointer::thread_pointer;
use crate::os::{foreign, parameters, sys};
use crate::thread::{self, registry::REGISTRY};

/// Flags of a child that shares the memory while the thread waits (include/uapi/linux/sched.h).
const CLONE_VM: u64 = 0x100;
const CLONE_VFORK: u64 = 0x4000;

/// True if the call may create a child that shares the memory and must be distinguished from the
/// thread. Without system calls that is impossible: returns false, and the calls of the child count
/// as the thread's.
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
    // SAFETY: guaranteed by the caller: the stub has stored the arguments.
    let argument = |at: u64| unsafe { ((slot - at) as *const u64).read() };
    let asked_for = match parameters::children(function) {
        // The address may be invalid, because the kernel has not checked it yet.
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

/// Maps memory in place of the segment in a child that returns from a probed function, if its
/// thread had been in the runtime. It may return into the middle of the recording, and nothing
/// reads its output.
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
    // The child's thread id differs from the one that the thread had.
    let thread = REGISTRY.get(thread_pointer());
    let was_inside = !thread.is_null();
    if room != 0 && sys::may_call() && was_inside && sys::getpid() != sys::own_pid() {
        sys::map_anonymous_at(ipath_parameters.segment.load(Relaxed), room);
        thread::keep_room(thread);
    }
}
