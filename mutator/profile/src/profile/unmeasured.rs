//! Calls that were counted, and not measured.

use super::counts::{closed, is_argument};
use super::{PathEntry, Profile, RETURN, TimerStats};

/// Calls of a function or path by how they ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    pub(super) count: u64,
    pub(super) unwound: Option<u64>,
    pub(super) open: Option<u64>,
    pub(super) tail: u64,
}

impl Ends {
    pub(super) fn of(path: &PathEntry) -> Self {
        Self {
            count: path.metrics.count,
            unwound: path.unwound,
            open: path.open,
            tail: path.tail,
        }
    }

    /// How many of them have a value of a metric that measured all of them.
    pub(super) fn with_value(self, metric: &str) -> u64 {
        let closed = closed(self.count, self.unwound, self.open).unwrap_or(0);
        match metric {
            // A call that leaves by a tail call returns nothing itself.
            RETURN => closed.saturating_sub(self.tail),
            // Where calls are judged by how they end, arguments are of those that have ended.
            name if is_argument(name) && self.unwound.or(self.open).is_none() => self.count,
            _ => closed,
        }
    }

    /// How many calls a metric has not measured, though they have ended, or are seen at their entry alone.
    fn without_value(self, metric: &str, stats: &TimerStats) -> u64 {
        let wanted = match self.unwound.or(self.open) {
            None => self.count,
            Some(_) => self.with_value(metric),
        };
        wanted.saturating_sub(stats.values())
    }
}

impl PathEntry {
    /// How many calls one of the metrics has not measured: those before it was added, those after it was taken out, and those
    /// of a function whose exits are not patched.
    pub fn unmeasured(&self) -> u64 {
        let ends = Ends::of(self);
        let timers = self.metrics.timers.iter();
        let each = timers.map(|(metric, stats)| ends.without_value(metric, stats));
        each.max().unwrap_or(0)
    }
}

impl Profile {
    /// Calls of functions that one of the metrics has not measured. Points are counted, and nothing else.
    pub fn unmeasured(&self) -> u64 {
        let calls = self.unmeasured_by_function();
        calls.into_iter().fold(0, u64::saturating_add)
    }

    /// The same of each function.
    pub fn unmeasured_by_function(&self) -> Vec<u64> {
        let mut calls = vec![0_u64; self.functions.len()];
        let of_functions = self.paths.iter();
        for path in of_functions.filter(|p| !self.functions[p.function].point) {
            let sum = &mut calls[path.function];
            *sum = sum.saturating_add(path.unmeasured());
        }
        calls
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
