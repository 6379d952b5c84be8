//! Errors of tracing a process.

use std::fmt;

use nix::errno::Errno;

use crate::process::{Pid, ProcessError, Tid};

/// The reason why a thread could not be stopped, read or resumed.
#[derive(Debug)]
pub enum TraceeError {
    /// The process has ended.
    Gone(Pid),
    /// A thread has ended.
    ThreadGone(Tid),
    /// Another tracer traces the process, or the process cannot be inspected.
    Process(ProcessError),
    /// PTRACE_SEIZE was refused.
    Seize(Pid, Tid, Errno),
    /// Another ipath holds it stopped.
    Busy(Pid),
    /// PTRACE_INTERRUPT was refused.
    Interrupt(Pid, Tid, Errno),
    /// waitid(2) failed.
    Wait(Tid, Errno),
    /// Registers or signal mask could not be read or written.
    Registers(Tid, Errno),
    /// A thread could not be resumed.
    Resume(Tid, Errno),
    /// A thread did not stop in time. The flag is true if it was waiting for a processor.
    Stuck(Pid, Tid, bool),
    /// A thread did something other than the requested system call.
    Unexpected(Tid, String),
    /// A system call made for the target failed. With its name.
    Call(&'static str, Errno),
    /// The process has no usable system-call instruction.
    NoSyscall(Pid),
    /// Every thread is about to handle a signal.
    NoThread(Pid),
    /// The process has executed another program since it was inspected.
    OtherProgram(Pid),
    /// ipath cannot determine whether the process is still the one that was inspected. With the
    /// cause, in words.
    Unknown(Pid, String),
    /// A system call made for the target was trapped or refused by its seccomp filter. With its
    /// name.
    Filtered(&'static str),
}

impl TraceeError {
    pub(super) fn seize(pid: Pid, tid: Tid, errno: Errno) -> Self {
        Self::Seize(pid, tid, errno)
    }

    /// [`TraceeError::ThreadGone`] for ESRCH, otherwise [`TraceeError::Registers`].
    pub(super) fn registers(tid: Tid, errno: Errno) -> Self {
        if errno == Errno::ESRCH {
            Self::ThreadGone(tid)
        } else {
            Self::Registers(tid, errno)
        }
    }

    /// Turns the end of a thread into `None`, for callers that stop all remaining threads.
    pub(super) fn if_gone<T>(self) -> Result<Option<T>, Self> {
        match self {
            Self::ThreadGone(_) => Ok(None),
            other => Err(other),
        }
    }
}

impl fmt::Display for TraceeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone(pid) => write!(f, "{pid}: the process has ended"),
            Self::ThreadGone(tid) => write!(f, "thread {tid} has ended"),
            Self::Process(error) => error.fmt(f),
            Self::Seize(pid, tid, errno) => {
                write!(f, "{pid}: thread {tid} cannot be traced: {}", errno.desc())
            }
            Self::Busy(pid) => write!(f, "{pid}: another ipath has stopped it; try again"),
            Self::Interrupt(pid, tid, errno) => {
                write!(
                    f,
                    "{pid}: thread {tid} cannot be interrupted: {}",
                    errno.desc()
                )
            }
            Self::Wait(tid, errno) => write!(f, "thread {tid}: wait: {}", errno.desc()),
            Self::Registers(tid, errno) => write!(f, "thread {tid}: registers: {}", errno.desc()),
            Self::Resume(tid, errno) => write!(f, "thread {tid}: resume: {}", errno.desc()),
            Self::Stuck(pid, tid, runs) => {
                let why = match runs {
                    true => "it gets no processor",
                    false => "it sleeps uninterruptibly",
                };
                write!(f, "{pid}: thread {tid} does not stop: {why}; try again")
            }
            Self::Unexpected(tid, what) => write!(f, "thread {tid}: unexpected stop: {what}"),
            Self::Call("munmap", Errno::EPERM) => {
                write!(
                    f,
                    "its memory is sealed (mseal(2)): ipath's mappings stay until it ends"
                )
            }
            Self::Call(call, errno) => write!(f, "{call} in the target: {}", errno.desc()),
            Self::NoSyscall(pid) => {
                write!(f, "{pid}: no system-call instruction found in its code")
            }
            Self::OtherProgram(pid) => {
                write!(f, "{pid}: it has become another program (exec) meanwhile")
            }
            Self::Unknown(pid, cause) => {
                write!(f, "{pid}: its state is unknown: {cause}")
            }
            Self::Filtered(call) => {
                write!(f, "{call} in the target: its seccomp filter forbids it")
            }
            Self::NoThread(pid) => {
                write!(
                    f,
                    "{pid}: every thread is about to handle a signal; try again"
                )
            }
        }
    }
}

impl std::error::Error for TraceeError {}
