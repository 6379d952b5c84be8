//! Programs that are replaced by another one (exec), and scripts, which a shell runs. The results
//! say which programs were measured, and the exit status is the program's own.

use ipath_tests::command::{Finished, Run};
use ipath_tests::compile::{program, program_with};
use ipath_tests::inside::{entries, list};
use ipath_tests::place::{Scratch, ipath};
use ipath_tests::profile::{Profile, count};
use ipath_tests::target::Target;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// Runs a shell script with one function measured.
fn run(scratch: &Scratch, body: &str, function: &str) -> Finished {
    let script = scratch.file("script");
    fs::write(&script, format!("#!/bin/sh\n{body}\n")).expect("an own folder");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("an own file");
    let script = script.display().to_string();
    Run::ipath(["run", "-f", function, "-m", "count", "--", &script]).run()
}

/// The lines about a program that has been replaced.
fn said(finished: &Finished) -> Vec<&str> {
    let lines = finished.stderr.lines();
    lines
        .filter(|l| l.contains("has been replaced by"))
        .collect()
}

/// A program that replaces a shell is measured from its first instruction, also if the shell lacks
/// the functions.
#[test]
fn what_takes_the_place_of_a_script_is_measured() {
    let scratch = Scratch::new("replaced");
    let program = program("executes_itself.c").display().to_string();
    let file = scratch.file("p.json").display().to_string();
    let exit = "-c 'raise SystemExit(5)'";
    for (body, function, status, calls) in [
        (format!("exec python3 {exit}"), "Py_RunMain", 5, 1),
        (
            format!("exec /usr/bin/env python3 {exit}"),
            "Py_RunMain",
            5,
            1,
        ),
        (
            format!("exec sh -c 'exec {program} exe 1 500'"),
            "work",
            3,
            500,
        ),
    ] {
        let script = scratch.file("script");
        fs::write(&script, format!("{body}\n")).expect("an own folder");
        let finished = Run::ipath([
            "run", "-m", "count", "-f", function, "-o", &file, "--", "sh",
        ])
        .arg(&script)
        .run()
        .expect(status);
        let profile = Profile::read(Path::new(&file));
        let found = (calls_of(&profile), unseen(&profile));
        assert_eq!(found, (calls, 0), "{}", finished.report());
        profile.assert_complete(function);
        assert!(said(&finished).is_empty(), "{}", finished.report());
        let report = Run::ipath(["report", &file]).run().expect(0).stdout;
        assert!(report.contains("Nothing was lost"), "{report}");
        assert!(!report.contains("waits for a library"), "{report}");
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

/// A run of a program that executes another file this many times, with this many calls each time.
fn executes(flags: &[&str], how: &str, times: &str, calls: &str) -> Run {
    let program = program_with("executes_itself.c", flags);
    Run::ipath(["run", "-f", "work", "-o"])
        .arg(work_file(how))
        .arg("--")
        .arg(program)
        .args([how, times, calls])
}

/// The path of the profile that [`executes`] writes.
fn work_file(how: &str) -> PathBuf {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("main").to_owned();
    std::env::temp_dir().join(format!("{name}-{how}-{}.json", std::process::id()))
}

/// The profile that [`executes`] has written. Removes the file.
fn written(how: &str) -> Profile {
    let file = work_file(how);
    let profile = Profile::read(&file);
    let _ = fs::remove_file(file);
    profile
}

/// The number of calls of all functions in a profile.
fn calls_of(profile: &Profile) -> u64 {
    let functions = profile.functions.iter();
    functions.map(|function| count(&function.totals)).sum()
}

/// The number of events that the session knows of and did not see.
fn unseen(profile: &Profile) -> u64 {
    profile.losses.unseen.values().sum()
}

#[test]
fn a_program_that_executes_itself_is_measured_on() {
    for how in ["exe", "fixed", "path", "descriptor", "thread"] {
        let finished = executes(&[], how, "1", "1000").run().expect(3);
        let profile = written(how);
        profile.assert_lossless();
        profile.assert_complete(how);
        assert_eq!(
            (calls_of(&profile), unseen(&profile)),
            (1000, 0),
            "{how}: {}",
            finished.report()
        );
        assert!(said(&finished).is_empty(), "{}", finished.report());
    }
}

#[test]
fn calls_before_each_exec_are_added() {
    for flags in [&[][..], &["-static"], &["-static-pie", "-fPIE"]] {
        let finished = executes(flags, "exe", "4", "50").run().expect(3);
        let profile = written("exe");
        let expected = 50 * (1 + 2 + 3 + 1);
        assert_eq!(
            (calls_of(&profile), unseen(&profile)),
            (expected, 0),
            "{flags:?}: {}",
            finished.report()
        );
    }
}

#[test]
fn an_interpreter_that_executes_itself_is_measured_on() {
    let again = "import os, sys\n\
        if 'AGAIN' not in os.environ:\n    \
            os.environ['AGAIN'] = '1'\n    \
            os.execv(sys.executable, [sys.executable] + sys.orig_argv[1:])\n\
        sys.exit(5)";
    let finished = Run::ipath(["run", "-f", "Py_RunMain", "-m", "count", "-o"])
        .arg(work_file("python"))
        .args(["--", "/usr/bin/python3", "-c", again])
        .run()
        .expect(5);
    // Once for each of the two programs.
    let profile = written("python");
    assert_eq!(calls_of(&profile), 2, "{}", finished.report());
}

/// The calls of the first program are kept if the second has none of the functions.
#[test]
fn another_program_adds_nothing() {
    let finished = executes(&[], "other", "1", "10").run().expect(0);
    let profile = written("other");
    assert_eq!(unseen(&profile), 0, "{}", finished.report());
    assert!(said(&finished).is_empty(), "{}", finished.report());
}

/// A program that waits for a file before it continues.
fn gated(how: &str, scratch: &Scratch, gates: [&str; 2]) -> Command {
    let mut command = Command::new(program("executes_itself.c"));
    command.args([how, "1", "100"]);
    command.env(gates[0], scratch.file("gate"));
    command.env(gates[1], scratch.file("last"));
    command
}

/// `attach` reports that the program has executed itself, however soon it ends afterwards.
#[test]
fn an_exec_while_attached_is_said() {
    for how in ["exe", "thread"] {
        let scratch = Scratch::new("replaced");
        let mut command = gated(how, &scratch, ["GATE", "NONE"]);
        command.env_remove("LAST");
        let mut target = Target::spawn(command).await_output("ready");
        let file = scratch.file("profile.json");
        let mut command = Command::new(ipath());
        command.args(["attach", &target.pid().to_string(), "--no-tui"]);
        command.args(["-f", "work", "-o"]).arg(&file);
        let mut attached = Target::spawn(command).await_output("work");
        fs::write(scratch.file("gate"), "").expect("a file of its own");
        assert_eq!(target.wait(LIMIT).code(), Some(3), "{}", target.report());
        assert!(attached.wait(LIMIT).success(), "{}", attached.report());
        assert_told(&attached, &file);
    }
}

/// An exec without the C library is seen while the program is alive.
#[test]
fn an_exec_by_the_program_itself_is_said() {
    let scratch = Scratch::new("replaced");
    let file = scratch.file("profile.json");
    let mut command = Command::new(ipath());
    command
        .args(["run", "--no-tui", "-f", "work", "-o"])
        .arg(&file);
    command.arg("--").arg(program("executes_itself.c"));
    command
        .args(["raw", "1", "100"])
        .env("LAST", scratch.file("last"));
    let mut run = Target::spawn(command);
    run.until(LIMIT, "a profile", |_| file.exists());
    fs::write(scratch.file("last"), "").expect("a file of its own");
    assert_eq!(run.wait(LIMIT).code(), Some(3), "{}", run.report());
    assert_told(&run, &file);
}

/// Checks that the command and the profile say that the program has executed itself, and that the
/// report does not claim that nothing was lost.
fn assert_told(command: &Target, file: &Path) {
    let told = command.stderr();
    assert!(told.contains("has executed itself again"), "{told}");
    let profile = Profile::read(file);
    assert_eq!(unseen(&profile), 1, "{told}");
    let notes = profile.session.notes.join("\n");
    assert!(notes.contains("has executed itself again"), "{notes}");
    let report = Run::ipath(["report"]).arg(file).run().expect(0).stdout;
    assert!(report.contains("Not exact:"), "{report}");
    assert!(!report.contains("Nothing was lost"), "{report}");
}

/// If only what is inside of functions is counted, the counts before an exec are kept, too.
#[test]
fn exec_keeps_the_counts_inside_functions() {
    let program = program("executes_itself.c");
    let scratch = Scratch::new("exec-inside");
    let file = scratch.file("p.json");
    for option in ["--edges", "--paths"] {
        let run = Run::ipath(["run", "--no-tui", option, "work", "-o"]).arg(&file);
        let run = run.arg("--").arg(&program).args(["exe", "2", "10"]);
        run.limit(LIMIT).run();
        let found = entries(&file);
        let blocks = list(&found["work"], "blocks");
        // None in the first program, ten in the second, and ten in the last.
        assert_eq!(blocks[0]["count"], 20, "{option}: {blocks:#?}");
    }
}
