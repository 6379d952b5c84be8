//! Tracing one thread through an execve(2) that it is about to make.

use nix::errno::Errno;

use super::sys::{self, Change};
use super::wait::next;
use super::{TraceeError, refusal};
use crate::process::{Process, Tid};

/// System calls that are waited for until execve(2) is one of them, entry and exit each. A probe may have been passed that
/// leads to none.
const MOST_CALLS: usize = 64;

/// What has come of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Executed {
    /// The process is another program. Its only thread is traced, and stands in the stop at exec.
    Yes,
    /// The call has failed, or has not been made. The thread is not traced any more.
    No,
    /// The process has ended.
    Ended,
}

/// Traces a thread that waits to make the call until it has been made. `go_on` ends the waiting. To be called in
/// [`tracing`](super::tracing).
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
            // Its id is the first thread's since the call has been made.
            Change::Ended if tid != first => {
                return match next(first)? {
                    Change::Replaced => Ok(arrived(first)),
                    _ => Ok(Executed::Ended),
                };
            }
            Change::Ended => return Ok(Executed::Ended),
            Change::Signal(other) => signal = other,
            // In the stop of its group it stays where it is.
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

/// A program that another thread than the first has executed is left only once its stop has been collected.
fn arrived(first: Tid) -> Executed {
    sys::collect_stop(first);
    Executed::Yes
}

/// Lets a thread go on that stands in a stop, no longer traced.
///
/// # Errors
/// It cannot be let go.
pub fn leave(tid: Tid) -> Result<(), TraceeError> {
    match sys::detach(tid, 0) {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(errno) => Err(TraceeError::Resume(tid, errno)),
    }
}

fn let_go(tid: Tid) -> Result<Executed, TraceeError> {
    leave(tid).map(|()| Executed::No)
}

/// True of a thread that stands at the end of an execve(2), which returns only if it has failed.
fn has_failed(tid: Tid) -> Result<bool, TraceeError> {
    let registers = sys::registers(tid).map_err(|e| TraceeError::registers(tid, e))?;
    let number = registers.orig_rax as i64;
    let is_exec = number == libc::SYS_execve || number == libc::SYS_execveat;
    // The kernel has that in rax at the beginning of each call (arch/x86/entry/entry_64.S).
    let is_begin = registers.rax as i64 == -i64::from(libc::ENOSYS);
    Ok(is_exec && !is_begin)
}
