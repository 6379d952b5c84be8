//! Beginning to trace threads whose process may call execve(2) at that moment.
//!
//! Under a lock that ptrace(2) takes to begin (`cred_guard_mutex`; kernel/ptrace.c, `ptrace_attach`), an exec waits for all other threads of
//! its process to be no more (fs/exec.c, `de_thread`): of one that is traced already, until it has been collected. Its tracer would
//! wait for the lock meanwhile, and both for ever. But any thread of the tracer's process may collect what another one traces (wait(2),
//! without `__WNOTHREAD`): one does, for as long as others begin to trace.

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::sys::Change;
use super::{followed, sys};
use crate::priority::Priority;
use crate::process::{Pid, Tid};
use crate::signals;

/// It takes microseconds, but where an exec is in the way or there is no processor.
const PATIENCE: Duration = Duration::from_millis(5);

/// A process that is beginning to be traced.
struct Attaching {
    number: u64,
    pid: Pid,
    /// Threads that have been collected.
    collected: BTreeSet<Tid>,
}

struct State {
    all: Vec<Attaching>,
    /// How many there have been.
    begun: u64,
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

/// Does what begins to trace some of the threads of a process, of which others may be traced.
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

/// Collects ended threads of processes to which a thread has been attaching for long.
///
/// Attaching threads wait for the lock that is held here. So this thread has their raised priority.
/// Otherwise they would wait for its turn on a saturated machine.
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
    fn collect(&mut self) {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid));
        let tids = tasks.into_iter().flatten().flatten();
        let tids = tids.filter_map(|task| task.file_name().to_str()?.parse().ok().map(Tid));
        // The end of the first is that of the process, and nobody waits for that.
        let others = tids.filter(|tid| tid.0 != self.pid.0);
        let ended = others.filter(|&tid| matches!(sys::seen(tid), Ok(Change::Ended)));
        for tid in ended {
            sys::collect(tid);
            self.collected.insert(tid);
        }
    }
}
