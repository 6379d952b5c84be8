//! A request that is on its way, in a thread of its own: this one hears signals meanwhile.

use std::io::{self, PipeReader};
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::PollFlags;

use crate::push::{Client, Outcome, Request};
use ipath_target::signals::{Asked, Signals};

/// What a client may take beyond the limit that it is given.
const GRACE: Duration = Duration::from_secs(2);

/// A request that is on its way.
pub(super) struct Sending {
    outcome: Receiver<Outcome>,
    /// Ends with the thread.
    end: PipeReader,
    limit: Instant,
}

impl Sending {
    /// Sends a request, which takes no longer than `limit`.
    pub(super) fn begin(client: &Client, request: Request, limit: Duration) -> io::Result<Self> {
        let (end, open) = io::pipe()?;
        let (to, outcome) = channel();
        let client = client.clone();
        thread::Builder::new().spawn(move || {
            // Nobody may be waiting any more.
            let _ = to.send(client.send(&request, limit));
            drop(open);
        })?;
        Ok(Self {
            outcome,
            end,
            limit: Instant::now() + limit + GRACE,
        })
    }
}

/// What has come first.
pub(super) enum Heard {
    /// A signal that asks this process to end.
    Signal,
    /// What has come of a request.
    Outcome(Outcome),
    /// Nothing, or nothing of interest.
    Nothing,
}

/// What is waited for beside signals.
#[derive(Clone, Copy)]
pub(super) enum Awaited<'s> {
    /// No longer than until then, if that is said.
    Outcome(&'s Sending, Option<Instant>),
    Time(Duration),
}

/// Waits until something has come.
pub(super) fn hear(signals: &Signals, awaited: Awaited<'_>) -> Heard {
    match signals.next() {
        Some(Asked::End) => return Heard::Signal,
        Some(Asked::Suspend) => {
            signals.suspend();
            return Heard::Nothing;
        }
        Some(Asked::Child | Asked::Resize) => return Heard::Nothing,
        None => {}
    }
    let (sending, limit) = match awaited {
        Awaited::Outcome(sending, end) => (
            sending,
            end.map_or(sending.limit, |end| end.min(sending.limit)),
        ),
        Awaited::Time(time) => {
            // Where it cannot be waited, that is tried again.
            let _ = signals.wait([], Some(time));
            return Heard::Nothing;
        }
    };
    let left = limit.saturating_duration_since(Instant::now());
    let ready = signals.wait([(sending.end.as_fd(), PollFlags::POLLIN)], Some(left));
    let is_ready = ready.is_ok_and(|[flags]| !flags.is_empty());
    if is_ready || left.is_zero() {
        Heard::Outcome(
            sending
                .outcome
                .try_recv()
                .unwrap_or_else(|_| Outcome::Later("no answer has come".to_owned(), None)),
        )
    } else {
        Heard::Nothing
    }
}
