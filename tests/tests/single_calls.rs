//! Single calls: the slowest of each function (`--slowest`).
//!
//! The program logs its own calls: readings of CLOCK_MONOTONIC before and after each, and how long
//! it sleeps at least. What ipath keeps must lie between the readings, so no verdict depends on the
//! load of the machine.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ipath_tests::command::Run;
use ipath_tests::compile::program_with;
use ipath_tests::place::Scratch;
use ipath_tests::profile::Profile;
use ipath_tests::target::Target;
use nix::sys::signal::Signal;
use serde_json::Value;

/// Nanoseconds by which two readings of a clock may differ because of conversions.
const CLOSE: i64 = 1_000;

fn single_calls() -> PathBuf {
    program_with("single_calls.cc", &["-g", "-pthread"])
}

/// A call that the program has logged. Times are in nanoseconds.
#[derive(Clone, Debug)]
struct Logged {
    function: String,
    tid: i64,
    args: [i64; 2],
    /// `None` if the call has thrown.
    ret: Option<i64>,
    before: i64,
    after: i64,
    cpu: i64,
    slept: i64,
}

impl Logged {
    fn of(line: &str) -> Option<Self> {
        let mut words = line.strip_prefix("call ")?.split(' ');
        let function = words.next()?.to_owned();
        let mut number = || words.next()?.parse::<i64>().ok();
        let (tid, args) = (number()?, [number()?, number()?]);
        let ret = number();
        Some(Self {
            function,
            tid,
            args,
            ret,
            before: number()?,
            after: number()?,
            cpu: number()?,
            slept: number()?,
        })
    }
}

/// What a program has logged, and its profile.
struct Measured {
    log: Vec<Logged>,
    profile: Value,
    scratch: Scratch,
}

impl Measured {
    /// Runs the program with these options of ipath.
    fn of(options: &[&str], program: &[&str]) -> Self {
        let scratch = Scratch::new("single_calls");
        let file = scratch.file("profile.json");
        let run = Run::ipath(["run", "-o"])
            .arg(&file)
            .args(options.iter().copied());
        let run = run.arg("--").arg(single_calls());
        let finished = run.args(program.iter().copied()).run().expect(0);
        let log = finished.stdout.lines().filter_map(Logged::of).collect();
        Profile::read(&file).check_sums();
        let profile = read(&file);
        Self {
            log,
            profile,
            scratch,
        }
    }

    fn file(&self) -> PathBuf {
        self.scratch.file("profile.json")
    }

    /// The logged calls of a function.
    fn logged(&self, function: &str) -> Vec<&Logged> {
        let all = self.log.iter();
        all.filter(|call| call.function == function).collect()
    }

    /// CLOCK_MONOTONIC at the start of the session.
    fn started(&self) -> i64 {
        self.profile["session"]["monotonic_ns"]
            .as_i64()
            .expect("a time")
    }

    /// The logged call that a kept one is, which lies between its readings.
    fn logged_of(&self, function: &str, call: &Value) -> &Logged {
        let [start, end] = ["start_ns", "end_ns"].map(|field| number(&call[field]));
        let (start, end) = (start + self.started(), end + self.started());
        let is_it = |logged: &&Logged| {
            logged.function == function
                && logged.tid == number(&call["thread"])
                && logged.before - CLOSE <= start
                && end <= logged.after + CLOSE
                && args(call) == logged.args[..args(call).len()]
        };
        let found = self.log.iter().find(is_it);
        found.unwrap_or_else(|| panic!("no logged call of {function} is {call}"))
    }

    /// The names of the functions on a call's path, from the caller outwards.
    fn path_of(&self, call: &Value) -> Vec<&str> {
        let path = &self.profile["paths"][number(&call["path"]) as usize];
        let frames = path["stack"].as_array().expect("a stack");
        let name = |frame: &Value| {
            let frame = &self.profile["frames"][frame.as_u64().expect("an index") as usize];
            frame["function"].as_str().unwrap_or_default()
        };
        frames.iter().map(name).collect()
    }

    /// Checks that the calls kept of a function are its `most` slowest ones, by its log. Calls that
    /// are not logged must be faster than `unlogged`. Returns the kept calls.
    fn check_slowest(&self, function: &str, most: usize, unlogged: i64) -> Vec<&Value> {
        let kept = slowest(&self.profile, function);
        let logged = self.logged(function);
        let returned = logged.iter().filter(|call| call.ret.is_some()).count();
        assert_eq!(kept.len(), most.min(returned).max(kept.len().min(most)));
        let mut found = BTreeSet::new();
        let mut last = i64::MAX;
        for call in &kept {
            let of = self.logged_of(function, call);
            assert!(found.insert((of.tid, of.before)), "twice: {call}");
            let wall = number(&call["wall"]);
            assert!(wall <= last, "slowest first");
            last = wall;
            assert!(wall <= of.after - of.before, "{call} {of:?}");
            assert!(wall + CLOSE >= of.slept, "{call} {of:?}");
            assert_eq!(call["ret"].as_i64(), of.ret, "{call} {of:?}");
        }
        if kept.len() == most {
            assert!(
                last >= unlogged,
                "{last} ns may be less than an unlogged call"
            );
            for call in logged.iter().filter(|call| call.ret.is_some()) {
                let is_kept = found.contains(&(call.tid, call.before));
                assert!(is_kept || call.slept <= last + CLOSE, "{call:?} is slower");
            }
        }
        kept
    }
}

fn read(file: &Path) -> Value {
    let text = std::fs::read_to_string(file).expect("a profile");
    serde_json::from_str(&text).expect("JSON")
}

fn number(value: &Value) -> i64 {
    value.as_i64().expect("a number")
}

fn args(call: &Value) -> Vec<i64> {
    let args = call["args"].as_array();
    // The third argument is not logged.
    args.into_iter().flatten().take(2).map(number).collect()
}

fn function<'p>(profile: &'p Value, name: &str) -> &'p Value {
    let functions = profile["functions"].as_array().expect("functions");
    let found = functions.iter().find(|f| f["linkage"] == name);
    found.unwrap_or_else(|| panic!("{name} is not in the profile"))
}

/// The slowest calls of a function.
fn slowest<'p>(profile: &'p Value, name: &str) -> Vec<&'p Value> {
    let calls = function(profile, name)["slowest"].as_array();
    calls.into_iter().flatten().collect()
}

#[test]
fn the_slowest_calls_are_those_that_stall() {
    for metrics in ["count,wall", "wall,cpu", "count"] {
        let options = ["-f", "work,nap", "--slowest", "5", "-m", metrics];
        let measured = Measured::of(&options, &["stall", "8", "3000"]);
        let kept = measured.check_slowest("work", 5, 1_000_000);
        assert_eq!(kept.len(), 5);
        for call in &kept {
            let of = measured.logged_of("work", call);
            let [thread, _] = of.args;
            let path = measured.path_of(call);
            assert_eq!(path[0], ["even", "odd"][(thread % 2) as usize]);
            let wall = number(&call["wall"]);
            // The nap of the call, and nothing else that is measured.
            let nested = number(&call["nested"]);
            assert!(of.slept <= nested + CLOSE && nested <= wall, "{call}");
            let callees = call["callees"].as_array().expect("one");
            assert_eq!(callees.len(), 1);
            let nap = &measured.profile["functions"][number(&callees[0]["function"]) as usize];
            assert_eq!(nap["linkage"], "nap");
            assert_eq!(number(&callees[0]["wall"]), nested);
            match metrics {
                "wall,cpu" => {
                    let cpu = number(&call["cpu"]);
                    assert!(cpu <= wall && cpu <= of.cpu + 1_000_000, "{call} {of:?}");
                }
                _ => assert_eq!(call["cpu"], Value::Null),
            }
        }
        measured.check_slowest("nap", 5, 0);
        assert_eq!(measured.profile["session"]["slowest"], 5);

        let report = Run::ipath(["report"]).arg(measured.file()).run().expect(0);
        assert!(
            report.stdout.contains("\nSlowest calls:\n"),
            "{}",
            report.stdout
        );
        let has_parts = report.stdout.contains(" in nap");
        assert!(has_parts, "{}", report.stdout);
        let has_cpu = report.stdout.contains("off the processors");
        assert_eq!(has_cpu, metrics == "wall,cpu");
    }
}

/// Calls on fewer threads than have made them, with other options beside.
#[test]
fn slowest_calls_beside_other_options() {
    let others: [&[&str]; 7] = [
        &["--by", "arg1"],
        &["--by", "ret", "--slower", "10ms"],
        &["--per-thread"],
        &["--under", "odd"],
        &["--phase", "even"],
        &["--when", "arg3 > 0"],
        &[
            "--clock",
            "loose",
            "--no-correction",
            "--collapse-recursion",
        ],
    ];
    for options in others {
        let all = [&["-f", "work", "--slowest", "3"], options].concat();
        let measured = Measured::of(&all, &["churn", "6", "2000"]);
        let kept = slowest(&measured.profile, "work");
        assert_eq!(kept.len(), 3, "{options:?}");
        for call in &kept {
            let of = measured.logged_of("work", call);
            assert_eq!(call["ret"].as_i64(), of.ret);
            let path = &measured.profile["paths"][number(&call["path"]) as usize];
            match options[0] {
                "--by" if options.len() == 2 => assert_eq!(number(&path["by"]), of.args[0]),
                "--by" => {
                    assert_eq!(path["by"].as_i64(), of.ret);
                    assert_eq!(path["slower"], true);
                }
                "--per-thread" => assert_eq!(number(&path["thread"]), of.tid),
                "--under" => assert_eq!(measured.path_of(call)[0], "odd"),
                _ => {}
            }
        }
        if !matches!(options[0], "--under" | "--no-correction") {
            measured.check_slowest("work", 3, 1_000_000);
        }
    }
}

/// Recursive calls are kept by themselves. With room for more calls than there are, all are kept.
#[test]
fn all_calls_are_kept_where_there_is_room() {
    let options = ["-f", "sink,nap", "--slowest", "100"];
    let measured = Measured::of(&options, &["recurse"]);
    let kept = measured.check_slowest("sink", 100, 0);
    assert_eq!(kept.len(), 6);
    for (depth, call) in kept.iter().enumerate() {
        // The innermost call, whose argument is 0, is the fastest.
        assert_eq!(args(call), [5 - depth as i64]);
        let names = measured.path_of(call);
        assert_eq!(names.iter().filter(|&&name| name == "sink").count(), depth);
        let functions = call["callees"].as_array().expect("callees").iter();
        let functions: BTreeSet<i64> = functions.map(|c| number(&c["function"])).collect();
        assert_eq!(functions.len(), if depth == 5 { 1 } else { 2 }, "{call}");
    }
    assert_eq!(measured.check_slowest("nap", 100, 0).len(), 6);
}

/// Calls that an exception leaves do not return, and are not kept.
#[test]
fn calls_that_throw_are_not_kept() {
    let measured = Measured::of(&["-f", "thrower", "--slowest", "100"], &["throw"]);
    let kept = measured.check_slowest("thrower", 100, 0);
    let mut kept: Vec<Vec<i64>> = kept.into_iter().map(args).collect();
    kept.sort_unstable();
    assert_eq!(kept, [[0], [2], [4]]);
    let totals = &function(&measured.profile, "thrower")["totals"];
    assert_eq!(
        (&totals["count"], &totals["unwound"]),
        (&6.into(), &3.into())
    );
}

/// A sum of profiles keeps the slowest calls of all, each with its process.
#[test]
fn sums_keep_the_slowest_of_all() {
    let options = ["-f", "nap,sink", "--slowest", "4"];
    let runs: Vec<Measured> = (0..2)
        .map(|_| Measured::of(&options, &["recurse"]))
        .collect();
    let scratch = Scratch::new("single_calls_sum");
    let file = scratch.file("sum.json");
    let merge = Run::ipath(["merge"]).args(runs.iter().map(Measured::file));
    merge.arg("-o").arg(&file).run().expect(0);
    let sum = read(&file);
    let walls = |profile: &Value| -> Vec<i64> {
        let kept = slowest(profile, "sink");
        kept.iter().map(|call| number(&call["wall"])).collect()
    };
    let mut expected: Vec<i64> = runs.iter().flat_map(|run| walls(&run.profile)).collect();
    expected.sort_unstable_by(|a, b| b.cmp(a));
    expected.truncate(4);
    assert_eq!(walls(&sum), expected);
    for call in slowest(&sum, "sink") {
        let process = &sum["processes"][number(&call["process"]) as usize];
        let of = runs
            .iter()
            .find(|run| run.profile["target"]["pid"] == process["pid"]);
        let of = of.expect("one of the two");
        assert_eq!(number(&process["monotonic_ns"]), of.started());
        let logged = of.logged_of("sink", call);
        let path = &sum["paths"][number(&call["path"]) as usize];
        let depth = path["stack"].as_array().expect("frames").len();
        let own = slowest(&of.profile, "sink");
        let same = own
            .iter()
            .find(|own| number(&own["start_ns"]) == number(&call["start_ns"]));
        let own = of.path_of(same.expect("it"));
        assert_eq!((depth, own.len() > 3), (own.len(), true), "{logged:?}");
    }
    Run::ipath(["report"]).arg(&file).run().expect(0);
    Run::ipath(["diff"]).arg(&file).arg(&file).run().expect(0);
}

/// The calls are in profiles of a running program, and stay there. Functions that are added keep
/// theirs from then on, and a metric that is added changes nothing.
#[test]
fn calls_of_running_programs_are_kept() {
    let target = Target::start(single_calls(), ["wait"]).await_output("ready");
    let pid = target.pid().to_string();
    let attach = Run::ipath(["attach", &pid, "-f", "work", "--slowest", "7", "--keep"]);
    attach.args(["--duration", "100ms", "-q"]).run().expect(0);
    let scratch = Scratch::new("single_calls_running");
    let snapshot = |name: &str| {
        let file = scratch.file(name);
        let run = Run::ipath(["snapshot", &pid, "-o"]);
        run.arg(&file).run().expect(0);
        Profile::read(&file).assert_lossless();
        read(&file)
    };
    target.signal(Signal::SIGUSR1);
    let target = target.await_output("waits 1");
    let first = snapshot("first.json");
    Run::ipath(["add", &pid, "-f", "nap"]).run().expect(0);
    let metrics = Run::ipath(["add", &pid, "-f", "work", "-m", "arg1"]);
    metrics.run().expect(0);
    target.signal(Signal::SIGUSR1);
    let target = target.await_output("waits 2");
    let second = snapshot("second.json");
    let walls = |profile: &Value, name: &str| -> Vec<i64> {
        let kept = slowest(profile, name);
        kept.iter().map(|call| number(&call["wall"])).collect()
    };
    let (before, after) = (walls(&first, "work"), walls(&second, "work"));
    assert_eq!((before.len(), after.len()), (7, 7));
    let at_least = |wall: &i64| after.iter().any(|later| later >= wall);
    assert!(before.iter().all(at_least), "{before:?} {after:?}");
    assert_eq!(walls(&first, "work").len(), 7);
    let naps = slowest(&second, "nap");
    assert_eq!(naps.len(), 2);
    for nap in naps {
        assert_eq!(number(&nap["ret"]), -args(nap)[0]);
    }
    Run::ipath(["detach", &pid]).run().expect(0);
    target.finish("ok");
}

/// Each of several processes keeps its own.
#[test]
fn calls_of_children_are_kept() {
    let options = ["-f", "sink", "--slowest", "3", "--follow", "--per-process"];
    let measured = Measured::of(&options, &["fork"]);
    let kept = slowest(&measured.profile, "sink");
    assert_eq!(kept.len(), 3);
    let processes = measured.profile["processes"].as_array().expect("several");
    assert!(processes.len() > 1);
    for call in kept {
        let process = &processes[number(&call["process"]) as usize];
        let started = number(&process["monotonic_ns"]);
        let of = measured.log.iter().find(|logged| {
            logged.function == "sink"
                && logged.tid == number(&call["thread"])
                && logged.args[0] == args(call)[0]
        });
        let of = of.expect("it is logged");
        let [start, end] = ["start_ns", "end_ns"].map(|field| number(&call[field]) + started);
        assert!(of.before - CLOSE <= start && end <= of.after + CLOSE);
        let path = &measured.profile["paths"][number(&call["path"]) as usize];
        assert_eq!(path["process"], call["process"]);
    }
}

#[test]
fn calls_of_points_alone_cannot_be_kept() {
    let run = Run::ipath(["run", "--at", "work+0x0", "--slowest", "3", "--"]);
    let usage = run.arg(single_calls()).arg("recurse").run().expect_usage();
    assert!(usage.contains("only points are counted"), "{usage}");
    for wrong in ["0", "1001", "x"] {
        let run = Run::ipath(["run", "-f", "work", "--slowest", wrong, "--"]);
        run.arg(single_calls()).arg("recurse").run().expect(2);
    }
}
