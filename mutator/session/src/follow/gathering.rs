//! Adds up the profiles of processes that have ended while others run. Many processes may begin in
//! a second, so each is kept only as its part of the sum.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::collect::Collector;
use crate::session::Session;
use ipath_profile::Profile;
use ipath_profile::merge::{Merger, PathsOf};

/// The maximum number of sessions that wait to be added up. Each has a descriptor and memory.
const MAX_WAITING: usize = 64;

/// The queue's contents and the sum.
#[derive(Default)]
struct State {
    waiting: VecDeque<Session>,
    /// True while a session is being added up.
    is_busy: bool,
    /// True once no more sessions will be queued.
    is_over: bool,
    sum: Merger,
    /// Errors of adding up, for users.
    failed: Vec<String>,
    /// The number of sessions whose counts are not in the sum.
    lost: u64,
}

impl State {
    fn add(&mut self, profile: &Profile) {
        if let Err(error) = self.sum.add(profile) {
            let pid = profile.target.pid;
            self.failed.push(format!("follow {pid}: {error}"));
            self.lost += 1;
        }
    }
}

/// The queue of ended sessions, shared with the thread that adds them up.
#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_while(&self, condition: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let wait = self
            .changed
            .wait_while(self.lock(), |state| condition(state));
        wait.unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends queued sessions and adds them up, until no more will be queued.
    fn work(&self) {
        loop {
            let next = {
                let mut state = self.wait_while(|s| s.waiting.is_empty() && !s.is_over);
                let next = state.waiting.pop_front();
                state.is_busy = next.is_some();
                next
            };
            self.changed.notify_all();
            let Some(mut session) = next else { return };
            let pid = session.process().pid;
            let ended = session.give_up();
            let profile = session
                .refresh()
                .map(|()| Collector::default().profile(&session));
            let mut state = self.lock();
            match profile {
                Ok(profile) => state.add(&profile),
                Err(error) => {
                    state.failed.push(format!("follow {pid}: {error}"));
                    state.lost += 1;
                }
            }
            if let Err(error) = ended {
                state.failed.push(format!("follow {pid}: {error}"));
            }
            state.is_busy = false;
            drop(state);
            self.changed.notify_all();
        }
    }
}

/// A thread that adds up profiles for as long as this lives.
pub(super) struct Gathering {
    queue: Arc<Queue>,
    thread: Option<JoinHandle<()>>,
}

/// The queue of sessions that are over.
#[derive(Clone)]
pub(super) struct Over(Arc<Queue>);

impl Over {
    /// Queues a session to be added up. Waits if too many sessions are waiting.
    pub(super) fn take(&self, session: Session) {
        let mut state = self
            .0
            .wait_while(|s| s.waiting.len() >= MAX_WAITING && !s.is_over);
        state.waiting.push_back(session);
        drop(state);
        self.0.changed.notify_all();
    }
}

impl Gathering {
    pub(super) fn begin(paths_of: PathsOf) -> std::io::Result<Self> {
        let queue: Arc<Queue> = Arc::default();
        queue.lock().sum = Merger::new(paths_of);
        let own = Arc::clone(&queue);
        let work = move || own.work();
        let thread = std::thread::Builder::new()
            .name("gather".into())
            .spawn(work)?;
        Ok(Self {
            queue,
            thread: Some(thread),
        })
    }

    /// The queue, for the thread that sees processes end.
    pub(super) fn over(&self) -> Over {
        Over(Arc::clone(&self.queue))
    }

    /// Adds a profile.
    pub(super) fn add(&self, profile: &Profile) {
        self.queue.lock().add(profile);
    }

    /// The sum so far.
    pub(super) fn sum(&self) -> Merger {
        self.queue.lock().sum.clone()
    }

    /// The sum of all sessions that were queued. Waits until they are added up.
    pub(super) fn whole(&self) -> Merger {
        let state = self
            .queue
            .wait_while(|s| s.is_busy || !s.waiting.is_empty());
        state.sum.clone()
    }

    /// The number of sessions that could not be added up.
    pub(super) fn lost(&self) -> u64 {
        self.queue.lock().lost
    }

    /// Errors of adding up since the last call.
    pub(super) fn failed(&self) -> Vec<String> {
        std::mem::take(&mut self.queue.lock().failed)
    }
}

impl Drop for Gathering {
    fn drop(&mut self) {
        self.queue.lock().is_over = true;
        self.queue.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been reported already.
            let _ = thread.join();
        }
    }
}
