//! A mark on each thread that is recording a call. A probe reached while the mark is set runs in a
//! signal handler on top of the recording.

use crate::arch::{exchange, hook};
use crate::calls::list;
use crate::code::coroutines;
use crate::os::{foreign, sys};
use crate::thread::Thread;

/// The reason why a call is not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The thread is recording another call. This one comes from a signal handler on top of that,
    /// or from a stack on which such a handler continued.
    Recording,
    /// The call belongs to a child that runs in the process's memory. It has this thread's pointer,
    /// and the thread waits for it.
    Child,
}

/// The value of `busy` on a thread that may have a child running in this memory ([`Why::Child`]).
/// Other values are addresses of return-address slots; none is 1.
const CHILD: u64 = 1;

/// Marks the thread as recording the call whose return address is at `slot`. Replaces a stale mark.
///
/// # Errors
/// The call must not be recorded.
///
/// # Safety
/// The thread belongs to the caller.
#[inline(always)]
pub unsafe fn begin(thread: *mut Thread, slot: u64) -> Result<(), Why> {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let Err(busy) = change(thread, 0, slot) else {
            return Ok(());
        };
        if busy == CHILD && is_child() {
            return Err(Why::Child);
        }
        if busy != CHILD && !is_left(thread, busy, slot) {
            return Err(Why::Recording);
        }
        // A second try, now without handlers in between. Otherwise a handler could continue on
        // another stack and begin a call at the very slot that the old mark names. That call could
        // be in the middle of its recording. The mask is stored where the slow path stores it,
        // because no handler interrupts the slow path either.
        sys::block_signals(&raw mut (*thread).signal_mask);
        let busy = (&raw const (*thread).busy).read_volatile();
        let is_over = matches!(busy, 0 | CHILD) || is_left(thread, busy, slot);
        let is_taken = is_over && change(thread, busy, slot).is_ok();
        sys::restore_signals(&raw const (*thread).signal_mask);
        if !is_taken {
            return Err(Why::Recording);
        }
        if !matches!(busy, 0 | CHILD) {
            list::recount(&raw mut (*thread).calls);
        }
        Ok(())
    }
}

/// True in a child that shares the process's memory.
#[cold]
#[inline(never)]
#[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
fn is_child() -> bool {
    sys::getpid() != sys::own_pid()
}

/// Marks the thread as one that may have a child in this memory while it waits, by vfork or as
/// posix_spawn does. The next call then asks the kernel for the process id.
///
/// # Safety
/// The thread belongs to the caller.
pub unsafe fn expect_child(thread: *mut Thread) {
    // SAFETY: guaranteed by the caller.
    // The mark of a thread that is recording a call stays.
    let _ = unsafe { change(thread, 0, CHILD) };
}

/// Marks the thread as [`expect_child`] does, but from the end of the slow path on. The caller is
/// on the slow path.
///
/// # Safety
/// The thread belongs to the caller.
pub unsafe fn expect_child_after(thread: *mut Thread) {
    // SAFETY: guaranteed by the caller.
    unsafe { (*thread).busy_after = CHILD };
}

/// Clears the mark set by [`begin`].
///
/// # Safety
/// The thread belongs to the caller.
#[inline(always)]
pub unsafe fn end(thread: *mut Thread) {
    // SAFETY: guaranteed by the caller. Volatile, because a signal handler reads it.
    unsafe { (&raw mut (*thread).busy).write_volatile(0) };
}

/// Changes the mark from `from` to `to`, or returns the mark found instead. It is a single
/// instruction, which no handler can interrupt. Other threads do not access the mark.
#[inline(always)]
unsafe fn change(thread: *mut Thread, from: u64, to: u64) -> Result<(), u64> {
    // SAFETY: guaranteed by the caller.
    let was = unsafe { exchange::if_equal(&raw mut (*thread).busy, from, to) };
    if was == from { Ok(()) } else { Err(was) }
}

/// A lower bound for the memory that the kernel uses on a stack for a signal: the red zone, 512
/// bytes of floating-point and vector registers, and a ucontext.
const SIGNAL_FRAME: u64 = 1024;

/// True if the mark is stale, left by a jump out of a signal handler that had interrupted the
/// recording of a call. If the recording is still suspended, its handler's calls are deeper in the
/// same stack or on the alternate one.
#[cold]
#[inline(never)]
#[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
unsafe fn is_left(thread: *mut Thread, busy: u64, slot: u64) -> bool {
    // SAFETY: the thread belongs to the caller. The stack it was last seen on may still be the
    // alternate one.
    let is_same = unsafe { (*thread).walker.is_one_stack(busy, slot) };
    let is_deeper = busy >= slot + SIGNAL_FRAME;
    // SAFETY: as above; a handler on top of this stores the same values.
    let (low, size) = unsafe {
        sys::alternate_stack(&raw mut (*thread).alternate);
        ((*thread).alternate.low, (*thread).alternate.size)
    };
    let is_alternate = |at: u64| at.wrapping_sub(low) < size;
    match (is_alternate(busy), is_alternate(slot)) {
        (true, true) => !is_deeper,
        (true, false) => true,
        (false, true) => false,
        (false, false) if is_deeper || !is_same && busy.abs_diff(slot) >= SIGNAL_FRAME => false,
        // A mapping may contain the stacks of several coroutines, and a handler may continue on
        // another stack than the one it interrupted. The interrupted recording continues when its
        // coroutine does. Two calls do not share a slot.
        (false, false) => busy == slot || !coroutines::are_known() || is_gone(busy),
    }
}

/// True if the words pushed by the probe for the call at `slot` are no longer there. They stay
/// until the call has been recorded. Those of a finished call may also stay, until the next call at
/// this depth of the stack.
#[inline(never)]
#[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
fn is_gone(slot: u64) -> bool {
    // If the memory cannot be checked, the words count as present.
    let Some(way_back) = word(slot.wrapping_sub(hook::WAY_BACK)) else {
        return false;
    };
    let code = word(way_back.wrapping_sub(hook::LEN)).map(u64::to_le_bytes);
    code.is_some_and(|code| !hook::begins_with(code))
}

/// The word at an address, 0 if there is no memory. `None` if the kernel may not be called.
#[inline(never)]
#[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
fn word(at: u64) -> Option<u64> {
    let mut word = [0; size_of::<u64>()];
    foreign::try_read(at, &mut word).map(|_| u64::from_le_bytes(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::test_code::HOOK;
    use crate::os::parameters;
    use core::sync::atomic::{AtomicPtr, Ordering};
    use core::{mem, ptr};
    use std::boxed::Box;

    #[test]
    fn calls_under_way_are_told_by_what_their_hook_has_pushed() {
        let way_back = HOOK.as_ptr_range().end as u64;
        // The way back, the stored register, and the return address, whose address is the slot.
        let mut stack = [way_back, 1, 2];
        let slot = |stack: &[u64; 3]| &raw const stack[2] as u64;
        assert!(!is_gone(slot(&stack)));
        stack[0] = way_back - 1;
        assert!(is_gone(slot(&stack)));
        stack[0] = 8;
        assert!(is_gone(slot(&stack)));
        assert!(is_gone(hook::WAY_BACK + 8));
    }

    /// The words pushed for the calls of two coroutines: the way back, a register, and the return
    /// address. One call has returned and left its mark.
    struct Stacks {
        thread: *mut Thread,
        first: [u64; 3],
        second: [u64; 3],
        /// True if the first coroutine is recording another call.
        is_amid: bool,
    }

    static STACKS: AtomicPtr<Stacks> = AtomicPtr::new(ptr::null_mut());

    impl Stacks {
        fn slot(stack: &[u64; 3]) -> u64 {
            &raw const stack[2] as u64
        }
    }

    /// A scheduler: makes the first coroutine begin a call at the slot of its last one, and
    /// continues with the second.
    extern "C" fn switch(_: i32) {
        let stacks = STACKS.load(Ordering::Acquire);
        // SAFETY: the object belongs to the test, which runs on this thread.
        unsafe {
            if !stacks.is_null() && (*(*stacks).thread).busy == Stacks::slot(&(*stacks).first) {
                (*stacks).first[0] = HOOK.as_ptr_range().end as u64;
                (&raw mut (*stacks).is_amid).write_volatile(true);
            }
        }
    }

    /// Makes calls until marks of finished calls were taken and marks of new calls were respected,
    /// `often` times each. After taking a mark, a call that was counted but is not in the list must
    /// no longer be counted.
    fn take(stacks: &mut Stacks, often: u32) -> bool {
        let thread = stacks.thread;
        let (mut taken, mut left) = (0, 0);
        while taken < often || left < often {
            // SAFETY: the handler accesses them only while `STACKS` is set.
            let (begun, is_amid) = unsafe {
                stacks.first[0] = 0;
                stacks.is_amid = false;
                *(*thread).calls.depths = 1;
                (*thread).busy = Stacks::slot(&stacks.first);
                STACKS.store(stacks, Ordering::Release);
                let begun = begin(thread, Stacks::slot(&stacks.second));
                STACKS.store(ptr::null_mut(), Ordering::Release);
                (begun, (&raw const stacks.is_amid).read_volatile())
            };
            // SAFETY: as above.
            let is_counted = unsafe { *(*thread).calls.depths } != 0;
            if begun.is_ok() && (is_amid || is_counted) {
                return false;
            }
            taken += u32::from(begun.is_ok());
            left += u32::from(is_amid);
        }
        true
    }

    #[test]
    fn no_mark_is_taken_that_has_been_set_again_meanwhile() {
        // SAFETY: an all-zero walker knows no stack, and the rest is integers and pointers.
        let mut thread: Box<Thread> = Box::new(unsafe { mem::zeroed() });
        let mut depths = std::vec![0; abi::MAX_FUNCTIONS];
        thread.calls.depths = depths.as_mut_ptr();
        let mut stacks = Stacks {
            thread: &raw mut *thread,
            first: [0; 3],
            second: [0; 3],
            is_amid: false,
        };
        // SAFETY: the handler does nothing yet. The child makes system calls only, uses coroutines
        // apart from other tests, and exits.
        let child = unsafe {
            libc::signal(libc::SIGUSR2, switch as extern "C" fn(i32) as usize);
            libc::fork()
        };
        if child == 0 {
            parameters::allow_system_calls();
            coroutines::note();
            // SAFETY: as above.
            unsafe {
                libc::alarm(60);
                libc::_exit(if take(&mut stacks, 1000) { 0 } else { 1 });
            }
        }
        let mut status = 0;
        // SAFETY: a child of this test.
        unsafe {
            while libc::waitpid(child, &raw mut status, libc::WNOHANG) == 0 {
                libc::kill(child, libc::SIGUSR2);
            }
        }
        assert_eq!(status, 0, "a call was taken for over that was under way");
    }
}
