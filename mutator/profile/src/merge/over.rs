//! How a number differs over processes.

use crate::profile::{COUNT, Counts, InProcess, Metric, Spread, Spreads};

/// Which processes some counts are of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// The index of the first.
    pub(super) first_process: usize,
    pub(super) number: u64,
}

impl Part {
    /// This process alone.
    pub(super) fn one(process: usize) -> Self {
        Self {
            first_process: process,
            number: 1,
        }
    }
}

/// Counts of one function or path, over the processes so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Over {
    /// By the index of the metric.
    ranges: Vec<Range>,
    /// Those with the function or path.
    present: u64,
    /// Those whose numbers are in the ranges.
    covered: u64,
    /// Of the process that is being added, whose index this is: it may have several such paths, of several threads.
    current: Option<(usize, Vec<i128>)>,
    /// Those with a call, where they are kept.
    each: Option<Vec<(usize, Vec<i128>)>>,
}

#[derive(Clone, Debug, Default)]
struct Range {
    min: i128,
    max: i128,
    sum: i128,
    max_process: usize,
}

impl Range {
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
    /// Of what each process is kept of, too.
    pub(super) fn with_each() -> Self {
        Self {
            each: Some(Vec::new()),
            ..Self::default()
        }
    }

    /// Adds what is known of each of some processes.
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

    /// Adds counts of some processes; `spreads` tells how they differ over these, where they are several.
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

    fn take(&mut self, ranges: &[Range], present: u64, number: u64) {
        // A metric that was not known so far has been 0.
        self.ranges
            .resize_with(ranges.len().max(self.ranges.len()), Range::default);
        for (known, range) in self.ranges.iter_mut().zip(ranges) {
            known.add(range, self.covered == 0);
        }
        self.present += present;
        self.covered += number;
    }

    /// What each process with a call has, if all `calls` are known by process.
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

    /// What that comes to over so many processes; nothing to tell of one.
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
