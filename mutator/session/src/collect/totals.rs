//! Updates the totals of functions, and the counts of lost and unproven calls, as paths change.
//!
//! The old numbers of a path are subtracted, and its new numbers are added. In rare cases that does
//! not give the sum over all paths, for example if the smallest value has grown. Then all paths are
//! added up again.

use abi::cause::Cause;
use abi::segment::ROOT_OVERFLOW;

use super::net::Checked;
use super::paths::Paths;
use ipath_profile::{Exactness, Function, FunctionTotals, Losses, PathEntry, Profile, TimerStats};

/// The parts of a profile that are sums over its paths.
pub(super) struct Sums<'p> {
    pub(super) functions: &'p mut [Function],
    pub(super) losses: &'p mut Losses,
    pub(super) exactness: &'p mut Exactness,
}

/// Keeps the totals of a profile equal to the sums over its paths.
pub(super) struct Totals {
    /// The number of timers.
    timers: usize,
    /// True for each function whose calls are seen to end.
    ends: Vec<bool>,
    /// The number of paths with values, for each function and timer.
    valued: Vec<u64>,
    /// For each timer, the smallest and the largest value of the path that was taken out.
    left: Vec<Option<(i64, i64)>>,
    /// True if all paths must be added up again.
    is_stale: bool,
}

impl Totals {
    /// The totals of a profile without paths. `ends` is true for each function whose calls are seen
    /// to end.
    pub(super) fn new(timers: usize, ends: Vec<bool>) -> Self {
        Self {
            timers,
            valued: vec![0; timers * ends.len()],
            ends,
            left: vec![None; timers],
            is_stale: false,
        }
    }

    /// Subtracts a path that is about to change and be put back. It ends in the node `root`.
    pub(super) fn take(
        &mut self,
        sums: &mut Sums<'_>,
        path: &PathEntry,
        root: u32,
        checked: Option<Checked>,
    ) {
        let Function { totals, tail, .. } = &mut sums.functions[path.function];
        let calls = path.metrics.count;
        let mut less = |sum: &mut u64, part: u64| {
            // A sum at its limit may stand for a larger one.
            self.is_stale |= *sum == u64::MAX;
            *sum = sum.saturating_sub(part);
        };
        less(&mut totals.counts.count, calls);
        less(tail, path.tail);
        for (sum, part) in [
            (&mut totals.unwound, path.unwound),
            (&mut totals.open, path.open),
        ] {
            if let (Some(sum), Some(part)) = (sum, part) {
                less(sum, part);
            }
        }
        if !path.complete {
            lost(sums.losses, checked, root, |sum| less(sum, calls));
        }
        if let Some(checked) = checked {
            less(sums.exactness.of(checked.verdict), calls);
        }
        let valued = &mut self.valued[self.timers * path.function..][..self.timers];
        for (sum, part, valued, left) in side_by_side(totals, path, valued, &mut self.left) {
            *left = None;
            if part.values() > 0 {
                *valued -= 1;
                *left = Some((part.min, part.max));
                self.is_stale |= !subtract(sum, part);
            }
        }
    }

    /// Adds a path that ends in the node `root`.
    pub(super) fn put(
        &mut self,
        sums: &mut Sums<'_>,
        path: &PathEntry,
        root: u32,
        checked: Option<Checked>,
    ) {
        let Function { totals, tail, .. } = &mut sums.functions[path.function];
        let calls = path.metrics.count;
        let more = |sum: &mut u64, part: u64| *sum = sum.saturating_add(part);
        more(&mut totals.counts.count, calls);
        more(tail, path.tail);
        for (sum, part) in [
            (&mut totals.unwound, path.unwound),
            (&mut totals.open, path.open),
        ] {
            *sum = part.map(|n| sum.unwrap_or(0).saturating_add(n)).or(*sum);
        }
        if !path.complete {
            lost(sums.losses, checked, root, |sum| more(sum, calls));
        }
        if let Some(checked) = checked {
            more(sums.exactness.of(checked.verdict), calls);
        }
        let valued = &mut self.valued[self.timers * path.function..][..self.timers];
        for (sum, part, valued, left) in side_by_side(totals, path, valued, &mut self.left) {
            let has_values = part.values() > 0;
            if let Some((min, max)) = left.take() {
                let is_less = sum.min >= min && part.min > min || sum.max <= max && part.max < max;
                self.is_stale |= is_less || !has_values;
            }
            if has_values {
                sum.absorb_sums(part, *valued == 0);
                *valued += 1;
            }
        }
    }

    /// Ends a round of changes, and adds up all paths again if necessary.
    pub(super) fn end(
        &mut self,
        profile: &mut Profile,
        paths: &Paths,
        checked: &[Option<Checked>],
    ) {
        if !std::mem::take(&mut self.is_stale) {
            return;
        }
        let Profile {
            functions,
            losses,
            exactness,
            paths: entries,
            ..
        } = profile;
        self.valued.fill(0);
        for (function, &sees_ends) in functions.iter_mut().zip(&self.ends) {
            clear(function, sees_ends);
        }
        *losses = Losses::default();
        let mut sums = Sums {
            functions,
            losses,
            exactness: exactness.insert(Exactness::default()),
        };
        for (index, (path, checked)) in entries.iter().zip(checked).enumerate() {
            self.put(&mut sums, path, paths.root(index), *checked);
        }
    }
}

/// Sets the totals of a function to 0.
fn clear(function: &mut Function, sees_ends: bool) {
    function.tail = 0;
    let FunctionTotals {
        counts,
        unwound,
        open,
    } = &mut function.totals;
    counts.count = 0;
    *unwound = sees_ends.then_some(0);
    *open = *unwound;
    for stats in counts.timers.stats_mut() {
        *stats = TimerStats {
            outermost: stats.outermost.map(|_| 0),
            exclusive: stats.exclusive.map(|_| 0),
            ..TimerStats::default()
        };
    }
}

/// Combines, for each timer, its total, its value on the path, its number of paths with values, and
/// the limits of the path that was taken out.
fn side_by_side<'t>(
    totals: &'t mut FunctionTotals,
    path: &'t PathEntry,
    valued: &'t mut [u64],
    left: &'t mut [Option<(i64, i64)>],
) -> impl Iterator<
    Item = (
        &'t mut TimerStats,
        &'t TimerStats,
        &'t mut u64,
        &'t mut Option<(i64, i64)>,
    ),
> {
    let sums = totals.counts.timers.stats_mut();
    let each = sums.zip(path.metrics.timers.stats()).zip(valued).zip(left);
    each.map(|(((sum, part), valued), left)| (sum, part, valued, left))
}

/// Applies `change` to the loss counts that include calls on a path ending at the node `root`.
fn lost(
    losses: &mut Losses,
    checked: Option<Checked>,
    root: u32,
    mut change: impl FnMut(&mut u64),
) {
    if root == ROOT_OVERFLOW {
        return change(&mut losses.overflow);
    }
    change(&mut losses.incomplete);
    let by_code = checked.and_then(|checked| checked.cause);
    let by_walk = || Cause::of_node(root).map_or("unknown", Cause::name);
    let cause = by_code.unwrap_or_else(by_walk);
    match losses.causes.get_mut(cause) {
        Some(sum) => change(sum),
        None => change(losses.causes.entry(cause.to_owned()).or_default()),
    }
}

/// Subtracts the sums of `part`. False if a sum is at its limit and may stand for a larger one.
fn subtract(sum: &mut TimerStats, part: &TimerStats) -> bool {
    let mut is_exact = true;
    let mut less = |sum: &mut i128, part: i128| {
        is_exact &= *sum != i128::MAX && *sum != i128::MIN;
        *sum = sum.saturating_sub(part);
    };
    less(&mut sum.sum, part.sum);
    for (sum, part) in [
        (&mut sum.outermost, part.outermost),
        (&mut sum.exclusive, part.exclusive),
    ] {
        if let (Some(sum), Some(part)) = (sum, part) {
            less(sum, part);
        }
    }
    is_exact
}
