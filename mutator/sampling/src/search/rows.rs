//! The result: the shortest list of call paths that explains enough.

use std::collections::BTreeMap;

use patcher::Avma;

use super::{Bounds, Cost, Measured, MeasuredPath, Search, Site, Window};

/// A costly call path, as far out as it is informative. It ends at a function with many callers
/// that have little time each.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The measured function.
    pub function: Avma,
    /// From its caller outwards.
    pub callers: Vec<Site>,
    /// The number of paths that begin like this.
    pub paths: usize,
    /// True if the callers reach the root.
    pub is_whole: bool,
    /// The number of calls that returned.
    pub calls: u64,
    /// Time in the function without measured functions that it calls, in nanoseconds on a processor
    /// and off it.
    pub cost: Cost,
    /// `cost` as shares of the time to explain.
    pub share: Cost,
    /// True if most of the time is for beginning and ending waits for work.
    pub is_idle: bool,
}

/// The maximum number of branches that are followed where a path splits.
const BRANCHES: usize = 4;

/// Paths whose innermost `depth` call sites are the same, or in the same functions.
struct Bundle<'p> {
    depth: usize,
    paths: Vec<&'p MeasuredPath>,
}

impl<'p> Bundle<'p> {
    fn cost(&self) -> Cost {
        self.paths.iter().map(|path| path.cost).sum()
    }

    /// A bundle for each key of the next call sites. Paths that end here are in none.
    fn split<K: Ord>(&self, key: impl Fn(&Site) -> K) -> Vec<Bundle<'p>> {
        let mut by_key: BTreeMap<K, Vec<&'p MeasuredPath>> = BTreeMap::new();
        for path in &self.paths {
            if let Some(site) = path.callers.get(self.depth) {
                by_key.entry(key(site)).or_default().push(path);
            }
        }
        let depth = self.depth + 1;
        let bundle = |paths| Bundle { depth, paths };
        by_key.into_values().map(bundle).collect()
    }

    /// The path with the most time. `None` if there are no paths.
    fn costliest(&self) -> Option<&'p MeasuredPath> {
        let paths = self.paths.iter().copied();
        paths.max_by(|a, b| a.cost.sum().total_cmp(&b.cost.sum()))
    }
}

/// The path without the calls that the function makes to itself. A recursion is one path, whatever
/// its call sites.
fn outermost(function: Avma, path: &MeasuredPath) -> MeasuredPath {
    let is_own = |site: &&Site| site.function == function;
    let own = path.callers.iter().take_while(is_own).count();
    MeasuredPath {
        callers: path.callers[own..].to_vec(),
        ..path.clone()
    }
}

/// The measure of a path's size: the shares of both parts together.
struct Scale {
    whole: Cost,
    bounds: Bounds,
}

impl Scale {
    fn share(&self, cost: Cost) -> Cost {
        cost.share_of(self.whole, self.bounds.min_share)
    }

    fn size(&self, bundle: &Bundle<'_>) -> f64 {
        self.share(bundle.cost()).sum()
    }

    /// Follows the callers of a bundle while a few of them have most of `of`. Adds the bundles at
    /// which it stops to `ends`. `of` is the size of the bundle with the parts that were left out
    /// on the way.
    fn follow<'p>(&self, mut bundle: Bundle<'p>, of: f64, ends: &mut Vec<Bundle<'p>>) {
        loop {
            // A caller with many call sites is one branch.
            let next = self
                .branches(bundle.split(|site| *site), of)
                .or_else(|| self.branches(bundle.split(|site| site.function), of));
            let Some((mut next, covered)) = next else {
                return ends.push(bundle);
            };
            match next.len() {
                1 => bundle = next.swap_remove(0),
                _ => {
                    for branch in next {
                        let size = self.size(&branch);
                        self.follow(branch, of * size / covered, ends);
                    }
                    return;
                }
            }
        }
    }

    /// The substantial branches of a split, with the sum of their sizes. `None` if they are too
    /// many or have too little of `of`.
    fn branches<'p>(&self, mut all: Vec<Bundle<'p>>, of: f64) -> Option<(Vec<Bundle<'p>>, f64)> {
        all.retain(|branch| self.share(branch.cost()).largest() >= self.bounds.min_share);
        let covered: f64 = all.iter().map(|branch| self.size(branch)).sum();
        let is_enough = all.len() <= BRANCHES && covered >= self.bounds.explain * of;
        is_enough.then_some((all, covered))
    }

    fn row(&self, function: Avma, bundle: &Bundle<'_>) -> Option<Row> {
        let first = bundle.costliest()?;
        let idle: f64 = bundle.paths.iter().map(|path| path.idle).sum();
        let calls = bundle.paths.iter().map(|path| path.calls);
        Some(Row {
            function,
            callers: first.callers[..bundle.depth].to_vec(),
            paths: bundle.paths.len(),
            is_whole: first.callers.len() == bundle.depth,
            calls: calls.fold(0, u64::saturating_add),
            cost: bundle.cost(),
            share: self.share(bundle.cost()),
            is_idle: 2.0 * idle > bundle.cost().sum(),
        })
    }

    fn of_function(&self, search: &Search, measured: &Measured) -> Vec<Row> {
        let paths = measured.paths.iter();
        let is_of_it = |path: &&MeasuredPath| search.is_within(measured.function, path);
        let of_it = paths.filter(is_of_it);
        let paths: Vec<MeasuredPath> = of_it
            .map(|path| outermost(measured.function, path))
            .collect();
        let all = Bundle {
            depth: 0,
            paths: paths.iter().collect(),
        };
        let size = self.size(&all);
        let mut ends = Vec::new();
        if size > 0.0 {
            self.follow(all, size, &mut ends);
        }
        let rows = ends.iter();
        rows.filter_map(|bundle| self.row(measured.function, bundle))
            .collect()
    }
}

/// The fewest rows that explain enough of each part, the largest first. If they cannot, all rows
/// that are large enough. Idle rows come last: no change of the program's own work shortens them.
pub fn rows(search: &Search, window: &Window) -> Vec<Row> {
    let scale = Scale {
        whole: search.whole(window),
        bounds: search.bounds,
    };
    let of = |measured: &Measured| scale.of_function(search, measured);
    let mut all: Vec<Row> = window.measured.iter().flat_map(of).collect();
    let enough = search.bounds.explain;
    let mut is_needed = vec![false; all.len()];
    for part in [|cost: Cost| cost.cpu, |cost: Cost| cost.off] {
        let mut order: Vec<usize> = (0..all.len()).collect();
        order.sort_by(|&a, &b| part(all[b].share).total_cmp(&part(all[a].share)));
        let mut covered = 0.0;
        for index in order {
            if covered >= enough || part(all[index].share) < search.bounds.min_share {
                break;
            }
            covered += part(all[index].share);
            is_needed[index] = true;
        }
    }
    let mut needed = is_needed.into_iter();
    all.retain(|_| needed.next() == Some(true));
    // Waiting counts for less if the threads wait for less time than they run.
    let weight = (scale.whole.off / scale.whole.cpu.max(1.0)).min(1.0);
    let rank = |row: &Row| row.share.cpu.max(weight * row.share.off);
    all.sort_by(|a, b| {
        let idle = a.is_idle.cmp(&b.is_idle);
        idle.then_with(|| rank(b).total_cmp(&rank(a)))
    });
    all
}
