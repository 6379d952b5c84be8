//! Consistency checks of the control flow inside functions.

use super::{Inconsistent, index};
use crate::profile::{Edge, EdgeKind, Inside};

impl Inside {
    /// Checks the indexes. `at` is the place of `self` in the profile, which has so many functions
    /// and paths.
    pub(super) fn check_structure(
        &self,
        at: &str,
        (functions, paths): (usize, usize),
    ) -> Result<(), Inconsistent> {
        index(
            || format!("{at}.function"),
            "functions",
            self.function,
            functions,
        )?;
        let (blocks, loops) = (self.blocks.len(), self.loops.len());
        for (i, edge) in self.edges.iter().enumerate() {
            for (end, block) in [("from", edge.from), ("to", edge.to)] {
                if let Some(block) = block {
                    index(|| format!("{at}.edges[{i}].{end}"), "blocks", block, blocks)?;
                }
            }
            if !has_its_ends(edge) {
                let at = format!("{at}.edges[{i}]");
                return Err(Inconsistent::Ends { at });
            }
        }
        for (i, own) in self.loops.iter().enumerate() {
            index(
                || format!("{at}.loops[{i}].header"),
                "blocks",
                own.header,
                blocks,
            )?;
            if let Some(parent) = own.parent {
                index(|| format!("{at}.loops[{i}].parent"), "loops", parent, loops)?;
            }
        }
        for (i, path) in self.paths.iter().enumerate() {
            for &block in &path.blocks {
                index(
                    || format!("{at}.paths[{i}].blocks"),
                    "blocks",
                    block,
                    blocks,
                )?;
            }
            for context in &path.contexts {
                let at = || format!("{at}.paths[{i}].path");
                index(at, "paths", context.path, paths)?;
            }
        }
        match self.loop_in_itself() {
            Some(i) => Err(Inconsistent::Nesting {
                at: format!("{at}.loops[{i}]"),
            }),
            None => Ok(()),
        }
    }

    /// Checks that the edges of each block add up to its count. The indexes are in range.
    pub(super) fn check_counts(&self, at: &str) -> Result<(), Inconsistent> {
        let mut sums = vec![[0_u64; 2]; self.blocks.len()];
        for edge in &self.edges {
            for (side, block) in [edge.to, edge.from].into_iter().enumerate() {
                if let Some(block) = block {
                    let sum = &mut sums[block][side];
                    *sum = sum.saturating_add(edge.count);
                }
            }
        }
        for (i, (block, sums)) in self.blocks.iter().zip(sums).enumerate() {
            for (side, sum) in ["incoming", "outgoing"].into_iter().zip(sums) {
                if sum.abs_diff(block.count) > self.uncertain {
                    return Err(Inconsistent::Flow {
                        at: format!("{at}.blocks[{i}]"),
                        count: block.count,
                        side,
                        edges: sum,
                        uncertain: self.uncertain,
                    });
                }
            }
        }
        Ok(())
    }

    /// The first loop that does not have an outermost loop around it. `None` if there is none.
    fn loop_in_itself(&self) -> Option<usize> {
        // For each loop, true if an outermost loop is known to be around it.
        let mut is_nested = vec![false; self.loops.len()];
        (0..self.loops.len()).find(|&start| {
            let mut chain = Vec::new();
            let mut next = Some(start);
            while let Some(at) = next.filter(|&at| !is_nested[at]) {
                if chain.len() == self.loops.len() {
                    return true;
                }
                chain.push(at);
                next = self.loops[at].parent;
            }
            chain.into_iter().for_each(|at| is_nested[at] = true);
            false
        })
    }
}

/// True if the edge has a source unless it enters the function, and a target unless it leaves it.
fn has_its_ends(edge: &Edge) -> bool {
    let ends = (edge.from.is_some(), edge.to.is_some());
    match edge.kind {
        EdgeKind::Fall | EdgeKind::Taken | EdgeKind::Case => ends == (true, true),
        EdgeKind::Entry => ends == (false, true),
        EdgeKind::Exit => ends == (true, false),
    }
}
