//! What the kernel counts of a thread in any case: how often and for how long it has had a processor; and what time it is.

use crate::process::{Process, Tid, read_text};

/// What a thread has done since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Activity {
    /// Time on a processor, ns.
    pub(super) ran: u64,
    /// Time in which it waited for a processor, ns.
    pub(super) delayed: u64,
    /// How often it was given one.
    pub(super) turns: u64,
}

/// What a thread, or several together, does in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Pace {
    /// How much of a second it is on a processor.
    pub(super) processor: f64,
    /// How often it is given one.
    pub(super) turns: f64,
}

impl Activity {
    /// That of a thread by now; `None` where it has ended. A kernel that does not count says nothing but 0.
    pub(super) fn of(process: &Process, tid: Tid) -> Option<Self> {
        let text = read_text(format!("/proc/{}/task/{tid}/schedstat", process.pid));
        parse(&text.ok()?)
    }

    /// The pace at which a thread came from `before` to here, in so many seconds.
    pub(super) fn pace_since(self, before: Self, seconds: f64) -> Pace {
        let in_a_second = |n: u64| n as f64 / seconds.max(0.001);
        Pace {
            processor: in_a_second(self.ran.saturating_sub(before.ran)) / 1e9,
            turns: in_a_second(self.turns.saturating_sub(before.turns)),
        }
    }
}

/// Time on a processor, time in which it waited for one, turns (Documentation/scheduler/sched-stats.rst).
fn parse(text: &str) -> Option<Activity> {
    let mut words = text.split_whitespace().map(str::parse);
    let (ran, delayed, turns) = (words.next()?, words.next()?, words.next()?);
    Some(Activity {
        ran: ran.ok()?,
        delayed: delayed.ok()?,
        turns: turns.ok()?,
    })
}

/// CLOCK_MONOTONIC, ns.
pub(super) fn now() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
    now.map_or(0, |t| {
        t.tv_sec() as u64 * 1_000_000_000 + t.tv_nsec() as u64
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_is_what_was_done_in_a_second() {
        let then = parse("1000000000 5 100\n").unwrap();
        let now = parse("1500000000 7 600\n").unwrap();
        let pace = now.pace_since(then, 2.0);
        assert_eq!((pace.processor, pace.turns), (0.25, 250.0));
        assert_eq!(parse("1 2"), None);
    }
}
