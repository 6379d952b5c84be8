//! Single calls: the slowest of each function (`--slowest`), and the last ones (`--trace`).
//!
//! The program logs its own calls: readings of CLOCK_MONOTONIC before and after each, and how long
//! it sleeps at least. What ipath keeps must lie between the readings, so no verdict depends on the
//! load of the machine.

use std::collections::{BTreeMap, BTreeSet};
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

/// The last calls of a function, by thread.
fn traced(profile: &Value, name: &str) -> BTreeMap<i64, Vec<Value>> {
    let mut threads: BTreeMap<i64, Vec<Value>> = BTreeMap::new();
    let calls = function(profile, name)["trace"].as_array();
    let mut last = 0;
    for call in calls.into_iter().flatten() {
        assert!(number(&call["start_ns"]) >= last, "ordered by time");
        last = number(&call["start_ns"]);
        let tid = number(&call["thread"]);
        threads.entry(tid).or_default().push(call.clone());
    }
    threads
}

const NESTED: [&str; 4] = ["outer", "middle", "leaf", "nap"];

/// The last calls are those that the program has made last, at the times of its own clock.
#[test]
fn the_last_calls_are_kept() {
    for (most, threads, turns) in [(7, "4", "150"), (100_000, "1", "60")] {
        let trace = most.to_string();
        let options = ["-f", &NESTED.join(","), "--trace", &trace];
        let measured = Measured::of(&options, &["nest", threads, turns]);
        assert_eq!(measured.profile["session"]["trace"], most);
        for name in NESTED {
            let mut logged: BTreeMap<i64, Vec<&Logged>> = BTreeMap::new();
            for call in measured.logged(name) {
                logged.entry(call.tid).or_default().push(call);
            }
            let traced = traced(&measured.profile, name);
            assert!(traced.keys().eq(logged.keys()), "{name}");
            for (tid, mut logged) in logged {
                logged.sort_by_key(|call| call.before);
                let last = &logged[logged.len().saturating_sub(most as usize)..];
                let traced = &traced[&tid];
                assert_eq!(traced.len(), last.len(), "{name}");
                for (call, logged) in traced.iter().zip(last) {
                    let [start, end] = ["start_ns", "end_ns"]
                        .map(|field| number(&call[field]) + measured.started());
                    let is_between = logged.before - CLOSE <= start
                        && start <= end
                        && end <= logged.after + CLOSE;
                    assert!(is_between, "{call} {logged:?}");
                    assert_eq!(args(call), logged.args[..args(call).len()]);
                    assert_eq!(call["ret"].as_i64(), logged.ret);
                    assert!(number(&call["wall"]) <= end - start + CLOSE);
                }
            }
        }
    }
}

/// A complete event of a timeline, in nanoseconds.
struct Event {
    name: String,
    start: i64,
    end: i64,
    args: Value,
}

/// The complete events of a file in Chrome's format, by process and track, as Perfetto's
/// trace_processor reads them (src/trace_processor/importers/json): ordered by time, and nested on
/// each track.
fn timeline(file: &Path) -> BTreeMap<(i64, i64), Vec<Event>> {
    let trace = read(file);
    assert_eq!(trace["otherData"]["clock"], "CLOCK_MONOTONIC");
    let mut tracks: BTreeMap<(i64, i64), Vec<Event>> = BTreeMap::new();
    let mut named = BTreeSet::new();
    for event in trace["traceEvents"].as_array().expect("events") {
        let track = (number(&event["pid"]), number(&event["tid"]));
        let name = event["name"].as_str().expect("a name").to_owned();
        match event["ph"].as_str() {
            Some("M") => {
                assert!(event["args"]["name"].is_string());
                named.insert((track, name));
            }
            Some("X") => {
                assert!(named.contains(&(track, "thread_name".to_owned())));
                assert!(named.contains(&((track.0, 0), "process_name".to_owned())));
                let [start, length] = ["ts", "dur"].map(|field| {
                    let microseconds = event[field].as_f64().expect("a number");
                    (microseconds * 1000.0).round() as i64
                });
                tracks.entry(track).or_default().push(Event {
                    name,
                    start,
                    end: start + length,
                    args: event["args"].clone(),
                });
            }
            other => panic!("an event of type {other:?}"),
        }
    }
    for events in tracks.values() {
        let mut open: Vec<&Event> = Vec::new();
        let mut last = i64::MIN;
        for event in events {
            assert!(last <= event.start, "ordered by time");
            last = event.start;
            while open.last().is_some_and(|outer| outer.end <= event.start) {
                open.pop();
            }
            assert!(
                open.last().is_none_or(|outer| event.end <= outer.end),
                "nested"
            );
            open.push(event);
        }
    }
    tracks
}

/// The timeline has the calls at the times of the program's log, each in the call that made it.
#[test]
fn timelines_are_nested_as_the_calls() {
    let options = ["-f", &NESTED.join(","), "--trace", "5000", "-m", "wall,cpu"];
    let measured = Measured::of(&options, &["nest", "3", "200"]);
    let out = measured.scratch.file("trace.json");
    let export = Run::ipath(["export", "--to", "chrome", "-o"]);
    let export = export.arg(&out).arg(measured.file());
    export.run().expect(0);
    let tracks = timeline(&out);
    assert_eq!(tracks.len(), 3);
    let mut events = 0;
    for ((pid, tid), track) in &tracks {
        assert_eq!(measured.profile["target"]["pid"], *pid);
        let mut open: Vec<&Event> = Vec::new();
        for event in track {
            while open.last().is_some_and(|outer| outer.end <= event.start) {
                open.pop();
            }
            let outer: Vec<&str> = open.iter().map(|event| event.name.as_str()).collect();
            let expected: &[&str] = match event.name.as_str() {
                "outer" => &[],
                "middle" => &["outer"],
                _ => &["outer", "middle"],
            };
            assert_eq!(outer, expected, "around {}", event.name);
            let path = event.args["path"].as_str().expect("a path");
            assert!(path.ends_with(&event.name), "{path}");
            let logged = measured.log.iter().find(|logged| {
                logged.function == event.name
                    && logged.tid == *tid
                    && logged.before - CLOSE <= event.start
                    && event.end <= logged.after + CLOSE
                    && event.args["arg1"] == logged.args[0]
            });
            let logged = logged.expect("the program has logged it");
            assert_eq!(event.args["ret"].as_i64(), logged.ret);
            assert!(event.args["cpu_ns"].as_i64() <= event.args["wall_ns"].as_i64());
            open.push(event);
            events += 1;
        }
    }
    assert_eq!(events, measured.log.len());

    // Sums of profiles have one, too, and others are refused.
    let sum = measured.scratch.file("sum.json");
    let merge = Run::ipath(["merge"])
        .arg(measured.file())
        .arg("-o")
        .arg(&sum);
    merge.run().expect(0);
    let export = Run::ipath(["export", "--to", "chrome", "-o"]);
    export.arg(&out).arg(&sum).run().expect(0);
    let of_sum: usize = timeline(&out).values().map(Vec::len).sum();
    assert_eq!(of_sum, events);
    let without = Measured::of(&["-f", "sink"], &["recurse"]);
    let export = Run::ipath(["export", "--to", "chrome", "-o", "-"]);
    let refused = export.arg(without.file()).run().expect_error();
    assert!(
        refused.contains("no single calls in the order of time"),
        "{refused}"
    );
}

/// Calls of fibers overlap on their thread. They keep their arguments while others run, and are on
/// further tracks of the timeline.
#[test]
fn calls_of_coroutines_keep_their_arguments() {
    let options = ["-f", "held", "--trace", "1000", "--slowest", "1000"];
    let measured = Measured::of(&options, &["fibers", "3", "40"]);
    assert_eq!(measured.log.len(), 120);
    let calls: Vec<Value> = traced(&measured.profile, "held")
        .into_values()
        .flatten()
        .collect();
    assert_eq!(calls.len(), 120);
    let mut found = BTreeSet::new();
    for call in calls.iter().chain(slowest(&measured.profile, "held")) {
        let of = measured.logged_of("held", call);
        assert_eq!(args(call), of.args);
        assert_eq!(call["ret"].as_i64(), of.ret);
        found.insert(of.args);
    }
    assert_eq!(found.len(), 120);
    let out = measured.scratch.file("trace.json");
    let export = Run::ipath(["export", "--to", "chrome", "-o"]);
    export.arg(&out).arg(measured.file()).run().expect(0);
    let tracks = timeline(&out);
    assert!(tracks.len() > 1, "the calls overlap");
    assert_eq!(tracks.values().map(Vec::len).sum::<usize>(), 120);
}

/// Without room for the calls of some threads and functions, the others are kept. The number of the
/// calls left out is known. The runtime without system calls has room for four blocks.
#[test]
fn calls_without_room_are_counted() {
    let options = [
        "-f",
        &NESTED.join(","),
        "--trace",
        "10000",
        "--no-system-calls",
    ];
    let measured = Measured::of(&options, &["nest", "4", "100"]);
    let mut left_out = 0;
    let mut blocks = 0;
    for name in NESTED {
        let traced = traced(&measured.profile, name);
        for (tid, calls) in &traced {
            let logged = measured.logged(name);
            let logged = logged.iter().filter(|call| call.tid == *tid).count();
            assert_eq!(calls.len(), logged, "{name}");
            blocks += 1;
        }
        let is_left = |call: &&&Logged| !traced.contains_key(&call.tid);
        left_out += measured.logged(name).iter().filter(is_left).count();
    }
    assert!((1..16).contains(&blocks), "{blocks} blocks");
    let notes = measured.profile["session"]["notes"]
        .as_array()
        .expect("notes");
    let start = format!("{left_out} calls are neither among the slowest nor in the trace");
    let mut notes = notes.iter().filter_map(Value::as_str);
    assert!(
        notes.any(|note| note.starts_with(&start)),
        "{start}: {notes:?}"
    );
}

#[test]
fn calls_of_points_alone_cannot_be_kept() {
    for option in ["--slowest", "--trace"] {
        let run = Run::ipath(["run", "--at", "work+0x0", option, "3", "--"]);
        let usage = run.arg(single_calls()).arg("recurse").run().expect_usage();
        assert!(usage.contains("only points are counted"), "{usage}");
        for wrong in ["0", "100001", "x"] {
            let run = Run::ipath(["run", "-f", "work", option, wrong, "--"]);
            run.arg(single_calls()).arg("recurse").run().expect(2);
        }
    }
}
