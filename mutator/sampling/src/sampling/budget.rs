//! The time that sampling may take from the process. A perf event of a thread takes time at each
//! switch, sampled or not: its timer is started and stopped, and a record is written. So threads
//! that switch often are sampled in turn, for a while.

use super::activity::Pace;

/// The estimated cost of a switch record, in nanoseconds of the thread's time. This cost and the
/// next two were measured in a virtual machine, where timers are expensive.
const SWITCH: f64 = 4_500.0;
/// The estimated cost of a sample, in nanoseconds of the thread's time.
const SAMPLE: f64 = 8_000.0;
/// The estimated cost of the start of a window, in nanoseconds of the thread's time.
const OPENING: f64 = 20_000.0;
/// The additional cost of each switch of a sampled thread, in nanoseconds, for [`FOR_SO_LONG`]
/// after the last window of any thread. The kernel keeps events enabled for that long
/// (kernel/events/core.c, perf_sched_events).
const AFTERWARDS: f64 = 180.0;
/// The time in which switches cost more after the last window, in nanoseconds.
const FOR_SO_LONG: u64 = 1_000_000_000;
/// The maximum part of a thread's time that sampling takes, however often the thread switches. It
/// switches less often then.
const MOST_OF_TIME: f64 = 0.7;

/// The part of the process's CPU time that sampling may take.
const SHARE: f64 = 0.008;
/// The part of one processor that sampling may take at least, however idle the process is.
const LEAST: f64 = 0.002;
/// The credit at the start, and the maximum credit: the earnings of this many nanoseconds.
const SAVED: f64 = 1.25e9;

/// The time that sampling may take from the process.
#[derive(Debug)]
pub(super) struct Budget {
    /// The current credit, in nanoseconds. It is negative after overspending.
    credit: f64,
    /// The nanoseconds that sampling may take for each nanosecond that passes.
    rate: f64,
    /// The additional cost of switches until `until`, in nanoseconds for each nanosecond that
    /// passes.
    afterwards: f64,
    /// The end of the additional cost: CLOCK_MONOTONIC, in nanoseconds.
    until: u64,
    /// The time up to which earnings were added: CLOCK_MONOTONIC, in nanoseconds.
    at: u64,
}

impl Budget {
    /// The initial budget for a process with this pace.
    pub(super) fn new(now: u64, process: Pace) -> Self {
        let mut budget = Self {
            credit: 0.0,
            rate: 0.0,
            afterwards: 0.0,
            until: now,
            at: now,
        };
        budget.follow(process);
        budget.credit = SAVED * budget.rate;
        budget
    }

    /// Updates the pace of all threads of the process together.
    pub(super) fn follow(&mut self, process: Pace) {
        self.rate = (SHARE * process.processor).max(LEAST);
        self.afterwards = AFTERWARDS * process.turns / 1e9;
    }

    /// Records that a thread is sampled until `ends`: CLOCK_MONOTONIC, in nanoseconds.
    pub(super) fn look_until(&mut self, ends: u64) {
        self.until = self.until.max(ends + FOR_SO_LONG);
    }

    /// Adds the earnings since the last call up to `now`, without the additional cost of switches.
    pub(super) fn earn(&mut self, now: u64) {
        let passed = now.saturating_sub(self.at) as f64;
        let afterwards = now.min(self.until).saturating_sub(self.at) as f64;
        let earned = passed * self.rate - afterwards * self.afterwards;
        self.credit = (self.credit + earned).min(SAVED * self.rate);
        self.at = now;
    }

    /// True if sampling may take more time now.
    pub(super) fn has_credit(&self) -> bool {
        self.credit > 0.0
    }

    /// Subtracts a cost in nanoseconds from the credit. A negative cost is given back.
    pub(super) fn take(&mut self, ns: f64) {
        self.credit -= ns;
    }
}

/// The expected cost of a window of `window` nanoseconds for a thread of this pace that is sampled
/// every `period` nanoseconds. In nanoseconds.
pub(super) fn likely(pace: Pace, window: u64, period: u64) -> f64 {
    let of_time = (2.0 * SWITCH * pace.turns / 1e9).min(MOST_OF_TIME);
    OPENING + window as f64 * (of_time + SAMPLE * pace.processor / period as f64)
}

/// The cost of this many switch records and samples, in nanoseconds.
pub(super) fn taken(switches: u64, samples: u64) -> f64 {
    SWITCH * switches as f64 + SAMPLE * samples as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Opens windows of `window` ns whenever there is credit, even if they cost more than that.
    /// Returns the time taken and the number of windows.
    fn taken_in(seconds: u64, processors: f64, pace: Pace, window: u64) -> (f64, u64) {
        const TICK: u64 = 25_000_000;
        let process = Pace {
            processor: processors,
            ..pace
        };
        let mut budget = Budget::new(0, process);
        let (mut all, mut windows) = (0.0, 0);
        for now in (1..=seconds * 1_000_000_000 / TICK).map(|tick| tick * TICK) {
            budget.earn(now);
            if budget.has_credit() {
                let cost = likely(pace, window, 250_000);
                budget.take(cost);
                budget.look_until(now + window);
                all += cost;
                windows += 1;
            }
        }
        (all, windows)
    }

    #[test]
    fn what_is_taken_is_in_proportion_to_what_the_process_does() {
        let pace = Pace {
            processor: 0.5,
            turns: 20_000.0,
        };
        let (taken, _) = taken_in(10, 1.0, pace, 5_000_000);
        assert!((50e6..=95e6).contains(&taken), "{taken}");
        let pace = Pace {
            processor: 0.001,
            turns: 1_000.0,
        };
        let (taken, _) = taken_in(10, 0.001, pace, 60_000_000);
        assert!((10e6..=30e6).contains(&taken), "{taken}");
    }

    #[test]
    fn what_windows_leave_behind_counts() {
        let pace = Pace {
            processor: 0.5,
            turns: 500_000.0,
        };
        let (_, windows) = taken_in(30, 1.0, pace, 5_000_000);
        // Each second after a window costs 90 ms, which take eleven seconds to earn.
        assert!((3..=40).contains(&windows), "{windows}");
    }

    #[test]
    fn who_switches_seldom_is_looked_at_all_the_time() {
        let pace = Pace {
            processor: 1.0,
            turns: 100.0,
        };
        let second = likely(pace, 1_000_000_000, 2_000_000);
        assert!(second < SHARE * 1e9, "{second}");
    }
}
