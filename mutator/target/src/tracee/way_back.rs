//! The way back: what lets a thread that makes system calls for us return to its own work by
//! itself, should we be killed meanwhile.
//!
//! The thread is pointed at a system call of the process that a return follows, and its stack pointer at a frame as a signal's delivery
//! would leave it (arch/x86/include/asm/sigframe.h `struct rt_sigframe`). That lies below its stack pointer and red
//! zone, where a signal would put it too. Whoever goes on from there makes the call, returns into the restorer,
//! and rt_sigreturn(2) gives the thread everything it had: registers, signal mask, extended state.

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

/// Room that must be left below it on its stack.
const SPARE: u64 = 16 * 1024;

/// Code of the process that the way back leads over.
#[derive(Clone, Copy, Debug)]
pub struct Code {
    /// The instruction of a system call that a return follows.
    pub call: Avma,
    /// A call of rt_sigreturn.
    pub restorer: Avma,
}

impl Code {
    /// Looks for it in the process's executable memory that stays: what has no file may be ours. First where it was found the last
    /// time: a child has what its parent has.
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

    fn search(maps: &[Mapping], memory: &Memory) -> Option<Self> {
        const AT_ONCE: usize = 1 << 20;
        let (mut call, mut restorer) = (None, None);
        // A C library has both, and is not the largest that programs have.
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
                // What straddles two pieces is passed over; there is more than one of each.
                from = from.plus(len as u64);
            }
        }
        Some(Self {
            call: call?,
            restorer: restorer?,
        })
    }

    /// True if it still is where it was found.
    pub fn is_there(&self, memory: &Memory) -> bool {
        let starts = |at, code: &[u8]| memory.read_vec(at, code.len()).is_ok_and(|now| now == code);
        let restores = [&RESTORER[..], &SHORT_RESTORER[..]];
        starts(self.call, &CALL) && restores.iter().any(|code| starts(self.restorer, code))
    }
}

/// True if the mapping is code of the process's own files, or the kernel's for it.
pub fn is_lasting(mapping: &Mapping) -> bool {
    let named = mapping.name.starts_with('/') || mapping.name == "[vdso]";
    mapping.execute && mapping.read && named
}

/// A frame below a thread's stack.
#[derive(Debug)]
pub struct WayBack {
    /// What the stack pointer is while a call is made: the frame's lowest byte.
    pub sp: Avma,
    /// What has been where the frame is, and where resolvers run, from this address on. Below a stack pointer
    /// there is nothing of that stack, but where a program has put small stacks into an array of its own,
    /// another one.
    before: (Avma, Vec<u8>),
}

impl WayBack {
    /// Lays the frame down; `None` where the thread's stack may have no room for it, or where it
    /// could not return over it.
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

    /// Takes the frame away: nobody is to take it for a signal's any more.
    pub fn clear(&self, text: Text<'_>) {
        // Where it cannot be written the process has ended.
        let _ = text.write(self.sp, &[0; 8]);
        let _ = text.write(self.before.0, &self.before.1);
    }
}

/// Where on its way back a thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// About to make the call.
    Before(Avma),
    /// Past it.
    After,
}

/// Leads a thread all the way back that a command which has been killed since had pointed at a call. A call that it
/// has not made yet is not made. False for any other thread.
pub fn lead_back(memory: &Memory, thread: &mut StoppedThread) -> Result<bool, TraceeError> {
    let Some(place) = place(memory, thread) else {
        return Ok(false);
    };
    if let Place::Before(restorer) = place {
        thread.go_to(restorer, thread.sp().plus(size_of::<u64>() as u64))?;
    }
    // To the beginning of rt_sigreturn, and to its end.
    for _ in 0..2 {
        to_call(thread.tid())?;
    }
    thread.renew()?;
    Ok(true)
}

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

/// A thread is on its way back where its code is at one of the four places that the way leads over, and the
/// frame is where it is at that place.
fn place(memory: &Memory, thread: &StoppedThread) -> Option<Place> {
    /// Bytes of the instruction that the two restorers end with.
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
            Some(Place::Before(restorer))
        } else {
            made.then_some(Place::After)
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
    (restores(pc).is_some() || within).then_some(Place::After)
}

/// True if `lowest` and everything from there to the stack pointer is stack of this thread's own
/// and nobody else's: the main thread's, or one at whose upper end the C library has put the
/// thread's control block, which points at itself (psABI 3.4.6). A coroutine's stack may end anywhere: Go's
/// lie in one mapping, and what the thread pointer is for there as well.
fn is_own_stack(memory: &Memory, stack: &Mapping, thread: &StoppedThread, lowest: u64) -> bool {
    let roomy = stack.range.start.0 <= lowest && stack.write;
    if stack.name == "[stack]" {
        // It grows down as it is written to.
        return true;
    }
    let block = thread.thread_pointer();
    let is_block = || memory.read_word(block).is_ok_and(|word| word == block.0);
    roomy && stack.contains(block) && thread.sp() < block && is_block()
}

/// True if returns of the thread are checked against a shadow stack, which would have to hold the
/// restorer's address as well.
fn has_shadow_stack(thread: &StoppedThread) -> bool {
    let path = format!("/proc/{}/status", thread.tid());
    let status = read_text(path).unwrap_or_default();
    shadow::is_in(&status)
}
