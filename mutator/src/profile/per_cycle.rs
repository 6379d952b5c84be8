//! Instructions per cycle.

use super::{TimerStats, Timers};

const CYCLES: &str = "cycles";
const INSTRUCTIONS: &str = "instructions";

/// How many cycles and instructions some calls have had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerCycle {
    cycles: Sum,
    instructions: Sum,
}

/// A sum, and how many calls have told it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    of: i128,
    calls: u64,
}

impl Sum {
    fn of(stats: Option<&TimerStats>) -> Self {
        stats.map_or_else(Self::default, |stats| Self {
            of: stats.sum,
            calls: stats.values(),
        })
    }

    fn add(&mut self, other: &Self) {
        self.of = self.of.saturating_add(other.of);
        self.calls = self.calls.saturating_add(other.calls);
    }
}

impl PerCycle {
    /// Of what was measured of some calls.
    pub fn of(timers: &Timers) -> Self {
        Self {
            cycles: Sum::of(timers.get(CYCLES)),
            instructions: Sum::of(timers.get(INSTRUCTIONS)),
        }
    }

    /// True if a metric is one of the two.
    pub fn has_to_do_with(metric: &str) -> bool {
        [CYCLES, INSTRUCTIONS].contains(&metric)
    }

    /// True if its line comes after that of a metric.
    pub fn comes_after(metric: &str) -> bool {
        metric == INSTRUCTIONS
    }

    /// Adds other calls.
    pub fn add(&mut self, other: &Self) {
        self.cycles.add(&other.cycles);
        self.instructions.add(&other.instructions);
    }

    /// Instructions a cycle, where both were counted over the same calls.
    pub fn ratio(&self) -> Option<f64> {
        let Self {
            cycles,
            instructions,
        } = self;
        let is_of_same = cycles.of > 0 && cycles.calls == instructions.calls;
        is_of_same.then(|| instructions.of as f64 / cycles.of as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_calls_with_both_have_a_ratio() {
        let stats = |sum, calls| TimerStats {
            sum,
            hist: vec![(3, calls)],
            ..TimerStats::default()
        };
        let of = |cycles, instructions| {
            let timers = [(CYCLES, cycles), (INSTRUCTIONS, instructions)];
            let timers = timers.map(|(name, stats)| (name.to_owned(), stats));
            PerCycle::of(&timers.into_iter().collect())
        };
        let mut all = of(stats(100, 10), stats(150, 10));
        assert_eq!(all.ratio(), Some(1.5));
        all.add(&of(stats(100, 2), stats(50, 2)));
        assert_eq!(all.ratio(), Some(1.0));
        assert_eq!(of(stats(100, 10), stats(150, 9)).ratio(), None);
        assert_eq!(of(stats(0, 10), stats(150, 10)).ratio(), None);
        assert_eq!(PerCycle::default().ratio(), None);
    }
}
