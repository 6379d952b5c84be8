//! Threads that reuse the FS base of an ended thread and have no id at an offset from it. The
//! kernel's per-thread values belong to each thread. The programs measure the CPU time of each call
//! within the function and around the call; ipath's value is between the two.

use ipath_tests::compile::{program, program_with};
use ipath_tests::place::Scratch;
use ipath_tests::profile::Profile;
use ipath_tests::program::{Program, ipath_arguments};
use ipath_tests::session::counts_of;
use std::collections::BTreeMap;
use std::fs;

const BARE: &[&str] = &["-nostdlib", "-static", "-fno-stack-protector"];

/// The numbers of calls by thread id, from the lines `thread TID CALLS`.
fn own_threads(stdout: &str) -> BTreeMap<String, u64> {
    counts_of(stdout, "thread")
}

/// The number of calls of each thread in a profile, by its id.
fn threads(profile: &serde_json::Value) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    for path in profile["paths"].as_array().expect("paths") {
        let thread = path["thread"].as_u64().expect("threads are told apart");
        let calls = path["metrics"]["count"].as_u64().expect("a count");
        *found.entry(thread.to_string()).or_default() += calls;
    }
    found
}

/// Checks calls, and with `cpu` also times, of a function against the program's own figures.
fn check(program: &Program, function: &str, metrics: &str, options: &[&str]) {
    let scratch = Scratch::new("reused");
    let file = scratch.file("p.json");
    let mut arguments = ipath_arguments(&[function], metrics, &file);
    let end = arguments.len() - 1;
    arguments.splice(end..end, options.iter().map(|&o| o.to_owned()));
    let finished = program.under_ipath_as(arguments).expect(0);
    let what = format!(
        "{:?} {metrics} {options:?}\n{}",
        program.args, finished.stdout
    );
    let number = |of: &str| counts_of(&finished.stdout, of)[function];
    let profile = Profile::read(&file);
    assert_eq!(profile.calls(function), number("calls"), "{what}");
    assert_eq!(profile.losses.missed, 0, "{what}");
    if options.contains(&"--per-thread") {
        let text = fs::read_to_string(&file).expect("a profile");
        let found = threads(&serde_json::from_str(&text).expect("JSON"));
        assert_eq!(found, own_threads(&finished.stdout), "{what}");
    }
    if metrics.contains("cpu") {
        let totals = &profile.function(function).expect("it is called").totals;
        let found = |metric: &str| totals[metric]["sum"].as_u64().expect("a sum");
        let cpu = found("cpu");
        // The kernel's accuracy for the time of each call.
        let apart = 20_000 * number("calls");
        let (least, most) = (number("inside") - apart, number("outside") + apart);
        assert!(
            (least..=most).contains(&cpu),
            "{cpu} of {least} to {most}: {what}"
        );
        assert!(cpu + found("blocked") <= found("wall") + 1, "{what}");
        let ends = (profile.losses.open, profile.losses.unwound);
        assert_eq!(ends, (Some(0), Some(0)), "{what}");
    }
}

#[test]
fn bare_threads_are_told_apart() {
    let file = program_with("reused_fs_base.c", BARE);
    // Without perf events every value needs a system call.
    for what in ["one", "two", "without"] {
        let program = Program::new(&file, [what]);
        check(&program, "work", "wall,cpu,blocked", &[]);
        check(&program, "work", "wall,cpu,blocked", &["--per-thread"]);
        check(&program, "work", "count", &["--per-thread"]);
    }
}

/// Without system calls threads cannot be distinguished, and the profile says so.
#[test]
fn bare_threads_are_one_without_system_calls() {
    let scratch = Scratch::new("reused");
    let file = scratch.file("p.json");
    let mut arguments = ipath_arguments(&["work"], "count", &file);
    let options = ["--per-thread", "--no-system-calls"].map(str::to_owned);
    let end = arguments.len() - 1;
    arguments.splice(end..end, options);
    let program = Program::new(&program_with("reused_fs_base.c", BARE), ["one"]);
    program.under_ipath_as(arguments).expect(0);
    let profile = Profile::read(&file);
    let notes = &profile.session.notes;
    let is_said = |note: &String| note.contains("threads that reuse the memory of ended ones");
    assert!(notes.iter().any(is_said), "{notes:?}");
    assert_eq!(profile.calls("work"), 27);
}

#[test]
fn threads_of_go_are_told_apart() {
    let program = Program::new(&program("ended_threads.go"), [""; 0]);
    check(&program, "main.work", "wall,cpu,blocked", &[]);
    check(&program, "main.work", "count,wall", &["--per-thread"]);
}
