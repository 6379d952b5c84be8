//! Consistent readings of single records.

use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::fence;
use std::time::Duration;

use abi::segment::{Column, NO_BUCKET};

use super::raw::{Raw, RawColumn};
use super::rules::{Kind, Schemas};
use crate::segment::Segment;
use abi::value::whole_sum;

#[cfg(test)]
mod tests;

/// Reads records, in one look at all that have changed.
pub(super) struct Reader<'s> {
    segment: &'s Segment,
    schemas: &'s Schemas,
    patience: Patience,
    /// The steady calls of the current record, during which the thread was not switched out.
    steady: RawColumn,
}

/// The time to wait, in one look at all records, for writers that stand still in the middle of an
/// update.
struct Patience {
    pauses: u32,
}

impl Default for Patience {
    fn default() -> Self {
        /// Usually enough for a thread that waits for a processor.
        const PAUSES: u32 = 50;
        Self { pauses: PAUSES }
    }
}

impl Patience {
    /// Waits 2 ms. False, without a wait, if no pauses are left.
    fn wait(&mut self) -> bool {
        const PAUSE: Duration = Duration::from_millis(2);
        let Some(left) = self.pauses.checked_sub(1) else {
            return false;
        };
        self.pauses = left;
        std::thread::sleep(PAUSE);
        true
    }
}

impl<'s> Reader<'s> {
    pub(super) fn new(segment: &'s Segment, schemas: &'s Schemas) -> Self {
        Self {
            segment,
            schemas,
            patience: Patience::default(),
            steady: RawColumn::default(),
        }
    }

    /// Reads a record into `raw`, which becomes empty if part of the record is out of range. If
    /// `is_still`, the writer has been waited for before.
    pub(super) fn read(&mut self, record: u32, is_still: bool, raw: &mut Raw) {
        if self.try_read(record, is_still, raw).is_none() {
            raw.clear();
        }
    }

    /// Like [`Self::read`]. `None` if part of the record is out of range.
    fn try_read(&mut self, record: u32, is_still: bool, raw: &mut Raw) -> Option<()> {
        /// A writer needs a few ns, but the number stays odd for longer if the writer was switched
        /// out. If that takes too long, the last reading is repaired.
        const TRIES: usize = 1000;
        let head = self.segment.record(record.into())?;
        loop {
            for _ in 0..TRIES {
                let before = head.sequence.load(Acquire);
                self.read_once(record, raw)?;
                fence(Acquire);
                if before % 2 == 0 && head.sequence.load(Relaxed) == before {
                    // A jump out of a signal handler can have left the number odd. It is then even
                    // during updates.
                    self.settle(record, false, raw);
                    return Some(());
                }
                std::hint::spin_loop();
            }
            if is_still || !self.patience.wait() {
                self.settle(record, true, raw);
                return Some(());
            }
        }
    }

    /// `is_torn` is true if a writer stood still in the middle of a call's end during the reading.
    fn settle(&self, record: u32, is_torn: bool, raw: &mut Raw) {
        let head = self.segment.record(record.into());
        let schema = head.map(|head| head.schema.load(Relaxed));
        let rules = schema.and_then(|schema| self.schemas.get(schema));
        raw.settle(rules);
        if let Some(rules) = rules.filter(|_| is_torn) {
            raw.complete(rules);
        }
    }

    /// Reads a record once, whether or not a writer interferes. `None` if part of it is out of
    /// range.
    fn read_once(&mut self, record: u32, raw: &mut Raw) -> Option<()> {
        raw.clear();
        let head = self.segment.record(record.into())?;
        // Read ends before entries: an entry between the two reads then counts as open.
        let (closed, unwound) = (head.closed.load(Acquire), head.unwound.load(Acquire));
        // A call that another thread has taken over counts in that thread's record.
        let entered = head
            .entered
            .load(Acquire)
            .saturating_add(head.moved_in.load(Acquire))
            .saturating_sub(head.moved_out.load(Acquire));
        raw.entered = entered.max(closed.saturating_add(unwound));
        (raw.closed, raw.unwound) = (closed, unwound);
        raw.tail = head.tail.load(Relaxed).min(closed);
        let Some(rules) = self.schemas.get(head.schema.load(Relaxed)) else {
            return Some(());
        };
        let mut has_steady = false;
        for (number, &rule) in rules.columns.iter().enumerate() {
            let column = self.segment.column(record.into(), number)?;
            let is_of_all = rule.is_of_all || has_steady;
            let of_all = is_of_all.then_some(closed);
            if rule.kind == Kind::Steady {
                read_column(self.segment, column, of_all, entered, &mut self.steady);
                has_steady = true;
                continue;
            }
            let Some(metric) = rule.metric.and_then(|at| raw.metrics.get_mut(at)) else {
                continue;
            };
            let into = if rule.is_negative {
                &mut metric.negative
            } else {
                &mut metric.positive
            };
            read_column(self.segment, column, of_all, entered, into);
            if rule.kind == Kind::Value {
                let (sum, upper) = (column.sum.load(Relaxed), column.exclusive.load(Relaxed));
                into.sum = whole_sum(sum, upper);
                into.exclusive = 0;
            }
            if has_steady {
                into.add_steady(&self.steady, rule, closed);
            }
        }
        Some(())
    }
}

/// Reads a column. `of_all` is its number of values if that is known from elsewhere. `most` is an
/// upper bound, which counts as the number of values if the number is not known.
fn read_column(
    segment: &Segment,
    column: &Column,
    of_all: Option<u64>,
    most: u64,
    into: &mut RawColumn,
) {
    into.clear();
    let histogram = &mut into.histogram;
    let first = column.first_bucket.load(Relaxed);
    if first >= NO_BUCKET {
        let count = of_all.unwrap_or(most);
        histogram.add((first % NO_BUCKET) as usize, count);
    } else {
        let pooled = column.histogram.load(Relaxed);
        if let Some(pool) = pooled.checked_sub(1).and_then(|i| segment.histogram(i)) {
            let buckets = pool.buckets.iter().enumerate();
            buckets.for_each(|(k, n)| histogram.add(k, n.load(Relaxed)));
        }
        let inline = column.buckets.iter().enumerate();
        inline.for_each(|(k, n)| histogram.add(first as usize + k, n.load(Relaxed).into()));
    }
    // Without values, the stored minimum is larger than any value.
    let is_used = !histogram.is_empty();
    into.sum = column.sum.load(Relaxed).into();
    into.min = if is_used { column.min.load(Relaxed) } else { 0 };
    into.max = column.max.load(Relaxed);
    into.outermost = column.outermost.load(Relaxed);
    into.exclusive = column.exclusive.load(Relaxed) as i64;
}
