//! What looking may cost the process. A perf event of a thread costs it at each switch, whether that is sampled or not: its
//! timer is started and stopped, and a record written. So threads that switch often are looked at for a while in turn.

use super::activity::Pace;

/// What is assumed that a record of a switch takes of the thread's time, a sample, and the beginning of a window, ns: as
/// measured in a virtual machine, where timers are dear.
const SWITCH: f64 = 4_500.0;
const SAMPLE: f64 = 8_000.0;
const OPENING: f64 = 20_000.0;
/// What a switch takes longer of a thread that has been looked at, for a second after the last window of any thread: the
/// kernel does not forget at once that there were events (kernel/events/core.c, perf_sched_events), ns.
const AFTERWARDS: f64 = 180.0;
const FOR_SO_LONG: u64 = 1_000_000_000;
/// More of a thread's time than this is not taken however often it switches: it switches less often then.
const MOST_OF_TIME: f64 = 0.7;

/// How much of the process's time on processors looking may take, and of one processor where that is little.
const SHARE: f64 = 0.008;
const LEAST: f64 = 0.002;
/// What is earned in so many ns may be taken at once, and at the beginning.
const SAVED: f64 = 1.25e9;

/// Time that may be taken of the process.
#[derive(Debug)]
pub(super) struct Budget {
    /// By now, ns; what has been taken too much is missing.
    credit: f64,
    /// Earned in a nanosecond, ns.
    rate: f64,
    /// What switches take longer in a nanosecond, until it is over, ns.
    afterwards: f64,
    until: u64,
    at: u64,
}

impl Budget {
    /// What may be taken from now on of a process of this pace.
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

    /// All threads of the process together have this pace by now.
    pub(super) fn follow(&mut self, process: Pace) {
        self.rate = (SHARE * process.processor).max(LEAST);
        self.afterwards = AFTERWARDS * process.turns / 1e9;
    }

    /// A thread is looked at until then.
    pub(super) fn look_until(&mut self, ends: u64) {
        self.until = self.until.max(ends + FOR_SO_LONG);
    }

    /// Time passes.
    pub(super) fn earn(&mut self, now: u64) {
        let passed = now.saturating_sub(self.at) as f64;
        let afterwards = now.min(self.until).saturating_sub(self.at) as f64;
        let earned = passed * self.rate - afterwards * self.afterwards;
        self.credit = (self.credit + earned).min(SAVED * self.rate);
        self.at = now;
    }

    pub(super) fn has_credit(&self) -> bool {
        self.credit > 0.0
    }

    pub(super) fn take(&mut self, ns: f64) {
        self.credit -= ns;
    }
}

/// What a window of so many ns is likely to take of a thread of this pace that is sampled each `period` ns, ns.
pub(super) fn likely(pace: Pace, window: u64, period: u64) -> f64 {
    let of_time = (2.0 * SWITCH * pace.turns / 1e9).min(MOST_OF_TIME);
    OPENING + window as f64 * (of_time + SAMPLE * pace.processor / period as f64)
}

/// What it has taken.
pub(super) fn taken(switches: u64, samples: u64) -> f64 {
    SWITCH * switches as f64 + SAMPLE * samples as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Windows of `window` ns are opened whenever there is credit, which may be before they are paid for; the time taken, and
    /// how many they are.
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
        // Each second after a window takes 90 ms, which are earned in eleven.
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
