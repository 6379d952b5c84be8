//! What comes first in a report.

use crate::profile::{Counts, Distribution};
use std::cmp::Reverse;

/// What functions and paths are sorted by, the largest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// The sum of the first metric; without one the calls.
    #[default]
    Total,
    /// The calls.
    Calls,
    /// The mean.
    Mean,
    /// The 99th percentile.
    P99,
    /// The largest value.
    Max,
    /// The name of the function, from A on, then the sum.
    Name,
}

impl By {
    /// What the one of these counts and of this name is sorted by, by the metric of this name where there is one.
    pub(super) fn key<'n>(self, metric: Option<&str>, counts: &Counts, name: &'n str) -> Key<'n> {
        /// Means are compared by this part of a unit.
        const PART: i128 = 1000;
        let calls = i128::from(counts.count);
        let stats = metric.and_then(|metric| counts.timers.get(metric));
        let cost = match (stats, self) {
            (None, _) | (_, Self::Calls) => calls,
            (Some(stats), Self::Total | Self::Name) => stats.sum,
            (Some(stats), Self::Max) => stats.max.into(),
            (Some(stats), Self::Mean) => {
                let parts = stats.sum.saturating_mul(PART);
                parts.checked_div(stats.values().into()).unwrap_or(0)
            }
            (Some(stats), Self::P99) => Distribution::of(stats).quantile(990).unwrap_or(0),
        };
        let name = if self == Self::Name { name } else { "" };
        // Values may be negative: what has not been called is less than any.
        (name, Reverse((calls > 0, cost, counts.count)))
    }
}

/// Ascending, what comes first.
pub(super) type Key<'n> = (&'n str, Reverse<(bool, i128, u64)>);
