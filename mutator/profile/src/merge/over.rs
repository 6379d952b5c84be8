//! The spread of numbers over processes.

use crate::profile::{COUNT, Counts, InProcess, Metric, Spread, Spreads};

/// The processes that some counts cover.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// The index of the first process in the sum.
    pub(super) first_process: usize,
    /// The number of processes, which have consecutive indexes.
    pub(super) number: u64,
}

impl Part {
    /// The part of the single process with index `process`.
    pub(super) fn one(process: usize) -> Self {
        Self {
            first_process: process,
            number: 1,
        }
    }
}

/// The counts of one function or path, over the processes so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Over {
    /// The range of each metric's sums, by the index of the metric.
    ranges: Vec<Range>,
    /// The number of processes that called the function, or on this path.
    present: u64,
    /// The number of processes that the ranges cover.
    covered: u64,
    /// The index of the process that is being added, and its sum of each metric. A process may add
    /// several equal paths, from several threads.
    current: Option<(usize, Vec<i128>)>,
    /// The index and the sums of each process with a call. `None` if they are not kept.
    each: Option<Vec<(usize, Vec<i128>)>>,
}

/// The least, the largest and the total of the sums of one metric in several processes.
#[derive(Clone, Debug, Default)]
struct Range {
    min: i128,
    max: i128,
    /// Over all processes.
    sum: i128,
    /// The index of the process with `max`.
    max_process: usize,
}

impl Range {
    /// Adds the sums of other processes. `is_first` is true if `self` covers no process yet.
    fn add(&mut self, other: &Self, is_first: bool) {
        if is_first || other.min < self.min {
            self.min = other.min;
        }
        if is_first || other.max > self.max {
            (self.max, self.max_process) = (other.max, other.max_process);
        }
        self.sum = self.sum.saturating_add(other.sum);
    }
}

impl Over {
    /// Creates counts that also keep the sums of each process.
    pub(super) fn with_each() -> Self {
        Self {
            each: Some(Vec::new()),
            ..Self::default()
        }
    }

    /// Adds the known sums of single processes of the profile that covers the processes `of`. Does
    /// nothing if sums of processes are not kept.
    pub(super) fn add_each(&mut self, of: &Part, metrics: &[Metric], known: &[InProcess]) {
        let sum = |known: &InProcess, name: &str| match name {
            COUNT => known.count.into(),
            name => known.sums.get(name).copied().unwrap_or(0),
        };
        if let Some(each) = &mut self.each {
            each.extend(known.iter().map(|known| {
                let sums = metrics.iter().map(|metric| sum(known, &metric.name));
                (of.first_process + known.process, sums.collect())
            }));
        }
    }

    /// Adds the counts of the processes `of`. `spreads` has their spread, if there are several.
    pub(super) fn add(
        &mut self,
        of: &Part,
        metrics: &[Metric],
        counts: &Counts,
        spreads: Option<&Spreads>,
    ) {
        let sums = metrics.iter().map(|metric| sum(counts, &metric.name));
        let Some(spreads) = spreads else {
            match &mut self.current {
                Some((process, current)) if *process == of.first_process => {
                    let pairs = current.iter_mut().zip(sums);
                    pairs.for_each(|(current, sum)| *current = current.saturating_add(sum));
                }
                _ => {
                    let sums = sums.collect();
                    self.end_process();
                    self.current = Some((of.first_process, sums));
                }
            }
            return;
        };
        self.end_process();
        let ranges = metrics.iter().zip(sums).map(|(metric, sum)| {
            let spread = spreads.get(&metric.name);
            spread.map_or_else(Range::default, |spread| Range {
                min: spread.min,
                max: spread.max,
                sum,
                max_process: of.first_process + spread.max_process,
            })
        });
        let ranges: Vec<Range> = ranges.collect();
        let present = spreads
            .get(COUNT)
            .map_or(of.number, |spread| spread.present);
        self.take(&ranges, present, of.number);
    }

    /// Adds the sums of the current process to the ranges, if there is one.
    fn end_process(&mut self) {
        let Some((process, sums)) = self.current.take() else {
            return;
        };
        let range = |sum: i128| Range {
            min: sum,
            max: sum,
            sum,
            max_process: process,
        };
        let ranges: Vec<Range> = sums.iter().copied().map(range).collect();
        let is_called = sums.first().is_some_and(|&count| count > 0);
        self.take(&ranges, u64::from(is_called), 1);
        if let Some(each) = self.each.as_mut().filter(|_| is_called) {
            each.push((process, sums));
        }
    }

    /// Adds the ranges of `number` processes, `present` of which have calls.
    fn take(&mut self, ranges: &[Range], present: u64, number: u64) {
        // A metric that was not there before counts as 0.
        self.ranges
            .resize_with(ranges.len().max(self.ranges.len()), Range::default);
        for (known, range) in self.ranges.iter_mut().zip(ranges) {
            known.add(range, self.covered == 0);
        }
        self.present += present;
        self.covered += number;
    }

    /// Returns the sums of each process with a call, and keeps none. Empty unless they account for
    /// all `calls`.
    pub(super) fn take_each(&mut self, metrics: &[Metric], calls: u64) -> Vec<InProcess> {
        self.end_process();
        let each = self.each.take().unwrap_or_default();
        let of_process = |(process, sums): (usize, Vec<i128>)| {
            let mut by_name = metrics.iter().map(|metric| metric.name.clone()).zip(sums);
            let (_, count) = by_name.next()?;
            Some(InProcess {
                process,
                count: count.try_into().ok()?,
                sums: by_name.collect(),
            })
        };
        let each: Vec<InProcess> = each.into_iter().filter_map(of_process).collect();
        let known = each.iter().map(|of| of.count);
        if known.fold(0, u64::saturating_add) == calls {
            each
        } else {
            Vec::new()
        }
    }

    /// Returns the spread of each metric over `processes` processes. `None` for a single process.
    pub(super) fn spreads(mut self, processes: usize, metrics: &[Metric]) -> Option<Box<Spreads>> {
        self.end_process();
        if processes < 2 {
            return None;
        }
        self.ranges.resize_with(metrics.len(), Range::default);
        let is_everywhere = self.covered >= processes as u64;
        let spread = |(metric, range): (&Metric, &Range)| {
            let mean = range.sum as f64 / processes as f64;
            let absent = if is_everywhere { None } else { Some(0) };
            let max = absent.map_or(range.max, |absent| range.max.max(absent));
            let spread = Spread {
                present: self.present,
                min: absent.map_or(range.min, |absent| range.min.min(absent)),
                mean,
                max,
                imbalance: if mean > 0.0 {
                    max as f64 / mean - 1.0
                } else {
                    0.0
                },
                max_process: range.max_process,
            };
            (metric.name.clone(), spread)
        };
        Some(Box::new(
            metrics.iter().zip(&self.ranges).map(spread).collect(),
        ))
    }
}

fn sum(counts: &Counts, metric: &str) -> i128 {
    match metric {
        COUNT => counts.count.into(),
        name => counts.timers.get(name).map_or(0, |stats| stats.sum),
    }
}
