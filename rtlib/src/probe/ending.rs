//! Activations that end without a return: an exception, a jump or the end of a thread has left
//! them.
//!
//! Functions involved in such an end have a reaper probe. It shows which frame of which stack
//! continues. All deeper frames of that stack have been left.

use abi::probe::Kind;
use unwind::Regs;

use crate::arch::jump_buffer::{self, Target};
use crate::arch::stored::FIRST_ARGUMENT;
use crate::calls::activation::lent;
use crate::calls::{closing, coroutines, list};
use crate::code::return_address;
use crate::thread::Thread;
use crate::walk::Frame;

/// Closes, as unwound, the activations that a probe of this kind has shown to be left. `None` if
/// they cannot be determined. Runs on the private stack, with signals blocked.
///
/// # Safety
/// The thread belongs to the caller, is marked busy, and has its callee-saved registers stored.
/// `slot` is the address of the return address of the reaper's call. The words pushed by the stub
/// are below it.
pub unsafe fn reap(thread: *mut Thread, kind: Kind, slot: u64) -> Option<()> {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let is_jump = kind == Kind::Jump;
        let frame = if is_jump {
            of_jump(*((slot - FIRST_ARGUMENT) as *const u64))?
        } else {
            Frame::of_caller(slot, &(*thread).saved)
        };
        let sp = frame.registers.sp();
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
        // The return address of a call made by the frame is right below its stack pointer.
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

/// The frame to which a `jmp_buf` of musl or glibc leads. `None` if it can be neither.
///
/// # Safety
/// `buffer` is the argument of longjmp, which is about to read it.
unsafe fn of_jump(buffer: u64) -> Option<Frame> {
    /// The end of user space. Usually a mangled (xored and rotated) address is above it.
    const USER: u64 = 1 << 47;
    // SAFETY: guaranteed by the caller.
    let targets = unsafe { jump_buffer::targets(buffer) };
    let is_frame = |target: &Target| {
        let (pc, sp) = (target.pc, target.sp);
        pc < USER && sp < USER && sp % 8 == 0 && return_address::is_return_address(pc)
    };
    let target = targets.into_iter().find(is_frame)?;
    Some(Frame {
        pc: target.pc,
        registers: Regs::new(target.sp, &target.saved),
    })
}
