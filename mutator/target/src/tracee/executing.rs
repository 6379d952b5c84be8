//! Traces one thread through an execve(2) that it is about to make.

use nix::errno::Errno;

use super::sys::{self, Change};
use super::wait::next;
use super::{TraceeError, refusal};
use crate::process::{Process, Tid};

/// The most stops at system calls, entry and exit each, before execve(2) must be among them. The
/// thread may have passed a probe without making the call.
const MOST_CALLS: usize = 64;

/// The outcome of [`see_exec`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Executed {
    /// The process runs another program. Its only thread is traced and stopped at exec.
    Yes,
    /// The call failed or was not made. The thread is no longer traced.
    No,
    /// The process has ended.
    Ended,
}

/// Traces a waiting thread until it has made its execve(2). `go_on` ends the waiting and is called
/// once, when the thread is traced. Must run in [`tracing`](super::tracing).
///
/// # Errors
/// The thread cannot be traced.
pub fn see_exec(
    process: &Process,
    tid: Tid,
    go_on: &(dyn Fn() + Sync),
) -> Result<Executed, TraceeError> {
    sys::seize_for_exec(tid).map_err(|errno| refusal(process, tid, errno))?;
    let resumed = |errno| TraceeError::Resume(tid, errno);
    sys::interrupt(tid).map_err(resumed)?;
    let first = Tid(process.pid.0);
    let mut calls = 0;
    let mut is_told = false;
    loop {
        let mut signal = 0;
        match next(tid)? {
            Change::Replaced => return Ok(arrived(first)),
            // A successful call gives the thread the id of the first thread.
            Change::Ended if tid != first => {
                return match next(first)? {
                    Change::Replaced => Ok(arrived(first)),
                    _ => Ok(Executed::Ended),
                };
            }
            Change::Ended => return Ok(Executed::Ended),
            Change::Signal(other) => signal = other,
            // In a group stop the thread stays where it is.
            Change::Stopped(true) => return let_go(tid),
            Change::Call => {
                calls += 1;
                if calls > MOST_CALLS || has_failed(tid)? {
                    return let_go(tid);
                }
            }
            Change::Stopped(false) | Change::Other(_) | Change::None => {}
        }
        if !std::mem::replace(&mut is_told, true) {
            go_on();
        }
        match sys::to_call(tid, signal) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(errno) => return Err(resumed(errno)),
        }
    }
}

/// Collects the first thread's stop, which is needed if another thread has called exec.
fn arrived(first: Tid) -> Executed {
    sys::collect_stop(first);
    Executed::Yes
}

/// Resumes a stopped thread untraced.
///
/// # Errors
/// The thread cannot be detached.
pub fn leave(tid: Tid) -> Result<(), TraceeError> {
    match sys::detach(tid, 0) {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(errno) => Err(TraceeError::Resume(tid, errno)),
    }
}

fn let_go(tid: Tid) -> Result<Executed, TraceeError> {
    leave(tid).map(|()| Executed::No)
}

/// True if a thread has stopped at the return of execve(2) or execveat(2), which return only on
/// failure.
fn has_failed(tid: Tid) -> Result<bool, TraceeError> {
    let registers = sys::registers(tid).map_err(|e| TraceeError::registers(tid, e))?;
    let number = registers.system_call();
    let is_exec = number == libc::SYS_execve || number == libc::SYS_execveat;
    Ok(is_exec && !registers.is_at_beginning())
}
