//! What can go wrong with a traced process.

use std::fmt;

use nix::errno::Errno;

use crate::process::{Pid, ProcessError, Tid};

/// Why a thread could not be stopped, read or resumed.
#[derive(Debug)]
pub enum TraceeError {
    /// The process has ended.
    Gone(Pid),
    /// A thread has ended.
    ThreadGone(Tid),
    /// Somebody else traces it.
    Process(ProcessError),
    /// PTRACE_SEIZE was refused.
    Seize(Pid, Tid, Errno),
    /// Another ipath has it stopped.
    Busy(Pid),
    /// PTRACE_INTERRUPT was refused.
    Interrupt(Pid, Tid, Errno),
    /// waitpid failed.
    Wait(Tid, Errno),
    /// Registers or signal mask could not be read or written.
    Registers(Tid, Errno),
    /// A thread could not be resumed.
    Resume(Tid, Errno),
    /// A thread did not stop in time; whether it was waiting for a processor.
    Stuck(Pid, Tid, bool),
    /// A thread did something else than the system call it was asked to make.
    Unexpected(Tid, String),
    /// A system call made for the target failed.
    Call(&'static str, Errno),
    /// The process has no system-call instruction that can be used.
    NoSyscall(Pid),
    /// Every thread is about to handle a signal.
    NoThread(Pid),
    /// The process has become another program since it was looked at.
    OtherProgram(Pid),
    /// It cannot be told whether it still is what was looked at.
    Unknown(Pid, String),
    /// A system call made for the target was trapped by its seccomp filter.
    Filtered(&'static str),
}

impl TraceeError {
    pub(super) fn seize(pid: Pid, tid: Tid, errno: Errno) -> Self {
        Self::Seize(pid, tid, errno)
    }

    pub(super) fn registers(tid: Tid, errno: Errno) -> Self {
        if errno == Errno::ESRCH {
            Self::ThreadGone(tid)
        } else {
            Self::Registers(tid, errno)
        }
    }

    /// A thread that has ended is no error to those who stop all there are.
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
            Self::Busy(pid) => write!(f, "{pid}: another ipath has it stopped; try again"),
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
                    "its memory is sealed (mseal(2)): what ipath has mapped stays until it ends"
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
                write!(f, "{pid}: what it is now cannot be told: {cause}")
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
