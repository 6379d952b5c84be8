//! Calls of one path that are kept apart: by a value (`--by`), by phase (`--phase`, `ipath mark`),
//! and by their time (`--slower`).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use ipath_tests::command::Run;
use ipath_tests::compile::{program, program_with};
use ipath_tests::place::Scratch;
use ipath_tests::session::Session;
use ipath_tests::target::Target;
use nix::sys::signal::Signal;
use serde_json::Value;

fn kept_apart() -> PathBuf {
    program_with("kept_apart.cc", &["-g", "-pthread"])
}

/// What a program has printed, and its profile.
struct Measured {
    stdout: String,
    profile: Value,
}

impl Measured {
    /// Runs the program with these options of ipath and this number of threads.
    fn of(options: &[&str], threads: &str) -> Self {
        let scratch = Scratch::new("kept_apart");
        let file = scratch.file("profile.json");
        let run = Run::ipath(["run", "-o"])
            .arg(&file)
            .args(options.iter().copied());
        let finished = run.arg("--").arg(kept_apart()).arg(threads).run().expect(0);
        let text = std::fs::read_to_string(&file).expect("a profile");
        let profile = serde_json::from_str(&text).expect("JSON");
        let stdout = finished.stdout;
        let this = Self { stdout, profile };
        this.check_sums();
        this
    }

    /// The paths of a function, by its linkage name.
    fn paths(&self, function: &str) -> Vec<&Value> {
        let functions = self.profile["functions"].as_array().expect("functions");
        let is_it = |path: &&Value| {
            let of = path["function"].as_u64().expect("an index") as usize;
            functions[of]["linkage"] == function
        };
        let paths = self.profile["paths"].as_array().expect("paths");
        paths.iter().filter(is_it).collect()
    }

    /// The calls of a function, added up by what `key` returns of a path.
    fn calls_by<K: Ord>(&self, function: &str, key: impl Fn(&Value) -> K) -> BTreeMap<K, u64> {
        let mut sums = BTreeMap::new();
        for path in self.paths(function) {
            *sums.entry(key(path)).or_default() += calls(path);
        }
        sums
    }

    /// The calls of a function in each phase, without the name of the phase.
    fn calls_in_phases(&self, function: &str) -> BTreeMap<u64, u64> {
        self.calls_by(function, |path| path["phase"].as_u64().expect("a phase"))
    }

    /// What the program has printed in lines that begin with this word.
    fn printed(&self, word: &str) -> Vec<&str> {
        let lines = self.stdout.lines();
        let rests = lines.filter_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
        rests.collect()
    }

    /// The printed pairs of numbers in lines that begin with this word.
    fn pairs(&self, word: &str) -> Vec<(i64, u64)> {
        let pair = |rest: &str| {
            let (first, second) = rest.split_once(' ').expect("two numbers");
            (first.parse().expect("one"), second.parse().expect("two"))
        };
        self.printed(word).into_iter().map(pair).collect()
    }

    /// The paths of each function add up to its totals, and no call is lost.
    fn check_sums(&self) {
        for function in self.profile["functions"].as_array().expect("functions") {
            let linkage = function["linkage"].as_str().expect("a name");
            let sum: u64 = self.paths(linkage).into_iter().map(calls).sum();
            assert_eq!(function["totals"]["count"], sum, "{linkage}");
        }
        for loss in ["missed", "overflow", "incomplete"] {
            assert_eq!(self.profile["losses"][loss], 0, "{loss}");
        }
    }
}

fn calls(path: &Value) -> u64 {
    path["metrics"]["count"].as_u64().expect("a count")
}

#[test]
fn calls_are_kept_apart_by_numbers() {
    for threads in ["0", "4"] {
        let measured = Measured::of(&["-f", "work", "--by", "arg1"], threads);
        let found = measured.calls_by("work", |path| path["by"].as_i64().expect("a number"));
        let printed: BTreeMap<i64, u64> = measured.pairs("number").into_iter().collect();
        assert_eq!(found, printed);
        assert_eq!(measured.profile["session"]["by"], "arg1");

        let measured = Measured::of(&["-f", "work", "--by", "ret", "-m", "count"], threads);
        let found = measured.calls_by("work", |path| path["by"].as_i64().expect("a number"));
        let printed: BTreeMap<i64, u64> = measured.pairs("result").into_iter().collect();
        assert_eq!(found, printed);
    }
}

/// The text in an element of `by`. Escapes of bytes are resolved, as the program prints them raw.
fn text(by: &Value) -> String {
    match by.as_str() {
        Some(text) => text.replace("\\xff", "\u{fffd}").replace("\\\\", "\\"),
        None => by["cut"].as_str().expect("a beginning").to_owned(),
    }
}

#[test]
fn calls_are_kept_apart_by_texts() {
    let measured = Measured::of(&["-f", "work", "--by", "arg2:str"], "2");
    let found = measured.calls_by("work", |path| text(&path["by"]));
    let printed = measured.printed("text").into_iter().map(|rest| {
        let (text, calls) = rest.split_once('\t').expect("two columns");
        // More bytes of a text are not read.
        let text: String = text.chars().take(48).collect();
        (text, calls.parse::<u64>().expect("a number"))
    });
    assert_eq!(found, printed.collect());
}

/// The places of fields are those of the debug information, also in a base, in an unnamed union and
/// in a nested structure.
#[test]
fn calls_are_kept_apart_by_fields() {
    for field in ["id", "len", "flags", "head.tag", "head.kind"] {
        let by = format!("arg1->{field}");
        let measured = Measured::of(&["-f", "handle", "--by", &by], "0");
        let found = measured.calls_by("handle", |path| path["by"].as_i64().expect("a number"));
        let printed: BTreeMap<i64, u64> = measured.pairs(field).into_iter().collect();
        assert_eq!(found, printed, "{field}");
    }
    for (field, cause) in [
        ("none", "request has no field `none`"),
        ("head", "`head` is no integer"),
        ("head.bits", "`bits` has no address of its own"),
        ("number", "`number` is no integer"),
        ("len.more", "`more` is a field of something without fields"),
    ] {
        let by = format!("arg1->{field}");
        let run = Run::ipath(["run", "-f", "handle", "--by", &by, "--"]);
        let finished = run.arg(kept_apart()).run().expect(1);
        assert!(finished.stderr.contains(cause), "{}", finished.stderr);
    }
}

/// Beyond the limit on values, calls share one.
#[test]
fn values_without_room_share_one() {
    let options = ["-f", "work", "--by", "arg1", "--max-values", "2"];
    let measured = Measured::of(&options, "0");
    let all: u64 = measured
        .pairs("number")
        .iter()
        .map(|(_, calls)| calls)
        .sum();
    let found = measured.calls_by("work", |path| path["by"]["others"] == true);
    assert_eq!(found.values().sum::<u64>(), all);
    assert!(found[&true] > 0, "{found:?}");
    let mut of_path: BTreeMap<String, usize> = BTreeMap::new();
    for path in measured.paths("work") {
        *of_path.entry(path["stack"].to_string()).or_default() += 1;
    }
    assert!(of_path.values().all(|&values| values <= 3), "{of_path:?}");
}

/// Calls in each call of a function are those that the program counts, with recursion, exceptions
/// and threads. So are those outside.
#[test]
fn phases_are_the_calls_of_a_function() {
    for threads in ["0", "4"] {
        let options = ["-f", "work,nap", "--phase", "iterate"];
        let measured = Measured::of(&options, threads);
        let phases = measured.profile["session"]["phases"]
            .as_array()
            .expect("phases");
        let (work, naps) = (
            measured.calls_in_phases("work"),
            measured.calls_in_phases("nap"),
        );
        let of = |phase: u64| {
            let calls = |of: &BTreeMap<u64, u64>| of.get(&phase).copied().unwrap_or(0);
            (calls(&work) as i64, calls(&naps))
        };
        let mut found: Vec<(i64, u64)> = (1..phases.len() as u64).map(of).collect();
        let mut printed = measured.pairs("phase");
        found.sort_unstable();
        printed.sort_unstable();
        assert_eq!(found, printed);
        assert_eq!(vec![of(0)], measured.pairs("outside"));
        // Each phase is one call, which belongs to itself.
        let own = measured.calls_in_phases("iterate");
        assert_eq!(own.len(), phases.len() - 1);
        assert!(own.values().all(|&calls| calls == 1), "{own:?}");
        for phase in &phases[1..] {
            let (start, end) = (&phase["start_ns"], &phase["end_ns"]);
            assert!(start.as_u64() < end.as_u64(), "{phase}");
        }
    }
}

/// The table of phases has room for so many. The calls of further ones share one.
#[test]
fn phases_without_room_share_one() {
    let options = ["-f", "nap", "--phase", "work", "--max-paths", "100000"];
    let measured = Measured::of(&options, "8");
    let phases = measured.profile["session"]["phases"]
        .as_array()
        .expect("phases");
    let all: u64 = measured
        .pairs("number")
        .iter()
        .map(|(_, calls)| calls)
        .sum();
    assert!(all > 5000, "{all} calls");
    assert_eq!(phases.len(), 4096);
    let further = format!("{} further", all - 4094);
    assert_eq!(phases[4095]["name"], further.as_str());
    assert_eq!(measured.calls_in_phases("work")[&4095], all - 4094);
}

#[test]
fn long_calls_are_kept_apart() {
    for options in [
        &["-f", "nap", "--slower", "3ms"][..],
        &["-f", "nap", "--slower", "3ms", "-m", "count"],
        &[
            "-f", "nap", "--slower", "3ms", "--phase", "iterate", "-m", "cpu,wall",
        ],
    ] {
        let measured = Measured::of(options, "2");
        let found = measured.calls_by("nap", |path| path["slower"] == true);
        let [(inner, outer)] = measured.pairs("long")[..] else {
            panic!("one line");
        };
        let range = inner as u64..=outer;
        assert!(inner > 0 && range.contains(&found[&true]), "{found:?}");
        assert_eq!(measured.profile["session"]["slower_ns"], 3_000_000);
    }
}

/// All together, beside other metrics.
#[test]
fn kept_apart_by_all_at_once() {
    let metrics = ["-m", "wall,cpu,arg1", "--by", "ret", "--slower", "3ms"];
    let options = [&["-f", "work", "--phase", "iterate"], &metrics[..]].concat();
    let measured = Measured::of(&options, "3");
    let found = measured.calls_by("work", |path| path["by"].as_i64().expect("a number"));
    let printed: BTreeMap<i64, u64> = measured.pairs("result").into_iter().collect();
    assert_eq!(found, printed);
    // Calls of the phase function have no such value, and are measured all the same.
    for path in measured.paths("iterate") {
        let is_timed = path["metrics"]["wall"]["hist"].is_array();
        assert!(is_timed || path["unwound"] == 1, "{path}");
    }
    let mut in_phases: Vec<i64> = (measured.calls_in_phases("work").into_iter())
        .filter(|&(phase, _)| phase > 0)
        .map(|(_, calls)| calls as i64)
        .collect();
    let mut printed: Vec<i64> = measured.pairs("phase").iter().map(|pair| pair.0).collect();
    in_phases.sort_unstable();
    printed.retain(|&calls| calls > 0);
    printed.sort_unstable();
    assert_eq!(in_phases, printed);
    let sum: i64 = (measured.paths("work").into_iter())
        .map(|path| path["metrics"]["arg1"]["sum"].as_i64().expect("a sum"))
        .sum();
    let numbers = measured.pairs("number");
    let printed: i64 = numbers
        .iter()
        .map(|(number, calls)| number * *calls as i64)
        .sum();
    assert_eq!(sum, printed);
}

/// Runs a round of the program, which is 1000 calls.
fn round(target: &mut Target, rounds: usize) {
    target.signal(Signal::SIGUSR1);
    let has_run = |target: &Target| target.stdout().matches("round").count() == rounds;
    target.until(Duration::from_secs(60), "a round", has_run);
}

/// Marks from another terminal end a phase and begin the next. Points are kept apart, too.
#[test]
fn marks_begin_phases() {
    let mut target = Target::start(program("rounds.c"), [""; 0]).await_output("ready");
    let pid = target.pid().to_string();
    let session = Session::attach(target.pid(), &["outer"]);
    Run::ipath(["add", &pid, "--at", "inner+0x0"])
        .run()
        .expect(0);
    round(&mut target, 1);
    for (rounds, (given, title)) in (2..).zip([
        ("warm", "warm"),
        ("a longer name", "a longer name"),
        ("warm", "warm#2"),
    ]) {
        let finished = Run::ipath(["mark", &pid, given]).run().expect(0);
        assert_eq!(finished.stdout, format!("phase {title}\n"));
        round(&mut target, rounds);
    }
    // A command that is added later keeps them apart as well.
    session.add_metrics(&["outer"], "arg1").expect(0);
    round(&mut target, 5);
    let scratch = Scratch::new("kept_apart");
    let file = scratch.file("profile.json");
    Run::ipath(["detach", &pid, "-o"])
        .arg(&file)
        .run()
        .expect(0);
    let stdout = target.finish("ok");
    let text = std::fs::read_to_string(&file).expect("a profile");
    let profile: Value = serde_json::from_str(&text).expect("JSON");
    let measured = Measured { stdout, profile };
    measured.check_sums();
    let phases = measured.profile["session"]["phases"]
        .as_array()
        .expect("phases");
    let names: Vec<&str> = phases
        .iter()
        .filter_map(|phase| phase["name"].as_str())
        .collect();
    assert_eq!(names, ["start", "warm", "a longer name", "warm#2"]);
    for (before, after) in phases.iter().zip(&phases[1..]) {
        assert_eq!(before["end_ns"], after["start_ns"]);
    }
    let each = |calls: u64| BTreeMap::from([(0, calls), (1, calls), (2, calls), (3, 2 * calls)]);
    assert_eq!(measured.calls_in_phases("outer"), each(1000));
    // The point.
    assert_eq!(measured.calls_in_phases("inner"), each(2000));
}

/// Reports show functions by phase and select phases, `diff` compares two of one profile, and
/// `merge` adds up those of the same name.
#[test]
fn phases_are_reported_and_compared() {
    let scratch = Scratch::new("kept_apart");
    let file = scratch.file("profile.json");
    let run = Run::ipath(["run", "-f", "work", "--phase", "iterate", "-o"]).arg(&file);
    run.arg("--").arg(kept_apart()).run().expect(0);
    let report = |options: &[&str]| {
        let run = Run::ipath(["report"]).arg(&file);
        run.args(options.iter().copied()).run().expect(0)
    };
    let whole = report(&["--function", "work"]).stdout;
    assert!(whole.contains("phase iterate#2"), "{whole}");
    let part = report(&["--function", "work", "--phase", "iterate#2", "--json"]).json();
    let paths = part["paths"].as_array().expect("paths");
    assert!(!paths.is_empty() && paths.iter().all(|path| path["phase"] == 2));
    let missing = Run::ipath(["report", "--phase", "no such"])
        .arg(&file)
        .run();
    assert!(missing.expect_error().contains("it has no phase `no such`"));

    let diff = Run::ipath([
        "diff",
        "--old-phase",
        "iterate#2",
        "--new-phase",
        "iterate#3",
    ]);
    let diff = diff
        .args(["--json", "--metric", "count"])
        .arg(&file)
        .arg(&file);
    let text = std::fs::read_to_string(&file).expect("a profile");
    let measured = Measured {
        stdout: String::new(),
        profile: serde_json::from_str(&text).expect("JSON"),
    };
    let in_phases = measured.calls_in_phases("work");
    let compared = diff.run().expect(0).json();
    let sum = |side: &str| -> u64 {
        let paths = compared["paths"].as_array().expect("paths");
        let of_work = paths.iter().filter(|path| path["function"] == "work");
        of_work
            .filter_map(|path| path[side]["count"].as_u64())
            .sum()
    };
    assert_eq!((sum("old"), sum("new")), (in_phases[&2], in_phases[&3]));

    let other = scratch.file("other.json");
    let run = Run::ipath(["run", "-f", "work", "--phase", "iterate", "-o"]).arg(&other);
    run.arg("--").arg(kept_apart()).run().expect(0);
    let sum = scratch.file("sum.json");
    let merge = Run::ipath(["merge"]).arg(&file).arg(&other);
    merge.arg("-o").arg(&sum).run().expect(0);
    let text = std::fs::read_to_string(&sum).expect("a profile");
    let merged = Measured {
        stdout: String::new(),
        profile: serde_json::from_str(&text).expect("JSON"),
    };
    let twice = in_phases
        .into_iter()
        .map(|(phase, calls)| (phase, 2 * calls));
    assert_eq!(merged.calls_in_phases("work"), twice.collect());
}

#[test]
fn marks_that_say_nothing_are_refused() {
    let mut target = Target::start(program("rounds.c"), [""; 0]).await_output("ready");
    let pid = target.pid().to_string();
    let long = "a".repeat(201);
    let without = Run::ipath(["mark", &pid, "early"]).run().expect(1);
    assert!(
        without.stderr.contains("begin one with"),
        "{}",
        without.stderr
    );
    let session = Session::attach(target.pid(), &["outer"]);
    for name in ["", " ", "two\nlines", &long] {
        let finished = Run::ipath(["mark", &pid, name]).run().expect(2);
        assert!(
            finished.stderr.starts_with("ipath: mark"),
            "{}",
            finished.stderr
        );
    }
    Run::ipath(["mark", "-p", &pid, "late"]).run().expect(0);
    round(&mut target, 1);
    drop(session.detach());
    target.finish("ok");
}

#[test]
fn what_keeps_nothing_apart_is_refused() {
    let program = kept_apart();
    for (options, cause) in [
        (&["--by", "arg7"][..], "--by 'arg7'"),
        (&["--by", "ret:str"], "--by 'ret:str'"),
        (&["--by", "arg1->"], "--by 'arg1->'"),
        (&["--by", ""], "--by ''"),
        (&["--slower", "soon"], "soon"),
        (&["--phase", "iterate", "-m", "count"], "--phase"),
        (&["--phase", "no_such_function"], "no_such_function"),
        (&["--max-values", "0"], "0"),
    ] {
        let run = Run::ipath(["run", "-f", "work"]).args(options.iter().copied());
        let finished = run.arg("--").arg(&program).run();
        assert_ne!(finished.code(), 0, "{options:?}");
        assert!(finished.stderr.contains(cause), "{}", finished.stderr);
        assert_eq!(finished.stdout, "", "the program did not run");
    }
    // A function without the value is refused by name, and the others are measured.
    let run = Run::ipath(["run", "-f", "work,nap", "--by", "ret", "-q"]);
    let finished = run.arg("--").arg(&program).run().expect(0);
    assert!(
        finished.stderr.contains("nap: not instrumented"),
        "{}",
        finished.stderr
    );
}
