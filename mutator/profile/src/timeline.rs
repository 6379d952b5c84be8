//! CLOCK_MONOTONIC at earlier values of the time-stamp counter.

use abi::segment::Header;
use std::sync::atomic::Ordering::Relaxed;

use crate::clock;

/// The time-stamp counter in ticks, and CLOCK_MONOTONIC at the same time in nanoseconds.
type Reading = (u64, u64);

/// The maximum number of readings. Beyond it, every other one is dropped.
const MOST: usize = 4096;

/// Readings of both clocks during a session. The kernel slews CLOCK_MONOTONIC (adjtimex(2)), so the
/// ratio of the two varies. Between two readings it counts as constant.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// The readings, the first at the start of the session.
    readings: Vec<Reading>,
}

impl Timeline {
    /// Reads both clocks.
    pub fn look(&mut self, header: &Header) {
        let start = (
            header.started_tsc.load(Relaxed),
            header.started_monotonic_ns.load(Relaxed),
        );
        self.add(start, clock::now(), header.clock_hz.load(Relaxed));
    }

    fn add(&mut self, start: Reading, now: Reading, hz: u64) {
        if self.readings.first() != Some(&start) {
            self.readings = vec![start];
        }
        // The last reading is replaced unless it is half a second after the one before it.
        if let [.., before, last] = self.readings[..]
            && last.0.saturating_sub(before.0) < hz / 2
        {
            self.readings.pop();
        }
        if self.readings.len() >= MOST {
            let mut number = 0;
            self.readings.retain(|_| {
                number += 1;
                number % 2 == 1
            });
        }
        if self.readings.last().is_some_and(|last| last.0 < now.0) {
            self.readings.push(now);
        }
    }

    /// The time from the start of the session to this value of the time-stamp counter, in
    /// nanoseconds by CLOCK_MONOTONIC. 0 if the counter is earlier, or if no clock was read.
    pub fn ns_since_start(&self, tsc: u64) -> u64 {
        let after = self.readings.partition_point(|&(at, _)| at <= tsc);
        let after = after.min(self.readings.len().saturating_sub(1));
        let (Some(&first), Some(&end)) = (self.readings.first(), self.readings.get(after)) else {
            return 0;
        };
        let Some(&begin) = after.checked_sub(1).and_then(|at| self.readings.get(at)) else {
            return 0;
        };
        let ticks = u128::from(tsc.saturating_sub(begin.0));
        let of_span = u128::from(end.0.saturating_sub(begin.0)).max(1);
        let ns = u128::from(end.1.saturating_sub(begin.1));
        let since = ticks.saturating_mul(ns) / of_span;
        let before = begin.1.saturating_sub(first.1);
        before.saturating_add(u64::try_from(since).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HZ: u64 = 2_000_000_000;

    #[test]
    fn times_lie_on_lines_between_readings() {
        let mut timeline = Timeline::default();
        assert_eq!(timeline.ns_since_start(5), 0);
        let start = (1000, 50);
        timeline.add(start, (1000 + 2 * HZ, 50 + 1_000_000_000), HZ);
        timeline.add(start, (1000 + 4 * HZ, 50 + 2_000_400_000), HZ);
        for (tsc, ns) in [
            (0, 0),
            (1000, 0),
            (1000 + HZ, 500_000_000),
            (1000 + 2 * HZ, 1_000_000_000),
            (1000 + 3 * HZ, 1_500_200_000),
            (1000 + 4 * HZ, 2_000_400_000),
            (1000 + 6 * HZ, 3_000_800_000),
        ] {
            assert_eq!(timeline.ns_since_start(tsc), ns, "{tsc}");
        }
    }

    /// Frequent readings replace each other, and many are thinned out. The first one stays.
    #[test]
    fn readings_are_bounded() {
        let mut timeline = Timeline::default();
        let start = (7, 7);
        for second in 1..20_000 {
            for part in 0..3 {
                let ticks = second * HZ + part * HZ / 10;
                timeline.add(start, (7 + ticks, 7 + ticks / 2), HZ);
            }
        }
        assert!(timeline.readings.len() <= MOST);
        for second in [1, 77, 19_000] {
            assert_eq!(timeline.ns_since_start(7 + second * HZ), second * HZ / 2);
        }
        timeline.add((9, 9), (9 + HZ, 9 + HZ / 2), HZ);
        assert_eq!(timeline.readings.len(), 2);
    }
}
