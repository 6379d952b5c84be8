//! What a record says, and the sum of what several do.

use super::histogram::Histogram;
use super::rules::{Kind, Rule, Rules};

/// What a record says, or several of one path together.
#[derive(Clone, Debug)]
pub(super) struct Raw {
    pub(super) entered: u64,
    pub(super) closed: u64,
    pub(super) unwound: u64,
    /// Of those closed.
    pub(super) tail: u64,
    /// Those that were counted at their entry alone: nothing is known of how they ended.
    pub(super) alone: u64,
    /// True if some of the calls were measured from their entry to their end.
    pub(super) sees_ends: bool,
    /// One for each metric but the count.
    pub(super) metrics: Vec<RawMetric>,
}

/// A metric of a record: what is 0 or more, and what is less.
#[derive(Clone, Debug, Default)]
pub(super) struct RawMetric {
    pub(super) positive: RawColumn,
    pub(super) negative: RawColumn,
}

/// One column of a record, as it is read; the histogram in its unit.
#[derive(Clone, Debug, Default)]
pub(super) struct RawColumn {
    pub(super) sum: u128,
    pub(super) min: u64,
    pub(super) max: u64,
    pub(super) outermost: u64,
    /// Nothing of a value. Less than 0 where what measuring takes has been taken to be more than it was.
    pub(super) exclusive: i64,
    pub(super) histogram: Histogram,
}

impl RawColumn {
    /// Forgets all of it.
    pub(super) fn clear(&mut self) {
        (self.sum, self.min, self.max) = (0, 0, 0);
        (self.outermost, self.exclusive) = (0, 0);
        self.histogram.clear();
    }

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

    /// Adds the calls during which the thread has not been switched out: their CPU time is their time, and nothing is left
    /// of the one without the other. There are no more than are `closed`.
    pub(super) fn add_steady(&mut self, steady: &Self, rule: Rule, closed: u64) {
        match rule.kind {
            // As many as there are, and each of them 0.
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

    /// Makes its calls those `closed`.
    fn hold(&mut self, closed: u64) {
        let exponent = self.sum.checked_ilog2().unwrap_or(0);
        self.histogram.hold(closed, exponent as usize);
    }
}

impl Raw {
    /// What a record without a call says.
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

    /// Makes it that again.
    pub(super) fn clear(&mut self) {
        (self.entered, self.closed, self.unwound) = (0, 0, 0);
        (self.tail, self.alone, self.sees_ends) = (0, 0, false);
        for metric in &mut self.metrics {
            metric.positive.clear();
            metric.negative.clear();
        }
    }

    /// Activations that have not ended, as far as that would be known.
    pub(super) fn open(&self) -> u64 {
        self.entered
            .saturating_sub(self.closed)
            .saturating_sub(self.unwound)
            .saturating_sub(self.alone)
    }

    /// Makes all of it tell of the same calls, and finds those of which no end is seen. `rules` are those of its schema.
    pub(super) fn settle(&mut self, rules: Option<&Rules>) {
        if let Some(rules) = rules {
            self.mend(rules);
        }
        self.sees_ends = rules.is_none_or(|rules| rules.needs_exits);
        if !self.sees_ends {
            self.alone = self.open();
        }
    }

    /// A writer that stands still in the middle of a call's end has counted that call in one place and not yet in
    /// another: its thread does not run, or has been killed there.
    fn mend(&mut self, rules: &Rules) {
        // Of each call there is the time; the other columns may have nothing of one.
        let held = |metric: usize| Some(self.metrics.get(metric)?.positive.histogram.held());
        let held = || rules.of_all().filter_map(held);
        let (Some(least), Some(most)) = (held().min(), held().max()) else {
            return;
        };
        if least == self.closed && most == self.closed {
            return;
        }
        // The one call is still open, or has just ended, whichever all histograms can be made to say. Where more
        // than one is missing, the writer was moving buckets.
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

    /// Gives the call that a writer has written in part a number in each timer. What is one short, or one too many,
    /// is so for that.
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

    /// Adds another record of the same path: another thread's, or by another schema.
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
