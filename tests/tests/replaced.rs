//! A program that another one takes the place of (exec), and scripts, of which what runs is a shell: what was measured is
//! said, and the exit status is the program's own.

use ipath_tests::command::{Finished, Run};
use ipath_tests::compile::program;
use ipath_tests::place::Scratch;
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// Runs a script of the shell with one of its functions measured.
fn run(scratch: &Scratch, body: &str, function: &str) -> Finished {
    let script = scratch.file("script");
    fs::write(&script, format!("#!/bin/sh\n{body}\n")).expect("an own folder");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("an own file");
    let script = script.display().to_string();
    Run::ipath(["run", "-f", function, "-m", "count", "--", &script]).run()
}

fn said(finished: &Finished) -> Vec<&str> {
    let lines = finished.stderr.lines();
    lines
        .filter(|l| l.contains("has been replaced by"))
        .collect()
}

#[test]
fn what_takes_the_place_of_a_script_is_named() {
    let scratch = Scratch::new("replaced");
    let program = program("paths.c").display().to_string();
    for (body, by, status) in [
        // Over before anybody has looked, and not.
        ("exec sh -c 'exit 7'".to_owned(), "sh", 7),
        (format!("exec {program}"), "paths", 3),
        ("exec sleep 1.5".to_owned(), "sleep", 0),
    ] {
        let finished = run(&scratch, &body, "libc.so*!malloc").expect(status);
        let said = said(&finished);
        assert_eq!(said.len(), 1, "{}", finished.report());
        assert!(said[0].contains(by), "{}", finished.report());
        assert!(
            said[0].contains("sh has been replaced by"),
            "{}",
            finished.report()
        );
    }
}

#[test]
fn scripts_that_start_programs_are_told_from_those() {
    let scratch = Scratch::new("replaced");
    let finished = run(&scratch, "sleep 0.1\nexit 3", "libc.so*!malloc").expect(3);
    assert!(said(&finished).is_empty(), "{}", finished.report());
    let finished = run(&scratch, "sleep 0.1", "busy_step").expect(1);
    assert!(
        finished.stderr.contains("no function matches 'busy_step'")
            && finished.hints().contains("name the program itself"),
        "{}",
        finished.report()
    );
}
