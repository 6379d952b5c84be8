//! Waiting for the next event of a traced thread.
//!
//! Every wait has a time limit, because a thread may be killed at any moment. waitid(2) does not
//! report the first thread of a killed process until all others have been collected.

use std::time::{Duration, Instant};

use super::sys::{self, Change};
use super::{StoppedThread, TraceeError, followed};
use crate::process::{Pid, Process, Tid, is_no_process, read_text, state_letter};

/// The length of one wait for a thread to reach a system call, or its exit.
const AT_A_TIME: Duration = Duration::from_millis(100);
/// The number of waits of [`AT_A_TIME`]. The number matters while a virtual machine is paused: its
/// clock advances and nothing else does.
const TIMES: usize = 100;
/// The time to poll without a pause. Most stops happen within microseconds.
const AT_ONCE: Duration = Duration::from_micros(30);
/// The first pause after polling for [`AT_ONCE`]. Each pause is twice the previous one.
const FIRST: Duration = Duration::from_micros(5);
/// The longest pause.
const LONGEST: Duration = Duration::from_micros(500);

/// The outcome of waiting for an interrupted thread.
pub(super) enum Waited {
    Stopped(Box<StoppedThread>),
    Ended,
    /// The time is up.
    Running,
}

/// Waits until an interrupted thread stops, ends, or `deadline` has passed. Fails with
/// [`TraceeError::OtherProgram`] if the thread has executed another program.
pub(super) fn wait_for_stop(tid: Tid, deadline: Instant) -> Result<Waited, TraceeError> {
    let at_stop = |signal, in_group| {
        let thread = StoppedThread::at_stop(tid, signal, in_group)
            .map(Some)
            .or_else(TraceeError::if_gone)?;
        Ok(thread.map_or(Waited::Ended, |t| Waited::Stopped(Box::new(t))))
    };
    loop {
        match change(tid, deadline)? {
            Change::None => return Ok(Waited::Running),
            Change::Stopped(in_group) => return at_stop(0, in_group),
            // A signal stopped the thread before the interrupt did. It is delivered on resume, and
            // the interrupt's own stop would come after it.
            Change::Signal(signal) => return at_stop(signal, false),
            Change::Ended => return Ok(Waited::Ended),
            // It stays in its stop for its follower.
            Change::Replaced => return Err(TraceeError::OtherProgram(Pid(tid.0))),
            // This stop has cleared the interrupt (kernel/signal.c, ptrace_stop: any trap clears a
            // pending one).
            Change::Call | Change::Other(_) => {
                match sys::interrupt(tid).and_then(|()| sys::cont(tid, 0)) {
                    Ok(()) | Err(nix::errno::Errno::ESRCH) => {}
                    Err(errno) => return Err(TraceeError::Resume(tid, errno)),
                }
            }
        }
    }
}

/// The next event of a thread. [`Change::None`] if there is none within the time limit for a call.
///
/// # Errors
/// The thread cannot be waited for.
pub fn next(tid: Tid) -> Result<Change, TraceeError> {
    for _ in 1..TIMES {
        match change(tid, Instant::now() + AT_A_TIME)? {
            Change::None => {}
            other => return Ok(other),
        }
    }
    change(tid, Instant::now() + AT_A_TIME)
}

/// Moves a thread out of execve(2), in which it has stopped after an exec. Only then can it make
/// calls. Returns its next event.
///
/// # Errors
/// The thread cannot be traced, resumed or waited for.
pub fn leave_exec(tid: Tid) -> Result<Change, TraceeError> {
    let gone_on = sys::interrupt(tid).and_then(|()| sys::cont(tid, 0));
    gone_on.map_err(|errno| TraceeError::Resume(tid, errno))?;
    next(tid)
}

/// Makes a thread execute one instruction.
///
/// Signals that arrive meanwhile are sent again afterwards. A signal that stops the group takes
/// effect at once: resent, it would outlive a later SIGCONT. The thread is then interrupted, so
/// that it stops when it resumes, with or without its group.
///
/// # Errors
/// The thread cannot be traced, resumed or waited for.
pub fn step(tid: Tid) -> Result<(), TraceeError> {
    let mut kept = Vec::new();
    let (mut signal, mut has_stopped) = (0, false);
    let stepped = loop {
        sys::single_step(tid, signal).map_err(|errno| TraceeError::Resume(tid, errno))?;
        signal = 0;
        match next(tid)? {
            Change::Signal(libc::SIGSTOP) => (signal, has_stopped) = (libc::SIGSTOP, true),
            Change::Signal(other) => match sys::delivered(tid) {
                Ok(info) if other == libc::SIGTRAP && info.si_code == libc::TRAP_TRACE => {
                    break Ok(());
                }
                Ok(info) => kept.push(info),
                Err(errno) => break Err(TraceeError::registers(tid, errno)),
            },
            Change::Stopped(_) => {}
            Change::Ended => break Err(TraceeError::ThreadGone(tid)),
            other => break Err(TraceeError::Unexpected(tid, format!("{other:?}"))),
        }
    };
    // Failures mean that the thread has ended.
    for info in kept {
        let _ = sys::send_again(tid, &info);
    }
    if has_stopped {
        let _ = sys::interrupt(tid);
    }
    stepped
}

/// Starts tracing a new process that is about to execute a program. Everything that the program
/// starts is traced as well, if this thread follows.
///
/// # Errors
/// The process cannot be traced, or has ended.
pub fn seize_before_exec(tid: Tid) -> Result<(), TraceeError> {
    let seized = if followed::is_begun() {
        sys::seize(tid)
    } else {
        sys::seize_for_exec(tid)
    };
    seized.map_err(|errno| {
        if is_dead(Pid(tid.0), tid) {
            TraceeError::ThreadGone(tid)
        } else {
            TraceeError::seize(Pid(tid.0), tid, errno)
        }
    })
}

/// Runs a traced process until it has executed a program. Stops of its group end at once.
///
/// # Errors
/// The process has ended, or cannot be resumed or waited for.
pub fn run_to_exec(tid: Tid) -> Result<(), TraceeError> {
    loop {
        let signal = match next(tid)? {
            Change::Replaced => return Ok(()),
            Change::Ended => return Err(TraceeError::ThreadGone(tid)),
            // The program is on a slow disk.
            Change::None => continue,
            Change::Signal(signal) => signal,
            Change::Stopped(_) | Change::Call | Change::Other(_) => 0,
        };
        match sys::cont(tid, signal) {
            // It has been killed, which is seen next.
            Ok(()) | Err(nix::errno::Errno::ESRCH) => {}
            Err(errno) => return Err(TraceeError::Resume(tid, errno)),
        }
    }
}

/// Waits for the next event of a thread. [`Change::None`] if there is none until `deadline`.
/// [`Change::Ended`] also if the thread is a zombie that the kernel does not report yet.
pub(super) fn change(tid: Tid, deadline: Instant) -> Result<Change, TraceeError> {
    let begin = Instant::now();
    let mut pause = FIRST;
    loop {
        match sys::change(tid).map_err(|e| TraceeError::Wait(tid, e))? {
            Change::None => {}
            other => return Ok(other),
        }
        let now = Instant::now();
        if pause == LONGEST && is_dead(Pid(tid.0), tid) {
            return Ok(Change::Ended);
        }
        if now > deadline {
            return Ok(Change::None);
        }
        if pause == LONGEST {
            let_children_run(tid);
        }
        if now.duration_since(begin) < AT_ONCE {
            std::thread::yield_now();
        } else {
            std::thread::sleep(pause);
            pause = (pause * 2).min(LONGEST);
        }
    }
}

/// Resumes children for which the thread must wait before it can stop, because they share its
/// memory (vfork(2)).
fn let_children_run(tid: Tid) {
    // Includes a process that is being released and no longer followed.
    let pid = followed::is_begun().then(|| followed::group_of(tid));
    let Some(pid) = pid.flatten() else {
        return;
    };
    let Ok(process) = Process::find(pid) else {
        return;
    };
    for child in process.children(tid) {
        let first = Tid(child.0);
        if !process.shares_with(child) {
            continue;
        }
        match sys::change(first) {
            // A child that has called exec is handled later. Its parent no longer waits for it.
            Ok(Change::Stopped(false)) if followed::process_of(first).is_none() => {
                let _ = followed::enter(first);
                let _ = sys::cont(first, 0);
            }
            Ok(Change::Stopped(false) | Change::Call) => drop(sys::cont(first, 0)),
            Ok(Change::Signal(signal)) => drop(sys::cont(first, signal)),
            _ => {}
        }
    }
}

/// True if the thread is known to have ended.
pub(super) fn is_dead(pid: Pid, tid: Tid) -> bool {
    match read_text(format!("/proc/{pid}/task/{tid}/stat")) {
        Ok(stat) => matches!(state_letter(&stat), Some('Z' | 'X')),
        Err(error) => is_no_process(&error),
    }
}
