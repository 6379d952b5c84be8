//! Who is recording a call: a probe that fires meanwhile comes from a signal handler on top of that.

use crate::arch::{exchange, hook};
use crate::calls::list;
use crate::code::coroutines;
use crate::os::{foreign, sys};
use crate::thread::Thread;

/// Why a call is not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The thread is in the middle of recording another one: this one comes from a signal handler on top of that, or on a
    /// stack that such a handler has gone on on.
    Recording,
    /// It is a child's that runs in the process's memory, and as far as that tells on this thread, which waits for it.
    Child,
}

/// The mark of a thread of which such a child may have come; no call has its return address there.
const CHILD: u64 = 1;

/// Marks the thread as recording the call whose return address is at `slot`.
///
/// # Safety
/// The thread is the caller's.
#[inline(always)]
pub unsafe fn begin(thread: *mut Thread, slot: u64) -> Result<(), Why> {
    // SAFETY: the caller's promise.
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
        // Once more, and now no handler comes meanwhile: one that goes on on another stack could have a call begin there, at the very slot
        // whose last one has left the mark, and be amid recording it. The mask is kept where the slow path keeps it, amid which no
        // handler comes either.
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

/// Whether it is a child that shares the process's memory.
#[cold]
#[inline(never)]
#[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
fn is_child() -> bool {
    sys::getpid() != sys::own_pid()
}

/// Marks the thread as one that a child may come of which runs in this memory while the thread waits, by vfork or as of
/// posix_spawn. Who comes next asks the kernel who it is.
///
/// # Safety
/// The thread is the caller's.
pub unsafe fn expect_child(thread: *mut Thread) {
    // SAFETY: the caller's promise.
    // One that is amid recording a call is left as it is.
    let _ = unsafe { change(thread, 0, CHILD) };
}

/// The same from the end of the slow path on, which the caller is on.
///
/// # Safety
/// The thread is the caller's.
pub unsafe fn expect_child_after(thread: *mut Thread) {
    // SAFETY: the caller's promise.
    unsafe { (*thread).busy_after = CHILD };
}

/// Ends what [`begin`] began.
///
/// # Safety
/// The thread is the caller's.
#[inline(always)]
pub unsafe fn end(thread: *mut Thread) {
    // SAFETY: the caller's promise. Volatile: a signal handler reads it.
    unsafe { (&raw mut (*thread).busy).write_volatile(0) };
}

/// Changes the mark to `to` where it is `from`; else what it is. In one instruction, amid which no handler comes; other
/// threads do not touch it.
#[inline(always)]
unsafe fn change(thread: *mut Thread, from: u64, to: u64) -> Result<(), u64> {
    // SAFETY: the caller's promise.
    let was = unsafe { exchange::if_equal(&raw mut (*thread).busy, from, to) };
    if was == from { Ok(()) } else { Err(was) }
}

/// Less than what the kernel puts on a stack for a signal: the red zone, 512 bytes of floating-point and
/// vector registers, and a ucontext.
const SIGNAL_FRAME: u64 = 1024;

/// Whether a mark was left by a jump out of a signal handler that had interrupted the recording of a
/// call: a handler on top of that has its own calls deeper in the same stack, or on the alternate one.
#[cold]
#[inline(never)]
#[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
unsafe fn is_left(thread: *mut Thread, busy: u64, slot: u64) -> bool {
    // SAFETY: the thread is the caller's. What it was last seen on may be the alternate stack still.
    let is_same = unsafe { (*thread).walker.is_one_stack(busy, slot) };
    let is_deeper = busy >= slot + SIGNAL_FRAME;
    // SAFETY: as above; a handler on top of this that does the same stores the same.
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
        // One mapping may hold more than one coroutine's stack, and a handler go on on another than it has interrupted:
        // that call is recorded on when its coroutine goes on. Two calls are not at one slot.
        (false, false) => busy == slot || !coroutines::are_known() || is_gone(busy),
    }
}

/// Whether what a probe pushes for the call at `slot` does not stand there any more, as it does until that has been
/// recorded. What is left of a call may stay, too, until something else is called as deep in the stack.
#[inline(never)]
#[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
fn is_gone(slot: u64) -> bool {
    // Where that cannot be asked it is not known to be.
    let Some(way_back) = word(slot.wrapping_sub(hook::WAY_BACK)) else {
        return false;
    };
    let code = word(way_back.wrapping_sub(hook::LEN)).map(u64::to_le_bytes);
    code.is_some_and(|code| !hook::begins_with(code))
}

/// What is at an address, 0 where there is no memory; `None` where the kernel may not be asked for it.
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
        // The way back, the stored register, and the return address, which is at the slot.
        let mut stack = [way_back, 1, 2];
        let slot = |stack: &[u64; 3]| &raw const stack[2] as u64;
        assert!(!is_gone(slot(&stack)));
        stack[0] = way_back - 1;
        assert!(is_gone(slot(&stack)));
        stack[0] = 8;
        assert!(is_gone(slot(&stack)));
        assert!(is_gone(hook::WAY_BACK + 8));
    }

    /// What two coroutines' calls have pushed: the way back, a register, the return address. One has returned and left its mark.
    struct Stacks {
        thread: *mut Thread,
        first: [u64; 3],
        second: [u64; 3],
        /// Whether the first is amid recording another call.
        is_amid: bool,
    }

    static STACKS: AtomicPtr<Stacks> = AtomicPtr::new(ptr::null_mut());

    impl Stacks {
        fn slot(stack: &[u64; 3]) -> u64 {
            &raw const stack[2] as u64
        }
    }

    /// A scheduler: has the first coroutine begin a call where its last one was, and goes on with the second.
    extern "C" fn switch(_: i32) {
        let stacks = STACKS.load(Ordering::Acquire);
        // SAFETY: the test's own, on whose thread this is.
        unsafe {
            if !stacks.is_null() && (*(*stacks).thread).busy == Stacks::slot(&(*stacks).first) {
                (*stacks).first[0] = HOOK.as_ptr_range().end as u64;
                (&raw mut (*stacks).is_amid).write_volatile(true);
            }
        }
    }

    /// Takes the mark of a call that is over, and leaves that of one that has begun meanwhile, so often each. What was left counted and
    /// is not in the list is so no more then.
    fn take(stacks: &mut Stacks, often: u32) -> bool {
        let thread = stacks.thread;
        let (mut taken, mut left) = (0, 0);
        while taken < often || left < often {
            // SAFETY: the handler touches them only while they are given.
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
        // SAFETY: of zeroes a walker knows no stack, and all else is integers and pointers.
        let mut thread: Box<Thread> = Box::new(unsafe { mem::zeroed() });
        let mut depths = std::vec![0; abi::MAX_FUNCTIONS];
        thread.calls.depths = depths.as_mut_ptr();
        let mut stacks = Stacks {
            thread: &raw mut *thread,
            first: [0; 3],
            second: [0; 3],
            is_amid: false,
        };
        // SAFETY: the handler does nothing yet; the child, whose coroutines are no other test's, makes system calls alone, and ends.
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
        // SAFETY: a child of this test's.
        unsafe {
            while libc::waitpid(child, &raw mut status, libc::WNOHANG) == 0 {
                libc::kill(child, libc::SIGUSR2);
            }
        }
        assert_eq!(status, 0, "a call was taken for over that was under way");
    }
}
