//! Executions of instructions and jumps in a program, counted by valgrind's callgrind, which
//! translates the program and needs none of its debug information.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::command::{Finished, Run};
use crate::inside::{check_conservation, list, number, routes};
use crate::place::Scratch;

const LIMIT: Duration = Duration::from_secs(100);

/// What callgrind has counted, by the addresses of a program with fixed addresses.
#[derive(Default)]
pub struct Executed {
    /// The executions of each instruction.
    instructions: HashMap<u64, u64>,
    /// The jumps that were taken, by source and target.
    jumps: BTreeMap<(u64, u64), u64>,
    /// The program's output.
    output: String,
}

/// What was equal in a comparison.
#[derive(Debug, Default)]
pub struct Equal {
    /// The functions.
    pub functions: usize,
    /// The blocks.
    pub blocks: usize,
    /// Those that were executed.
    pub executed: usize,
    /// The edges along direct jumps.
    pub edges: usize,
}

impl Executed {
    /// Runs a program under callgrind.
    ///
    /// # Panics
    /// If it does not end with status 0.
    pub fn of(program: &Path, arguments: &[String]) -> Self {
        let scratch = Scratch::new("valgrind");
        let file = scratch.file("out");
        let run = Run::new("valgrind").args(["--tool=callgrind", "--dump-instr=yes"]);
        let run = run.args(["--collect-jumps=yes", "--skip-plt=no"]);
        let run = run.args(["--compress-pos=no", "--compress-strings=no"]);
        let run = run.arg(format!("--callgrind-out-file={}", file.display()));
        let finished = run
            .arg(program)
            .args(arguments)
            .limit(LIMIT)
            .run()
            .expect(0);
        let mut executed = Self::read(&fs::read_to_string(&file).expect("its output"));
        executed.output = finished.stdout;
        executed
    }

    /// Reads callgrind's output. A line of an instruction is ADDRESS LINE COUNT. Behind a line
    /// `calls=…`, it has the costs of the callees, and behind `jump=COUNT TARGET …` or
    /// `jcnd=TAKEN/ALL TARGET …` it names the source of the jump.
    fn read(text: &str) -> Self {
        let mut found = Self::default();
        let mut before = "";
        let address = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
        for line in text.lines() {
            let mut words = line.split(' ');
            let Some(at) = words.next().and_then(address) else {
                if ["calls=", "jump=", "jcnd="]
                    .iter()
                    .any(|key| line.starts_with(key))
                {
                    before = line;
                }
                continue;
            };
            let jump = before
                .strip_prefix("jump=")
                .or(before.strip_prefix("jcnd="));
            if let Some(jump) = jump {
                let mut parts = jump.split(' ');
                let taken = parts
                    .next()
                    .and_then(|part| part.split('/').next()?.parse().ok());
                let target = parts.next().and_then(address).expect("a target");
                let taken: u64 = taken.expect("a count");
                *found.jumps.entry((at, target)).or_default() += taken;
            } else if before.is_empty()
                && let Some(count) = words.nth(1)
            {
                let count: u64 = count.parse().expect("a count");
                *found.instructions.entry(at).or_default() += count;
            }
            before = "";
        }
        found
    }

    fn count(&self, at: u64) -> u64 {
        self.instructions.get(&at).copied().unwrap_or(0)
    }

    /// Compares all counts in a program with this one, by each of the options of ipath, and the
    /// numbers of activations in an export.
    ///
    /// A direct jump to the first instruction of a function is left out, because callgrind takes it
    /// for a call. Counts by paths are compared in functions all of whose activations have ended
    /// their paths.
    ///
    /// # Panics
    /// If a count differs.
    pub fn check(&self, program: &Path, arguments: &[String]) -> Equal {
        let mut equal = Equal::default();
        let mut wrong = Vec::new();
        for option in ["--edges", "--paths", "--loops"] {
            let scratch = Scratch::new("inside");
            let file = scratch.file("p.json");
            let name = program.file_name().and_then(|name| name.to_str());
            let functions = format!("{}!*", name.expect("a name"));
            let run = Run::ipath(["run", "--no-tui", "--yes", option, &functions, "-o"]);
            let run = run.arg(&file).arg("--").arg(program).args(arguments);
            let finished = run.limit(LIMIT).run().expect(0);
            assert_eq!(finished.stdout, self.output, "{option}");
            let text = fs::read_to_string(&file).expect("a profile");
            let profile: Value = serde_json::from_str(&text).expect("JSON");
            let before = (equal.functions, equal.blocks);
            for inside in list(&profile, "inside") {
                let function = &profile["functions"][number(&inside["function"]) as usize];
                if option == "--paths" && !has_ended(inside) {
                    continue;
                }
                check_conservation(inside);
                equal.functions += 1;
                self.compare(option, inside, function, &mut equal, &mut wrong);
            }
            assert!(
                before < (equal.functions, equal.blocks),
                "{}",
                finished.report()
            );
            if option == "--edges" {
                self.compare_activations(&profile, &file, &mut wrong);
            }
            println!("{option}: {equal:?}\n{}", finished.stderr);
        }
        wrong.truncate(20);
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        equal
    }

    /// Compares the blocks and edges of one function, and its loops.
    fn compare(
        &self,
        option: &str,
        inside: &Value,
        function: &Value,
        equal: &mut Equal,
        wrong: &mut Vec<String>,
    ) {
        let name = &function["linkage"];
        let blocks = list(inside, "blocks");
        let edges = list(inside, "edges");
        let mut differ = |what: String, found: u64, expected: u64| {
            if found != expected {
                wrong.push(format!(
                    "{option} {name} {what}: {found} instead of {expected}"
                ));
            }
        };
        let is_hub = |block: &Value| block["size"] == 0;
        for (index, block) in blocks.iter().enumerate().filter(|(_, b)| !is_hub(b)) {
            // Who arrives inside a call has not executed the first instruction.
            let to = |edge: &&Value| edge["in_call"] == true && edge["to"] == index;
            let arrived = edges.iter().filter(to).map(|edge| number(&edge["count"]));
            let found = number(&block["count"]) - arrived.sum::<u64>();
            differ(
                format!("block{index}"),
                found,
                self.count(number(&block["address"])),
            );
            equal.blocks += 1;
            equal.executed += usize::from(found > 0);
        }
        for edge in edges.iter().filter(|edge| edge["kind"] == "taken") {
            let (Some(from), Some(to)) = (edge["from"].as_u64(), edge["to"].as_u64()) else {
                continue;
            };
            let target = &blocks[to as usize]["address"];
            if *target != function["address"] {
                let expected = self.jumps(&blocks[from as usize], number(target));
                differ(format!("{edge}"), number(&edge["count"]), expected);
                equal.edges += 1;
            }
        }
        for own in list(inside, "loops") {
            let header = number(&blocks[number(&own["header"]) as usize]["address"]);
            let what = format!("iterations of {own}");
            differ(what, number(&own["iterations"]), self.count(header));
        }
    }

    /// The number of jumps from a block to an address.
    fn jumps(&self, block: &Value, to: u64) -> u64 {
        let start = number(&block["address"]);
        let own = self
            .jumps
            .range((start, 0)..(start + number(&block["size"]), 0));
        let own = own.filter(|((_, target), _)| *target == to);
        own.map(|(_, count)| count).sum()
    }

    /// Compares the activations in an export to lcov with the executions of first instructions.
    fn compare_activations(&self, profile: &Value, file: &Path, wrong: &mut Vec<String>) {
        let export: Finished = Run::ipath(["export", "--to", "lcov", "-o", "-"])
            .arg(file)
            .run();
        let export = export.expect(0);
        let rows = export
            .stdout
            .lines()
            .filter_map(|line| line.strip_prefix("FNDA:"));
        let mut counts: HashMap<&str, Vec<u64>> = HashMap::new();
        for (count, name) in rows.filter_map(|row| row.split_once(',')) {
            let count = count.parse().expect("a count");
            counts.entry(name).or_default().push(count);
        }
        let entries = list(profile, "inside");
        let mut compared = 0;
        for inside in entries {
            let function = &profile["functions"][number(&inside["function"]) as usize];
            let name = function["linkage"].as_str().unwrap_or_default();
            let expected = self.count(number(&function["address"]));
            // Functions of several files may have the same name.
            if let Some(&[found]) = counts.get(name).map(Vec::as_slice) {
                compared += 1;
                if found != expected {
                    wrong.push(format!(
                        "activations of {name}: {found} instead of {expected}"
                    ));
                }
            }
        }
        // Those of the runtime of C have no lines.
        assert!(
            compared * 10 > entries.len() * 7,
            "{compared}: {}",
            export.report()
        );
    }
}

/// True if each activation has ended its path, and all paths are known.
fn has_ended(inside: &Value) -> bool {
    let totals = &inside["path_totals"];
    let routes = routes(inside);
    let ended = routes.iter().filter(|((_, _, ends), _)| *ends);
    let ended: u64 = ended.map(|(_, count)| count).sum();
    ended == number(&totals["begun"]) && totals["unknown"] == 0 && totals["uncounted"] == 0
}
