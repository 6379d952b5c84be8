//! gdb, the oracle of the other tests, against facts that the programs know themselves. Needs no
//! ipath.

use ipath_tests::command::Run;
use ipath_tests::compare::differences;
use ipath_tests::compile::{program, program_with, source};
use ipath_tests::oracle::{Oracle, gdb_paths, run};
use ipath_tests::place::Scratch;
use ipath_tests::profile::Profile;
use ipath_tests::program::Program;
use ipath_tests::redis;
use ipath_tests::snapshot::ProcessState;
use ipath_tests::symbols::{Site, sites};
use ipath_tests::target::Target;
use std::path::Path;
use std::process::Command;

use nix::sys::signal::Signal;

/// The number after `calls` in a program's output.
fn own_count(stdout: &str) -> u64 {
    let mut words = stdout.split_whitespace();
    words
        .find(|word| *word == "calls")
        .expect("the program prints its calls");
    words.next().and_then(|n| n.parse().ok()).expect("a number")
}

/// Runs a program under gdb, and checks that gdb did not disturb it.
fn checked(program: &Program, sites: &[Site]) -> Oracle {
    let plain = program.plain();
    let found = run(program, sites);
    found.assert_like(&plain);
    println!("{}: {}", program.path.display(), found.summary());
    found
}

/// gdb finds as many calls of a C program as the program counts.
#[test]
fn counts_of_c() {
    let program = Program::new(&program("paths.c"), ["two words", "a'quote"]);
    let found = checked(&program, &sites(&program.path, "work"));
    assert_eq!(found.hits(), own_count(&found.stdout));
    assert_eq!(found.ending.code, Some(3));
    let threads: std::collections::BTreeSet<_> = found.paths.iter().map(|p| p.thread).collect();
    assert_eq!(threads.len(), 5, "main and four threads");
    let deepest = found.paths.iter().map(|p| p.stack.len()).max();
    assert!(
        deepest > Some(40),
        "the recursion of 40 is on a path: {deepest:?}"
    );
}

/// gdb finds as many calls of a C++ program as the program counts.
#[test]
fn counts_of_cpp() {
    let program = Program::new(&program("paths.cc"), [""; 0]);
    let found = checked(&program, &sites(&program.path, "geometry::area"));
    assert_eq!(found.hits(), own_count(&found.stdout));
}

/// gdb finds as many calls of a Rust program as the program counts.
#[test]
fn counts_of_rust() {
    let program = Program::new(&program("paths.rs"), [""; 0]);
    let found = checked(&program, &sites(&program.path, "paths::work"));
    assert_eq!(found.hits(), own_count(&found.stdout));
}

/// A profile in the documented format with exactly gdb's result.
fn as_profile(found: &Oracle) -> serde_json::Value {
    use serde_json::json;
    let mut modules = vec![found.sites[0].module.clone()];
    let mut frames = Vec::new();
    let mut paths = Vec::new();
    for path in &found.paths {
        let mut stack = Vec::new();
        for (module, address) in &path.stack {
            let known = modules.iter().position(|m| m == module);
            let index = known.unwrap_or(modules.len());
            if known.is_none() {
                modules.push(module.clone());
            }
            stack.push(frames.len());
            frames.push(json!({"module": index, "address": address, "function": "f"}));
        }
        let metrics = json!({"count": path.hits});
        paths.push(json!({"function": 0, "stack": stack, "complete": true, "metrics": metrics}));
    }
    let modules: Vec<_> = modules
        .iter()
        .map(|m| json!({"path": format!("/dir/{m}")}))
        .collect();
    json!({
        "schema": "ipath-profile/1", "ipath": "0.1.0",
        "target": {"pid": 1, "exe": "", "args": []},
        "session": {"elapsed_ns": 1, "clock_hz": 1, "stops": []},
        "metrics": [{"name": "count", "unit": "calls"}],
        "modules": modules, "refused": [], "frames": frames, "paths": paths,
        "functions": [{"name": "f", "linkage": "f", "module": 0, "size": 1, "entry": "window",
            "address": found.sites[0].address, "exits": [], "totals": {"count": found.hits()}}],
        "losses": {"missed": 0, "overflow": 0, "unwound": null, "open": null, "incomplete": 0},
    })
}

#[test]
fn the_comparison_sees_each_difference() {
    let program = Program::new(&program("paths.c"), [""; 0]);
    let found = checked(&program, &sites(&program.path, "work"));
    let same = as_profile(&found);
    let compared = |profile: &serde_json::Value| {
        let profile: Profile = serde_json::from_value(profile.clone()).expect("a profile");
        differences(&profile, &found)
    };
    assert_eq!(compared(&same), "");
    let changed = |at: &str, value: serde_json::Value| {
        let mut profile = same.clone();
        *profile.pointer_mut(at).expect("a field") = value;
        compared(&profile)
    };
    assert!(changed("/frames/3/address", 1.into()).contains("only in the profile"));
    assert!(changed("/paths", serde_json::json!([])).contains("only found by gdb"));
    assert!(changed("/paths/0/metrics/count", 1_000.into()).contains("gdb found"));
    assert!(changed("/paths/0/complete", false.into()).contains("not complete"));
    assert!(changed("/functions/0/address", 5.into()).contains("only in the profile"));
    let shorter = changed("/paths/0/stack", serde_json::json!([0]));
    assert!(shorter.contains("only in the profile"), "{shorter}");
}

#[test]
fn position_dependent_program_gives_the_same_shape() {
    let shape = |flags: &[&str]| {
        let program = program_with("paths.c", flags);
        let mut paths: Vec<_> = gdb_paths(&program, &[], "work")
            .into_iter()
            .map(|(stack, hits)| (stack.len(), hits))
            .collect();
        paths.sort_unstable();
        paths
    };
    let fixed = shape(&["-no-pie"]);
    assert!(fixed.len() > 100 && fixed == shape(&["-fPIE", "-pie"]));
}

#[test]
fn python_repeats_exactly() {
    let python = Path::new("/usr/bin/python3.11");
    let script = source("script.py").display().to_string();
    let program = Program::new(python, ["-I", "-S", "-B", &script]).env("PYTHONHASHSEED", "0");
    for (function, most) in [
        ("PyObject_GetAttr", 4000),
        ("_PyEval_EvalFrameDefault", 4000),
    ] {
        let key = |found: &Oracle| {
            let mut paths: Vec<_> = found
                .paths
                .iter()
                .map(|p| (p.stack.clone(), p.hits))
                .collect();
            paths.sort();
            paths
        };
        let wanted = sites(python, function);
        let (first, second) = (checked(&program, &wanted), checked(&program, &wanted));
        assert_eq!(
            key(&first),
            key(&second),
            "{function} differs from run to run"
        );
        assert!(
            (1000..most).contains(&first.hits()) && first.paths.len() > 200,
            "{}",
            first.summary()
        );
    }
}

/// gdb finds all calls in a library that the program loads while it runs.
#[test]
fn a_library_that_is_loaded_late() {
    let scratch = Scratch::new("late");
    let library = scratch.file("libgone.so");
    std::fs::copy(program_with("gone.c", &["-shared", "-fPIC"]), &library).unwrap();
    let sites = sites(&library, "gone_work");
    // `late` runs until SIGTERM, which `timeout` sends.
    let late = program("late.c");
    let args = [
        "-s",
        "TERM",
        "1",
        &late.display().to_string(),
        &library.display().to_string(),
    ];
    let plain = Run::new("timeout").args(args).run();
    assert!(plain.stdout.contains("ok"), "{}", plain.report());
    let stopped = Program::new(
        &program("late.c"),
        [library.display().to_string(), "50".into()],
    );
    let found = checked(&stopped, &sites);
    assert_eq!(found.hits(), 50);
}

#[test]
fn redis_repeats_exactly() {
    let play = || {
        let dir = Scratch::public("redis");
        let mut command = Command::new(redis::SERVER);
        command.args(redis::arguments(&dir));
        redis::play(command, &dir)
    };
    let (first, second) = (play(), play());
    assert_eq!(
        (&first.answers, first.code),
        (&second.answers, Some(0)),
        "{}",
        first.output
    );
    assert!(first.answers.lines().count() > 150, "{}", first.answers);
    assert!(!first.answers.contains("ERR unknown"), "{}", first.answers);
}

#[test]
fn the_system_call_program_sees_interruptions() {
    let mut target = Target::start(program("syscalls.c"), ["2"]).await_output("ready");
    std::thread::sleep(std::time::Duration::from_millis(300));
    for _ in 0..10 {
        target.signal(Signal::SIGSTOP);
        // An immediate SIGCONT would cancel the stop before every thread has seen it.
        std::thread::sleep(std::time::Duration::from_millis(5));
        target.signal(Signal::SIGCONT);
        std::thread::sleep(std::time::Duration::from_millis(25));
    }
    let status = target.wait(std::time::Duration::from_secs(20));
    // signal(7): these calls fail with EINTR after a stop. If they did not, the test would prove
    // nothing.
    assert!(
        !status.success() && target.stdout().contains("epoll_wait wrong"),
        "{}",
        target.stdout()
    );
    let quiet = Program::new(&program("syscalls.c"), ["1"])
        .plain()
        .expect(0);
    // A line for each kind, between `ready` and `ok calls N`.
    let kinds = quiet.stdout.matches(" ok, ").count();
    assert_eq!(
        kinds + 2,
        quiet.stdout.lines().count(),
        "{}",
        quiet.report()
    );
    assert!(kinds > 20, "{}", quiet.report());
}

#[test]
fn the_snapshot_sees_changes() {
    let target = Target::start(program("busy.c"), ["2", "30"]).await_output("ready");
    let before = ProcessState::of(target.pid());
    before.assert_unchanged(target.pid());
    assert!(
        before.text.len() >= 3 && before.threads.len() == 3,
        "{before:?}"
    );
    let other = Target::start(program("busy.c"), ["3", "30"]).await_output("ready");
    let found = before
        .differences(&ProcessState::of(other.pid()))
        .join("\n");
    assert!(
        found.contains("mapping") && found.contains("thread"),
        "{found}"
    );
    target.finish("ok calls ");
}
