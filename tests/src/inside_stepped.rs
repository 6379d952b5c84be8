//! Counts inside functions of any program and its libraries, compared with single steps.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::command::Run;
use crate::inside::{
    Hubs, Route, Walked, check_conservation, is_reducible, list, number, ranges, routes,
};
use crate::inside_trips::{Trips, trips};
use crate::instrument::Target;
use crate::place::{Scratch, ipath};
use crate::profile::Profile;
use crate::stepped::Transfers;
use crate::stepped_where::{Wanted, Way, visit_where};

const LIMIT: Duration = Duration::from_secs(100);

/// A program to compare, and what of it.
pub struct Compared<'p> {
    /// The executable.
    pub program: &'p Path,
    /// Its arguments. `{folder}` stands for a folder that is empty at the start.
    pub arguments: &'p [&'p str],
    /// Its environment.
    pub environment: &'p [(&'p str, &'p str)],
    /// The functions to count.
    pub targets: &'p [Target],
    /// Functions whose blocks run more often are left out, because steps are slow.
    pub most: u64,
    /// The folder.
    pub scratch: Scratch,
    /// True for Go. The edges to and from code that calls the runtime for a larger stack are left
    /// out: the runtime uses that to make a goroutine wait that has run for 10 ms.
    pub is_go: bool,
}

/// What was equal in a comparison.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Equal {
    /// The functions that ran.
    pub functions: usize,
    /// The edges that were taken.
    pub edges: usize,
    /// The paths that were taken.
    pub paths: usize,
    /// The powers of two in histograms of loops.
    pub trips: usize,
}

/// A function of a profile: the name of its file, and its address there.
type Key = (String, u64);

/// The entries of a profile by function.
type Entries = BTreeMap<Key, Value>;

/// Everything that is seen of a function in single steps.
struct Seen {
    transfers: Transfers,
    walked: Walked,
    trips: Trips,
    shape: Shape,
}

/// The blocks and edges of a function.
struct Shape {
    ranges: Vec<Range<u64>>,
    edges: BTreeSet<Edge>,
}

impl Shape {
    fn of(inside: &Value) -> Self {
        Self {
            ranges: ranges(inside),
            edges: all_edges(inside).map(|(edge, _)| edge).collect(),
        }
    }

    /// The transfers along edges that a transfer between instructions is.
    ///
    /// A jump through a pointer, as a tail call has it, may lead to an entry of the same function:
    /// it leaves the function and enters it again. An exception may arrive at the instruction after
    /// the call that has thrown it.
    fn parts(&self, (from, to): (u64, u64)) -> Vec<(u64, u64)> {
        let block = |at: u64| self.ranges.iter().position(|range| range.contains(&at));
        let (last, next) = (block(from), block(to));
        let is_start = next.is_some_and(|next| self.ranges[next].start == to);
        let is_new = last.is_some() && is_start && !self.edges.contains(&(last, next));
        if is_new && self.edges.contains(&(None, next)) {
            let leaves = self.edges.contains(&(last, None));
            let left = leaves.then_some((from, 0));
            return left.into_iter().chain([(0, to)]).collect();
        }
        vec![(from, to)]
    }
}

/// An edge between blocks. `None` is the outside.
type Edge = (Option<usize>, Option<usize>);

impl Compared<'_> {
    /// Empties the folder, and returns the arguments.
    fn refreshed(&self) -> Vec<String> {
        let folder = self.scratch.file("folder");
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).expect("create in an own folder");
        let folder = folder.display().to_string();
        let arguments = self.arguments.iter();
        arguments
            .map(|one| one.replace("{folder}", &folder))
            .collect()
    }

    /// Counts with one option, and returns the entries and the exit status.
    fn count(&self, option: &str, targets: &[Target]) -> (Entries, i32) {
        let file = self.scratch.file("p.json");
        let _ = std::fs::remove_file(&file);
        // The addresses are those of the first program in single steps.
        let run = Run::new("setarch").without_env("").arg("-R").arg(ipath());
        let environment = self.environment.iter();
        let run = environment.fold(run, |run, (name, value)| run.env(name, *value));
        let mut run = run
            .args(["run", "--no-tui", "--yes", "-o"])
            .arg(&file)
            .limit(LIMIT);
        for target in targets {
            run = run.args([option, &target.pattern()]);
        }
        let mut finished = run.arg("--").arg(self.program).args(self.refreshed()).run();
        // The command line would be as long as the list of functions.
        finished.shown = format!("{option} in {}", self.program.display());
        assert!(file.exists(), "{}", finished.report());
        let profile = Profile::read(&file);
        let text = std::fs::read_to_string(&file).expect("a profile");
        let json: Value = serde_json::from_str(&text).expect("JSON");
        let entries = list(&json, "inside").iter().map(|entry| {
            let function = &profile.functions[number(&entry["function"]) as usize];
            let target = Target::of(&profile, function);
            ((target.module, target.address), entry.clone())
        });
        let code = finished.code();
        (entries.collect(), code)
    }

    /// Steps through the functions of these entries.
    fn step(&self, entries: &Entries, way: Way<'_>) -> (Vec<Seen>, i32) {
        let mut seen: Vec<Seen> = entries
            .values()
            .map(|inside| {
                let inside = &Hubs::of(inside).left_out(inside);
                Seen {
                    transfers: Transfers::new(),
                    walked: Walked::of(inside),
                    trips: Trips::of(inside),
                    shape: Shape::of(inside),
                }
            })
            .collect();
        let wanted: Vec<Wanted> = entries
            .iter()
            .map(|((module, address), inside)| wanted(module, *address, inside))
            .collect();
        let mut command = Command::new(self.program);
        command.args(self.refreshed());
        let code = visit_where(&command, way, &wanted, LIMIT, |own, calls, transfer| {
            let seen = &mut seen[own];
            for transfer in seen.shape.parts(transfer) {
                *seen.transfers.entry(transfer).or_default() += 1;
                seen.walked.see(calls, transfer);
                seen.trips.see(calls, transfer);
            }
        });
        (seen, code)
    }

    /// Compares the counts of these options with single steps.
    ///
    /// These functions are left out: those that share code with another one, those whose blocks run
    /// too often, and those that two programs in single steps execute differently. One of these two
    /// has random addresses and a larger environment, the other one runs like the counted program.
    /// Paths and trips are compared in functions whose loops all have one entry.
    ///
    /// # Panics
    /// If a count differs.
    pub fn check(&self, options: &[&str]) -> Equal {
        let (all, status) = self.count("--edges", self.targets);
        let entries = self.that_can_be_stepped(all);
        let [exact, other] = [false, true].map(|random| {
            let mut environment = self.environment.to_vec();
            let long = "x".repeat(1003);
            environment.extend(random.then_some(("LONG", long.as_str())));
            let way = Way {
                environment: &environment,
                random,
                output: &self.scratch.file("output"),
            };
            let (seen, code) = self.step(&entries, way);
            assert_eq!(code, status, "{}", self.program.display());
            seen
        });
        let steady: BTreeSet<&Key> = (entries.keys().zip(exact.iter().zip(&other)))
            .filter(|(key, (one, other))| {
                let has_paths = !options.is_empty();
                let [one_edges, other_edges] =
                    [one, other].map(|seen| self.edges(&entries[*key], seen));
                one_edges == other_edges && (!has_paths || has_equal_paths(one, other))
            })
            .map(|(key, _)| key)
            .collect();
        let seen: BTreeMap<&Key, &Seen> = entries.keys().zip(&exact).collect();
        let mut equal = Equal::default();
        let mut wrong = Vec::new();
        let ran = |key: &&&Key| !seen[*key].transfers.is_empty();
        let ran: Vec<&Key> = steady.iter().filter(ran).copied().collect();
        equal.functions = ran.len();
        for &key in &steady {
            let (found, expected) = (
                self.found_edges(&entries[key]),
                self.edges(&entries[key], seen[key]),
            );
            equal.edges += expected.len();
            if found != expected {
                wrong.push(difference("edges", key, &found, &expected));
            }
        }
        let chosen = |key: &Key| {
            let (module, address) = key.clone();
            Target { module, address }
        };
        let ran: Vec<Target> = ran.into_iter().map(chosen).collect();
        for option in options {
            let (entries, code) = self.count(option, &ran);
            assert_eq!(code, status, "{option}");
            for (key, inside) in entries.iter().filter(|(_, inside)| is_reducible(inside)) {
                let seen = seen[key];
                if *option == "--paths" {
                    let found = known_routes(inside);
                    equal.paths += found.len();
                    let expected = seen.walked.routes(inside);
                    if found != *expected {
                        wrong.push(difference("paths", key, &found, expected));
                    }
                } else {
                    let found: Vec<_> = trips(inside).into_iter().map(|trip| trip.2).collect();
                    equal.trips += found.iter().flatten().count();
                    let pairs = |all: &[BTreeMap<u64, u64>]| -> BTreeMap<(usize, u64), u64> {
                        let all = all.iter().enumerate();
                        all.flat_map(|(own, trips)| trips.iter().map(move |(&k, &n)| ((own, k), n)))
                            .collect()
                    };
                    let (found, expected) = (pairs(&found), pairs(&seen.trips.found));
                    if found != expected {
                        wrong.push(difference("trips", key, &found, &expected));
                    }
                }
            }
        }
        println!(
            "{}: {equal:?}, {} of {} steady",
            self.program.display(),
            steady.len(),
            entries.len()
        );
        assert!(
            wrong.is_empty(),
            "{} differ:\n{}",
            wrong.len(),
            wrong.join("\n")
        );
        equal
    }

    /// The entries whose functions can be stepped through: their blocks run seldom enough, and
    /// belong to no entry before.
    fn that_can_be_stepped(&self, all: Entries) -> Entries {
        let mut taken: BTreeMap<(String, u64), u64> = BTreeMap::new();
        let mut left = Entries::new();
        for (key, inside) in all {
            check_conservation(&inside);
            let counts = list(&inside, "blocks").iter().map(|b| number(&b["count"]));
            let is_free = ranges(&inside).iter().all(|range| {
                let before = taken.range(..(key.0.clone(), range.end)).next_back();
                before.is_none_or(|((module, _), &end)| *module != key.0 || end <= range.start)
            });
            if counts.sum::<u64>() <= self.most && is_free {
                let own = ranges(&inside).into_iter();
                taken.extend(own.map(|range| ((key.0.clone(), range.start), range.end)));
                left.insert(key, inside);
            }
        }
        left
    }

    /// The edges of an entry that were taken.
    fn found_edges(&self, inside: &Value) -> BTreeMap<Edge, u64> {
        let mut found: BTreeMap<Edge, u64> = BTreeMap::new();
        for (edge, count) in all_edges(inside).filter(|(_, count)| *count > 0) {
            *found.entry(edge).or_default() += count;
        }
        self.comparable(inside, found)
    }

    /// The edges of an entry that were stepped along.
    fn edges(&self, inside: &Value, seen: &Seen) -> BTreeMap<Edge, u64> {
        let ranges = ranges(inside);
        let hubs = Hubs::of(inside);
        let mut expected: BTreeMap<Edge, u64> = BTreeMap::new();
        for (&(from, to), &count) in &seen.transfers {
            let block = |at: u64| ranges.iter().position(|range| range.contains(&at));
            let (last, next) = (block(from), block(to));
            let is_edge = next
                .is_none_or(|next| ranges[next].start == to && (last != Some(next) || from >= to));
            let hub = last
                .zip(next)
                .and_then(|(last, next)| hubs.between(last, next));
            let edges = match hub {
                Some(hub) => vec![(last, Some(hub)), (Some(hub), next)],
                None => vec![(last, next)],
            };
            for edge in edges.into_iter().filter(|_| is_edge) {
                *expected.entry(edge).or_default() += count;
            }
        }
        self.comparable(inside, expected)
    }

    /// Without those that are left out in Go: of blocks with one way out, back to the first block.
    fn comparable(&self, inside: &Value, mut edges: BTreeMap<Edge, u64>) -> BTreeMap<Edge, u64> {
        if self.is_go {
            let mut after: BTreeMap<Option<usize>, BTreeSet<Option<usize>>> = BTreeMap::new();
            for ((from, to), _) in all_edges(inside) {
                after.entry(from).or_default().insert(to);
            }
            let first = BTreeSet::from([Some(0)]);
            let grows = |block: &Option<usize>| block.is_some() && after.get(block) == Some(&first);
            edges.retain(|(from, to), _| !grows(from) && !grows(to));
        }
        edges
    }
}

/// The function of an entry as one to step through.
fn wanted(module: &str, address: u64, inside: &Value) -> Wanted {
    let ranges = ranges(inside);
    let edges = list(inside, "edges").iter();
    let entries = edges.filter(|edge| edge["from"].is_null() && edge["in_call"] != true);
    let entries = entries.filter_map(|edge| edge["to"].as_u64());
    let mut entries: Vec<u64> = entries.map(|to| ranges[to as usize].start).collect();
    entries.push(address);
    Wanted {
        module: module.to_owned(),
        // Hubs have no instructions.
        ranges: ranges.into_iter().filter(|r| !r.is_empty()).collect(),
        entries,
    }
}

/// The paths of an entry. Those that are not known have no blocks.
fn known_routes(inside: &Value) -> BTreeMap<Route, u64> {
    let mut routes = routes(inside);
    let totals = &inside["path_totals"];
    let unknown = number(&totals["unknown"]) + number(&totals["uncounted"]);
    if unknown > 0 {
        routes.insert((false, Vec::new(), false), unknown);
    }
    routes
}

fn has_equal_paths(one: &Seen, other: &Seen) -> bool {
    one.walked.has_routes_of(&other.walked) && one.trips.found == other.trips.found
}

/// The edges of an entry, except those inside calls, with their counts.
fn all_edges(inside: &Value) -> impl Iterator<Item = (Edge, u64)> {
    let edges = list(inside, "edges").iter();
    let edges = edges.filter(|edge| edge["in_call"] != true);
    edges.map(|edge| {
        let end = |name: &str| edge[name].as_u64().map(|block| block as usize);
        ((end("from"), end("to")), number(&edge["count"]))
    })
}

/// A message with the counts that differ.
fn difference<K: Ord + std::fmt::Debug>(
    what: &str,
    (module, address): &Key,
    found: &BTreeMap<K, u64>,
    expected: &BTreeMap<K, u64>,
) -> String {
    let keys: BTreeSet<&K> = found.keys().chain(expected.keys()).collect();
    let of = |counts: &BTreeMap<K, u64>, key: &K| counts.get(key).copied().unwrap_or(0);
    let differing = keys
        .into_iter()
        .filter(|key| of(found, key) != of(expected, key));
    let differing = differing.take(6);
    let lines = differing.map(|key| {
        format!(
            "  {key:?}: {} instead of {}",
            of(found, key),
            of(expected, key)
        )
    });
    let lines: Vec<String> = lines.collect();
    format!("{what} of {module}+{address:#x}:\n{}", lines.join("\n"))
}
