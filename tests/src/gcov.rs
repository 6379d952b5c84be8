//! Programs whose executions of source lines are counted twice: by gcov in one build, and by the
//! counters of edges in another one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::command::{Finished, Run};
use crate::inside::{check_conservation, list, number};
use crate::place::Scratch;

const LIMIT: Duration = Duration::from_secs(100);

/// A line: its file and its number.
type Line = (String, u64);

/// A program of another project, with an own source that drives it.
pub struct Project {
    /// The compiler.
    pub compiler: &'static str,
    /// Its flags beside those for the level of optimization.
    pub flags: Vec<String>,
    /// The sources.
    pub sources: Vec<PathBuf>,
    /// The program's arguments.
    pub arguments: Vec<String>,
}

/// The numbers of lines that have been compared.
#[derive(Debug)]
pub struct Compared {
    /// All comparable lines that ipath has counted. All are equal.
    pub equal: usize,
    /// Those that were executed.
    pub executed: usize,
    /// The lines that gcov knows.
    pub all: usize,
    /// The functions that ipath has counted.
    pub functions: usize,
}

impl Project {
    /// Compiles into a folder, which files of gcov get into, too.
    ///
    /// # Panics
    /// If that fails.
    pub fn build(&self, folder: &Path, flags: &[&str]) -> PathBuf {
        fs::create_dir_all(folder).expect("create in an own folder");
        let script = "cd \"$1\"; shift; exec \"$@\"";
        let gcc = Run::new("bash").args(["-c", script, "build"]).arg(folder);
        let gcc = gcc.args([self.compiler, "-w", "-o", "program"]).args(flags);
        let gcc = gcc
            .args(&self.flags)
            .args(&self.sources)
            .arg("-lm")
            .limit(LIMIT);
        gcc.run().expect(0);
        folder.join("program")
    }

    /// Runs it under gcov. Returns its output and the counts.
    fn run_by_gcov(&self, program: &Path, more: &str) -> (Finished, Counts) {
        let run = Run::new(program).args(&self.arguments).env("LONG", more);
        let finished = run.limit(LIMIT).run().expect(0);
        let folder = program.parent().expect("a folder");
        let script = "cd \"$1\" && gcov -a -t *.gcda && rm *.gcda";
        let gcov = Run::new("bash").args(["-c", script, "gcov"]).arg(folder);
        (
            finished,
            Counts::of(&gcov.limit(LIMIT).run().expect(0).stdout),
        )
    }

    /// Compares the counts of lines in all functions of the program.
    ///
    /// Not comparable are lines
    ///
    /// * whose blocks in gcov's graph have branches between them, or into them. gcov adds up the
    ///   entries of a line, ipath has the largest count. A call divides a block;
    /// * whose count is not that of their last block, which gcov prints;
    /// * with `break`, `continue`, `goto` or a loop without a condition, and the first one of a
    ///   function: the instruction may have another line;
    /// * in a function that activations leave inside a call. A block has one count, although not
    ///   all that enter it get behind its calls;
    /// * that gcov counts differently in two runs with different addresses.
    ///
    /// # Panics
    /// If a count of another line differs, or as many activations enter a block as do not leave it.
    pub fn check(&self) -> Compared {
        let scratch = Scratch::new("gcov");
        let (plain, covered) = (scratch.file("plain"), scratch.file("covered"));
        let (plain, covered) = thread::scope(|scope| {
            let plain = scope.spawn(|| self.build(&plain, &["-O0", "-g"]));
            let covered = self.build(&covered, &["-O0", "--coverage"]);
            (plain.join().expect("it compiles"), covered)
        });
        let (output, counts) = self.run_by_gcov(&covered, "");
        let (_, other) = self.run_by_gcov(&covered, &"x".repeat(2003));
        let file = scratch.file("p.json");
        let run = Run::ipath(["run", "--no-tui", "--yes", "--edges", "program!*", "-o"]).arg(&file);
        let run = run.arg("--").arg(&plain).args(&self.arguments).limit(LIMIT);
        let finished = run.run().expect(0);
        assert_eq!(finished.stdout, output.stdout);
        let text = fs::read_to_string(&file).expect("a profile");
        let profile: Value = serde_json::from_str(&text).expect("JSON");
        let entries = list(&profile, "inside");
        entries.iter().for_each(check_conservation);
        let graphs = Graphs::of(
            covered.parent().expect("a folder"),
            &left_in_calls(&profile),
        );
        let export = scratch.file("out");
        let run = Run::ipath(["export", "--to", "callgrind"]).arg(&file);
        run.arg("-o").arg(&export).limit(LIMIT).run().expect(0);
        let found = executed(&fs::read_to_string(&export).expect("an export"));
        let mut compared = Compared {
            equal: 0,
            executed: 0,
            all: counts.lines.len(),
            functions: entries.len(),
        };
        let mut sources = Sources::default();
        let mut wrong = Vec::new();
        for (line, &expected) in &counts.lines {
            let Some(&found) = found.get(line) else {
                continue;
            };
            let is_steady = other.lines.get(line) == Some(&expected);
            let blocks = counts.blocks.get(line).map_or(&[][..], Vec::as_slice);
            let is_plain = match blocks {
                [] => graphs.lines.get(line).is_some_and(|of| of.blocks == 1),
                [one] => *one == expected,
                _ => false,
            };
            let is_chain = graphs.lines.get(line).is_some_and(|of| of.is_chain);
            if !is_steady || !is_plain || !is_chain || sources.has_jump(line) {
                continue;
            }
            compared.equal += 1;
            compared.executed += usize::from(expected > 0);
            if found != expected {
                wrong.push(format!("{line:?}: {found} instead of {expected}"));
            }
        }
        println!("{compared:?}\n{}", finished.stderr);
        wrong.truncate(20);
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        compared
    }
}

/// The linkage names of the functions that activations have left inside calls.
fn left_in_calls(profile: &Value) -> BTreeSet<String> {
    let entries = list(profile, "inside").iter();
    let left = entries.filter(|entry| {
        let mut edges = list(entry, "edges").iter();
        edges.any(|e| e["in_call"] == true && e["to"].is_null() && e["count"] != 0)
    });
    let name = |entry: &Value| {
        let function = &profile["functions"][number(&entry["function"]) as usize];
        function["linkage"].as_str().map(str::to_owned)
    };
    left.filter_map(name).collect()
}

/// The executions of lines in an export for callgrind.
fn executed(text: &str) -> BTreeMap<Line, u64> {
    let mut found: BTreeMap<Line, u64> = BTreeMap::new();
    let mut names: BTreeMap<&str, &str> = BTreeMap::new();
    let mut file = "";
    for line in text.lines() {
        let name = ["fl=", "fi=", "fe="]
            .iter()
            .find_map(|key| line.strip_prefix(key));
        if let Some(name) = name {
            // A name has a number, and is left out the next time.
            file = match name.split_once(')') {
                Some((id, "")) => names[id],
                Some((id, name)) => {
                    names.insert(id, name.trim());
                    name.trim()
                }
                None => name,
            };
            continue;
        }
        let numbers: Vec<u64> = line
            .split(' ')
            .filter_map(|word| word.parse().ok())
            .collect();
        if let &[number, _, count] = numbers.as_slice() {
            *found.entry((file.to_owned(), number)).or_default() += count;
        }
    }
    found
}

/// What gcov counts.
#[derive(Default)]
struct Counts {
    /// The executions of lines.
    lines: BTreeMap<Line, u64>,
    /// The executions of the blocks that end on a line.
    blocks: BTreeMap<Line, Vec<u64>>,
}

impl Counts {
    /// Reads the output of `gcov -a -t`: COUNT:LINE:TEXT, where line 0 names the source, and
    /// COUNT:LINE-block NUMBER.
    fn of(text: &str) -> Self {
        let mut counts = Self::default();
        let mut file = String::new();
        for line in text.lines() {
            let Some((count, rest)) = line.split_once(':') else {
                continue;
            };
            let count = count.trim();
            let number = rest.split([':', '-']).next().unwrap_or_default().trim();
            let Ok(number) = number.parse::<u64>() else {
                continue;
            };
            if number == 0 {
                let source = rest.split_once(":Source:");
                file = source.map_or(file, |(_, name)| name.to_owned());
            } else if count != "-" {
                // A star stands for blocks that did not run, other marks for none that did.
                let executed = count.trim_end_matches('*').parse().unwrap_or(0);
                let place = (file.clone(), number);
                let rest = rest.trim_start();
                if rest[number.to_string().len()..].starts_with("-block") {
                    counts.blocks.entry(place).or_default().push(executed);
                } else {
                    *counts.lines.entry(place).or_default() += executed;
                }
            }
        }
        counts
    }
}

/// The blocks of a line in gcov's graphs.
struct OfLine {
    blocks: usize,
    /// True if its blocks follow each other without branches, in each function, and if nothing
    /// else speaks against a comparison.
    is_chain: bool,
}

/// gcov's graphs of all functions.
struct Graphs {
    lines: BTreeMap<Line, OfLine>,
}

/// gcov's graph of one function.
#[derive(Default)]
struct Graph {
    /// Its file, its first line, and its last one.
    place: (String, u64, u64),
    is_left: bool,
    arcs: BTreeSet<(u64, u64)>,
    lines: BTreeMap<Line, BTreeSet<u64>>,
}

impl Graphs {
    /// Reads the notes in a folder with gcov-dump. No line of the functions `left` is a chain.
    fn of(folder: &Path, left: &BTreeSet<String>) -> Self {
        let script = "cd \"$1\" && exec gcov-dump -l *.gcno";
        let dump = Run::new("bash").args(["-c", script, "dump"]).arg(folder);
        let text = dump.limit(LIMIT).run().expect(0).stdout;
        let mut graphs = Self {
            lines: BTreeMap::new(),
        };
        let mut graph = Graph::default();
        for line in text.lines() {
            if let Some((_, function)) = line.split_once(":FUNCTION ") {
                graphs.add(std::mem::take(&mut graph));
                graph = Graph::new(function, left);
            } else if let Some((_, block)) = line.split_once(" block ") {
                graph.read(block);
            }
        }
        graphs.add(graph);
        graphs
    }

    fn add(&mut self, graph: Graph) {
        for (line, blocks) in &graph.lines {
            let own = self.lines.entry(line.clone()).or_insert(OfLine {
                blocks: 0,
                is_chain: true,
            });
            own.blocks += blocks.len();
            own.is_chain &= graph.is_chain(line, blocks);
        }
    }
}

impl Graph {
    /// Reads what stands behind `FUNCTION`: `` … `NAME' FILE:LINE:COLUMN-LINE:COLUMN ``.
    fn new(function: &str, left: &BTreeSet<String>) -> Self {
        let name = function.split(['`', '\'']).nth(1).unwrap_or_default();
        let place = function.rsplit(' ').next().unwrap_or_default();
        let mut parts = place.rsplit([':', '-']);
        let _column = parts.next();
        let mut number = || parts.next().and_then(|n| n.parse().ok()).unwrap_or(0);
        let (end, _column, start) = (number(), number(), number());
        let file = place.split(':').next().unwrap_or_default().to_owned();
        Self {
            place: (file, start, end),
            is_left: left.contains(name),
            ..Self::default()
        }
    }

    /// Reads what stands behind `block`: its arcs `NUMBER: TARGET:FLAGS(NAMES) …`, or its lines
    /// `` NUMBER:`FILE':LINE, LINE ``. An arc that is not real stands for a call that does not
    /// return.
    fn read(&mut self, text: &str) {
        let (block, rest) = text.split_once(':').expect("a number");
        let block: u64 = block.parse().expect("a number");
        if rest.starts_with('`') {
            let mut file = "";
            for part in rest.split(", ") {
                let (name, number) = part.rsplit_once(':').unwrap_or((file, part));
                file = name.trim_matches(['`', '\'']);
                if let Ok(number) = number.parse() {
                    let line = (file.to_owned(), number);
                    self.lines.entry(line).or_default().insert(block);
                }
            }
        } else {
            let arcs = rest.split_whitespace().filter(|arc| !arc.contains("fake"));
            let targets = arcs.filter_map(|arc| arc.split(':').next()?.parse().ok());
            self.arcs.extend(targets.map(|target| (block, target)));
        }
    }

    fn is_chain(&self, line: &Line, blocks: &BTreeSet<u64>) -> bool {
        let (file, start, end) = &self.place;
        let is_left = self.is_left && line.0 == *file && (*start..=*end).contains(&line.1);
        let is_first = line.0 == *file && line.1 == *start;
        let pairs = blocks.iter().zip(blocks.iter().skip(1));
        let mut followed = pairs.map(|(&one, &next)| {
            let between = self.arcs.iter().filter(|arc| arc.0 == one || arc.1 == next);
            between.eq([&(one, next)])
        });
        !is_left && !is_first && followed.all(|is_followed| is_followed)
    }
}

/// The texts of sources, by file.
#[derive(Default)]
struct Sources(BTreeMap<String, Vec<String>>);

impl Sources {
    /// True if a line has a jump, or a loop without a condition.
    fn has_jump(&mut self, (file, number): &Line) -> bool {
        let lines = self.0.entry(file.clone()).or_insert_with(|| {
            let bytes = fs::read(file).unwrap_or_else(|e| panic!("read {file}: {e}"));
            let text = String::from_utf8_lossy(&bytes).into_owned();
            text.lines().map(str::to_owned).collect()
        });
        let text = &lines[*number as usize - 1];
        let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
        let is_jump = words.any(|word| ["break", "continue", "goto"].contains(&word));
        is_jump
            || text
                .split_whitespace()
                .collect::<String>()
                .contains("for(;;)")
    }
}
