//! The connections of a server and their states.
//!
//! A connection counts until its thread has ended, not until it is closed. A client that hangs up
//! after its request leaves a thread behind, and the request in the queue. So the limit covers both
//! threads and queued requests.

use std::collections::BTreeMap;
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::message::{Answer, Asked};

/// The most connections at a time.
pub(super) const MAX_CONNECTIONS: usize = 64;
/// The time that a further connection waits for a thread to end.
const A_WHILE: Duration = Duration::from_secs(1);

/// The state of a connection.
#[derive(Debug)]
enum Stage {
    /// The connection's request is still arriving.
    Reading,
    /// The connection's request is queued.
    Asked(Asked),
    /// The connection's request is being processed.
    Taken,
    /// The connection's thread is about to write this answer.
    Answered(Answer),
    /// The connection's answer is being written.
    Writing,
    /// The connection is closed, and its thread is about to end.
    Closed,
}

#[derive(Debug)]
struct One {
    stream: TcpStream,
    stage: Stage,
}

/// The connections, by number, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Connections(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    all: Mutex<BTreeMap<u64, One>>,
    changed: Condvar,
}

impl Connections {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, One>> {
        self.0.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a change until a deadline.
    fn wait<'a>(
        &self,
        all: MutexGuard<'a, BTreeMap<u64, One>>,
        until: Instant,
    ) -> MutexGuard<'a, BTreeMap<u64, One>> {
        let left = until.saturating_duration_since(Instant::now());
        let waited = self.0.changed.wait_timeout(all, left);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Changes the stage of a connection, unless it is closed.
    fn set(&self, number: u64, stage: Stage) {
        if let Some(one) = self.lock().get_mut(&number)
            && !matches!(one.stage, Stage::Closed)
        {
            one.stage = stage;
        }
        self.0.changed.notify_all();
    }

    /// Adds a connection, and closes another one if there are too many. `None` if no descriptor is
    /// available, or if no thread ends in time.
    pub(super) fn take_in(&self, number: u64, stream: &TcpStream) -> Option<Open> {
        let stream = stream.try_clone().ok()?;
        let until = Instant::now() + A_WHILE;
        let mut all = self.lock();
        while all.len() >= MAX_CONNECTIONS {
            // The thread of a closed connection is about to end, so no further one must be closed.
            if !all.values().any(One::is_closed) {
                close_one(&mut all);
                self.0.changed.notify_all();
            }
            all = self.wait(all, until);
            if all.len() >= MAX_CONNECTIONS && Instant::now() >= until {
                return None;
            }
        }
        let stage = Stage::Reading;
        all.insert(number, One { stream, stage });
        Some(Open(self.clone(), number))
    }

    /// Takes all requests out of the queue, each with the number of its connection. Waits up to
    /// `time` for the first one. Empty if none comes.
    pub(super) fn queued(&self, time: Duration) -> Vec<(u64, Asked)> {
        let until = Instant::now() + time;
        let mut all = self.lock();
        loop {
            let taken: Vec<_> = all.iter_mut().filter_map(take).collect();
            if !taken.is_empty() || Instant::now() >= until {
                return taken;
            }
            all = self.wait(all, until);
        }
    }

    /// Answers the request of a connection. Does nothing if the connection is closed.
    pub(super) fn answer(&self, number: u64, answer: Answer) {
        self.set(number, Stage::Answered(answer));
    }

    /// Closes a connection whose request has been taken from the queue and has no answer. Does
    /// nothing to other connections.
    pub(super) fn give_up(&self, number: u64) {
        if let Some(one) = self.lock().get_mut(&number)
            && matches!(one.stage, Stage::Taken)
        {
            one.close();
        }
        self.0.changed.notify_all();
    }
}

fn take((&number, one): (&u64, &mut One)) -> Option<(u64, Asked)> {
    match std::mem::replace(&mut one.stage, Stage::Taken) {
        Stage::Asked(asked) => Some((number, asked)),
        other => {
            one.stage = other;
            None
        }
    }
}

/// Closes one connection: one with a client that has hung up, else one without a request yet, else
/// the oldest.
fn close_one(all: &mut BTreeMap<u64, One>) {
    let mut open: Vec<&mut One> = all.values_mut().filter(|one| !one.is_closed()).collect();
    let victim = open
        .iter()
        .position(|one| one.has_hung_up())
        .or_else(|| open.iter().position(|one| one.is_reading()))
        .unwrap_or(0);
    if let Some(one) = open.get_mut(victim) {
        one.close();
    }
}

impl One {
    fn is_closed(&self) -> bool {
        matches!(self.stage, Stage::Closed)
    }

    fn is_reading(&self) -> bool {
        matches!(self.stage, Stage::Reading)
    }

    /// True if the request has arrived and the client has closed its sending side. A client that
    /// closed only that side looks the same as one that is gone.
    fn has_hung_up(&self) -> bool {
        let asked = PollFlags::from_bits_retain(libc::POLLRDHUP);
        let mut fds = [PollFd::new(self.stream.as_fd(), asked)];
        !self.is_reading() && matches!(poll(&mut fds, PollTimeout::ZERO), Ok(1..))
    }

    fn close(&mut self) {
        self.stage = Stage::Closed;
        // Its thread sees the end of the connection in a read or a write.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// The thread's handle of a connection. The thread drops it last.
pub(super) struct Open(Connections, u64);

impl Open {
    /// Queues the request and waits for its answer. `None` if the connection is closed first.
    pub(super) fn answer_to(&self, asked: Asked) -> Option<Answer> {
        let Self(connections, number) = self;
        connections.set(*number, Stage::Asked(asked));
        let mut all = connections.lock();
        loop {
            let one = all.get_mut(number)?;
            match std::mem::replace(&mut one.stage, Stage::Writing) {
                Stage::Answered(answer) => return Some(answer),
                Stage::Closed => {
                    one.stage = Stage::Closed;
                    return None;
                }
                other => one.stage = other,
            }
            let changed = connections.0.changed.wait(all);
            all = changed.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let Self(connections, number) = self;
        connections.lock().remove(number);
        connections.0.changed.notify_all();
    }
}
