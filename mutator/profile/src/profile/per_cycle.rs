//! Instructions per cycle.

use super::Timers;

const CYCLES: &str = "cycles";
const INSTRUCTIONS: &str = "instructions";

/// The cycles and instructions of some calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerCycle {
    cycles: Sum,
    instructions: Sum,
}

/// A sum, and the number of calls that contributed to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    /// The sum.
    of: i128,
    calls: u64,
}

impl PerCycle {
    /// The counts of the calls that `timers` sums.
    pub fn of(timers: &Timers) -> Self {
        Self::by(|name| timers.get(name).map(|stats| (stats.sum, stats.values())))
    }

    /// The counts given by `told`, which returns the sum of a metric and its number of calls. A
    /// metric for which it returns `None` counts as 0.
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

    /// True if `metric` is `cycles` or `instructions`.
    pub fn has_to_do_with(metric: &str) -> bool {
        [CYCLES, INSTRUCTIONS].contains(&metric)
    }

    /// True if the line of this ratio comes directly after the line of `metric`.
    pub fn comes_after(metric: &str) -> bool {
        metric == INSTRUCTIONS
    }

    /// Instructions per cycle. `None` unless both were counted over equally many calls, and there
    /// are cycles.
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
