//! The pace of threads, by the kernel's count of their processor time, and the clock.

use ipath_target::process::Activity;

/// The activity of one or several threads per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Pace {
    /// The seconds on a processor per second. More than 1 is possible for several threads.
    pub(super) processor: f64,
    /// The number of times per second that a thread is given a processor.
    pub(super) turns: f64,
}

impl Pace {
    /// The pace of a thread between `before` and `after`, `seconds` apart.
    pub(super) fn between(before: Activity, after: Activity, seconds: f64) -> Self {
        let in_a_second = |n: u64| n as f64 / seconds.max(0.001);
        Self {
            processor: in_a_second(after.ran.saturating_sub(before.ran)) / 1e9,
            turns: in_a_second(after.turns.saturating_sub(before.turns)),
        }
    }
}

/// CLOCK_MONOTONIC, in nanoseconds. 0 if it cannot be read.
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
        let at = |ran, turns| Activity {
            ran,
            delayed: 0,
            turns,
        };
        let pace = Pace::between(at(1_000_000_000, 100), at(1_500_000_000, 600), 2.0);
        assert_eq!((pace.processor, pace.turns), (0.25, 250.0));
    }
}
