//! One thread in ptrace-stop.

use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::unistd;
use patcher::Avma;

use super::TraceeError;
use crate::process::Tid;

/// A thread in ptrace-stop; [`StoppedThread::resume`] consumes it.
#[derive(Debug)]
pub struct StoppedThread {
    tid: Tid,
    registers: libc::user_regs_struct,
    changed: bool,
    /// A signal whose delivery the stop held up.
    signal: Option<Signal>,
}

/// Errors by which the kernel marks a system call to be restarted (include/linux/errno.h).
const ERESTARTNOHAND: i64 = 514;

impl StoppedThread {
    pub(super) fn at_stop(tid: Tid, signal: Option<Signal>) -> Result<Self, TraceeError> {
        let raw = unistd::Pid::from_raw(tid.0);
        let registers = ptrace::getregs(raw).map_err(|e| TraceeError::registers(tid, e))?;
        let mut thread = Self {
            tid,
            registers,
            changed: false,
            signal,
        };
        thread.mend_interrupted_call();
        Ok(thread)
    }

    /// Some calls (epoll_wait, semop, sigtimedwait and others, signal(7)) return EINTR after any
    /// stop, even where no signal came. At the stop the number of the call still stands in
    /// orig_rax; ERESTARTNOHAND in rax makes the kernel restart it, unless a handler really runs.
    fn mend_interrupted_call(&mut self) {
        let in_call = (self.registers.orig_rax as i64) >= 0;
        if in_call && self.registers.rax as i64 == -(Errno::EINTR as i64) {
            self.registers.rax = -ERESTARTNOHAND as u64;
            self.changed = true;
        }
    }

    /// Its id.
    pub fn tid(&self) -> Tid {
        self.tid
    }

    /// Whether it stopped on its own way rather than at the delivery of a signal, so that it can
    /// be made to run other code.
    pub fn is_usable(&self) -> bool {
        self.signal.is_none()
    }

    /// Where it will go on.
    pub fn pc(&self) -> Avma {
        Avma(self.registers.rip)
    }

    /// Its stack pointer.
    pub fn sp(&self) -> Avma {
        Avma(self.registers.rsp)
    }

    /// Its FS base.
    pub fn fs_base(&self) -> Avma {
        Avma(self.registers.fs_base)
    }

    /// Lets it go on elsewhere.
    pub fn set_pc(&mut self, pc: Avma) {
        self.registers.rip = pc.0;
        self.changed = true;
    }

    pub(super) fn registers(&self) -> &libc::user_regs_struct {
        &self.registers
    }

    /// Marks the registers as ones the thread no longer has.
    pub(super) fn disturb(&mut self) {
        self.changed = true;
    }

    pub(super) fn raw(&self) -> unistd::Pid {
        unistd::Pid::from_raw(self.tid.0)
    }

    /// Lets it go on and keeps it traced; false where it has ended.
    pub(super) fn go_on(self) -> Result<bool, TraceeError> {
        let raw = self.raw();
        let gone_or = |errno, error| {
            if errno == Errno::ESRCH {
                Ok(false)
            } else {
                Err(error)
            }
        };
        if self.changed
            && let Err(errno) = ptrace::setregs(raw, self.registers)
        {
            return gone_or(errno, TraceeError::Registers(self.tid, errno));
        }
        match ptrace::cont(raw, self.signal) {
            Ok(()) => Ok(true),
            Err(errno) => gone_or(errno, TraceeError::Resume(self.tid, errno)),
        }
    }

    /// Lets it go on, with the signal whose delivery was held up.
    pub(super) fn resume(self) -> Result<(), TraceeError> {
        let raw = self.raw();
        let gone_or = |errno, error| {
            if errno == Errno::ESRCH {
                Ok(())
            } else {
                Err(error)
            }
        };
        if self.changed
            && let Err(errno) = ptrace::setregs(raw, self.registers)
        {
            let _ = ptrace::detach(raw, self.signal);
            return gone_or(errno, TraceeError::Registers(self.tid, errno));
        }
        match ptrace::detach(raw, self.signal) {
            Ok(()) => Ok(()),
            Err(errno) => gone_or(errno, TraceeError::Resume(self.tid, errno)),
        }
    }
}
