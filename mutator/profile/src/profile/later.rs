//! The part of a session after an earlier moment, as a profile.

use super::{
    Apart, Counts, FramePart, FunctionPart, FunctionTotals, Inside, Losses, PathEntry, Profile,
    TimerStats, Timers,
};
use std::collections::HashMap;

/// A path by properties that do not change during a session: the addresses of its function and call
/// sites in the process, and what is measured there. Names may change.
#[derive(PartialEq, Eq, Hash)]
struct PathIdentity {
    function: (u64, FunctionPart),
    frames: Vec<(u64, FramePart)>,
    complete: bool,
    thread: Option<u32>,
    process: Option<(u32, u64)>,
    apart: Apart,
}

impl Profile {
    /// Returns the part of the profile after `old`, a profile of the same session, and the number
    /// of calls of `old` that are on no path any more. The parts of a session, each since the one
    /// before it, add up to the last profile: calls, sums, histograms.
    ///
    /// Paths without new calls are left out. The minimum and the maximum are bounds given by the
    /// histogram.
    ///
    /// Paths inside functions that are under way belong to the part in which they end. Single calls
    /// are left out.
    pub fn since(mut self, old: &Self) -> (Self, u64) {
        let mut before = by_key(old, without_passing(old, old.paths.clone()));
        let mut paths = Vec::new();
        let now = std::mem::take(&mut self.paths);
        let now = without_passing(&self, now);
        for (key, path) in in_order(&self, now) {
            let path = match before.remove(&key) {
                Some(was) => without(path, &was),
                None => path,
            };
            paths.extend(Some(path).filter(has_come));
        }
        let lost = before.values().map(|path| path.metrics.count);
        let lost = lost.fold(0, u64::saturating_add);
        self.paths = paths;
        self.forget_single_calls();
        let since = |since: &mut Option<u64>| {
            let later = since.map(|ns| ns.saturating_sub(old.session.elapsed_ns));
            *since = later.filter(|&ns| ns > 0);
        };
        self.metrics
            .iter_mut()
            .for_each(|metric| since(&mut metric.since_ns));
        self.functions
            .iter_mut()
            .for_each(|function| since(&mut function.since_ns));
        self.session = part(&self.session, &old.session);
        self.losses = losses(&self.losses, &old.losses);
        if let (Some(now), Some(was)) = (&mut self.exactness, &old.exactness) {
            now.take(was);
        }
        inside(&mut self, old);
        self.search = None;
        add_up(&mut self);
        self.time_inside();
        (self, lost)
    }
}

fn key(profile: &Profile, path: &PathEntry) -> PathIdentity {
    let place = |module: Option<usize>, address: u64| {
        let module = module.and_then(|m| profile.modules.get(m));
        address.wrapping_add(module.and_then(|m| m.base).unwrap_or(0))
    };
    let function = &profile.functions[path.function];
    let frames = path.stack.iter().map(|&frame| &profile.frames[frame]);
    let frames = frames.map(|frame| (place(frame.module, frame.address), frame.part()));
    let start = place(Some(function.module), function.address);
    PathIdentity {
        function: (start, function.part()),
        frames: frames.collect(),
        complete: path.complete,
        thread: path.thread,
        process: profile.process_key(path),
        apart: path.apart(),
    }
}

/// Paths by their keys. Paths with equal keys are added up.
fn by_key(profile: &Profile, paths: Vec<PathEntry>) -> HashMap<PathIdentity, PathEntry> {
    in_order(profile, paths).into_iter().collect()
}

/// Paths with their keys, in order of first occurrence. Paths with equal keys are added up.
fn in_order(profile: &Profile, paths: Vec<PathEntry>) -> Vec<(PathIdentity, PathEntry)> {
    let mut places: HashMap<PathIdentity, usize> = HashMap::with_capacity(paths.len());
    let mut all: Vec<PathEntry> = Vec::with_capacity(paths.len());
    for path in paths {
        match places.entry(key(profile, &path)) {
            std::collections::hash_map::Entry::Occupied(known) => {
                absorb(&mut all[*known.get()], &path)
            }
            std::collections::hash_map::Entry::Vacant(new) => {
                new.insert(all.len());
                all.push(path);
            }
        }
    }
    let mut keys: Vec<(PathIdentity, usize)> = places.into_iter().collect();
    keys.sort_unstable_by_key(|&(_, place)| place);
    let keys = keys.into_iter().map(|(key, _)| key);
    keys.zip(all).collect()
}

/// The paths without the calls that are under way and belong to no path inside a function yet.
fn without_passing(profile: &Profile, mut paths: Vec<PathEntry>) -> Vec<PathEntry> {
    for path in &mut paths {
        if profile.is_passing(path) {
            let open = path.open.replace(0).unwrap_or(0);
            path.metrics.count = path.metrics.count.saturating_sub(open);
        }
    }
    paths
}

fn absorb(sum: &mut PathEntry, more: &PathEntry) {
    sum.metrics.count = sum.metrics.count.saturating_add(more.metrics.count);
    sum.unwound = both(sum.unwound, more.unwound, u64::saturating_add);
    sum.open = both(sum.open, more.open, u64::saturating_add);
    sum.tail = sum.tail.saturating_add(more.tail);
    for (name, stats) in more.metrics.timers.iter() {
        let known = sum.metrics.timers.entry(name);
        known.absorb(stats, known.values() == 0);
    }
}

/// The part of `path` after `was`. Open calls are those at the end.
fn without(mut path: PathEntry, was: &PathEntry) -> PathEntry {
    path.metrics.count = path.metrics.count.saturating_sub(was.metrics.count);
    path.unwound = both(path.unwound, was.unwound, u64::saturating_sub);
    path.tail = path.tail.saturating_sub(was.tail);
    let timers = path.metrics.timers.iter();
    let timers = timers.map(|(name, stats)| {
        let before = was.metrics.timers.get(name);
        (
            name.to_owned(),
            before.map_or_else(|| stats.clone(), |was| later(stats, was)),
        )
    });
    path.metrics.timers = timers.collect();
    path
}

/// The values that were added after `was`.
fn later(stats: &TimerStats, was: &TimerStats) -> TimerStats {
    if was.values() == 0 {
        return stats.clone();
    }
    let difference = |now: Option<i128>, was: Option<i128>| both(now, was, i128::saturating_sub);
    let hist = fewer(&stats.hist, &was.hist);
    let hist_negative = fewer(&stats.hist_negative, &was.hist_negative);
    let (min, max) = ends(&hist, &hist_negative).unwrap_or_default();
    TimerStats {
        sum: stats.sum.saturating_sub(was.sum),
        min: min.max(stats.min),
        max: max.min(stats.max),
        outermost: difference(stats.outermost, was.outermost),
        exclusive: difference(stats.exclusive, was.exclusive),
        hist,
        hist_negative,
    }
}

/// The histogram `now` without the values of `was`, and without empty buckets.
fn fewer(now: &[(u8, u64)], was: &[(u8, u64)]) -> Vec<(u8, u64)> {
    let before = |k: u8| was.iter().find(|&&(b, _)| b == k).map_or(0, |&(_, n)| n);
    let left = now.iter().map(|&(k, n)| (k, n.saturating_sub(before(k))));
    left.filter(|&(_, n)| n > 0).collect()
}

/// The bounds of the values in two histograms. `None` if both are empty.
fn ends(hist: &[(u8, u64)], negative: &[(u8, u64)]) -> Option<(i64, i64)> {
    let least = |k: u8| {
        1_i64
            .checked_shl(k.into())
            .filter(|_| 0 < k && k < 63)
            .unwrap_or(0)
    };
    let most = |k: u8| {
        1_i64
            .checked_shl(u32::from(k) + 1)
            .filter(|_| k < 62)
            .map_or(i64::MAX, |end| end - 1)
    };
    let min = match (negative.last(), hist.first()) {
        (Some(&(k, _)), _) => -most(k),
        (None, Some(&(k, _))) => least(k),
        (None, None) => return None,
    };
    let max = match (hist.last(), negative.first()) {
        (Some(&(k, _)), _) => most(k),
        (None, Some(&(k, _))) => -least(k),
        (None, None) => return None,
    };
    Some((min, max))
}

/// True if the path has calls or values.
fn has_come(path: &PathEntry) -> bool {
    let has_values = |stats: &TimerStats| {
        stats.values() > 0 || stats.sum != 0 || stats.exclusive.is_some_and(|ns| ns != 0)
    };
    path.metrics.count > 0 || path.metrics.timers.stats().any(has_values)
}

/// Subtracts the counts of `old` from those of equal graphs. Activations in progress at the moment
/// of `old` are as uncertain as those at the ends of the session.
fn inside(profile: &mut Profile, old: &Profile) {
    let place = |profile: &Profile, index: usize| {
        let function = profile.functions.get(index)?;
        let module = profile.modules.get(function.module)?;
        let base = module.base.unwrap_or(0);
        Some((function.address.wrapping_add(base), function.part()))
    };
    let mut before: HashMap<_, Vec<&Inside>> = HashMap::new();
    for graph in &old.inside {
        let place = place(old, graph.function);
        before.entry(place).or_default().push(graph);
    }
    let mut graphs = std::mem::take(&mut profile.inside);
    for graph in &mut graphs {
        let known = before.get(&place(profile, graph.function));
        let mut known = known.into_iter().flatten();
        if let Some(was) = known.find(|was| graph.has_graph_of(was, 0)) {
            graph.combine(was, u64::saturating_sub);
        }
    }
    profile.inside = graphs;
}

/// The part of the session `now` after the moment of `was`.
fn part(now: &super::Session, was: &super::Session) -> super::Session {
    super::Session {
        started_unix_ns: now.started_unix_ns.saturating_add(was.elapsed_ns),
        elapsed_ns: now.elapsed_ns.saturating_sub(was.elapsed_ns),
        cpu_ns: both(now.cpu_ns, was.cpu_ns, u64::saturating_sub).filter(|_| was.cpu_ns.is_some()),
        stops: now.stops.iter().skip(was.stops.len()).cloned().collect(),
        overhead: None,
        ..now.clone()
    }
}

/// The losses after `was`. Open calls, and losses without a call count, are those of `now`.
fn losses(now: &Losses, was: &Losses) -> Losses {
    let causes = now.causes.iter().map(|(cause, &n)| {
        let before = was.causes.get(cause).copied().unwrap_or(0);
        (cause.clone(), n.saturating_sub(before))
    });
    Losses {
        missed: now.missed.saturating_sub(was.missed),
        overflow: now.overflow.saturating_sub(was.overflow),
        overflow_by: now.overflow_by.clone(),
        unwound: both(now.unwound, was.unwound, u64::saturating_sub),
        open: now.open,
        incomplete: now.incomplete.saturating_sub(was.incomplete),
        causes: causes.filter(|&(_, n)| n > 0).collect(),
        unseen: now.unseen.clone(),
    }
}

/// Sets the totals of each function to the sum of its paths.
fn add_up(profile: &mut Profile) {
    for function in &mut profile.functions {
        let timers = function.totals.counts.timers.iter();
        let empty = timers.map(|(name, stats)| {
            let zero = |part: Option<i128>| part.map(|_| 0);
            let (outermost, exclusive) = (zero(stats.outermost), zero(stats.exclusive));
            (
                name.to_owned(),
                TimerStats {
                    outermost,
                    exclusive,
                    ..TimerStats::default()
                },
            )
        });
        let timers: Timers = empty.collect();
        function.tail = 0;
        function.totals = FunctionTotals {
            counts: Counts { count: 0, timers },
            unwound: function.totals.unwound.map(|_| 0),
            open: function.totals.open.map(|_| 0),
        };
    }
    let mut has_values: Vec<Vec<String>> = vec![Vec::new(); profile.functions.len()];
    for path in &profile.paths {
        let function = &mut profile.functions[path.function];
        let totals = &mut function.totals;
        totals.counts.count = totals.counts.count.saturating_add(path.metrics.count);
        totals.unwound = both(totals.unwound, path.unwound, u64::saturating_add);
        totals.open = both(totals.open, path.open, u64::saturating_add);
        function.tail = function.tail.saturating_add(path.tail);
        for (name, stats) in path.metrics.timers.iter() {
            let known = &mut has_values[path.function];
            let is_first = known.iter().all(|known| known != name);
            totals
                .counts
                .timers
                .entry(name)
                .absorb_sums(stats, is_first);
            if is_first && stats.values() > 0 {
                known.push(name.to_owned());
            }
        }
    }
}

/// Combines two numbers. If only `a` is known, returns `a`. `None` if `a` is not known.
fn both<N>(a: Option<N>, b: Option<N>, of: fn(N, N) -> N) -> Option<N> {
    match (a, b) {
        (Some(a), Some(b)) => Some(of(a, b)),
        (a, None) => a,
        (None, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::sample;

    /// The sample with every number of its paths multiplied by `n`.
    fn times(n: u64) -> Profile {
        let mut profile = sample();
        for path in &mut profile.paths {
            path.metrics.count *= n;
            for stats in path.metrics.timers.stats_mut() {
                let as_much = |part: Option<i128>| part.map(|part| part * i128::from(n));
                stats.sum *= i128::from(n);
                stats.outermost = as_much(stats.outermost);
                stats.exclusive = as_much(stats.exclusive);
                stats.hist.iter_mut().for_each(|(_, held)| *held *= n);
            }
        }
        profile.session.elapsed_ns *= n;
        profile
    }

    #[test]
    fn parts_add_up_to_the_whole() {
        let (old, new) = (times(2), times(5));
        let (part, lost) = new.clone().since(&old);
        assert_eq!(lost, 0);
        assert_eq!(part.paths.len(), new.paths.len());
        for ((part, old), new) in part.paths.iter().zip(&old.paths).zip(&new.paths) {
            let mut sum = old.clone();
            absorb(&mut sum, part);
            assert_eq!(sum.metrics.count, new.metrics.count);
            for (name, stats) in new.metrics.timers.iter() {
                let sum = sum.metrics.timers.get(name).unwrap();
                assert_eq!(sum.sum, stats.sum);
                assert_eq!(sum.exclusive, stats.exclusive);
                assert_eq!(sum.hist, stats.hist);
            }
        }
        assert_eq!(
            part.calls(),
            3 * sample().paths.iter().map(|p| p.metrics.count).sum::<u64>()
        );
        let (start, elapsed) = (part.session.started_unix_ns, part.session.elapsed_ns);
        assert_eq!(start, old.session.started_unix_ns + old.session.elapsed_ns);
        assert_eq!(
            start + elapsed,
            new.session.started_unix_ns + new.session.elapsed_ns
        );
        part.check_structure().unwrap();
    }

    #[test]
    fn paths_are_known_by_their_addresses() {
        let mut old = times(1);
        let mut new = times(1);
        // The base of a module has been found in the meantime.
        new.modules[0].base = Some(new.modules[0].base.unwrap_or(0) + 0x1000);
        let moved = new.clone().since(&old);
        assert!(moved.1 > 0, "paths elsewhere are others");
        for frame in new.frames.iter_mut().filter(|f| f.module == Some(0)) {
            frame.address = frame.address.wrapping_sub(0x1000);
        }
        for function in new.functions.iter_mut().filter(|f| f.module == 0) {
            function.address = function.address.wrapping_sub(0x1000);
        }
        let (nothing, lost) = new.since(&old);
        assert_eq!((nothing.paths.len(), lost), (0, 0));
        // Two paths that have become one.
        let twin = old.paths[0].clone();
        old.paths.push(twin.clone());
        let mut one = times(1);
        absorb(&mut one.paths[0], &twin);
        let (nothing, lost) = one.since(&old);
        assert_eq!((nothing.paths.len(), lost), (0, 0));
    }

    #[test]
    fn extremes_lie_within_the_histogram() {
        assert_eq!(ends(&[(0, 1)], &[]), Some((0, 1)));
        assert_eq!(ends(&[(3, 1), (5, 2)], &[]), Some((8, 63)));
        assert_eq!(ends(&[(2, 1)], &[(1, 1), (4, 1)]), Some((-31, 7)));
        assert_eq!(ends(&[], &[(4, 1)]), Some((-31, -16)));
        assert_eq!(ends(&[(62, 1)], &[]), Some((1 << 62, i64::MAX)));
        assert_eq!(ends(&[], &[]), None);
    }
}
