//! Waiting for what a traced thread does next. Every wait ends, for a thread may be killed at any moment. Of a
//! process that has been killed, waitid(2) does not report the first thread before all others have been
//! collected.

use std::time::{Duration, Instant};

use super::sys::{self, Change};
use super::{StoppedThread, TraceeError, followed};
use crate::process::{Pid, Process, STOPS, Tid, is_no_process, read_text, state_letter};

/// How long a thread may take to come to a system call it has been pointed at, and to its end: so long at a time, and so often. Time
/// goes on while a virtual machine is held, and nothing else does.
const AT_A_TIME: Duration = Duration::from_millis(100);
const TIMES: usize = 100;
/// How long it is looked for without a pause: most stops come within microseconds.
const AT_ONCE: Duration = Duration::from_micros(30);
/// Pauses from then on, each twice the last.
const FIRST: Duration = Duration::from_micros(5);
const LONGEST: Duration = Duration::from_micros(500);

/// What came of waiting for a thread that has been interrupted.
pub(super) enum Waited {
    Stopped(Box<StoppedThread>),
    Ended,
    /// Time is over.
    Running,
}

/// Waits until a thread that has been interrupted stops.
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
            // Stopped by a signal on its way in before the interrupt: it is delivered on resuming,
            // and the interrupt's own stop would come after that.
            Change::Signal(signal) => return at_stop(signal, false),
            Change::Ended => return Ok(Waited::Ended),
            // It stays where it is, for who follows it.
            Change::Replaced => return Err(TraceeError::OtherProgram(Pid(tid.0))),
            // The interrupt is forgotten there (kernel/signal.c, ptrace_stop: any trap clears a pending one).
            Change::Call | Change::Other(_) => {
                match sys::interrupt(tid).and_then(|()| sys::cont(tid, 0)) {
                    Ok(()) | Err(nix::errno::Errno::ESRCH) => {}
                    Err(errno) => return Err(TraceeError::Resume(tid, errno)),
                }
            }
        }
    }
}

/// What a thread does next, within the time it may take for a call.
pub fn next(tid: Tid) -> Result<Change, TraceeError> {
    for _ in 1..TIMES {
        match change(tid, Instant::now() + AT_A_TIME)? {
            Change::None => {}
            other => return Ok(other),
        }
    }
    change(tid, Instant::now() + AT_A_TIME)
}

/// Has a thread that has become another program leave execve(2), in which it has stopped: calls can be made in it only then. Where it
/// has come to.
pub fn leave_exec(tid: Tid) -> Result<Change, TraceeError> {
    let gone_on = sys::interrupt(tid).and_then(|()| sys::cont(tid, 0));
    gone_on.map_err(|errno| TraceeError::Resume(tid, errno))?;
    next(tid)
}

/// Has a thread carry out one instruction. Signals that come meanwhile come to it again after that. One that stops its group does so at
/// once: sent again, it would outlive the SIGCONT that has followed. The thread is told to stop then when it goes on, with its group or
/// without.
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
    // What fails, fails because the thread has ended.
    for info in kept {
        let _ = sys::send_again(tid, &info);
    }
    if has_stopped {
        let _ = sys::interrupt(tid);
    }
    stepped
}

/// Has a thread that has had itself traced (PTRACE_TRACEME), and stands in a stop, traced as by PTRACE_SEIZE, where this thread
/// follows: what it starts is so as well, and stops without a signal. It stands in the stop of its group meanwhile, before it has
/// run anything, and then at the SIGCONT by which that ends, which is not to be blocked.
pub fn seize_to_follow(tid: Tid) -> Result<(), TraceeError> {
    if !followed::is_begun() {
        return Ok(());
    }
    let failed = |e| TraceeError::Resume(tid, e);
    let place = || {
        let registers = sys::registers(tid).map_err(|e| TraceeError::registers(tid, e))?;
        Ok::<_, TraceeError>((registers.pc(), registers.sp()))
    };
    let first = place()?;
    sys::detach(tid, libc::SIGSTOP).map_err(failed)?;
    sys::seize(tid).map_err(failed)?;
    let raw = nix::unistd::Pid::from_raw(tid.0);
    let let_go = || nix::sys::signal::kill(raw, nix::sys::signal::Signal::SIGCONT).map_err(failed);
    // It is to come to a SIGCONT here, and to nothing else.
    let mut kept = Vec::new();
    loop {
        match next(tid)? {
            Change::Stopped(true) => let_go()?,
            Change::Stopped(false) => {}
            Change::Signal(libc::SIGCONT) => break,
            Change::Signal(signal) => {
                kept.extend(sys::delivered(tid));
                if STOPS.contains(&signal) {
                    // It has taken a SIGCONT away that had not come (kernel/signal.c, prepare_signal).
                    let_go()?;
                }
            }
            Change::Ended => return Err(TraceeError::ThreadGone(tid)),
            other => return Err(TraceeError::Unexpected(tid, format!("{other:?}"))),
        }
        sys::cont(tid, 0).map_err(failed)?;
    }
    if place()? != first {
        let what = "has been let go by another's SIGCONT".to_owned();
        return Err(TraceeError::Unexpected(tid, what));
    }
    for info in kept {
        sys::send_again(tid, &info).map_err(failed)?;
    }
    Ok(())
}

/// What a thread does until `deadline`.
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

/// Lets children go on that a thread waits for before it can stop: it shares its memory with them (vfork(2)).
fn let_children_run(tid: Tid) {
    // Also of a process that is being let go, which is followed no more.
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
            // What becomes another program is looked at later; its parent waits no longer.
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

/// True if a thread has ended; what cannot be read tells nothing.
pub(super) fn is_dead(pid: Pid, tid: Tid) -> bool {
    match read_text(format!("/proc/{pid}/task/{tid}/stat")) {
        Ok(stat) => matches!(state_letter(&stat), Some('Z' | 'X')),
        Err(error) => is_no_process(&error),
    }
}
