//! A request in progress on a separate thread, so that this one can handle signals.

use std::io::{self, PipeReader};
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::PollFlags;

use crate::push::{Client, Outcome, Request};
use ipath_target::signals::{Asked, Signals};

/// The time that a client may take beyond its limit.
const GRACE: Duration = Duration::from_secs(2);

/// A request in progress.
pub(super) struct Sending {
    outcome: Receiver<Outcome>,
    /// Readable once the thread has ended.
    end: PipeReader,
    /// The time after which the outcome is no longer awaited.
    limit: Instant,
}

impl Sending {
    /// Sends a request, which takes no longer than `limit`.
    pub(super) fn begin(client: &Client, request: Request, limit: Duration) -> io::Result<Self> {
        let (end, open) = io::pipe()?;
        let (to, outcome) = channel();
        let client = client.clone();
        thread::Builder::new().spawn(move || {
            // The receiver may be gone.
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

/// The event that ended a wait.
pub(super) enum Heard {
    /// A signal that requests an end.
    Signal,
    /// The outcome of a request.
    Outcome(Outcome),
    /// No relevant event.
    Nothing,
}

/// The event to wait for besides signals.
#[derive(Clone, Copy)]
pub(super) enum Awaited<'s> {
    /// The outcome of a request, until an optional deadline.
    Outcome(&'s Sending, Option<Instant>),
    /// The end of this time.
    Time(Duration),
}

/// Waits for a signal or the awaited event, and returns which one came. Returns [`Heard::Nothing`]
/// also if a time is over or a wait was interrupted. Suspends this process if a signal requests it.
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
            // If the wait fails, the caller retries.
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
                .unwrap_or_else(|_| Outcome::Later("the server has not answered".to_owned(), None)),
        )
    } else {
        Heard::Nothing
    }
}
