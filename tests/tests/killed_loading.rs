//! SIGKILL of ipath while followed or started programs are being loaded: the programs continue.

use ipath_tests::command::{Finished, Run};
use ipath_tests::compile::{program, program_with};
use ipath_tests::faulty::faulty;
use ipath_tests::place::Scratch;
use ipath_tests::racing::remove_segments;
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

/// Returns the final output of a program that continues without ipath. Removes the sessions left by
/// it and its children, because later processes may get their ids.
fn told(file: &Path) -> String {
    let until = Instant::now() + PATIENCE;
    let said = || fs::read_to_string(file).unwrap_or_default();
    while !said().contains("ok ") && Instant::now() < until {
        sleep(Duration::from_millis(2));
    }
    let said = said();
    let (pids, others): (Vec<&str>, Vec<&str>) =
        said.lines().partition(|line| line.starts_with("pid "));
    let pids = pids.iter().filter_map(|line| line[4..].parse().ok());
    pids.for_each(remove_segments);
    others.iter().map(|line| format!("{line}\n")).collect()
}

/// Kills the command at every third of its steps, starting with the first call of the program that
/// it started, until there are no more steps.
fn killed_at_steps(program: &Path) {
    let scratch = Scratch::new("loading");
    let file = scratch.file("told");
    let run = |step: &str| -> Finished {
        let _ = fs::remove_file(&file);
        let run = Run::new(faulty()).args(["run", "--follow", "--quiet", "-f", "work", "--"]);
        let run = run.arg(program).arg("1").arg(&file);
        run.env("IPATH_DIE_AT", step).run()
    };
    let first = run("to call");
    let number = first.stderr.strip_prefix("dies at step ");
    let number = number.and_then(|rest| rest.split_once(':')?.0.parse().ok());
    let number: usize = number.unwrap_or_else(|| panic!("no step: {}", first.report()));
    let mut calls = 0;
    for step in (number..).step_by(3) {
        let killed = run(&step.to_string());
        let told = told(&file);
        assert_eq!(told, "ok 1 of 1\n", "step {step}: {}", killed.report());
        if killed.status.success() {
            break;
        }
        calls += usize::from(killed.stderr.contains(": to call"));
    }
    // Both programs make calls while they are loaded.
    assert!(calls > 20, "{calls}");
}

#[test]
fn programs_go_on_that_are_being_loaded() {
    killed_at_steps(&program("spawns_checked.c"));
}

#[test]
fn programs_of_another_c_library_go_on_that_are_being_loaded() {
    let flags = ["-specs=/usr/lib/x86_64-linux-musl/musl-gcc.specs"];
    killed_at_steps(&program_with("spawns_checked.c", &flags));
}

/// A program that `run` started without following it continues as well, wherever it was traced.
#[test]
fn a_program_that_is_started_goes_on() {
    let scratch = Scratch::new("loading");
    let file = scratch.file("told");
    let run = |step: &str| {
        let run = Run::new(faulty()).args(["run", "--quiet", "-f", "work", "--"]);
        let run = run.arg(program("spawns_checked.c")).arg("0").arg(&file);
        run.env("IPATH_DIE_AT", step).run()
    };
    let killed = run("to call");
    assert!(!killed.status.success(), "{}", killed.report());
    assert_eq!(told(&file), "ok 0 of 0\n", "{}", killed.report());
}
