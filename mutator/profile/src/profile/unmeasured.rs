//! Calls that were counted but not measured.

use super::counts::{closed, is_argument};
use super::{PathEntry, Profile, RETURN, Throttled, TimerStats};

/// The numbers of calls of a function or path by the way in which they ended. The fields are those
/// of [`PathEntry`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    pub(super) count: u64,
    pub(super) unwound: Option<u64>,
    pub(super) open: Option<u64>,
    pub(super) tail: u64,
}

impl Ends {
    /// The calls on a path.
    pub(super) fn of(path: &PathEntry) -> Self {
        Self {
            count: path.metrics.count,
            unwound: path.unwound,
            open: path.open,
            tail: path.tail,
        }
    }

    /// The number of values that a metric has if it measured all of these calls: 0 for calls whose
    /// ends are unknown.
    pub(super) fn with_value(self, metric: &str) -> u64 {
        let closed = closed(self.count, self.unwound, self.open).unwrap_or(0);
        match metric {
            // A call that leaves by a tail call returns nothing itself.
            RETURN => closed.saturating_sub(self.tail),
            // If the exits are patched, arguments are recorded for calls that have ended.
            name if is_argument(name) && self.unwound.or(self.open).is_none() => self.count,
            _ => closed,
        }
    }

    /// The number of calls that a metric has not measured. Calls that are still running are not
    /// included if exits are patched.
    fn without_value(self, metric: &str, stats: &TimerStats) -> u64 {
        let wanted = match self.unwound.or(self.open) {
            None => self.count,
            Some(_) => self.with_value(metric),
        };
        wanted.saturating_sub(stats.values())
    }
}

impl PathEntry {
    /// The number of calls on the path that at least one metric has not measured: calls before it
    /// was added, calls after it was removed, and calls of functions whose exits are not patched. 0
    /// without metrics.
    pub fn unmeasured(&self) -> u64 {
        let ends = Ends::of(self);
        let timers = self.metrics.timers.iter();
        let each = timers.map(|(metric, stats)| ends.without_value(metric, stats));
        each.max().unwrap_or(0)
    }
}

impl Profile {
    /// The number of calls of functions that at least one metric has not measured. Probe points are
    /// not included, because they are only counted.
    pub fn unmeasured(&self) -> u64 {
        let calls = self.unmeasured_by_function();
        calls.into_iter().fold(0, u64::saturating_add)
    }

    /// For each function, in the order of `functions`: the number of its calls that at least one
    /// metric has not measured. 0 for probe points.
    pub fn unmeasured_by_function(&self) -> Vec<u64> {
        let mut calls = vec![0_u64; self.functions.len()];
        let of_functions = self.paths.iter();
        for path in of_functions.filter(|p| !self.functions[p.function].point) {
            let sum = &mut calls[path.function];
            *sum = sum.saturating_add(path.unmeasured());
        }
        calls
    }

    /// Updates the numbers of calls that throttled functions have counted and not timed, after the
    /// calls of paths have changed.
    pub fn count_throttled(&mut self) {
        let is_counted = |throttled: Throttled| throttled.calls_not_timed.is_some();
        let mut functions = self.functions.iter();
        if !functions.any(|f| f.throttled.is_some_and(is_counted)) {
            return;
        }
        let calls = self.unmeasured_by_function();
        for (function, calls) in self.functions.iter_mut().zip(calls) {
            let throttled = function.throttled.as_mut();
            if let Some(throttled) = throttled.filter(|throttled| is_counted(**throttled)) {
                throttled.calls_not_timed = Some(calls);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::sample::sample;

    #[test]
    fn calls_without_a_value_are_those_that_have_ended_or_are_not_seen_to() {
        let mut profile = sample();
        assert_eq!(profile.unmeasured(), 0);
        let path = &mut profile.paths[0];
        let calls = path.metrics.count;
        path.metrics
            .timers
            .stats_mut()
            .for_each(|stats| stats.hist[0].1 -= 3);
        assert_eq!(path.unmeasured(), 3);
        (path.unwound, path.open) = (None, None);
        path.metrics
            .timers
            .stats_mut()
            .for_each(|stats| stats.hist.clear());
        assert_eq!(profile.unmeasured(), calls);
        let function = profile.paths[0].function;
        profile.functions[function].point = true;
        assert_eq!(profile.unmeasured(), 0);
    }
}
