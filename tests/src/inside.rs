//! The counts inside functions in profiles.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;

use serde_json::Value;

use crate::profile::Profile;
use crate::stepped::Transfers;

/// The number that a value is.
///
/// # Panics
/// If it is none.
pub fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("a number: {value}"))
}

/// The list in a field.
///
/// # Panics
/// If there is none.
pub fn list<'v>(value: &'v Value, field: &str) -> &'v Vec<Value> {
    value[field]
        .as_array()
        .unwrap_or_else(|| panic!("{field}: {value}"))
}

/// The entries of `inside` in a profile, by the name of their function.
pub fn insides(file: &Path) -> BTreeMap<String, Value> {
    let profile = Profile::read(file);
    let text = std::fs::read_to_string(file).expect("a profile");
    let json: Value = serde_json::from_str(&text).expect("JSON");
    let entries = list(&json, "inside").iter().map(|entry| {
        let function = &profile.functions[number(&entry["function"]) as usize];
        (function.name.clone(), entry.clone())
    });
    let found: BTreeMap<String, Value> = entries.collect();
    found.values().for_each(check_conservation);
    found
}

/// As many transfers arrive at each block as leave it, and its count is their number.
fn check_conservation(inside: &Value) {
    assert_eq!(inside["uncertain"], 0, "{inside}");
    for (index, block) in list(inside, "blocks").iter().enumerate() {
        let sum = |end: &str| -> u64 {
            let edges = list(inside, "edges").iter();
            let there = edges.filter(|edge| edge[end].as_u64() == Some(index as u64));
            there.map(|edge| number(&edge["count"])).sum()
        };
        let expected = number(&block["count"]);
        assert_eq!(
            [sum("to"), sum("from")],
            [expected; 2],
            "block {index} of {inside}"
        );
    }
}

/// The addresses of each block.
pub fn ranges(inside: &Value) -> Vec<Range<u64>> {
    let blocks = list(inside, "blocks").iter();
    let range = |b: &Value| number(&b["address"])..number(&b["address"]) + number(&b["size"]);
    blocks.map(range).collect()
}

/// A path: true if it begins at an entry, its blocks, and true if it ends at an exit.
pub type Route = (bool, Vec<usize>, bool);

/// The paths of an entry, with their counts.
pub fn routes(inside: &Value) -> BTreeMap<Route, u64> {
    let paths = inside["paths"].as_array().into_iter().flatten();
    let routes = paths.map(|path| {
        let blocks = list(path, "blocks").iter();
        let blocks = blocks.map(|block| number(block) as usize).collect();
        let route = (path["start"] == "entry", blocks, path["end"] == "exit");
        (route, number(&path["count"]))
    });
    let mut sum = BTreeMap::new();
    for (route, count) in routes {
        *sum.entry(route).or_default() += count;
    }
    sum
}

/// The back edges of an entry whose loops are reducible: those to a block that dominates their
/// source.
pub fn back_edges(inside: &Value) -> BTreeSet<(usize, usize)> {
    let blocks = list(inside, "blocks").len();
    let edges = list(inside, "edges").iter();
    let edges: Vec<(Option<usize>, usize)> = edges
        .filter(|edge| edge["in_call"] != true)
        .filter_map(|edge| {
            let from = edge["from"].as_u64().map(|from| from as usize);
            Some((from, edge["to"].as_u64()? as usize))
        })
        .collect();
    // A block dominates another if that cannot be reached without it.
    let dominates = |header: usize, source: usize| {
        let mut reached: BTreeSet<usize> = BTreeSet::new();
        let mut work: Vec<usize> = (0..blocks)
            .filter(|&to| edges.contains(&(None, to)))
            .collect();
        while let Some(block) = work.pop() {
            if block != header && reached.insert(block) {
                work.extend(edges.iter().filter(|e| e.0 == Some(block)).map(|e| e.1));
            }
        }
        !reached.contains(&source)
    };
    let between = edges.iter().filter_map(|&(from, to)| Some((from?, to)));
    between.filter(|&(from, to)| dominates(to, from)).collect()
}

/// The paths of one function that a stepped program takes.
pub struct Walked {
    ranges: Vec<Range<u64>>,
    back: BTreeSet<(usize, usize)>,
    /// The unfinished path of each activation, by the number of calls that it is in.
    open: BTreeMap<usize, (bool, Vec<usize>)>,
    /// The finished paths.
    pub routes: BTreeMap<Route, u64>,
}

impl Walked {
    /// For the blocks and loops of an entry.
    pub fn of(inside: &Value) -> Self {
        Self {
            ranges: ranges(inside),
            back: back_edges(inside),
            open: BTreeMap::new(),
            routes: BTreeMap::new(),
        }
    }

    /// A transfer of the activation that is in `calls` calls; 0 stands for the outside.
    pub fn see(&mut self, calls: usize, (from, to): (u64, u64)) {
        let block = |at: u64| self.ranges.iter().position(|range| range.contains(&at));
        let (from_block, to_block) = (block(from), block(to));
        let Some(next) = to_block else {
            if let Some((start, blocks)) = self.open.remove(&calls) {
                *self.routes.entry((start, blocks, true)).or_default() += 1;
            }
            return;
        };
        let Some(last) = from_block else {
            // An activation before, in as many calls, has been left.
            self.open.insert(calls, (true, vec![next]));
            return;
        };
        let is_edge = self.ranges[next].start == to && (last != next || from >= to);
        let Some(path) = self.open.get_mut(&calls).filter(|_| is_edge) else {
            return;
        };
        if self.back.contains(&(last, next)) {
            let (start, blocks) = std::mem::replace(path, (false, vec![next]));
            *self.routes.entry((start, blocks, false)).or_default() += 1;
        } else {
            path.1.push(next);
        }
    }
}

/// Compares the edges between blocks with the transfers that were stepped through.
pub fn compare(name: &str, inside: &Value, stepped: &Transfers) {
    let ranges = ranges(inside);
    let mut expected: BTreeMap<(usize, usize), u64> = BTreeMap::new();
    for (&(from, to), &count) in stepped {
        let block = |at: u64| ranges.iter().position(|range| range.contains(&at));
        if let (Some(from_block), Some(to_block)) = (block(from), block(to))
            && ranges[to_block].start == to
            && (from_block != to_block || from >= to)
        {
            *expected.entry((from_block, to_block)).or_default() += count;
        }
    }
    let mut found: BTreeMap<(usize, usize), u64> = BTreeMap::new();
    for edge in list(inside, "edges") {
        if let (Some(from), Some(to)) = (edge["from"].as_u64(), edge["to"].as_u64())
            && number(&edge["count"]) > 0
        {
            *found.entry((from as usize, to as usize)).or_default() += number(&edge["count"]);
        }
    }
    assert_eq!(found, expected, "{name}: {inside}");
}
