//! Converts the contents of records to the numbers of a profile.

use std::sync::Arc;

use super::raw::{Raw, RawColumn, RawMetric};
use crate::segment::{Document, MetricDoc};
use ipath_profile::{COUNT, TimerStats, Timers};

/// The metrics other than the count.
pub(super) struct Measures(Vec<Measure>);

/// A metric other than the count.
struct Measure {
    name: Arc<str>,
    /// The metric's index in the metrics of [`Raw`].
    at: usize,
    /// The conversion from raw units to the metric's unit: `raw * mult >> shift`.
    mult: u64,
    /// See `mult`.
    shift: u64,
    is_value: bool,
}

/// The metrics that have timers, with their indexes. The first metric is the count, whatever the
/// document calls it, and no other one is.
pub(super) fn timers(document: &Document) -> impl Iterator<Item = (usize, &MetricDoc)> {
    let timers = document.metrics.iter().skip(1).enumerate();
    timers.filter(|(_, metric)| metric.name != COUNT)
}

impl Measures {
    /// The metrics of a document.
    pub(super) fn of(document: &Document) -> Self {
        let mut all: Vec<Measure> = Vec::new();
        for (at, metric) in timers(document) {
            let measure = Measure {
                name: metric.name.as_str().into(),
                at,
                mult: metric.mult,
                shift: metric.shift,
                is_value: metric.is_value,
            };
            // Names are unique.
            match all.iter_mut().find(|m| m.name == measure.name) {
                Some(same) => *same = measure,
                None => all.push(measure),
            }
        }
        Self(all)
    }

    /// The numbers of a path without calls.
    pub(super) fn zeroes(&self) -> Timers {
        let zero = |measure: &Measure| {
            let part = (!measure.is_value).then_some(0);
            let stats = TimerStats {
                outermost: part,
                exclusive: part,
                ..TimerStats::default()
            };
            (Arc::clone(&measure.name), stats)
        };
        self.0.iter().map(zero).collect()
    }

    /// Writes the numbers of `raw` to timers that [`Self::zeroes`] has returned.
    pub(super) fn write(&self, raw: &Raw, timers: &mut Timers) {
        for (measure, stats) in self.0.iter().zip(timers.stats_mut()) {
            // Document and records may disagree. Every metric has numbers, even if they are zeroes.
            if let Some(numbers) = raw.metrics.get(measure.at) {
                if measure.is_value {
                    write_value(numbers, stats)
                } else {
                    measure.write(&numbers.positive, stats)
                }
            }
        }
    }
}

impl Measure {
    fn write(&self, timer: &RawColumn, stats: &mut TimerStats) {
        let scaled = |ticks: u128| {
            let scaled = ticks.saturating_mul(self.mult.into()) >> (self.shift & 127);
            i128::try_from(scaled).unwrap_or(i128::MAX)
        };
        let scale = |ticks: u64| scaled(ticks.into());
        stats.sum = scaled(timer.sum);
        stats.min = i64::try_from(scale(timer.min)).unwrap_or(i64::MAX);
        stats.max = i64::try_from(scale(timer.max)).unwrap_or(i64::MAX);
        stats.outermost = Some(scale(timer.outermost));
        stats.exclusive = Some(scale(timer.exclusive.max(0) as u64));
        write_buckets(timer, &mut stats.hist);
    }
}

/// Combines the values of 0 or more with the negative ones.
fn write_value(numbers: &RawMetric, stats: &mut TimerStats) {
    let RawMetric { positive, negative } = numbers;
    let some = |column: &RawColumn| {
        let is_used = !column.histogram.is_empty();
        is_used.then_some((column.min, column.max))
    };
    let number = |magnitude: u64| i64::try_from(magnitude).unwrap_or(i64::MAX);
    let opposite = |magnitude: u64| i64::try_from(-i128::from(magnitude)).unwrap_or(i64::MIN);
    let (above, below) = (some(positive), some(negative));
    let least = below.map(|(_, max)| opposite(max));
    let most = above.map(|(_, max)| number(max));
    let sum = |column: &RawColumn| i128::try_from(column.sum).unwrap_or(i128::MAX);
    stats.sum = sum(positive).saturating_sub(sum(negative));
    stats.min = least
        .or_else(|| above.map(|(min, _)| number(min)))
        .unwrap_or(0);
    stats.max = most
        .or_else(|| below.map(|(min, _)| opposite(min)))
        .unwrap_or(0);
    write_buckets(positive, &mut stats.hist);
    write_buckets(negative, &mut stats.hist_negative);
}

/// Allocates no more than necessary: there are many paths, and most have few buckets.
fn write_buckets(column: &RawColumn, hist: &mut Vec<(u8, u64)>) {
    hist.clear();
    hist.reserve_exact(column.histogram.len());
    hist.extend(column.histogram.iter());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_of_an_absurd_unit_stay_at_the_limit() {
        let metric = |name: &str| MetricDoc {
            name: name.to_owned(),
            unit: "ns".to_owned(),
            since_ns: None,
            mult: u64::MAX,
            shift: 0,
            is_value: false,
        };
        let document = Document {
            metrics: vec![metric(COUNT), metric("wall")],
            ..Document::default()
        };
        let mut raw = Raw::empty(1);
        raw.metrics[0].positive.sum = u128::MAX;
        raw.metrics[0].positive.max = u64::MAX;
        let measures = Measures::of(&document);
        let mut timers = measures.zeroes();
        measures.write(&raw, &mut timers);
        let wall = timers.get("wall").expect("measured");
        assert_eq!((wall.sum, wall.max), (i128::MAX, i64::MAX));
    }
}
