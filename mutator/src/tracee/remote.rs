//! System calls made by a stopped thread for us.

use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use patcher::Avma;

use super::sys::Change;
use super::way_back::{Code, WayBack, is_lasting};
use super::{Stopped, StoppedThread, TraceeError, sequence, sys};
use crate::faults::step;
use crate::process::{Mapping, Memory, Process, Tid};

/// Bytes of the `syscall` instruction.
const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// What of a process's code system calls can be made with, looked for before it is stopped.
#[derive(Debug)]
pub struct CallCode {
    /// A `syscall` instruction.
    instruction: Avma,
    /// What lets a thread come back from it by itself.
    way_back: Option<Code>,
    maps: Vec<Mapping>,
}

impl CallCode {
    /// Looks through the process's executable memory: the vdso has a `syscall`, libc has many.
    pub fn find(process: &Process, maps: &[Mapping], memory: &Memory) -> Result<Self, TraceeError> {
        let way_back = Code::find(maps, memory);
        let instruction = match way_back {
            Some(code) => code.call,
            None => find_syscall(maps, memory).ok_or(TraceeError::NoSyscall(process.pid))?,
        };
        Ok(Self {
            instruction,
            way_back,
            maps: maps.to_vec(),
        })
    }
}

fn find_syscall(maps: &[Mapping], memory: &Memory) -> Option<Avma> {
    const AT_ONCE: u64 = 1 << 20;
    maps.iter().filter(|m| is_lasting(m)).find_map(|m| {
        let len = (m.range.end.0 - m.range.start.0).min(AT_ONCE);
        let bytes = memory.read_vec(m.range.start, len as usize).ok()?;
        let at = memchr::memmem::find(&bytes, &SYSCALL)?;
        Some(m.range.start.plus(at as u64))
    })
}

/// Makes system calls on a thread: it is pointed at a `syscall` instruction the process already
/// has and led over it, all its signals blocked, so that nothing of the program runs. When
/// dropped, the thread has its signal mask and its registers again. Should we be killed before, it
/// gets them by itself wherever there is a [`WayBack`].
#[derive(Debug)]
pub struct Remote<'t> {
    thread: &'t mut StoppedThread,
    memory: &'t Memory,
    instruction: Avma,
    way_back: Option<WayBack>,
    mask: u64,
    begun: bool,
}

impl<'t> Remote<'t> {
    /// Prepares the thread that suits best: one that finds its way back, and best is not asleep
    /// for a time that it would then sleep from the beginning.
    pub fn new(
        code: &CallCode,
        memory: &'t Memory,
        stopped: &'t mut Stopped,
    ) -> Result<Self, TraceeError> {
        /// Threads that are tried for a way back.
        const TRIED: usize = 16;
        let pid = stopped.pid();
        let mut candidates: Vec<&mut StoppedThread> =
            stopped.threads().filter(|t| t.is_usable()).collect();
        candidates.sort_by_key(|t| t.is_in_timed_call());
        let mut found = None;
        for (index, thread) in candidates.iter_mut().enumerate().take(TRIED) {
            sequence::leave(thread, memory)?;
            let mask = mask_of(thread)?;
            let way_back = code
                .way_back
                .and_then(|c| WayBack::lay(c, &code.maps, memory, thread, mask));
            if way_back.is_some() {
                found = Some((index, mask, way_back));
                break;
            }
        }
        let (index, mask, way_back) = match found {
            Some(found) => found,
            None => {
                let first = candidates.first().ok_or(TraceeError::NoThread(pid))?;
                (0, mask_of(first)?, None)
            }
        };
        step("way back");
        Ok(Self {
            thread: candidates.swap_remove(index),
            memory,
            instruction: code.instruction,
            way_back,
            mask,
            begun: false,
        })
    }

    /// The thread.
    pub fn tid(&self) -> Tid {
        self.thread.tid()
    }

    /// The thread's FS base.
    pub fn fs_base(&self) -> Avma {
        self.thread.fs_base()
    }

    /// Makes the call; its result, or the error it returned under the name given.
    pub fn call(
        &mut self,
        name: &'static str,
        number: i64,
        arguments: [u64; 6],
    ) -> Result<u64, TraceeError> {
        let tid = self.thread.tid();
        let failed = |e| TraceeError::registers(tid, e);
        let mut registers = *self.thread.registers();
        registers.rip = self.instruction.0;
        registers.rax = number as u64;
        // No call is under way: else the kernel would try to restart one.
        registers.orig_rax = u64::MAX;
        [
            registers.rdi,
            registers.rsi,
            registers.rdx,
            registers.r10,
            registers.r8,
            registers.r9,
        ] = arguments;
        if let Some(way_back) = &self.way_back {
            registers.rsp = way_back.sp.0;
        }
        self.thread.borrow(&registers)?;
        if !self.begun {
            // Behind the registers: with them the thread gives itself the mask it had.
            sys::set_signal_mask(tid, u64::MAX).map_err(failed)?;
            self.begun = true;
        }
        // To the call's beginning, and to its end.
        to_call(tid)?;
        to_call(tid)?;
        step(name);
        let after = sys::registers(tid).map_err(failed)?;
        if after.rip != self.instruction.0 + SYSCALL.len() as u64 {
            let what = format!("{name}: stopped at {:#x}", after.rip);
            return Err(TraceeError::Unexpected(tid, what));
        }
        let result = after.rax as i64;
        if (-4095..0).contains(&result) {
            return Err(TraceeError::Call(name, Errno::from_raw(-result as i32)));
        }
        Ok(after.rax)
    }

    /// Calls the resolver of an indirect function, which takes nothing and returns an address: it
    /// returns to a `syscall` instruction, where its answer stands in the place of a number.
    /// `None` where it could do harm, or does not come to that within a moment.
    pub fn resolve(mut self, resolver: Avma) -> Result<Option<Avma>, TraceeError> {
        const PATIENCE: Duration = Duration::from_millis(100);
        let tid = self.thread.tid();
        let failed = |e| TraceeError::registers(tid, e);
        let Some(way_back) = &self.way_back else {
            return Ok(None);
        };
        let state = sys::extended_state(tid).map_err(failed)?;
        // Below the way back: what it returns to, and with that the stack is aligned for a call.
        let sp = Avma(way_back.sp.0 - 8);
        if self
            .memory
            .write(sp, &self.instruction.0.to_le_bytes())
            .is_err()
        {
            return Ok(None);
        }
        let mut registers = *self.thread.registers();
        registers.rip = resolver.0;
        registers.rsp = sp.0;
        registers.orig_rax = u64::MAX;
        self.thread.borrow(&registers)?;
        sys::set_signal_mask(tid, u64::MAX).map_err(failed)?;
        self.begun = true;
        sys::to_call(tid, 0).map_err(failed)?;
        let deadline = Instant::now() + PATIENCE;
        let answer = loop {
            match sys::change(tid, false).map_err(|e| TraceeError::Wait(tid, e))? {
                Change::Call => {
                    let mut at = sys::registers(tid).map_err(failed)?;
                    let there = at.rip == self.instruction.0 + SYSCALL.len() as u64;
                    let answer = Avma(at.orig_rax);
                    // No call is made, and the thread is at its end.
                    at.orig_rax = u64::MAX;
                    self.thread.borrow(&at)?;
                    to_call(tid)?;
                    break there.then_some(answer);
                }
                Change::None if Instant::now() < deadline => sleep(Duration::from_micros(50)),
                Change::None => {
                    sys::interrupt(tid).map_err(failed)?;
                }
                Change::Ended => return Err(TraceeError::ThreadGone(tid)),
                Change::Stopped if Instant::now() < deadline => {
                    sys::to_call(tid, 0).map_err(failed)?;
                }
                // Too late, or a fault of the resolver's, of which the program does not hear.
                Change::Stopped | Change::Signal(_) | Change::Other(_) => break None,
            }
        };
        sys::set_extended_state(tid, &state).map_err(failed)?;
        Ok(answer)
    }

    /// mmap(2).
    pub fn map(
        &mut self,
        at: Option<Avma>,
        len: u64,
        protection: i32,
        flags: i32,
        fd: i64,
    ) -> Result<Avma, TraceeError> {
        let fixed = if at.is_some() {
            libc::MAP_FIXED_NOREPLACE
        } else {
            0
        };
        let address = at.map_or(0, |a| a.0);
        let arguments = [
            address,
            len,
            protection as u64,
            (flags | fixed) as u64,
            fd as u64,
            0,
        ];
        self.call("mmap", libc::SYS_mmap, arguments).map(Avma)
    }

    /// munmap(2).
    pub fn unmap(&mut self, at: Avma, len: u64) -> Result<(), TraceeError> {
        self.call("munmap", libc::SYS_munmap, [at.0, len, 0, 0, 0, 0])
            .map(drop)
    }

    /// mprotect(2).
    pub fn protect(&mut self, at: Avma, len: u64, protection: i32) -> Result<(), TraceeError> {
        let arguments = [at.0, len, protection as u64, 0, 0, 0];
        self.call("mprotect", libc::SYS_mprotect, arguments)
            .map(drop)
    }

    /// madvise(2).
    pub fn advise(&mut self, at: Avma, len: u64, advice: i32) -> Result<(), TraceeError> {
        let arguments = [at.0, len, advice as u64, 0, 0, 0];
        self.call("madvise", libc::SYS_madvise, arguments).map(drop)
    }
}

impl Drop for Remote<'_> {
    fn drop(&mut self) {
        // Each fails only where the thread has ended. The registers last: while it has those for
        // the call, it gives itself everything.
        if self.begun {
            let _ = sys::set_signal_mask(self.thread.tid(), self.mask);
            let _ = self.thread.flush();
        }
        if let Some(way_back) = &self.way_back {
            way_back.clear(self.memory);
        }
    }
}

fn mask_of(thread: &StoppedThread) -> Result<u64, TraceeError> {
    sys::signal_mask(thread.tid()).map_err(|e| TraceeError::registers(thread.tid(), e))
}

fn to_call(tid: Tid) -> Result<(), TraceeError> {
    let go = |signal| sys::to_call(tid, signal).map_err(|e| TraceeError::registers(tid, e));
    go(0)?;
    loop {
        match sys::change(tid, true).map_err(|e| TraceeError::Wait(tid, e))? {
            Change::Call => return Ok(()),
            // SIGSTOP cannot be blocked: with it the thread stops with its group, and goes on.
            Change::Signal(signal) => go(signal)?,
            // The stop of an interrupt or of the group: the call is still to come.
            Change::Stopped => go(0)?,
            Change::None => {}
            Change::Ended => return Err(TraceeError::ThreadGone(tid)),
            Change::Other(event) => {
                return Err(TraceeError::Unexpected(tid, format!("event {event}")));
            }
        }
    }
}
