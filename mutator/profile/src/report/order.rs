//! Sort keys of a report.

use crate::profile::{Counts, Distribution};
use std::cmp::Reverse;

/// The sort key of functions and paths. Numbers sort in descending order. Without a metric, the
/// numbers of calls take the place of its values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// The sum of the metric.
    #[default]
    Total,
    /// The number of calls.
    Calls,
    /// The mean of the metric's values.
    Mean,
    /// The 99th percentile of the metric's values.
    P99,
    /// The largest of the metric's values.
    Max,
    /// The name of the function, ascending, then the sum.
    Name,
}

impl By {
    /// The sort key for a function or path with this name and these counts. The numbers are those
    /// of `metric`, or the calls if it is `None` or not in `counts`.
    pub(super) fn key<'n>(
        self,
        metric: Option<&str>,
        counts: &Counts,
        name: &'n str,
    ) -> SortKey<'n> {
        /// Means are compared in 1 / `PART` of a unit.
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
        // Values may be negative. Functions without calls come last.
        (name, Reverse((calls > 0, cost, counts.count)))
    }
}

/// Sorts in ascending order.
pub(super) type SortKey<'n> = (&'n str, Reverse<(bool, i128, u64)>);
