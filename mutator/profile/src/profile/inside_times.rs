//! The times of loops and paths inside functions.

use std::collections::{HashMap, HashSet};

use super::counts::{WALL, closed};
use super::{Function, Inside, Loop, PathContext, PathEntry, Profile};

impl Profile {
    /// Gives the loops and the paths inside functions their times.
    pub fn time_inside(&mut self) {
        self.time_loops();
        self.time_paths();
    }

    /// True for a call path of timed paths inside a function whose numbers are not known: they are
    /// under way, or were left. Their calls move to other call paths when they end.
    pub fn is_passing(&self, path: &PathEntry) -> bool {
        self.functions[path.function].timed_paths && self.number_inside(path).is_none()
    }

    /// The number of the path inside the function, if the call path begins with one. `None` for
    /// other call paths.
    pub(crate) fn number_inside(&self, path: &PathEntry) -> Option<u64> {
        let &first = path.stack.first()?;
        self.frames[first].path
    }

    /// The graphs of functions with their indexes in [`Profile::inside`], one for each function:
    /// not that of timed paths if the edges or paths of the function are counted as well.
    pub(crate) fn graphs(&self) -> impl Iterator<Item = (usize, &Inside)> {
        let place = |graph: &Inside| {
            let function = &self.functions[graph.function];
            (function.module, function.address)
        };
        let is_timed = |graph: &Inside| self.functions[graph.function].timed_paths;
        let others = self.inside.iter().filter(move |graph| !is_timed(graph));
        let others: HashSet<(usize, u64)> = others.map(place).collect();
        let all = self.inside.iter().enumerate();
        all.filter(move |(_, graph)| !is_timed(graph) || !others.contains(&place(graph)))
    }

    /// Gives each path inside a function whose paths are timed the call paths that led to it, with
    /// their times.
    fn time_paths(&mut self) {
        if self.functions.iter().all(|function| !function.timed_paths) {
            return;
        }
        let mut contexts: HashMap<(usize, u64), Vec<PathContext>> = HashMap::new();
        for (index, path) in self.paths.iter().enumerate() {
            let Some(number) = self.number_inside(path) else {
                continue;
            };
            let count = path.metrics.count;
            let ended = closed(count, path.unwound, path.open).unwrap_or(count);
            let wall = path.metrics.timers.get(WALL);
            contexts
                .entry((path.function, number))
                .or_default()
                .push(PathContext {
                    path: index,
                    count: ended,
                    wall: wall.filter(|_| ended > 0).cloned().map(Box::new),
                });
        }
        // Several builds of a function in a sum have different paths of the same number.
        let mut graphs: HashMap<usize, usize> = HashMap::new();
        for graph in &self.inside {
            *graphs.entry(graph.function).or_default() += 1;
        }
        for graph in &mut self.inside {
            let is_alone = graphs[&graph.function] == 1;
            for path in &mut graph.paths {
                // Those of the profiles of a sum have other indexes.
                let known = contexts.remove(&(graph.function, path.number));
                path.contexts = known.filter(|_| is_alone).unwrap_or_default();
            }
        }
    }

    /// Gives each loop inside a function the times of the row that times it by itself. Loops
    /// without such a row get none.
    fn time_loops(&mut self) {
        let mut graphs = std::mem::take(&mut self.inside);
        for graph in &mut graphs {
            let wall = |own: &Loop| {
                let row = self.row_of_loop(graph, own)?;
                let wall = row.totals.counts.timers.get(WALL)?;
                (closed_of(row) > 0).then(|| Box::new(wall.clone()))
            };
            let all: Vec<_> = graph.loops.iter().map(wall).collect();
            for (own, wall) in graph.loops.iter_mut().zip(all) {
                own.wall = wall;
            }
        }
        self.inside = graphs;
    }

    /// The number of timed entries of a loop inside a function. `None` if it is not timed.
    pub(crate) fn timed_entries(&self, graph: &Inside, own: &Loop) -> Option<u64> {
        self.row_of_loop(graph, own).map(closed_of)
    }

    /// The row that times a loop inside a function by itself. `None` if there is none.
    fn row_of_loop(&self, graph: &Inside, own: &Loop) -> Option<&Function> {
        let module = self.functions.get(graph.function)?.module;
        let header = graph.blocks.get(own.header)?;
        let is_it = |row: &&Function| {
            let is_in = row.address.wrapping_sub(header.address) < header.size;
            row.of_loop.is_some() && row.module == module && is_in
        };
        self.functions.iter().find(is_it)
    }
}

/// The number of entries of a timed loop that have ended.
fn closed_of(row: &Function) -> u64 {
    let totals = &row.totals;
    closed(totals.counts.count, totals.unwound, totals.open).unwrap_or(0)
}
