//! System calls made by a stopped thread for us.

use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use patcher::Avma;

use super::{StoppedThread, TraceeError};
use crate::process::{Mapping, Memory, Process};

/// Bytes of the `syscall` instruction.
const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// Makes system calls on a thread: it is pointed at a `syscall` instruction the process already
/// has and stepped over it, all its signals blocked, so that nothing of the program runs. When
/// dropped, the thread has its signal mask again; its registers come back when it resumes.
#[derive(Debug)]
pub struct Remote<'t> {
    thread: &'t mut StoppedThread,
    instruction: Avma,
    mask: u64,
}

/// Finds a `syscall` instruction in the process's executable memory: the vdso has one, libc has
/// many.
pub fn find_syscall(maps: &[Mapping], memory: &Memory) -> Option<Avma> {
    const AT_ONCE: u64 = 1 << 20;
    let mut code: Vec<_> = maps.iter().filter(|m| m.execute && m.read).collect();
    code.sort_by_key(|m| m.name != "[vdso]");
    code.iter().find_map(|mapping| {
        let len = (mapping.range.end.0 - mapping.range.start.0).min(AT_ONCE);
        let bytes = memory.read_vec(mapping.range.start, len as usize).ok()?;
        let at = bytes.windows(SYSCALL.len()).position(|w| w == SYSCALL)?;
        Some(mapping.range.start.plus(at as u64))
    })
}

impl<'t> Remote<'t> {
    /// Prepares a stopped thread for system calls.
    pub fn new(
        process: &Process,
        maps: &[Mapping],
        memory: &Memory,
        thread: &'t mut StoppedThread,
    ) -> Result<Self, TraceeError> {
        let instruction = find_syscall(maps, memory).ok_or(TraceeError::NoSyscall(process.pid))?;
        let mask = signal_mask(thread)?;
        set_signal_mask(thread, u64::MAX)?;
        Ok(Self {
            thread,
            instruction,
            mask,
        })
    }

    /// Makes the call; its result, or the error it returned under the name given.
    pub fn call(
        &mut self,
        name: &'static str,
        number: i64,
        arguments: [u64; 6],
    ) -> Result<u64, TraceeError> {
        let tid = self.thread.tid();
        let raw = self.thread.raw();
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
        self.thread.disturb();
        ptrace::setregs(raw, registers).map_err(|e| TraceeError::registers(tid, e))?;
        ptrace::step(raw, None).map_err(|e| TraceeError::registers(tid, e))?;
        self.wait_for_step()?;
        let after = ptrace::getregs(raw).map_err(|e| TraceeError::registers(tid, e))?;
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

    fn wait_for_step(&self) -> Result<(), TraceeError> {
        let tid = self.thread.tid();
        let raw = self.thread.raw();
        loop {
            match waitpid(raw, Some(WaitPidFlag::__WALL)) {
                Ok(WaitStatus::Stopped(_, nix::sys::signal::Signal::SIGTRAP)) => return Ok(()),
                // The stop of an interrupt or of the group: the step is still to come.
                Ok(WaitStatus::PtraceEvent(..)) => {
                    ptrace::step(raw, None).map_err(|e| TraceeError::registers(tid, e))?;
                }
                Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) | Err(Errno::ECHILD) => {
                    return Err(TraceeError::ThreadGone(tid));
                }
                Ok(other) => return Err(TraceeError::Unexpected(tid, format!("{other:?}"))),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(TraceeError::Wait(tid, errno)),
            }
        }
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
        // Fails only where the thread has ended.
        let _ = set_signal_mask(self.thread, self.mask);
    }
}

// PTRACE_GETSIGMASK and PTRACE_SETSIGMASK of linux/ptrace.h; nix wraps neither.
const GETSIGMASK: libc::c_uint = 0x420a;
const SETSIGMASK: libc::c_uint = 0x420b;

fn signal_mask(thread: &StoppedThread) -> Result<u64, TraceeError> {
    let mut mask = 0u64;
    // SAFETY: the kernel writes the eight bytes the third argument names to `mask`.
    let result =
        unsafe { libc::ptrace(GETSIGMASK, thread.tid().0, size_of::<u64>(), &raw mut mask) };
    if result < 0 {
        return Err(TraceeError::registers(thread.tid(), Errno::last()));
    }
    Ok(mask)
}

fn set_signal_mask(thread: &StoppedThread, mask: u64) -> Result<(), TraceeError> {
    // SAFETY: the kernel reads eight bytes from `mask`.
    let result = unsafe {
        libc::ptrace(
            SETSIGMASK,
            thread.tid().0,
            size_of::<u64>(),
            &raw const mask,
        )
    };
    if result < 0 {
        return Err(TraceeError::registers(thread.tid(), Errno::last()));
    }
    Ok(())
}
