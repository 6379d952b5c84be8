//! The way back: it lets a thread that makes system calls for ipath return to its own work without
//! help, if ipath is killed meanwhile.
//!
//! The thread's program counter is set to a system call instruction that is followed by a return.
//! Its stack pointer is set to a frame as a signal's delivery would leave it
//! (arch/x86/include/asm/sigframe.h `struct rt_sigframe`). The frame is below the thread's stack
//! pointer and red zone, where a signal frame would be too.
//!
//! A thread that continues from there makes the call and returns into the restorer. rt_sigreturn(2)
//! then restores its registers, signal mask and extended state.

use std::sync::{Mutex, PoisonError};

use abi::arch::signal_frame::{LEN, RESTORER, SHORT_RESTORER};
use abi::arch::stack::RED_ZONE;
use patcher::Avma;

use super::sys::Change;
use super::{StoppedThread, TraceeError, sys, wait};
use crate::arch::code::{SYSTEM_CALL, SYSTEM_CALL_AND_RETURN as CALL};
use crate::arch::signal_frame::{NO_STACK, NO_STACK_AT, extended, frame};
use crate::process::shadow;
use crate::process::{Mapping, Memory, Pid, Text, Tid, read_text};

/// The room required below the frame on the stack, in bytes.
const SPARE: u64 = 16 * 1024;

/// The process's code that the way back uses.
#[derive(Clone, Copy, Debug)]
pub struct Code {
    /// A system call instruction followed by a return.
    pub call: Avma,
    /// Code that calls rt_sigreturn.
    pub restorer: Avma,
}

impl Code {
    /// Finds code for the way back in executable memory that stays mapped. `None` if there is none.
    /// Memory without a file may be ipath's own. The previous result, the only one kept, is tried
    /// first: a child has the same code as its parent.
    pub fn find(maps: &[Mapping], memory: &Memory) -> Option<Self> {
        static LAST: Mutex<Option<Code>> = Mutex::new(None);
        let lasts = |at: Avma| maps.iter().any(|m| m.contains(at) && is_lasting(m));
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        let known = last.filter(|code| lasts(code.call) && lasts(code.restorer));
        if let Some(code) = known.filter(|code| code.is_there(memory)) {
            return Some(code);
        }
        *last = Self::search(maps, memory);
        *last
    }

    /// As [`Self::find`], without the previous result.
    fn search(maps: &[Mapping], memory: &Memory) -> Option<Self> {
        const AT_ONCE: usize = 1 << 20;
        let (mut call, mut restorer) = (None, None);
        // A C library has both, and is not a program's largest file.
        let mut lasting: Vec<&Mapping> = maps.iter().filter(|m| is_lasting(m)).collect();
        lasting.sort_by_key(|m| m.range.end.0 - m.range.start.0);
        for mapping in lasting {
            let (mut from, end) = (mapping.range.start, mapping.range.end);
            while from < end && (call.is_none() || restorer.is_none()) {
                let len = (end.0 - from.0).min(AT_ONCE as u64) as usize;
                let Ok(bytes) = memory.read_vec(from, len) else {
                    break;
                };
                let find = |code: &[u8]| {
                    let at = memchr::memmem::find(&bytes, code);
                    at.map(|at| from.plus(at as u64))
                };
                call = call.or_else(|| find(&CALL));
                restorer = restorer.or_else(|| find(&RESTORER));
                restorer = restorer.or_else(|| find(&SHORT_RESTORER));
                // Code that straddles two pieces is missed. Each kind occurs more than once.
                from = from.plus(len as u64);
            }
        }
        Some(Self {
            call: call?,
            restorer: restorer?,
        })
    }

    /// True if the code for the way back is still in memory.
    pub fn is_there(&self, memory: &Memory) -> bool {
        let starts = |at, code: &[u8]| memory.read_vec(at, code.len()).is_ok_and(|now| now == code);
        let restores = [&RESTORER[..], &SHORT_RESTORER[..]];
        starts(self.call, &CALL) && restores.iter().any(|code| starts(self.restorer, code))
    }
}

/// True if the mapping is code of the process's own files or the vdso.
pub fn is_lasting(mapping: &Mapping) -> bool {
    let named = mapping.name.starts_with('/') || mapping.name == "[vdso]";
    mapping.execute && mapping.read && named
}

/// A frame below a thread's stack.
#[derive(Debug)]
pub struct WayBack {
    /// The stack pointer while a call is made: the frame's lowest byte.
    pub sp: Avma,
    /// The previous contents of the frame and of the stack that resolvers use, from this address
    /// on.
    ///
    /// Below a stack pointer there is usually nothing of value. If a program puts small stacks into
    /// one array, another stack may be there.
    before: (Avma, Vec<u8>),
}

impl WayBack {
    /// Writes the frame, from which the thread returns to its present work with the signal mask
    /// `mask` (bit `n - 1` for signal `n`). `None` if the thread's stack may lack room for it, or
    /// if the thread could not return through it.
    pub fn lay(
        code: Code,
        maps: &[Mapping],
        text: Text<'_>,
        thread: &StoppedThread,
        mask: u64,
    ) -> Option<Self> {
        let memory = text.memory();
        if has_shadow_stack(thread) {
            return None;
        }
        let state = extended(&sys::extended_state(thread.tid()).ok()?)?;
        let below = thread.sp().0 - RED_ZONE;
        let at_state = (below - state.len() as u64) & !63;
        let sp = (at_state - LEN) & !15;
        let stack = maps.iter().find(|m| m.contains(thread.sp()))?;
        if !is_own_stack(memory, stack, thread, sp - SPARE) {
            return None;
        }
        let from = Avma(sp - SPARE).max(stack.range.start);
        let before = (
            from,
            memory
                .read_vec(from, below.saturating_sub(from.0) as usize)
                .ok()?,
        );
        let mut bytes = frame(code.restorer, &thread.restarting(), mask, at_state);
        bytes.resize((at_state - sp) as usize, 0);
        bytes.extend(state);
        text.write(Avma(sp), &bytes).ok()?;
        let sp = Avma(sp);
        Some(Self { sp, before })
    }

    /// Removes the frame, so that it is no longer mistaken for a signal's, and restores the
    /// previous contents.
    pub fn clear(&self, text: Text<'_>) {
        // A failed write means that the process has ended.
        let _ = text.write(self.sp, &[0; 8]);
        let _ = text.write(self.before.0, &self.before.1);
    }
}

/// A thread's position on its way back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// About to make the call. With the address of the restorer.
    Before(Avma),
    /// After the call.
    After,
}

/// Completes the way back of a thread that a killed command had redirected to a call. A call that
/// it has not made yet is skipped. Returns false for any other thread.
///
/// # Errors
/// The thread cannot be resumed, or its registers cannot be set.
pub fn lead_back(memory: &Memory, thread: &mut StoppedThread) -> Result<bool, TraceeError> {
    let Some(place) = place(memory, thread) else {
        return Ok(false);
    };
    if let Progress::Before(restorer) = place {
        thread.go_to(restorer, thread.sp().plus(size_of::<u64>() as u64))?;
    }
    // To the entry of rt_sigreturn, then to its exit.
    for _ in 0..2 {
        to_call(thread.tid())?;
    }
    thread.renew()?;
    Ok(true)
}

/// Resumes a thread until the entry or the exit of a system call. Delivers signals meanwhile.
fn to_call(tid: Tid) -> Result<(), TraceeError> {
    let go = |signal| sys::to_call(tid, signal).map_err(|e| TraceeError::registers(tid, e));
    go(0)?;
    loop {
        match wait::next(tid)? {
            Change::Call => return Ok(()),
            Change::Signal(signal) => go(signal)?,
            Change::Stopped(_) => go(0)?,
            Change::Ended => return Err(TraceeError::ThreadGone(tid)),
            Change::None => return Err(TraceeError::Stuck(Pid(tid.0), tid, false)),
            Change::Replaced => return Err(TraceeError::OtherProgram(Pid(tid.0))),
            Change::Other(event) => {
                return Err(TraceeError::Unexpected(tid, format!("event {event}")));
            }
        }
    }
}

/// The position of a thread on its way back. `None` if it is not on the way. It is on the way if
/// its program counter is at one of the four places involved, and the frame is where that place
/// requires.
fn place(memory: &Memory, thread: &StoppedThread) -> Option<Progress> {
    /// The length in bytes of the last instruction of both restorers.
    const LAST: u64 = SYSTEM_CALL.len() as u64;
    const WORD: u64 = size_of::<u64>() as u64;
    let starts =
        |at: Avma, code: &[u8]| memory.read_vec(at, code.len()).is_ok_and(|now| now == code);
    let restores = |at: Avma| {
        let codes = [&RESTORER[..], &SHORT_RESTORER[..]];
        codes.into_iter().find(|code| starts(at, code))
    };
    let registers = thread.restarting();
    let (pc, sp) = (Avma(registers.pc()), thread.sp());
    let frame_at = |at: u64| {
        memory
            .read_word(Avma(at + NO_STACK_AT))
            .is_ok_and(|w| w == NO_STACK)
    };
    if frame_at(sp.0) {
        let restorer = Avma(memory.read_word(sp).ok()?);
        restores(restorer)?;
        let made = starts(Avma(pc.0.checked_sub(LAST)?), &CALL);
        return if starts(pc, &CALL) {
            Some(Progress::Before(restorer))
        } else {
            made.then_some(Progress::After)
        };
    }
    if sp.0 < WORD || !frame_at(sp.0 - WORD) {
        return None;
    }
    let lens = [RESTORER.len(), SHORT_RESTORER.len()].map(|len| len as u64 - LAST);
    let within = lens.into_iter().any(|len| {
        let start = pc.0.checked_sub(len).map(Avma);
        start
            .and_then(restores)
            .is_some_and(|code| code.len() as u64 == len + LAST)
    });
    (restores(pc).is_some() || within).then_some(Progress::After)
}

/// True if `lowest` and everything up to the stack pointer is stack of this thread alone.
///
/// True for the main thread's stack, and for a stack with room down to `lowest` whose upper end
/// holds the C library's control block, which points to itself (psABI 3.4.6). A coroutine's stack
/// may end anywhere: Go's stacks share a mapping, which also contains the target of the thread
/// pointer.
fn is_own_stack(memory: &Memory, stack: &Mapping, thread: &StoppedThread, lowest: u64) -> bool {
    let roomy = stack.range.start.0 <= lowest && stack.write;
    if stack.name == "[stack]" {
        // It grows down when written to.
        return true;
    }
    let block = thread.thread_pointer();
    let is_block = || memory.read_word(block).is_ok_and(|word| word == block.0);
    roomy && stack.contains(block) && thread.sp() < block && is_block()
}

/// True if a shadow stack checks the thread's returns. It would need to contain the restorer's
/// address too.
fn has_shadow_stack(thread: &StoppedThread) -> bool {
    let path = format!("/proc/{}/status", thread.tid());
    let status = read_text(path).unwrap_or_default();
    shadow::is_in(&status)
}
