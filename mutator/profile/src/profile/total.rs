//! Sums of paths.

use super::{Counts, Distribution, Function, PathEntry, Presence, Throttled};
use std::collections::BTreeMap;

/// The sum of some paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// The calls on the paths and the other metrics, with their histograms.
    pub counts: Counts,
    /// The number of activations that ended by an exception or longjmp. `None` if exits are not
    /// patched.
    pub unwound: Option<u64>,
    /// The number of activations that are still running. `None` if exits are not patched.
    pub open: Option<u64>,
    /// The number of activations that left by a tail call. Their times exclude the callee.
    pub tail: u64,
    /// The number of activations on incomplete paths: see [`PathEntry::incomplete`].
    pub incomplete: u64,
    /// The number of activations that at least one metric has not measured.
    pub unmeasured: u64,
    /// The presence of the function. It is not added up.
    pub presence: Presence,
    /// The state of the function if it is throttled. It is not added up.
    pub throttled: Option<Throttled>,
    /// The values of each metric, by the metric's name.
    pub values: BTreeMap<String, Distribution>,
}

impl Total {
    /// The sum of `paths`.
    pub fn of<'p>(paths: impl IntoIterator<Item = &'p PathEntry>) -> Self {
        let mut total = Self::default();
        paths.into_iter().for_each(|path| total.add(path));
        total
    }

    /// The total as one of `function`, which may not have measured all its calls.
    pub fn of_function(self, function: &Function) -> Self {
        Self {
            presence: function.presence(),
            throttled: function.throttled,
            // A probe point is only counted, as intended.
            unmeasured: if function.point { 0 } else { self.unmeasured },
            ..self
        }
    }

    /// The number of calls whose times are missing from the sums: their own, or those of callees
    /// of tail calls. At least 1 if the function is throttled.
    pub fn lacking(&self) -> u64 {
        self.tail.max(u64::from(self.throttled.is_some()))
    }

    /// Adds the numbers of a path to the total.
    pub fn add(&mut self, path: &PathEntry) {
        let Self { counts, values, .. } = self;
        for (name, stats) in path.metrics.timers.iter() {
            let sum = counts.timers.entry(name);
            if stats.values() > 0 {
                sum.absorb(stats, sum.values() == 0);
            }
            match values.get_mut(name) {
                Some(values) => values.add(stats),
                None => drop(values.insert(name.to_owned(), Distribution::of(stats))),
            }
        }
        counts.count = counts.count.saturating_add(path.metrics.count);
        for (total, n) in [
            (&mut self.unwound, path.unwound),
            (&mut self.open, path.open),
        ] {
            *total = n.map(|n| total.unwrap_or(0).saturating_add(n)).or(*total);
        }
        self.tail = self.tail.saturating_add(path.tail);
        self.incomplete = self.incomplete.saturating_add(path.incomplete());
        self.unmeasured = self.unmeasured.saturating_add(path.unmeasured());
    }
}
