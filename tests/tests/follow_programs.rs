//! Following programs that start or end in an unusual way: through the loader, or with
//! LeakSanitizer.

use ipath_tests::command::{Finished, Run};
use ipath_tests::compile::{program, program_with};
use ipath_tests::place::{Scratch, ipath};
use ipath_tests::profile::{Profile, count};
use ipath_tests::session::listed;
use ipath_tests::target::Target;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";

/// Measures `work` in a program with `ipath run`, and writes the profile to `file`.
fn run(options: &[&str], program: &[&str], file: &Path) -> Finished {
    let run = Run::ipath(["run"]).args(options).args(["-f", "work", "-o"]);
    run.arg(file).arg("--").args(program).limit(LIMIT).run()
}

/// The number of calls of all functions in a profile.
fn calls_of(profile: &Profile) -> u64 {
    let functions = profile.functions.iter();
    functions.map(|function| count(&function.totals)).sum()
}

/// A program that calls `work` a given number of times, and ends with status 3.
fn working() -> PathBuf {
    program("executes_itself.c")
}

/// The path of a shell script with these commands.
fn script(scratch: &Scratch, text: &str) -> String {
    let script = scratch.file("script");
    fs::write(&script, format!("#!/bin/sh\n{text}\n")).expect("an own folder");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("an own file");
    script.display().to_string()
}

#[test]
fn a_program_started_through_the_loader_is_measured() {
    let scratch = Scratch::new("loader");
    let (file, program) = (scratch.file("profile.json"), working());
    let program = program.to_str().expect("a path");
    for options in [
        &[][..],
        &["--pending"],
        &["--follow"],
        &["--follow", "--pending"],
    ] {
        for loader in [
            &[LOADER][..],
            &[LOADER, "--library-path", "/lib/x86_64-linux-gnu"],
        ] {
            let words = [loader, &[program, "exe", "0", "1000"]].concat();
            let finished = run(options, &words, &file).expect(3);
            let profile = Profile::read(&file);
            profile.assert_lossless();
            profile.assert_complete("the roots are known");
            assert_eq!(calls_of(&profile), 1000, "{}", finished.report());
        }
    }
}

#[test]
fn the_loader_of_another_c_library_is_known() {
    let scratch = Scratch::new("loader");
    let (file, program) = (scratch.file("profile.json"), scratch.file("program"));
    let source = ipath_tests::compile::source("executes_itself.c");
    let made = Run::new("musl-gcc").args(["-O2", "-pthread", "-o"]);
    made.arg(&program).arg(source).run().expect(0);
    let program = program.display().to_string();
    let words = ["/lib/ld-musl-x86_64.so.1", &program, "exe", "0", "1000"];
    for options in [&[][..], &["--follow"]] {
        let finished = run(options, &words, &file).expect(3);
        let profile = Profile::read(&file);
        profile.assert_lossless();
        assert_eq!(calls_of(&profile), 1000, "{}", finished.report());
    }
}

#[test]
fn programs_followed_through_the_loader_are_measured_as_others() {
    let scratch = Scratch::new("loader");
    let (file, program) = (
        scratch.file("profile.json"),
        working().display().to_string(),
    );
    let text = format!("{LOADER} {program} exe 0 1000; {program} exe 0 1000; exit 5");
    let both = script(&scratch, &text);
    for options in [&["--follow"][..], &["--follow", "--pending"]] {
        let finished = run(options, &[&both], &file).expect(5);
        let profile = Profile::read(&file);
        profile.assert_lossless();
        assert_eq!(calls_of(&profile), 2000, "{}", finished.report());
    }
    // A wrapper as in a relocated installation.
    let wrapper = script(&scratch, &format!("exec {LOADER} {program} exe 0 70"));
    let finished = run(&["--follow"], &[&wrapper], &file).expect(3);
    assert_eq!(calls_of(&Profile::read(&file)), 70, "{}", finished.report());
}

/// The words of a report without addresses and ids, which differ between runs.
fn report_of(text: &str) -> Vec<String> {
    let words = |line: &str| {
        let kept = line.split_whitespace();
        let kept = kept.filter(|w| !w.contains("0x") && !w.contains("=="));
        kept.collect::<Vec<_>>().join(" ")
    };
    text.lines().map(words).collect()
}

/// A program with LeakSanitizer keeps its status and its report, and nothing is lost.
#[test]
fn a_program_that_looks_for_leaks_ends_as_it_does_alone() {
    let scratch = Scratch::new("leaks");
    let file = scratch.file("profile.json");
    for flags in [&["-fsanitize=address", "-O1"][..], &["-fsanitize=leak"]] {
        let program = program_with("leaks.c", flags).display().to_string();
        for (words, status) in [(["clean", "0"], 0), (["leaks", "3"], 0)] {
            let alone = Run::new(&program).args(words).run();
            let status = if words[1] == "0" {
                status
            } else {
                alone.code()
            };
            assert!(words[1] == "0" || status != 0, "{}", alone.report());
            let line = [&[program.as_str()], &words[..]].concat();
            let finished = run(&["--follow"], &line, &file).expect(status);
            let text = report_of(&finished.stderr);
            assert_eq!(text, report_of(&alone.stderr), "{}", finished.report());
            let profile = Profile::read(&file);
            profile.assert_lossless();
            let leaked: u64 = words[1].parse().expect("a number");
            assert_eq!(calls_of(&profile), 150 + leaked, "{}", finished.report());
        }
    }
}

/// LeakSanitizer checks for leaks in a separate process, which is not one that the program started.
#[test]
fn a_leak_check_is_no_process_that_the_program_has_started() {
    let scratch = Scratch::new("leaks");
    let file = scratch.file("profile.json");
    let program = program_with("leaks.c", &["-fsanitize=address", "-O1"])
        .display()
        .to_string();
    let finished = run(&[], &[&program, "alone", "0"], &file).expect(0);
    assert!(
        !finished.stdout.contains("processes that it has started"),
        "{}",
        finished.report()
    );
    Profile::read(&file).assert_lossless();
}

/// A process without measured functions is detached as well, whatever started it.
#[test]
fn a_child_that_looks_for_leaks_ends_as_it_does_alone() {
    let scratch = Scratch::new("leaks");
    let file = scratch.file("profile.json");
    let leaks = program_with("leaks.c", &["-fsanitize=address", "-O1"]);
    let (leaks, other) = (leaks.display(), working());
    let text = format!(
        "{leaks} clean 0 || exit 9; {} exe 0 10; exit 0",
        other.display()
    );
    let both = script(&scratch, &text);
    let run = Run::ipath(["run", "--follow", "-f", "executes_itself_c!work", "-o"]).arg(&file);
    let finished = run.args(["--", &both]).limit(LIMIT).run().expect(0);
    let profile = Profile::read(&file);
    profile.assert_lossless();
    assert_eq!(calls_of(&profile), 10, "{}", finished.report());
    assert!(
        !finished.stderr.contains("LeakSanitizer"),
        "{}",
        finished.report()
    );
}

/// Calls of processes started after a requested leak check are lost, and the report says so.
#[test]
fn what_is_lost_after_a_check_for_leaks_is_said() {
    let scratch = Scratch::new("leaks");
    let file = scratch.file("profile.json");
    let program = program_with("leaks.c", &["-fsanitize=leak"]);
    let words = [program.to_str().expect("a path"), "check", "0"];
    let finished = run(&["--follow"], &words, &file).expect(0);
    assert_eq!(finished.stdout, "found 0\n", "{}", finished.report());
    let profile = Profile::read(&file);
    // The second child is not followed.
    assert_eq!(calls_of(&profile), 150, "{}", finished.report());
    assert_eq!(profile.losses.unseen.get("let-go"), Some(&1));
    let notes = profile.session.notes.join("\n");
    assert!(notes.contains("LeakSanitizer"), "{notes}");
    let report = Run::ipath(["report"]).arg(&file).run().expect(0).stdout;
    assert!(report.contains("Not exact:"), "{report}");
}

/// The reason why a program is not measured is printed once, with the number of its processes at
/// the end.
#[test]
fn a_cause_is_said_once_for_each_program_that_is_followed() {
    let loops = "for i in 1 2 3 4 5 6 7 8 9; do bash -c true; perl -e 1; done; true";
    let run = Run::ipath(["run", "--follow", "--quiet", "-m", "count"]);
    let run = run.args(["-f", "bash!*", "-f", "perl!*", "--", "sh", "-c", loops]);
    let said = run.run().expect(1).stderr;
    for program in ["bash", "perl"] {
        let once = format!("{program} is not measured: ");
        assert_eq!(said.matches(&once).count(), 1, "{said}");
        let more = said
            .lines()
            .filter(|line| line.contains("and 8 more processes of /"));
        let of_program = |line: &&str| line.contains(&format!("{program}: "));
        assert_eq!(more.filter(of_program).count(), 1, "{said}");
    }
}

/// After a kill -9 of the command that followed them, `detach` of the first process also finds
/// processes that no living process connects to it.
#[test]
fn orphans_are_detached_with_the_first_process() {
    let scratch = Scratch::new("orphans");
    let target = Target::start(program("orphaned.c"), [scratch.file("")]).await_output("ready");
    let pid = target.pid().to_string();
    let mut command = Command::new(ipath());
    command.args(["attach", &pid, "--follow", "-f", "work", "--no-tui"]);
    let mut attach = Target::spawn(command);
    let is_measured = |of: &str| listed(of.parse().expect("a process id")).is_some();
    attach.until(LIMIT, "attached", |_| is_measured(&pid));
    target.signal(Signal::SIGUSR1);
    let orphan = || fs::read_to_string(scratch.file("orphan")).unwrap_or_default();
    attach.until(LIMIT, "followed the grandchild", |_| {
        let orphan = orphan();
        !orphan.trim().is_empty() && is_measured(orphan.trim())
    });
    let orphan = orphan().trim().to_owned();
    let parent = || {
        let status = fs::read_to_string(format!("/proc/{orphan}/status")).expect("it lives");
        let line = status.lines().find(|line| line.starts_with("PPid:"));
        line.expect("its parent").to_owned()
    };
    let child = parent();
    fs::write(scratch.file("measured"), "").expect("written");
    attach.until(LIMIT, "seen the child end", |_| parent() != child);
    attach.signal(Signal::SIGKILL);
    attach.wait(LIMIT);
    let file = scratch.file("p.json");
    Run::ipath(["detach", &pid, "-o"])
        .arg(&file)
        .run()
        .expect(0);
    let maps = fs::read_to_string(format!("/proc/{orphan}/maps")).expect("it lives");
    assert!(!maps.contains("/dev/shm/"), "{maps}");
    assert!(!is_measured(&orphan));
    let id = Pid::from_raw(orphan.parse().expect("a process id"));
    kill(id, Signal::SIGKILL).expect("it lives");
    let notes = &Profile::read(&file).session.notes;
    assert!(
        notes
            .iter()
            .any(|note| note.starts_with("processes that ended while")),
        "{notes:?}"
    );
    target.finish("ok");
}

/// Signals that await the follower do not delay threads in the runtime, where waiting for one takes
/// 5 s.
#[test]
fn signals_are_delivered_while_it_detaches() {
    // At high priority: the test must not wait for other work on the machine.
    let preferred = |program: &Path| {
        let mut command = Command::new("nice");
        command.args(["-n", "-19"]).arg(program);
        command
    };
    let target = Target::spawn(preferred(&program("signalled.c"))).await_output("ready");
    for _ in 0..4 {
        let mut command = preferred(&ipath());
        let pid = target.pid().to_string();
        command.args([
            "attach",
            &pid,
            "--follow",
            "-qf",
            "tick",
            "--duration=300ms",
        ]);
        let mut ipath = Target::spawn(command);
        assert!(ipath.wait(LIMIT).success(), "{}", ipath.report());
    }
    let last = target.finish("ok longest ");
    let longest = last.split(' ').nth(2).and_then(|ms| ms.parse().ok());
    assert!(longest.is_some_and(|ms: f64| ms < 4000.0), "{last}");
}
