//! The contents of records, and sums over several.

use super::histogram::Histogram;
use super::rules::{Kind, Rule, Rules};

/// The contents of a record, or the sum over several records of one path.
#[derive(Clone, Debug)]
pub(super) struct Raw {
    /// The number of calls that have begun.
    pub(super) entered: u64,
    /// The number of calls that returned, or ended with a tail call.
    pub(super) closed: u64,
    /// The number of calls that ended without a return: by an exception, by longjmp or with their
    /// thread.
    pub(super) unwound: u64,
    /// The part of `closed` that ended with a tail call.
    pub(super) tail: u64,
    /// The number of calls that were counted only at their entry. How they ended is unknown.
    pub(super) alone: u64,
    /// True if some of the calls were measured from their entry to their end.
    pub(super) sees_ends: bool,
    /// The raw values of each metric except the count, in the order of the session's document.
    pub(super) metrics: Vec<RawMetric>,
}

/// A metric of a record: the values of 0 or more, and the negative ones.
#[derive(Clone, Debug, Default)]
pub(super) struct RawMetric {
    pub(super) positive: RawColumn,
    pub(super) negative: RawColumn,
}

/// A column of a record, in raw units. The histogram is in the metric's unit.
#[derive(Clone, Debug, Default)]
pub(super) struct RawColumn {
    pub(super) sum: u128,
    pub(super) min: u64,
    pub(super) max: u64,
    /// The sum over the calls that no call of the same function encloses; 0 for values.
    pub(super) outermost: u64,
    /// The sum without the parts of nested measured calls. 0 for values. Negative if the overhead
    /// of measuring was overestimated.
    pub(super) exclusive: i64,
    pub(super) histogram: Histogram,
}

impl RawColumn {
    /// Resets everything to 0.
    pub(super) fn clear(&mut self) {
        (self.sum, self.min, self.max) = (0, 0, 0);
        (self.outermost, self.exclusive) = (0, 0);
        self.histogram.clear();
    }

    /// Adds the calls of another column.
    fn add(&mut self, other: &Self) {
        if !other.histogram.is_empty() {
            self.min = if self.histogram.is_empty() {
                other.min
            } else {
                self.min.min(other.min)
            };
            self.max = self.max.max(other.max);
        }
        self.sum = self.sum.saturating_add(other.sum);
        self.outermost = self.outermost.saturating_add(other.outermost);
        self.exclusive = self.exclusive.saturating_add(other.exclusive);
        self.histogram.add_all(&other.histogram);
    }

    /// Adds calls during which the thread was not switched out. Their CPU time is their elapsed
    /// time, and the difference is 0. Keeps the number of calls at or below `closed`.
    pub(super) fn add_steady(&mut self, steady: &Self, rule: Rule, closed: u64) {
        match rule.kind {
            // Each of these calls has the value 0.
            Kind::Rest if !steady.histogram.is_empty() => {
                self.min = 0;
                self.histogram.add(0, steady.histogram.held());
            }
            Kind::Rest => {}
            _ => self.add(steady),
        }
        if self.histogram.held() > closed {
            self.hold(closed);
        }
    }

    /// Makes `closed` the number of calls in the histogram.
    fn hold(&mut self, closed: u64) {
        let exponent = self.sum.checked_ilog2().unwrap_or(0);
        self.histogram.hold(closed, exponent as usize);
    }
}

impl Raw {
    /// The contents of a record without calls.
    pub(super) fn empty(metrics: usize) -> Self {
        Self {
            entered: 0,
            closed: 0,
            unwound: 0,
            tail: 0,
            alone: 0,
            sees_ends: false,
            metrics: vec![RawMetric::default(); metrics],
        }
    }

    /// Resets it to the contents of a record without calls.
    pub(super) fn clear(&mut self) {
        (self.entered, self.closed, self.unwound) = (0, 0, 0);
        (self.tail, self.alone, self.sees_ends) = (0, 0, false);
        for metric in &mut self.metrics {
            metric.positive.clear();
            metric.negative.clear();
        }
    }

    /// The number of activations that have not ended, except those whose ends are not seen.
    pub(super) fn open(&self) -> u64 {
        self.entered
            .saturating_sub(self.closed)
            .saturating_sub(self.unwound)
            .saturating_sub(self.alone)
    }

    /// Makes all parts agree on the same calls, and finds the calls whose ends are not seen.
    /// `rules` describes the schema of the record.
    pub(super) fn settle(&mut self, rules: Option<&Rules>) {
        if let Some(rules) = rules {
            self.mend(rules);
        }
        self.sees_ends = rules.is_none_or(|rules| rules.needs_exits);
        if !self.sees_ends {
            self.alone = self.open();
        }
    }

    /// Repairs a reading during which a writer stood still in the middle of a call's end. The
    /// writer had counted the call in one place and not yet in another: its thread is not running,
    /// or was killed there.
    fn mend(&mut self, rules: &Rules) {
        // Every call has a time. The other columns may lack calls.
        let held = |metric: usize| Some(self.metrics.get(metric)?.positive.histogram.held());
        let held = || rules.of_all().filter_map(held);
        let (Some(least), Some(most)) = (held().min(), held().max()) else {
            return;
        };
        if least == self.closed && most == self.closed {
            return;
        }
        // The call is either still open or has just ended. Choose the state that all histograms can
        // represent. If more than one call is missing, the writer was moving buckets.
        if least.abs_diff(self.closed) <= 1 {
            self.closed = least;
        }
        for metric in rules.of_all() {
            if let Some(metric) = self.metrics.get_mut(metric) {
                metric.positive.hold(self.closed);
            }
        }
        let ended = self.closed.saturating_add(self.unwound);
        self.entered = self.entered.max(ended);
        self.tail = self.tail.min(self.closed);
    }

    /// Corrects timers for the partly written call: a timer that is off by one either lacks this
    /// call, or counts it while `closed` does not.
    pub(super) fn complete(&mut self, rules: &Rules) {
        for metric in rules.of_most() {
            let Some(metric) = self.metrics.get_mut(metric) else {
                continue;
            };
            let held = metric.positive.histogram.held();
            if held.abs_diff(self.closed) == 1 {
                metric.positive.hold(self.closed);
            }
        }
    }

    /// Adds another record of the same path, from another thread or with another schema.
    pub(super) fn add(&mut self, other: &Self) {
        for (sum, more) in self.metrics.iter_mut().zip(&other.metrics) {
            sum.positive.add(&more.positive);
            sum.negative.add(&more.negative);
        }
        self.entered = self.entered.saturating_add(other.entered);
        self.closed = self.closed.saturating_add(other.closed);
        self.unwound = self.unwound.saturating_add(other.unwound);
        self.tail = self.tail.saturating_add(other.tail);
        self.alone = self.alone.saturating_add(other.alone);
        self.sees_ends |= other.sees_ends;
    }
}
