//! System calls that a stopped thread makes on ipath's behalf.

use std::time::{Duration, Instant};

use nix::errno::Errno;
use patcher::Avma;

use super::calls::FAULTS;
use super::sys::Change;
use super::way_back::{Code, WayBack, is_lasting};
use super::{Stopped, StoppedThread, TraceeError, sequence, sys, wait};
use crate::arch::code::SYSTEM_CALL;
use crate::fault_injection::step;
use crate::process::{Mapping, Memory, Pid, Process, Text, Tid};

/// The signal mask (bit `n - 1` for signal `n`) of a thread while it makes calls for ipath: all
/// signals except faults.
fn blocked() -> u64 {
    FAULTS
        .iter()
        .fold(u64::MAX, |mask, signal| mask & !(1 << (signal - 1)))
}

/// The code in a process that system calls can be made with. Found before the process is stopped.
#[derive(Debug)]
pub struct CallCode {
    /// The system call instruction.
    instruction: Avma,
    /// The code of a way back, by which a thread returns from the call on its own.
    way_back: Option<Code>,
    pid: Pid,
    /// The process's mappings when the code was found.
    maps: Vec<Mapping>,
}

impl CallCode {
    /// Finds a system call instruction in the process's executable memory, preferably one with a
    /// way back. The vdso contains a system call, and libc contains many.
    ///
    /// # Errors
    /// [`TraceeError::NoSyscall`] if there is none.
    pub fn find(process: &Process, maps: &[Mapping], memory: &Memory) -> Result<Self, TraceeError> {
        let way_back = Code::find(maps, memory);
        let instruction = match way_back {
            Some(code) => code.call,
            None => find_syscall(maps, memory).ok_or(TraceeError::NoSyscall(process.pid))?,
        };
        Ok(Self {
            instruction,
            way_back,
            pid: process.pid,
            maps: maps.to_vec(),
        })
    }

    /// Checks, while the process is stopped, that the system call instruction that was found is
    /// still in memory. A library may have been unmapped in the meantime.
    ///
    /// # Errors
    /// [`TraceeError::NoSyscall`] if it is gone.
    fn check(&self, memory: &Memory) -> Result<(), TraceeError> {
        let is_there = match self.way_back {
            Some(code) => code.is_there(memory),
            None => {
                let now = memory.read_vec(self.instruction, SYSTEM_CALL.len());
                now.is_ok_and(|now| now == SYSTEM_CALL)
            }
        };
        if is_there {
            Ok(())
        } else {
            Err(TraceeError::NoSyscall(self.pid))
        }
    }
}

/// A system call instruction in code that stays mapped. `None` if there is none.
fn find_syscall(maps: &[Mapping], memory: &Memory) -> Option<Avma> {
    const AT_ONCE: u64 = 1 << 20;
    maps.iter().filter(|m| is_lasting(m)).find_map(|m| {
        let len = (m.range.end.0 - m.range.start.0).min(AT_ONCE);
        let bytes = memory.read_vec(m.range.start, len as usize).ok()?;
        let at = memchr::memmem::find(&bytes, &SYSTEM_CALL)?;
        Some(m.range.start.plus(at as u64))
    })
}

/// Makes system calls on a thread of the target.
///
/// The thread's program counter is set to a system call instruction that the process already has.
/// It executes that instruction with all its signals blocked, so no code of the program runs.
/// Dropping this value restores the thread's signal mask and registers. If ipath is killed first,
/// the thread restores them itself where a way back exists (`way_back.rs`).
#[derive(Debug)]
pub struct Remote<'t> {
    thread: &'t mut StoppedThread,
    text: Text<'t>,
    instruction: Avma,
    way_back: Option<WayBack>,
    /// The thread's own signal mask.
    mask: u64,
    /// True once the thread has the mask for calls.
    begun: bool,
    /// True if the thread's seccomp filters are suspended.
    unfiltered: bool,
}

impl<'t> Remote<'t> {
    /// Prepares the most suitable thread. Threads with a way back come first. Threads in a timed
    /// sleep are avoided, since that sleep would start over.
    ///
    /// # Errors
    /// The system call instruction is gone, or every thread is about to handle a signal.
    pub fn new(code: &CallCode, stopped: &'t mut Stopped) -> Result<Self, TraceeError> {
        /// The most threads tried for a way back.
        const TRIED: usize = 16;
        let pid = stopped.pid();
        let (threads, text) = stopped.parts();
        let memory = text.memory();
        code.check(memory)?;
        let mut candidates: Vec<&mut StoppedThread> = threads.filter(|t| t.is_usable()).collect();
        candidates.sort_by_key(|t| t.is_in_timed_call());
        let mut found = None;
        let free = |thread: &&mut &mut StoppedThread| thread.is_free();
        let candidate = candidates.iter_mut().find(free);
        let first = candidate.ok_or(TraceeError::NoThread(pid))?.tid();
        for (index, thread) in candidates.iter_mut().enumerate().take(TRIED) {
            if !thread.is_free() {
                continue;
            }
            sequence::leave(thread, memory)?;
            let mask = mask_of(thread)?;
            let way_back = code
                .way_back
                .and_then(|c| WayBack::lay(c, &code.maps, text, thread, mask));
            if way_back.is_some() {
                found = Some((index, mask, way_back));
                break;
            }
        }
        let (index, mask, way_back) = match found {
            Some(found) => found,
            None => {
                let index = candidates.iter().position(|t| t.tid() == first);
                let index = index.unwrap_or_default();
                (index, mask_of(candidates[index])?, None)
            }
        };
        step("way back");
        let thread = candidates.swap_remove(index);
        // Without the permission the filters remain active, and their results are reported.
        let unfiltered = sys::suspend_seccomp(thread.tid()).is_ok();
        Ok(Self {
            thread,
            text,
            instruction: code.instruction,
            way_back,
            mask,
            begun: false,
            unfiltered,
        })
    }

    /// The right to write to the process, which stays stopped except for this thread's calls.
    pub fn text(&self) -> Text<'t> {
        self.text
    }

    /// The id of the thread that makes the calls.
    pub fn tid(&self) -> Tid {
        self.thread.tid()
    }

    /// The thread's thread pointer.
    pub fn thread_pointer(&self) -> Avma {
        self.thread.thread_pointer()
    }

    /// Makes a system call and returns its result. `name` names the call in errors.
    ///
    /// # Errors
    /// The call fails, or the thread cannot make it.
    pub fn call(
        &mut self,
        name: &'static str,
        number: i64,
        arguments: [u64; 6],
    ) -> Result<u64, TraceeError> {
        let tid = self.thread.tid();
        let failed = |e| TraceeError::registers(tid, e);
        let mut registers = *self.thread.registers();
        registers.set_pc(self.instruction.0);
        registers.prepare_call(number, arguments);
        if let Some(way_back) = &self.way_back {
            registers.set_sp(way_back.sp.0);
        }
        self.thread.borrow(&registers)?;
        if !self.begun {
            // After the registers: they make the thread restore its previous mask if ipath is
            // killed.
            sys::set_signal_mask(tid, blocked()).map_err(failed)?;
            self.begun = true;
        }
        // To the entry of the call, then to its exit.
        self.go_to_call(name)?;
        self.go_to_call(name)?;
        step(name);
        let after = sys::registers(tid).map_err(failed)?;
        if after.pc() != self.instruction.0 + SYSTEM_CALL.len() as u64 {
            let what = format!("{name}: stopped at {:#x}", after.pc());
            return Err(TraceeError::Unexpected(tid, what));
        }
        /// The code of a SIGSYS from a filter (SECCOMP_RET_TRAP).
        const SYS_SECCOMP: i32 = 1;
        let trapped = || sys::queued(tid).map(|q| q.contains(&(libc::SIGSYS, SYS_SECCOMP)));
        if !self.unfiltered && after.would_call(number) && trapped().map_err(failed)? {
            self.swallow_trap(name)?;
            return Err(TraceeError::Filtered(name));
        }
        let result = after.result();
        if (-4095..0).contains(&result) {
            return Err(TraceeError::Call(name, Errno::from_raw(-result as i32)));
        }
        Ok(result as u64)
    }

    /// Calls the resolver of an indirect function, which takes no argument and returns an address.
    /// Its return address is a system call instruction, at which the register of the call number
    /// holds the result.
    ///
    /// `None` if there is no way back, if the resolver does not return within 100 ms, or if a
    /// signal interrupts it.
    pub fn resolve(mut self, resolver: Avma) -> Result<Option<Avma>, TraceeError> {
        const PATIENCE: Duration = Duration::from_millis(100);
        let tid = self.thread.tid();
        let failed = |e| TraceeError::registers(tid, e);
        let Some(way_back) = &self.way_back else {
            return Ok(None);
        };
        let state = sys::extended_state(tid).map_err(failed)?;
        // The return address goes below the way back, which also aligns the stack for a call.
        let sp = Avma(way_back.sp.0 - 8);
        let returns_to = self.instruction.0.to_le_bytes();
        if self.text.write(sp, &returns_to).is_err() {
            return Ok(None);
        }
        let mut registers = *self.thread.registers();
        registers.set_pc(resolver.0);
        registers.set_sp(sp.0);
        registers.leave_call();
        self.thread.borrow(&registers)?;
        sys::set_signal_mask(tid, blocked()).map_err(failed)?;
        self.begun = true;
        sys::to_call(tid, 0).map_err(failed)?;
        let deadline = Instant::now() + PATIENCE;
        let answer = loop {
            match wait::change(tid, deadline)? {
                Change::Call => {
                    let mut at = sys::registers(tid).map_err(failed)?;
                    let there = at.pc() == self.instruction.0 + SYSTEM_CALL.len() as u64;
                    let answer = Avma(at.system_call() as u64);
                    // Skip the call. The thread is moved to its exit.
                    at.leave_call();
                    self.thread.borrow(&at)?;
                    self.go_to_call("ifunc")?;
                    break there.then_some(answer);
                }
                Change::None => {
                    sys::interrupt(tid).map_err(failed)?;
                    match wait::next(tid)? {
                        Change::Signal(signal) => self.hold_up(signal)?,
                        Change::Ended => return Err(TraceeError::ThreadGone(tid)),
                        Change::None => return Err(self.stuck()),
                        Change::Stopped(_) | Change::Call | Change::Replaced | Change::Other(_) => {
                        }
                    }
                    break None;
                }
                Change::Ended => return Err(TraceeError::ThreadGone(tid)),
                Change::Stopped(_) => sys::to_call(tid, 0).map_err(failed)?,
                Change::Signal(signal) => {
                    // A fault in the resolver is hidden from the program. Any other signal is
                    // delivered to it later.
                    self.hold_up(signal)?;
                    break None;
                }
                Change::Replaced | Change::Other(_) => break None,
            }
        };
        sys::set_extended_state(tid, &state).map_err(failed)?;
        Ok(answer)
    }

    /// Resumes the thread until the entry or the exit of a system call.
    fn go_to_call(&mut self, name: &'static str) -> Result<(), TraceeError> {
        const MOST_FAULTS: usize = 2;
        let tid = self.thread.tid();
        let go = |signal| sys::to_call(tid, signal).map_err(|e| TraceeError::registers(tid, e));
        go(0)?;
        let mut faults = 0;
        loop {
            match wait::next(tid)? {
                Change::Call => return Ok(()),
                Change::Signal(signal) if FAULTS.contains(&signal) => {
                    // The first may be a pending fault of the program's own. The next one is caused
                    // by this call.
                    self.hold_up(signal)?;
                    faults += 1;
                    if faults > MOST_FAULTS {
                        let what = format!("{name}: signal {signal} instead");
                        return Err(TraceeError::Unexpected(tid, what));
                    }
                    go(0)?;
                }
                // SIGSTOP cannot be blocked. When delivered, it stops the thread with its group,
                // and the thread continues.
                Change::Signal(libc::SIGSTOP) => go(libc::SIGSTOP)?,
                Change::Signal(signal) => {
                    self.hold_up(signal)?;
                    go(0)?;
                }
                // The stop of an interrupt or of the group. The call is still to come.
                Change::Stopped(_) => go(0)?,
                Change::Ended => return Err(TraceeError::ThreadGone(tid)),
                Change::Replaced => return Err(TraceeError::OtherProgram(Pid(tid.0))),
                Change::Other(event) => {
                    return Err(TraceeError::Unexpected(tid, format!("event {event}")));
                }
                Change::None => {
                    // The thread is blocked in the call, for example waiting for a seccomp
                    // supervisor. After an interrupt its registers can be restored.
                    sys::interrupt(tid).map_err(|e| TraceeError::registers(tid, e))?;
                    return match wait::next(tid)? {
                        // It has reached the exit after all.
                        Change::Call => Ok(()),
                        Change::Ended => Err(TraceeError::ThreadGone(tid)),
                        Change::None => Err(self.stuck()),
                        Change::Signal(signal) => {
                            self.hold_up(signal)?;
                            Err(TraceeError::Call(name, Errno::EINTR))
                        }
                        Change::Stopped(_) | Change::Replaced | Change::Other(_) => {
                            Err(TraceeError::Call(name, Errno::EINTR))
                        }
                    };
                }
            }
        }
    }

    fn stuck(&self) -> TraceeError {
        let tid = self.thread.tid();
        TraceeError::Stuck(crate::process::Pid(tid.0), tid, false)
    }

    /// Keeps a signal for later delivery, unless the thread's work for ipath raised it.
    fn hold_up(&mut self, signal: i32) -> Result<(), TraceeError> {
        let tid = self.thread.tid();
        let failed = |e| TraceeError::registers(tid, e);
        let info = sys::delivered(tid).map_err(failed)?;
        // Positive if the kernel raised it for an action of the thread (sigaction(2)).
        if !FAULTS.contains(&signal) || info.si_code <= 0 {
            self.thread.keep(info);
        }
        Ok(())
    }

    /// Runs the thread until the pending SIGSYS is about to be delivered, and suppresses it before
    /// delivery.
    fn swallow_trap(&mut self, name: &'static str) -> Result<(), TraceeError> {
        let tid = self.thread.tid();
        loop {
            sys::cont(tid, 0).map_err(|e| TraceeError::registers(tid, e))?;
            match wait::next(tid)? {
                Change::Signal(libc::SIGSYS) => return Ok(()),
                Change::Signal(signal) => self.hold_up(signal)?,
                Change::Stopped(_) | Change::Call => {}
                Change::Ended => return Err(TraceeError::ThreadGone(tid)),
                Change::None | Change::Replaced | Change::Other(_) => {
                    let what = format!("{name}: trapped, but received no signal");
                    return Err(TraceeError::Unexpected(tid, what));
                }
            }
        }
    }

    /// Calls mmap(2) in the process. Returns the address of the mapping. Without `at`, the kernel
    /// chooses it.
    ///
    /// # Errors
    /// The call fails, or the thread cannot make it.
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

    /// Maps memory at a given address without populating it at once, even if the process locks all
    /// its future mappings (mlockall(2), MCL_FUTURE). `locks` says if it does.
    ///
    /// # Errors
    /// A call fails, or the thread cannot make it.
    pub fn map_lazily(
        &mut self,
        locks: bool,
        at: Avma,
        len: u64,
        protection: i32,
        flags: i32,
        fd: i64,
    ) -> Result<(), TraceeError> {
        if !locks {
            return self.map(Some(at), len, protection, flags, fd).map(drop);
        }
        // Inaccessible memory is not populated, and neither is memory that is unlocked before it
        // becomes accessible.
        self.map(Some(at), len, libc::PROT_NONE, flags, fd)?;
        let arguments = [at.0, len, 0, 0, 0, 0];
        let unlocked = self.call("munlock", libc::SYS_munlock, arguments);
        let done = unlocked.and_then(|_| self.protect(at, len, protection));
        if done.is_err() {
            self.unmap(at, len)?;
        }
        match done {
            // A mapping made without PROT_EXEC must not become executable (prctl(2), PR_SET_MDWE).
            Err(TraceeError::Call(_, Errno::EACCES)) if protection & libc::PROT_EXEC != 0 => {
                self.map(Some(at), len, protection, flags, fd).map(drop)
            }
            other => other,
        }
    }

    /// Maps `len` bytes of private zeroed memory at the free address `at`.
    ///
    /// # Errors
    /// The call fails, or the thread cannot make it.
    pub fn map_zeroes(&mut self, at: Avma, len: u64) -> Result<(), TraceeError> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        self.map(Some(at), len, protection, flags, -1).map(drop)
    }

    /// Atomically replaces the mapping at `at` by the one at `from`, of `len` bytes (mremap(2)).
    ///
    /// # Errors
    /// The call fails, or the thread cannot make it.
    pub fn move_over(&mut self, from: Avma, len: u64, at: Avma) -> Result<(), TraceeError> {
        let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
        let arguments = [from.0, len, len, flags, at.0, 0];
        self.call("mremap", libc::SYS_mremap, arguments).map(drop)
    }

    /// Makes the process ignore a signal (rt_sigaction(2)).
    ///
    /// # Errors
    /// The call fails, or the thread cannot make it.
    pub fn ignore(&mut self, signal: i32) -> Result<(), TraceeError> {
        /// The distance below the stack pointer in bytes, beyond everything on the stack and the
        /// frame of a way back.
        const BELOW: u64 = 16 << 10;
        let tid = self.thread.tid();
        let at = (self.thread.registers().sp() - BELOW) & !0xf;
        // `struct kernel_sigaction`: handler, flags, restorer and mask.
        let mut action = [0; 32];
        action[..8].copy_from_slice(&(libc::SIG_IGN as u64).to_le_bytes());
        let written = self.text.write(Avma(at), &action);
        written.map_err(|e| TraceeError::Unexpected(tid, ipath_base::error::io_text(&e)))?;
        let arguments = [signal as u64, at, 0, size_of::<u64>() as u64, 0, 0];
        self.call("rt_sigaction", libc::SYS_rt_sigaction, arguments)
            .map(drop)
    }

    /// Checks with calls without effect that mappings can be unmapped and descriptors closed again.
    ///
    /// # Errors
    /// A seccomp filter forbids one of the calls.
    pub fn may_clean_up(&mut self) -> Result<(), TraceeError> {
        // The kernel rejects a length of 0 and an invalid descriptor.
        let unmapped = self.unmap(Avma(0), 0);
        let closed = self.call("close", libc::SYS_close, [u64::MAX, 0, 0, 0, 0, 0]);
        for tried in [unmapped, closed.map(drop)] {
            match tried {
                Ok(()) | Err(TraceeError::Call(_, Errno::EINVAL | Errno::EBADF)) => {}
                Err(TraceeError::Call(name, _)) => return Err(TraceeError::Filtered(name)),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Calls munmap(2) in the process for `len` bytes at `at`.
    ///
    /// # Errors
    /// The call fails, or the thread cannot make it.
    pub fn unmap(&mut self, at: Avma, len: u64) -> Result<(), TraceeError> {
        self.call("munmap", libc::SYS_munmap, [at.0, len, 0, 0, 0, 0])
            .map(drop)
    }

    /// Calls mprotect(2) in the process for `len` bytes at `at`.
    ///
    /// # Errors
    /// The call fails, or the thread cannot make it.
    pub fn protect(&mut self, at: Avma, len: u64, protection: i32) -> Result<(), TraceeError> {
        let arguments = [at.0, len, protection as u64, 0, 0, 0];
        self.call("mprotect", libc::SYS_mprotect, arguments)
            .map(drop)
    }

    /// Calls madvise(2) in the process for `len` bytes at `at`.
    ///
    /// # Errors
    /// The call fails, or the thread cannot make it.
    pub fn advise(&mut self, at: Avma, len: u64, advice: i32) -> Result<(), TraceeError> {
        let arguments = [at.0, len, advice as u64, 0, 0, 0];
        self.call("madvise", libc::SYS_madvise, arguments).map(drop)
    }
}

impl Drop for Remote<'_> {
    fn drop(&mut self) {
        // Each call fails only if the thread has ended. The registers come last: until then the
        // thread would restore everything itself if ipath were killed.
        if self.begun {
            let _ = sys::set_signal_mask(self.thread.tid(), self.mask);
            let _ = self.thread.flush();
        }
        if self.unfiltered {
            let _ = sys::set_options(self.thread.tid());
        }
        if let Some(way_back) = &self.way_back {
            way_back.clear(self.text);
        }
    }
}

fn mask_of(thread: &StoppedThread) -> Result<u64, TraceeError> {
    sys::signal_mask(thread.tid()).map_err(|e| TraceeError::registers(thread.tid(), e))
}
