//! The measurements on paths and their sums at nodes, for the whole session, since the previous
//! sample, or since a mark.

use ipath_profile::{Changed, Distribution, Gathered, PathEntry, Profile, TimerStats};

/// The measurements on one path.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Numbers {
    calls: u64,
    /// The calls on a path that does not reach a root.
    incomplete: u64,
    /// The calls that left by a tail call.
    tail: u64,
    /// The values of each metric except `count`.
    timers: Box<[Timer]>,
}

/// The values of one metric.
#[derive(Clone, Debug, PartialEq)]
struct Timer {
    values: Distribution,
    /// The number of values.
    held: u64,
    /// The sum of the values of outermost activations.
    outermost: i64,
    /// The sum without other measured calls. [`Total::NONE`] if it is not known.
    exclusive: i64,
}

impl Default for Timer {
    fn default() -> Self {
        Self {
            values: Distribution::default(),
            held: 0,
            outermost: 0,
            exclusive: Total::NONE,
        }
    }
}

impl Numbers {
    fn set(&mut self, path: &PathEntry, metrics: &[String]) {
        self.calls = path.metrics.count;
        self.incomplete = path.incomplete();
        self.tail = path.tail;
        if self.timers.len() != metrics.len() {
            self.timers = metrics.iter().map(|_| Timer::default()).collect();
        }
        for (timer, metric) in self.timers.iter_mut().zip(metrics) {
            timer.set(path.metrics.timers.get(metric));
        }
    }
}

impl Timer {
    fn set(&mut self, stats: Option<&TimerStats>) {
        (self.held, self.outermost, self.exclusive) = (0, 0, Total::NONE);
        let Some(stats) = stats else {
            self.values.clear();
            return;
        };
        self.values.set(stats);
        self.held = self.values.count();
        self.outermost = clipped(stats.outermost.unwrap_or(stats.sum));
        self.exclusive = stats.exclusive.map_or(Total::NONE, clipped);
    }
}

/// Clips a number to 64 bits. Times do not reach this limit.
fn clipped(number: i128) -> i64 {
    let limit = if number < 0 { i64::MIN + 1 } else { i64::MAX };
    i64::try_from(number).unwrap_or(limit)
}

/// The counts at a node, including the callers beyond it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Counted {
    pub(crate) calls: u64,
    /// The calls since the previous sample, whichever span is shown.
    pub(crate) new: u64,
    /// The calls on paths that do not reach a root.
    pub(crate) incomplete: u64,
    /// The calls that left by a tail call, without the time of the callee.
    pub(crate) tail: u64,
    /// The number of paths that pass the filters.
    pub(crate) paths: u32,
}

/// The totals of a metric at a node, including the callers beyond it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Total {
    /// The sum over all calls, including nested ones.
    sum: i128,
    /// The number of values.
    pub(crate) values: u64,
    /// The part of the sum from outermost activations.
    outermost: i64,
    /// The part of the sum that was not spent in other measured calls. [`Total::NONE`] if it is not
    /// known.
    exclusive: i64,
    /// The minimum and the maximum since the start of the session. If the first is larger, they are
    /// not known.
    ends: (i64, i64),
    /// True for nodes above the functions. Calls of one function there contain calls of others.
    is_above: bool,
}

impl Default for Total {
    fn default() -> Self {
        Self {
            sum: 0,
            values: 0,
            outermost: 0,
            exclusive: Self::NONE,
            ends: Self::UNKNOWN,
            is_above: false,
        }
    }
}

// There is one for each node and metric.
const _: () = assert!(size_of::<Total>() <= 64);

impl Counted {
    pub(super) fn add(&mut self, other: &Self) {
        self.calls = self.calls.saturating_add(other.calls);
        self.new = self.new.saturating_add(other.new);
        self.incomplete = self.incomplete.saturating_add(other.incomplete);
        self.tail = self.tail.saturating_add(other.tail);
        self.paths = self.paths.saturating_add(other.paths);
    }
}

impl Total {
    const NONE: i64 = i64::MIN;
    const UNKNOWN: (i64, i64) = (i64::MAX, i64::MIN);

    /// Marks the node as being above the functions.
    pub(super) fn set_above(&mut self) {
        self.is_above = true;
    }

    /// The sum over all calls. Above the functions, it excludes nested measured calls, if that part
    /// is known.
    pub(crate) fn sum(&self) -> i128 {
        match self.exclusive() {
            Some(own) if self.is_above => own.into(),
            _ => self.sum,
        }
    }

    /// The sum over outermost calls.
    pub(crate) fn outermost(&self) -> i64 {
        match self.exclusive() {
            Some(own) if self.is_above => own,
            _ => self.outermost,
        }
    }

    /// The part of the sum that was not spent in other measured calls, if it is known.
    pub(crate) fn exclusive(&self) -> Option<i64> {
        (self.exclusive != Self::NONE).then_some(self.exclusive)
    }

    /// The minimum and the maximum of the values. `None` without values, or if a path also has
    /// values from before the span, because the two are then not known.
    pub(crate) fn ends(&self) -> Option<(i64, i64)> {
        (self.ends != Self::UNKNOWN && self.values > 0).then_some(self.ends)
    }

    pub(super) fn add(&mut self, other: &Self) {
        if other.values == 0 {
            return;
        }
        self.ends = match (self.values, self.ends, other.ends) {
            (0, _, ends) => ends,
            (_, Self::UNKNOWN, _) | (_, _, Self::UNKNOWN) => Self::UNKNOWN,
            (_, a, b) => (a.0.min(b.0), a.1.max(b.1)),
        };
        self.exclusive = match (self.values, self.exclusive, other.exclusive) {
            (0, _, exclusive) => exclusive,
            (_, Self::NONE, _) | (_, _, Self::NONE) => Self::NONE,
            (_, a, b) => a.saturating_add(b),
        };
        self.sum = self.sum.saturating_add(other.sum);
        self.outermost = self.outermost.saturating_add(other.outermost);
        self.values = self.values.saturating_add(other.values);
    }

    /// The mean value. `None` without values.
    pub(crate) fn mean(&self) -> Option<f64> {
        (self.values > 0).then(|| self.sum as f64 / self.values as f64)
    }
}

/// The span of time that is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Span {
    /// The whole session.
    #[default]
    Total,
    /// The time since the previous sample.
    Interval,
    /// The time since the mark.
    Mark,
}

impl Span {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Total => "total",
            Self::Interval => "interval",
            Self::Mark => "since mark",
        }
    }
}

/// The numbers at an earlier moment.
#[derive(Default)]
struct Moment {
    /// The time, in nanoseconds since the start of the session.
    at: u64,
    /// The numbers of each path. Paths that did not exist yet are missing.
    paths: Vec<Numbers>,
}

/// The numbers of all paths.
#[derive(Default)]
pub(super) struct Paths {
    metrics: Vec<String>,
    now: Vec<Numbers>,
    /// The calls of each path at the previous sample.
    before: Vec<u64>,
    /// The time of the latest sample, in nanoseconds since the start of the session. `None` if
    /// there is none.
    sampled: Option<u64>,
    span: Span,
    /// The previous sample, while intervals are shown.
    last: Option<Moment>,
    /// The paths whose numbers differ from `last`.
    differ: Vec<u32>,
    mark: Option<Moment>,
}

impl Paths {
    /// Takes in the numbers of a sample. If everything has changed, `known` has the previous index
    /// of each path.
    pub(super) fn update(&mut self, profile: &Profile, changed: &Changed, known: &[Option<u32>]) {
        let metrics = profile.timers().map(|metric| metric.name.clone());
        let at = profile.session.elapsed_ns;
        let all: Vec<u32>;
        let changed = match changed {
            Changed::Paths(paths) => paths,
            Changed::All => {
                let metrics: Vec<String> = metrics.collect();
                self.rearrange(metrics, known);
                all = (0..profile.paths.len() as u32).collect();
                &all
            }
        };
        if let Some(last) = &mut self.last {
            last.at = self.sampled.unwrap_or(0);
            last.paths.resize_with(self.now.len(), Numbers::default);
            for &path in self.differ.iter().chain(changed) {
                if let Some(now) = self.now.get(path as usize) {
                    last.paths[path as usize].clone_from(now);
                }
            }
        }
        for &path in &self.differ {
            if let Some(now) = self.now.get(path as usize) {
                self.before[path as usize] = now.calls;
            }
        }
        self.now.resize_with(profile.paths.len(), Numbers::default);
        self.before.resize(profile.paths.len(), 0);
        for &path in changed {
            let now = &mut self.now[path as usize];
            self.before[path as usize] = now.calls;
            now.set(&profile.paths[path as usize], &self.metrics);
        }
        self.differ.clone_from(changed);
        self.sampled = Some(at);
    }

    /// Moves the numbers of each path to its new index.
    fn rearrange(&mut self, metrics: Vec<String>, known: &[Option<u32>]) {
        let places: Vec<Option<usize>> = metrics
            .iter()
            .map(|metric| self.metrics.iter().position(|m| m == metric))
            .collect();
        let moved = |old: &mut Vec<Numbers>| {
            let taken = |known: &Option<u32>| {
                let numbers = known.and_then(|at| old.get(at as usize));
                let Some(numbers) = numbers else {
                    return Numbers::default();
                };
                let timer = |at: &Option<usize>| {
                    let timer = at.and_then(|at| numbers.timers.get(at));
                    timer.cloned().unwrap_or_default()
                };
                Numbers {
                    timers: places.iter().map(timer).collect(),
                    ..*numbers
                }
            };
            *old = known.iter().map(taken).collect();
        };
        moved(&mut self.now);
        for moment in [&mut self.last, &mut self.mark].into_iter().flatten() {
            moved(&mut moment.paths);
        }
        self.before = self.now.iter().map(|now| now.calls).collect();
        self.differ.clear();
        self.metrics = metrics;
    }

    /// The time of the latest sample, in nanoseconds since the start of the session. `None` before
    /// the first sample.
    pub(super) fn at(&self) -> Option<u64> {
        self.sampled
    }

    /// The names of the metrics except `count`.
    pub(super) fn metrics(&self) -> &[String] {
        &self.metrics
    }

    pub(super) fn span(&self) -> Span {
        self.span
    }

    /// Changes the span.
    pub(super) fn show(&mut self, span: Span) {
        self.span = span;
        self.last = (span == Span::Interval).then(|| Moment {
            at: self.sampled.unwrap_or(0),
            paths: self.now.clone(),
        });
    }

    /// Sets the mark, and changes the span to the time since then.
    pub(super) fn mark(&mut self) {
        self.mark = Some(Moment {
            at: self.sampled.unwrap_or(0),
            paths: self.now.clone(),
        });
        self.show(Span::Mark);
    }

    pub(super) fn has_mark(&self) -> bool {
        self.mark.is_some()
    }

    /// The time of the mark, in nanoseconds since the start of the session. 0 without a mark.
    pub(super) fn marked_at(&self) -> u64 {
        self.mark.as_ref().map_or(0, |mark| mark.at)
    }

    /// The number of calls of a path before the mark. 0 without a mark.
    pub(super) fn calls_before(&self, path: usize) -> u64 {
        let mark = self.mark.as_ref().and_then(|mark| mark.paths.get(path));
        mark.map_or(0, |numbers| numbers.calls)
    }

    /// The values of a metric on a path before the mark. `None` if there are none.
    pub(super) fn values_before(&self, path: usize, metric: usize) -> Option<&Distribution> {
        let numbers = self.mark.as_ref()?.paths.get(path)?;
        let timer = numbers.timers.get(metric)?;
        (timer.held > 0).then_some(&timer.values)
    }

    /// The numbers at the start of the span. `None` if it is the start of the session.
    fn base(&self) -> Option<&Moment> {
        match self.span {
            Span::Total => None,
            Span::Interval => self.last.as_ref(),
            Span::Mark => self.mark.as_ref(),
        }
    }

    /// The length of the span up to the latest sample, in nanoseconds.
    pub(super) fn lasted(&self) -> u64 {
        let now = self.sampled.unwrap_or(0);
        now.saturating_sub(self.base().map_or(0, |base| base.at))
    }

    fn base_of(&self, path: usize) -> Option<&Numbers> {
        self.base()?.paths.get(path)
    }

    /// The counts of a path in the span, by its index.
    pub(super) fn counted(&self, path: usize) -> Counted {
        let now = &self.now[path];
        let base = self.base_of(path);
        let since = |now: u64, base: Option<u64>| now.saturating_sub(base.unwrap_or(0));
        Counted {
            calls: since(now.calls, base.map(|b| b.calls)),
            new: now.calls.saturating_sub(self.before[path]),
            incomplete: since(now.incomplete, base.map(|b| b.incomplete)),
            tail: since(now.tail, base.map(|b| b.tail)),
            paths: 1,
        }
    }

    /// The totals of a metric on a path in the span, by their indexes. Empty for an unknown metric.
    pub(super) fn total(&self, path: usize, metric: usize) -> Total {
        let Some(now) = self.now[path].timers.get(metric) else {
            return Total::default();
        };
        let base = self.base_of(path).and_then(|base| base.timers.get(metric));
        let is_new = base.is_none_or(|base| base.held == 0);
        let since = |now: i128, base: Option<i128>| now.saturating_sub(base.unwrap_or(0));
        Total {
            sum: since(now.values.sum(), base.map(|b| b.values.sum())),
            values: now.held.saturating_sub(base.map_or(0, |b| b.held)),
            outermost: now
                .outermost
                .saturating_sub(base.map_or(0, |b| b.outermost)),
            exclusive: match (now.exclusive, base) {
                (Total::NONE, _) | (_, None) => now.exclusive,
                (own, Some(base)) if base.exclusive == Total::NONE => own,
                (own, Some(base)) => own.saturating_sub(base.exclusive),
            },
            ends: if is_new {
                now.values.ends().unwrap_or(Total::UNKNOWN)
            } else {
                Total::UNKNOWN
            },
            is_above: false,
        }
    }

    /// Adds the values of a path in the span to `to`.
    pub(super) fn add_values(&self, path: usize, metric: usize, to: &mut Gathered) {
        let Some(now) = self.now[path].timers.get(metric) else {
            return;
        };
        match self.base_of(path).and_then(|base| base.timers.get(metric)) {
            Some(base) if base.held > 0 => to.add(&now.values.since(&base.values)),
            _ => to.add(&now.values),
        }
    }
}
