//! The times of loops inside functions.

use super::counts::{WALL, closed};
use super::{Function, Inside, Loop, Profile};

impl Profile {
    /// Gives each loop inside a function the times of the row that times it by itself. Loops
    /// without such a row get none.
    pub fn time_loops(&mut self) {
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
