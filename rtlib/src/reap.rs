//! Activations that end without a return: what an exception, a jump or the end of a thread leaves.
//!
//! Functions that such an end comes through carry a reaper probe. It tells which frame of which stack
//! goes on; all that is deeper there has been left.

use core::arch::asm;
use core::sync::atomic::Ordering;

use abi::image::{FUNCTION_END, FUNCTION_JUMP};
use abi::rule::Rule;
use abi::segment::ROOT_COMPLETE;

use crate::cfi::{COLUMNS, RBP, RBX, RSP, Registers};
use crate::entry::{ATTEMPTS, Way};
use crate::exit::{close_handlers, close_left_behind, close_overwritten, close_within};
use crate::foreign::Window;
use crate::state::{RULES, ipath_parameters};
use crate::thread::Thread;
use crate::walk::{self, Obstacle};
use crate::{return_address, stacks};

/// Bytes below the slot where the stub has stored rdi.
pub const FIRST_ARGUMENT: u64 = 48;

/// Closes, as unwound, what a reaper with these flags tells has been left; `None` where that is not to
/// be found out. Runs on the private stack, with signals blocked.
///
/// # Safety
/// The thread is the caller's, marked busy, its callee-saved registers stored; `slot` is the address of
/// the return address of the reaper's call, and what the stub has pushed is below it.
pub(crate) unsafe fn reap(thread: *mut Thread, flags: u32, slot: u64) -> Option<()> {
    // SAFETY: the caller's promise.
    unsafe {
        let is_jump = flags & FUNCTION_JUMP != 0;
        let frame = if is_jump {
            Frame::of_jump(*((slot - FIRST_ARGUMENT) as *const u64))?
        } else {
            Frame::of_caller(thread, slot)
        };
        let sp = frame.registers[RSP];
        let Stack {
            id: stack,
            is_whole,
        } = stack_of(thread, &frame)?;
        stacks::lock_own(thread);
        close_handlers(thread, stack, sp);
        stacks::unlock(thread);
        if is_whole {
            stacks::arrive(thread, stack);
        }
        stacks::lock_own(thread);
        // The return address of a call that the frame makes stands right below its stack pointer.
        let deepest = sp - 8;
        close_left_behind(thread, stack, deepest);
        if flags & FUNCTION_END != 0 {
            close_within(thread, stack);
        }
        if ipath_parameters.depth.load(Ordering::Relaxed) != 0 {
            // What was not walked to its root is known by the end of its stack's mapping.
            close_left_behind(thread, (*thread).stack.high, deepest);
        }
        if !is_jump {
            close_overwritten(thread, stack);
        }
        stacks::unlock(thread);
        Some(())
    }
}

/// Which stack a call is on whose return address is at `slot`, as [`walk::Walk::stack`] has it; `None`
/// where that is only known by the end of its mapping, which it may share with others.
///
/// # Safety
/// The thread is the caller's, marked busy, its callee-saved registers stored.
pub(crate) unsafe fn stack_of_call(thread: *mut Thread, slot: u64) -> Option<u64> {
    // SAFETY: the caller's promise.
    let stack = unsafe { stack_of(thread, &Frame::of_caller(thread, slot)) };
    stack.filter(|stack| stack.is_whole).map(|stack| stack.id)
}

/// A stack as [`walk::Walk::stack`] has it.
struct Stack {
    id: u64,
    /// Whether its root was reached; else it is the end of its mapping.
    is_whole: bool,
}

/// A frame that goes on.
struct Frame {
    /// Where.
    pc: u64,
    /// The stack pointer and callee-saved registers there.
    registers: Registers,
}

impl Frame {
    /// The one that has called the reaper.
    ///
    /// # Safety
    /// As for [`reap`].
    unsafe fn of_caller(thread: *mut Thread, slot: u64) -> Self {
        // SAFETY: the caller's promise.
        let (pc, saved) = unsafe { ((slot as *const u64).read(), &(*thread).saved) };
        let [r12, r13, r14, r15] = saved.r12_15;
        let words = [saved.rbx, saved.rbp, r12, r13, r14, r15, slot + 8];
        Self::new(pc, words)
    }

    /// The one that a `jmp_buf` leads to, of musl or of glibc, which keeps rbp, rsp and pc xored with
    /// the word at %fs:0x30 and rotated (musl's src/setjmp/x86_64, glibc's sysdeps/x86_64/__longjmp.S).
    /// `None` where it can be neither.
    ///
    /// # Safety
    /// `buffer` is the argument of a longjmp of either, which is about to read it.
    unsafe fn of_jump(buffer: u64) -> Option<Self> {
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
                    .then(|| Self::new(pc, [rbx, decode(rbp), r12, r13, r14, r15, rsp]))
            })
    }

    fn new(pc: u64, [rbx, rbp, r12, r13, r14, r15, rsp]: [u64; 7]) -> Self {
        let mut registers: Registers = [0; COLUMNS];
        registers[RBX] = rbx;
        registers[RBP] = rbp;
        registers[RSP] = rsp;
        registers[12] = r12;
        registers[13] = r13;
        registers[14] = r14;
        registers[15] = r15;
        Self { pc, registers }
    }
}

/// What glibc xors pointers with that it keeps (`tcbhead_t`, sysdeps/x86_64/nptl/tls.h).
fn pointer_guard() -> u64 {
    let guard: u64;
    // SAFETY: reads the thread's control block.
    unsafe { asm!("mov {}, fs:0x30", out(reg) guard, options(readonly, nostack, preserves_flags)) };
    guard
}

/// Which stack a frame is on, as [`walk::Walk::stack`] has it for what is called from there.
///
/// # Safety
/// As for [`reap`].
unsafe fn stack_of(thread: *mut Thread, frame: &Frame) -> Option<Stack> {
    let (sp, rbp) = (frame.registers[RSP], frame.registers[RBP]);
    let mut way = Way::default();
    // SAFETY: the caller's promise.
    unsafe {
        for _ in 0..ATTEMPTS {
            let result = if way.use_full {
                walk::full_from(thread, 0, frame.registers, frame.pc).map(|walk| Stack {
                    id: walk.stack,
                    is_whole: walk.root == ROOT_COMPLETE,
                })
            } else {
                stack_by_rules(thread, frame.pc, sp, rbp)
            };
            match result {
                Ok(stack) => return Some(stack),
                Err(obstacle) => way.clear(thread, sp, obstacle)?,
            }
        }
    }
    None
}

/// The same by the rules that are cached. `sp` is its stack pointer,
/// `pc` where it goes on.
///
/// # Safety
/// `thread` is the calling thread's; the frame is one that goes on.
unsafe fn stack_by_rules(
    thread: *mut Thread,
    mut pc: u64,
    mut sp: u64,
    mut rbp: u64,
) -> Result<Stack, Obstacle> {
    let stack = |id, is_whole| Ok(Stack { id, is_whole });
    // SAFETY: the thread is ours. Stack words are read between the stack pointer and the end of
    // the mapping it lies in.
    unsafe {
        let high = (*thread).stack.high;
        let window = Window::new();
        if !(*thread).stack.holds(sp) {
            return Err(Obstacle::Stack);
        }
        loop {
            let (word, _) = RULES.get(pc);
            if word == 0 {
                return Err(Obstacle::Rule(pc));
            }
            let (cfa, rbp_words) = match Rule::decode(word) {
                Rule::FromRsp {
                    cfa_offset,
                    rbp_words,
                } => (sp.wrapping_add(cfa_offset as i64 as u64), rbp_words),
                Rule::FromRbp {
                    cfa_offset,
                    rbp_words,
                } => (rbp.wrapping_add(cfa_offset as i64 as u64), rbp_words),
                Rule::Root => return stack(sp, true),
                Rule::Realigned { .. } | Rule::Full => return Err(Obstacle::Full),
                Rule::Stop => return stack(high, false),
            };
            let saved_rbp = cfa.wrapping_add((i64::from(rbp_words) * 8) as u64);
            if cfa < sp.wrapping_add(8) || cfa > high || cfa % 8 != 0 || saved_rbp < sp {
                return stack(high, false);
            }
            let Some(caller) = window.word(cfa - 8, high) else {
                return stack(high, false);
            };
            pc = caller;
            if rbp_words != 0 {
                let Some(saved) = window.word(saved_rbp, high) else {
                    return stack(high, false);
                };
                rbp = saved;
            }
            sp = cfa;
        }
    }
}
