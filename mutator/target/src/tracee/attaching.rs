//! Starting to trace threads while their process may be in execve(2).
//!
//! ptrace(2) attaches under a lock (`cred_guard_mutex`; kernel/ptrace.c, `ptrace_attach`). An exec
//! holds this lock while it waits for all other threads of its process to be gone (fs/exec.c,
//! `de_thread`). A traced thread is gone only after it has been collected. So its tracer would wait
//! for the lock, and the exec for the tracer: a deadlock.
//!
//! Any thread of the tracer's process may collect threads that another one traces (wait(2), without
//! `__WNOTHREAD`). So a separate thread collects them while others attach.

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::sys::Change;
use super::{followed, sys};
use crate::priority::Priority;
use crate::process::{Pid, Tid};
use crate::signals;

/// An attach takes microseconds, unless an exec blocks it or no processor is free.
const PATIENCE: Duration = Duration::from_millis(5);

/// A process to whose threads a tracer is attaching.
struct Attaching {
    /// The number of the attachment: the value of [`State::begun`] after it began.
    number: u64,
    pid: Pid,
    /// Ended threads that have been collected.
    collected: BTreeSet<Tid>,
}

struct State {
    all: Vec<Attaching>,
    /// The number of attachments begun so far.
    begun: u64,
    /// True once the collecting thread has been started.
    has_thread: bool,
}

static STATE: Mutex<State> = Mutex::new(State {
    all: Vec::new(),
    begun: 0,
    has_thread: false,
});
static BEGUN: Condvar = Condvar::new();

fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `work`, which attaches to threads of a process that may have traced threads already. If it
/// takes long, ended threads of the process are collected meanwhile.
pub(super) fn attaching<R>(pid: Pid, work: impl FnOnce() -> R) -> R {
    let mut state = lock();
    state.begun += 1;
    let number = state.begun;
    state.all.push(Attaching {
        number,
        pid,
        collected: BTreeSet::new(),
    });
    if !state.has_thread {
        state.has_thread = signals::try_spawn(collect).is_ok();
    }
    drop(state);
    BEGUN.notify_one();
    let result = work();
    let mut state = lock();
    if let Some(at) = state.all.iter().position(|one| one.number == number) {
        let done = state.all.swap_remove(at);
        done.collected.into_iter().for_each(followed::leave);
    }
    result
}

/// Collects ended threads of processes to which a thread has been attaching for a while.
///
/// Attaching threads wait for the lock that this thread holds. So it has their raised priority:
/// otherwise they would wait for its turn on a saturated machine.
fn collect() {
    let _priority = Priority::raise();
    let mut state = lock();
    loop {
        state = BEGUN
            .wait_while(state, |state| state.all.is_empty())
            .unwrap_or_else(PoisonError::into_inner);
        let begun = state.begun;
        drop(state);
        std::thread::sleep(PATIENCE);
        state = lock();
        let all = state.all.iter_mut();
        all.filter(|one| one.number <= begun)
            .for_each(Attaching::collect);
    }
}

impl Attaching {
    /// Collects the ended threads of the process, except its first one.
    fn collect(&mut self) {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid));
        let tids = tasks.into_iter().flatten().flatten();
        let tids = tids.filter_map(|task| task.file_name().to_str()?.parse().ok().map(Tid));
        // The end of the first thread is the end of the process, for which no attach waits.
        let others = tids.filter(|tid| tid.0 != self.pid.0);
        let ended = others.filter(|&tid| matches!(sys::seen(tid), Ok(Change::Ended)));
        for tid in ended {
            sys::collect(tid);
            self.collected.insert(tid);
        }
    }
}
