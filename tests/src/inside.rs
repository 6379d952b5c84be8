//! The counts inside functions in profiles.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

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
///
/// # Panics
/// If a count is uncertain, or differs from the sum of its edges.
pub fn insides(file: &Path) -> BTreeMap<String, Value> {
    let found = entries(file);
    found.values().for_each(check_conservation);
    found
}

/// As [`insides`], of a profile whose counts may be uncertain.
pub fn entries(file: &Path) -> BTreeMap<String, Value> {
    let profile = Profile::read(file);
    let json = json(file);
    let entries = list(&json, "inside").iter().map(|entry| {
        let function = &profile.functions[number(&entry["function"]) as usize];
        (function.name.clone(), entry.clone())
    });
    entries.collect()
}

/// A profile as JSON.
///
/// # Panics
/// If the file cannot be read.
pub fn json(file: &Path) -> Value {
    let text = std::fs::read_to_string(file).expect("a profile");
    serde_json::from_str(&text).expect("JSON")
}

/// The flags with which `dispatches.c` is built: jumps through a table by a register and by memory,
/// also with marks at the targets.
pub const DISPATCHES: [&[&str]; 7] = [
    &["-O2"],
    &["-O2", "-fno-pie", "-no-pie"],
    &["-O2", "-fno-pie", "-no-pie", "-fcf-protection=full"],
    &["-O1"],
    &["-O0"],
    &["-Os"],
    &["-O3"],
];

/// The numbers that a program prints.
///
/// # Panics
/// If it does not run, or prints no text.
pub fn printed_numbers(program: &Path, arguments: &[&str]) -> Vec<u64> {
    let own = Command::new(program).args(arguments).output();
    let own = String::from_utf8(own.expect("it runs").stdout).expect("text");
    let words = own.split_whitespace();
    words.filter_map(|word| word.parse().ok()).collect()
}

/// The numbers that a program with spans prints for each: executions, how many of them were left,
/// and nanoseconds.
pub fn printed_spans(output: &str) -> BTreeMap<String, [u64; 3]> {
    let rows = output.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let name = words.next()?.to_owned();
        let numbers: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
        Some((name, numbers.try_into().ok()?))
    });
    rows.collect()
}

/// Checks that as many transfers arrive at each block as leave it, and that its count is their
/// number.
///
/// # Panics
/// If a block has another count.
pub fn check_conservation(inside: &Value) {
    assert_eq!(inside["uncertain"], 0, "{inside}");
    let sums = |end: &str| {
        let mut sums: BTreeMap<u64, u64> = BTreeMap::new();
        for edge in list(inside, "edges") {
            let block = edge[end].as_u64().unwrap_or(u64::MAX);
            *sums.entry(block).or_default() += number(&edge["count"]);
        }
        sums
    };
    let (to, from) = (sums("to"), sums("from"));
    for (index, block) in list(inside, "blocks").iter().enumerate() {
        let sum = |sums: &BTreeMap<u64, u64>| sums.get(&(index as u64)).copied().unwrap_or(0);
        let expected = number(&block["count"]);
        assert_eq!(
            [sum(&to), sum(&from)],
            [expected; 2],
            "block {index} of {inside}"
        );
    }
}

/// The hubs of an entry, blocks of size 0 through which jumps lead to many labels.
pub struct Hubs {
    /// The hub of each block that leads to one.
    of: BTreeMap<usize, usize>,
    /// The blocks to which each hub leads.
    targets: BTreeMap<usize, BTreeSet<usize>>,
}

impl Hubs {
    /// The hubs of an entry.
    pub fn of(inside: &Value) -> Self {
        let blocks = list(inside, "blocks");
        let mut found = Self {
            of: BTreeMap::new(),
            targets: BTreeMap::new(),
        };
        for (from, to) in arrivals(inside) {
            let Some(from) = from else { continue };
            if blocks[to]["size"] == 0 {
                found.of.insert(from, to);
            }
            if blocks[from]["size"] == 0 {
                found.targets.entry(from).or_default().insert(to);
            }
        }
        found
    }

    /// The hub on the way from one block to another.
    pub fn between(&self, from: usize, to: usize) -> Option<usize> {
        let hub = *self.of.get(&from)?;
        self.targets.get(&hub)?.contains(&to).then_some(hub)
    }

    /// The entry with edges without counts in the place of those from and to hubs.
    pub fn left_out(&self, inside: &Value) -> Value {
        let is_hub = |end: &Value| {
            end.as_u64()
                .is_some_and(|block| self.targets.contains_key(&(block as usize)))
        };
        let edges = list(inside, "edges").iter();
        let mut edges: Vec<Value> = edges
            .filter(|edge| !is_hub(&edge["from"]) && !is_hub(&edge["to"]))
            .cloned()
            .collect();
        for (from, hub) in &self.of {
            let targets = self.targets.get(hub).into_iter().flatten();
            edges.extend(targets.map(|to| json!({"from": from, "to": to, "count": 0})));
        }
        let mut other = inside.clone();
        other["edges"] = Value::Array(edges);
        other
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

/// The counts of the paths of an entry, ascending.
pub fn counts_of_paths(inside: &Value) -> Vec<u64> {
    let mut counts: Vec<u64> = routes(inside).into_values().collect();
    counts.sort_unstable();
    counts
}

/// The edges of an entry: from the virtual entry or a block, to a block.
fn arrivals(inside: &Value) -> Vec<(Option<usize>, usize)> {
    let edges = list(inside, "edges").iter();
    edges
        .filter(|edge| edge["in_call"] != true)
        .filter_map(|edge| {
            let from = edge["from"].as_u64().map(|from| from as usize);
            Some((from, edge["to"].as_u64()? as usize))
        })
        .collect()
}

/// The back edges of an entry whose loops are reducible: those to a block that dominates their
/// source.
pub fn back_edges(inside: &Value) -> BTreeSet<(usize, usize)> {
    let edges = arrivals(inside);
    let mut after: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut sources: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (from, to) in edges.iter().filter_map(|&(from, to)| Some((from?, to))) {
        after.entry(from).or_default().push(to);
        sources.entry(to).or_default().push(from);
    }
    // A block dominates another if that cannot be reached without it.
    let reached_without = |header: usize| {
        let mut reached: BTreeSet<usize> = BTreeSet::new();
        let starts = edges.iter().filter(|(from, _)| from.is_none());
        let mut work: Vec<usize> = starts.map(|&(_, to)| to).collect();
        while let Some(block) = work.pop() {
            if block != header && reached.insert(block) {
                work.extend(after.get(&block).into_iter().flatten());
            }
        }
        reached
    };
    let mut back = BTreeSet::new();
    for (to, sources) in sources {
        let reached = reached_without(to);
        let own = sources.into_iter().filter(|from| !reached.contains(from));
        back.extend(own.map(|from| (from, to)));
    }
    back
}

/// The edges of an entry between blocks to the heads of loops.
fn edges_to_heads(inside: &Value) -> BTreeSet<(usize, usize)> {
    let loops = list(inside, "loops").iter();
    let heads: BTreeSet<usize> = loops.map(|of| number(&of["header"]) as usize).collect();
    let edges = arrivals(inside).into_iter();
    let edges = edges.filter_map(|(from, to)| Some((from?, to)));
    edges.filter(|(_, to)| heads.contains(to)).collect()
}

/// True if each cycle of an entry has a back edge.
pub fn is_reducible(inside: &Value) -> bool {
    let back = back_edges(inside);
    let edges = arrivals(inside).into_iter();
    let edges = edges.filter_map(|(from, to)| Some((from?, to)));
    let mut left: Vec<(usize, usize)> = edges.filter(|edge| !back.contains(edge)).collect();
    // Blocks without an edge that leads to them are taken away until none is left.
    loop {
        let targets: BTreeSet<usize> = left.iter().map(|&(_, to)| to).collect();
        let before = left.len();
        left.retain(|(from, _)| targets.contains(from));
        if left.len() == before {
            return left.is_empty();
        }
    }
}

/// The paths of one function that a stepped program takes.
pub struct Walked {
    ranges: Vec<Range<u64>>,
    /// Paths that end at back edges.
    whole: Cut,
    /// Paths that also end where a loop is entered.
    split: Cut,
}

/// The paths of a function that end at these edges.
struct Cut {
    edges: BTreeSet<(usize, usize)>,
    /// The unfinished path of each activation, by the number of calls that it is in.
    open: BTreeMap<usize, (bool, Vec<usize>)>,
    /// The finished paths.
    routes: BTreeMap<Route, u64>,
}

impl Walked {
    /// For the blocks and loops of an entry.
    pub fn of(inside: &Value) -> Self {
        let back = back_edges(inside);
        let all = back.union(&edges_to_heads(inside)).copied().collect();
        Self {
            ranges: ranges(inside),
            whole: Cut::at(back),
            split: Cut::at(all),
        }
    }

    /// The finished paths, cut as those of the entry are.
    pub fn routes(&self, inside: &Value) -> &BTreeMap<Route, u64> {
        let is_split = inside["path_totals"]["split"] == true;
        let own = if is_split { &self.split } else { &self.whole };
        &own.routes
    }

    /// True if both have the same finished paths.
    pub fn has_routes_of(&self, other: &Self) -> bool {
        self.whole.routes == other.whole.routes && self.split.routes == other.split.routes
    }

    /// A transfer of the activation that is in `calls` calls; 0 stands for the outside.
    pub fn see(&mut self, calls: usize, (from, to): (u64, u64)) {
        let block = |at: u64| self.ranges.iter().position(|range| range.contains(&at));
        let is_edge = |last: usize, next: usize| {
            self.ranges[next].start == to && (last != next || from >= to)
        };
        let (last, next) = (block(from), block(to));
        let is_edge = last
            .zip(next)
            .is_none_or(|(last, next)| is_edge(last, next));
        if is_edge {
            self.whole.see(calls, (last, next));
            self.split.see(calls, (last, next));
        }
    }
}

impl Cut {
    fn at(edges: BTreeSet<(usize, usize)>) -> Self {
        Self {
            edges,
            open: BTreeMap::new(),
            routes: BTreeMap::new(),
        }
    }

    /// A transfer between blocks, or from or to the outside.
    fn see(&mut self, calls: usize, (last, next): (Option<usize>, Option<usize>)) {
        let Some(next) = next else {
            if let Some((start, blocks)) = self.open.remove(&calls) {
                *self.routes.entry((start, blocks, true)).or_default() += 1;
            }
            return;
        };
        let Some(last) = last else {
            // An activation before, in as many calls, has been left.
            self.open.insert(calls, (true, vec![next]));
            return;
        };
        let Some(path) = self.open.get_mut(&calls) else {
            return;
        };
        if self.edges.contains(&(last, next)) {
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
