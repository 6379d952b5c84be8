//! Letting go on what is followed and has stopped by the way, by the thread that traces it: while that waits for something else no
//! other can, and a thread that stands meanwhile may be just what it waits for.

use std::cell::Cell;
use std::time::{Duration, Instant};

use super::sys::{self, Change};
use super::thread::mend;
use super::{followed, wait};
use crate::process::Tid;

thread_local! {
    /// True while this thread may let go on what it traces, but what it holds itself.
    static MAY_SERVE: Cell<bool> = const { Cell::new(false) };
}

/// Does something, of what is followed nothing being looked at: [`pause`] serves it meanwhile.
pub(super) fn serving<R>(work: impl FnOnce() -> R) -> R {
    MAY_SERVE.set(true);
    let result = work();
    MAY_SERVE.set(false);
    result
}

/// Sleeps; what the calling thread follows goes on meanwhile as it would without. Nothing of it may be held by the caller.
pub fn pause(time: Duration) {
    pause_but(time, |_| false);
}

/// Sleeps, where the caller holds some threads of what it follows, or waits for them.
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

/// Lets a thread go on from where it has stopped, if nobody need decide on anything there: false where somebody need.
pub fn let_go_on(tid: Tid, change: Change) -> bool {
    let Some(pid) = followed::process_of(tid) else {
        return false;
    };
    // What fails, fails because the thread has ended.
    match change {
        Change::Stopped(in_group) => {
            mend(tid);
            go_on(tid, in_group);
        }
        // May be a breakpoint of ours.
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
            // It may have been seen before.
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

/// Lets a thread go on from a stop for no signal.
pub fn go_on(tid: Tid, in_group: bool) {
    let _ = if in_group {
        sys::listen(tid)
    } else {
        sys::cont(tid, 0)
    };
}
