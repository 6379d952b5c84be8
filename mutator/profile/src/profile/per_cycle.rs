//! Instructions per cycle.

use super::Timers;

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

impl PerCycle {
    /// Of what was measured of some calls.
    pub fn of(timers: &Timers) -> Self {
        Self::by(|name| timers.get(name).map(|stats| (stats.sum, stats.values())))
    }

    /// The same where the sum of a metric and how many calls have told it are `told` by its name.
    pub fn by(told: impl Fn(&str) -> Option<(i128, u64)>) -> Self {
        let sum = |name| {
            let (of, calls) = told(name).unwrap_or_default();
            Sum { of, calls }
        };
        Self {
            cycles: sum(CYCLES),
            instructions: sum(INSTRUCTIONS),
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
    use crate::profile::TimerStats;

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
        assert_eq!(of(stats(100, 10), stats(150, 10)).ratio(), Some(1.5));
        assert_eq!(of(stats(200, 12), stats(200, 12)).ratio(), Some(1.0));
        assert_eq!(of(stats(100, 10), stats(150, 9)).ratio(), None);
        assert_eq!(of(stats(0, 10), stats(150, 10)).ratio(), None);
        assert_eq!(PerCycle::default().ratio(), None);
    }
}
