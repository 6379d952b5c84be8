//! Activations that end without a return: what an exception, a jump or the end of a thread leaves.
//!
//! Functions that such an end comes through carry a reaper probe. It tells which frame of which stack
//! goes on; all that is deeper there has been left.

use abi::probe::Kind;

use crate::arch::stored::FIRST_ARGUMENT;
use crate::arch::thread_pointer::pointer_guard;
use crate::calls::activation::lent;
use crate::calls::{closing, coroutines, list};
use crate::code::cfi::RSP;
use crate::code::return_address;
use crate::thread::Thread;
use crate::walk::Frame;

/// Closes, as unwound, what a probe of this kind tells has been left; `None` where that is not to
/// be found out. Runs on the private stack, with signals blocked.
///
/// # Safety
/// The thread is the caller's, marked busy, its callee-saved registers stored; `slot` is the address of
/// the return address of the reaper's call, and what the stub has pushed is below it.
pub unsafe fn reap(thread: *mut Thread, kind: Kind, slot: u64) -> Option<()> {
    // SAFETY: the caller's promise.
    unsafe {
        let is_jump = kind == Kind::Jump;
        let frame = if is_jump {
            of_jump(*((slot - FIRST_ARGUMENT) as *const u64))?
        } else {
            Frame::of_caller(slot, &(*thread).saved)
        };
        let sp = frame.registers[RSP];
        let stack = (*thread).walker.stack_of(&frame, true)?;
        let (stack, is_told) = (stack.id, stack.is_told);
        let memory = (*thread).walker.stack;
        let calls = &raw mut (*thread).calls;
        list::lock_own(calls);
        closing::close_handlers(calls, stack, sp);
        list::unlock(calls);
        if is_told {
            coroutines::arrive(calls, &mut (*thread).ledger, stack);
        }
        list::lock_own(calls);
        // The return address of a call that the frame makes stands right below its stack pointer.
        let deepest = lent(sp - 8);
        closing::close_left_behind(calls, stack, deepest);
        if kind == Kind::End {
            closing::close_within(calls, stack, memory);
        }
        if !is_jump {
            closing::close_overwritten(calls, stack);
        }
        list::unlock(calls);
        Some(())
    }
}

/// The frame that a `jmp_buf` leads to, of musl or of glibc, which keeps rbp, rsp and pc xored with
/// the word at %fs:0x30 and rotated (musl's src/setjmp/x86_64, glibc's sysdeps/x86_64/__longjmp.S).
/// `None` where it can be neither.
///
/// # Safety
/// `buffer` is the argument of a longjmp of either, which is about to read it.
unsafe fn of_jump(buffer: u64) -> Option<Frame> {
    /// No address of a program is above, nor as a rule is one that is xored and rotated below.
    const USER: u64 = 1 << 47;
    const WORDS: usize = 8;
    // SAFETY: the caller's promise.
    let words: [u64; WORDS] = unsafe { (buffer as *const [u64; WORDS]).read_unaligned() };
    let [rbx, rbp, r12, r13, r14, r15, rsp, pc] = words;
    [(0, 0), (0x11, pointer_guard())]
        .into_iter()
        .find_map(|(rotation, guard)| {
            let decode = |word: u64| word.rotate_right(rotation) ^ guard;
            let (pc, rsp) = (decode(pc), decode(rsp));
            let is_frame = pc < USER && rsp < USER && rsp % 8 == 0;
            (is_frame && return_address::is_return_address(pc))
                .then(|| Frame::new(pc, [rbx, decode(rbp), r12, r13, r14, r15, rsp]))
        })
}
