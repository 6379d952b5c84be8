//! A path in several runs of one side.

use crate::profile::PathEntry;

use super::statistics::{Sample, p_of_samples};

/// A path in one run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Run {
    calls: u64,
    /// The sum of the metric, in its unit.
    sum: i128,
    /// The number of calls that the metric has measured.
    values: u64,
}

impl Run {
    /// The mean per call. `None` if no call was measured.
    pub(super) fn mean(&self) -> Option<f64> {
        (self.values > 0).then(|| self.sum as f64 / self.values as f64)
    }

    /// The number of calls. It is never `None`; the type is that of [`Run::mean`].
    pub(super) fn calls(&self) -> Option<f64> {
        Some(self.calls as f64)
    }
}

/// A path in each run of a side. `None` for a run that has not measured its function.
#[derive(Debug)]
pub(super) struct Runs(Vec<Option<Run>>);

impl Runs {
    /// Creates runs in which the path has not been found yet. `measured` is true for each run that
    /// measured the function.
    pub(super) fn of(measured: &[bool]) -> Self {
        let runs = measured.iter();
        Self(runs.map(|is| is.then(Run::default)).collect())
    }

    /// Adds the calls and the metric's sum of a path to the run with the index `run`.
    pub(super) fn add(&mut self, run: usize, path: &PathEntry, metric: &str) {
        let run = self.0[run].get_or_insert_default();
        run.calls = run.calls.saturating_add(path.metrics.count);
        if let Some(stats) = path.metrics.timers.get(metric) {
            run.sum = run.sum.saturating_add(stats.sum);
            run.values = run.values.saturating_add(stats.values());
        }
    }

    /// The number of runs that measured the function, at least 1.
    pub(super) fn count(&self) -> usize {
        self.0.iter().flatten().count().max(1)
    }

    /// The value that `of` returns for each run that measured the function, in order, without
    /// `None`.
    pub(super) fn values(&self, of: impl Fn(&Run) -> Option<f64>) -> Vec<f64> {
        self.0.iter().flatten().filter_map(of).collect()
    }

    /// The mean of [`Runs::values`]. `None` if there are none.
    pub(super) fn mean(&self, of: impl Fn(&Run) -> Option<f64>) -> Option<f64> {
        Sample::of(&self.values(of)).map(|sample| sample.mean)
    }

    /// The standard error of the mean of [`Runs::values`]. `None` with fewer than two.
    pub(super) fn standard_error(&self, of: impl Fn(&Run) -> Option<f64>) -> Option<f64> {
        Sample::of(&self.values(of))?.standard_error()
    }

    /// The p-value of the difference of the means of two sides, as by [`p_of_samples`]. `None` if
    /// a side has no value, or each has one.
    pub(super) fn p_of(&self, new: &Self, of: impl Fn(&Run) -> Option<f64>) -> Option<f64> {
        p_of_samples(&self.values(&of), &new.values(&of))
    }
}
