//! Resumes followed threads that have stopped while their tracer waits for something else. No other
//! thread can resume them, and the tracer may be waiting for one of them.

use std::cell::Cell;
use std::time::{Duration, Instant};

use super::sys::{self, Change};
use super::thread::mend;
use super::{followed, wait};
use crate::process::Tid;

thread_local! {
    /// True while this thread may resume its tracees, except those that it holds stopped itself.
    static MAY_SERVE: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` while no followed process is being inspected. [`pause`] then serves them.
pub(super) fn serving<R>(work: impl FnOnce() -> R) -> R {
    MAY_SERVE.set(true);
    let result = work();
    MAY_SERVE.set(false);
    result
}

/// Sleeps for `time`. If the calling thread runs a job of the tracer thread, followed threads
/// meanwhile run as they would otherwise. The caller must hold none of them stopped.
pub fn pause(time: Duration) {
    pause_but(time, |_| false);
}

/// Like [`pause`], for a caller that holds or waits for the threads that `is_meant` accepts.
pub(super) fn pause_but(time: Duration, is_meant: impl Fn(Tid) -> bool) {
    const SLICE: Duration = Duration::from_millis(1);
    if !MAY_SERVE.get() || !followed::is_begun() {
        return std::thread::sleep(time);
    }
    let until = Instant::now() + time;
    loop {
        for tid in followed::tids().into_iter().filter(|&tid| !is_meant(tid)) {
            if let Ok(change) = sys::seen(tid) {
                let_go_on(tid, change);
            }
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(SLICE));
    }
}

/// Resumes a followed thread from a stop that needs no decision. Returns false and does nothing if
/// the stop needs one, the thread is not stopped, or it is not followed.
pub fn let_go_on(tid: Tid, change: Change) -> bool {
    let Some(pid) = followed::process_of(tid) else {
        return false;
    };
    // Failures mean that the thread has ended.
    match change {
        Change::Stopped(in_group) => {
            mend(tid);
            go_on(tid, in_group);
        }
        // May be one of ipath's breakpoints.
        Change::Signal(libc::SIGTRAP) => return false,
        Change::Signal(signal) => {
            mend(tid);
            let _ = sys::cont(tid, signal);
        }
        Change::Call if sys::is_at_awaited_call(tid) => return false,
        Change::Call => drop(sys::cont(tid, 0)),
        Change::Other(libc::PTRACE_EVENT_CLONE) => {
            let Some(thread) = sys::begun(tid)
                .ok()
                .filter(|&t| followed::group_of(t) == Some(pid))
            else {
                return false;
            };
            // It may have been entered before.
            if followed::process_of(thread).is_none()
                && let Ok(Change::Stopped(in_group)) = wait::next(thread)
                && followed::enter(thread).is_some()
            {
                go_on(thread, in_group);
            }
            let _ = sys::cont(tid, 0);
        }
        Change::None | Change::Ended | Change::Replaced | Change::Other(_) => return false,
    }
    true
}

/// Resumes a thread from a stop that is not for a signal. If the stop is a group stop, `in_group`,
/// the thread stays in it until the group continues.
pub fn go_on(tid: Tid, in_group: bool) {
    let _ = if in_group {
        sys::listen(tid)
    } else {
        sys::cont(tid, 0)
    };
}
