//! The iterations of each entry of a loop, in profiles and by single steps.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use serde_json::Value;

use crate::inside::{back_edges, list, number, ranges};

/// The entries of a loop, its iterations, and its histogram.
pub type Trip = (u64, u64, BTreeMap<u64, u64>);

/// The trips of each loop of an entry: its entries, its iterations, and its histogram.
///
/// # Panics
/// If the entry is none of a profile.
pub fn trips(inside: &Value) -> Vec<Trip> {
    let loops = list(inside, "loops").iter();
    let trips = loops.map(|own| {
        let pairs = own["trips"].as_array().into_iter().flatten();
        let trips = pairs.map(|pair| (number(&pair[0]), number(&pair[1])));
        let (entries, iterations) = (number(&own["entries"]), number(&own["iterations"]));
        (entries, iterations, trips.collect())
    });
    trips.collect()
}

/// The trips that a stepped program makes through each loop of an entry whose loops are reducible:
/// their number by power of two.
pub struct Trips {
    ranges: Vec<Range<u64>>,
    back: BTreeSet<(usize, usize)>,
    /// For each loop, its header and its blocks.
    loops: Vec<(usize, BTreeSet<usize>)>,
    /// The iterations of each activation, by the number of calls that it is in and by loop.
    open: BTreeMap<(usize, usize), u64>,
    /// The histogram of each loop.
    pub found: Vec<BTreeMap<u64, u64>>,
}

impl Trips {
    /// For the blocks and loops of an entry.
    pub fn of(inside: &Value) -> Self {
        let back = back_edges(inside);
        let mut before: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for edge in list(inside, "edges") {
            if let (Some(from), Some(to)) = (edge["from"].as_u64(), edge["to"].as_u64()) {
                before.entry(to as usize).or_default().insert(from as usize);
            }
        }
        let loops = list(inside, "loops").iter().map(|own| {
            let header = number(&own["header"]) as usize;
            let mut blocks = BTreeSet::from([header]);
            let sources = back.iter().filter(|(_, to)| *to == header);
            let mut work: Vec<usize> = sources.map(|(from, _)| *from).collect();
            while let Some(block) = work.pop() {
                if blocks.insert(block) {
                    work.extend(before.get(&block).into_iter().flatten());
                }
            }
            (header, blocks)
        });
        let loops: Vec<_> = loops.collect();
        Self {
            ranges: ranges(inside),
            found: vec![BTreeMap::new(); loops.len()],
            back,
            loops,
            open: BTreeMap::new(),
        }
    }

    /// A transfer of the activation that is in `calls` calls; 0 stands for the outside.
    pub fn see(&mut self, calls: usize, (from, to): (u64, u64)) {
        let block = |at: u64| self.ranges.iter().position(|range| range.contains(&at));
        let (last, next) = (block(from), block(to));
        let is_edge = next
            .is_none_or(|next| self.ranges[next].start == to && (last != Some(next) || from >= to));
        if !is_edge {
            return;
        }
        for (of, (header, blocks)) in self.loops.iter().enumerate() {
            let is_in = |block: Option<usize>| block.is_some_and(|block| blocks.contains(&block));
            let key = (calls, of);
            if is_in(last) && !is_in(next) {
                if let Some(count) = self.open.remove(&key) {
                    *self.found[of].entry(count.ilog2().into()).or_default() += 1;
                }
            } else if next == Some(*header) {
                if last.is_some_and(|last| self.back.contains(&(last, *header))) {
                    *self.open.entry(key).or_default() += 1;
                } else {
                    self.open.insert(key, 1);
                }
            }
        }
    }
}
