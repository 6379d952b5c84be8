//! Programs that copied their text to anonymous memory: functions are found by the file's segments
//! and patched in the copy, and callers there have names.

use ipath_tests::command::Run;
use ipath_tests::compile::program_with;
use ipath_tests::place::{Scratch, ipath};
use ipath_tests::profile::{Profile, count};
use ipath_tests::snapshot::ProcessState;
use ipath_tests::target::Target;
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// Attaches to a program with these flags that has copied its text this way, until it ends. Checks
/// its calls and their callers.
fn measured(flags: &[&str], how: &str) {
    let scratch = Scratch::new("remapped");
    let (gate, file) = (scratch.file("gate"), scratch.file("profile.json"));
    let mut command = Command::new(program_with("copies_its_text.c", flags));
    command.arg(&gate).arg(how);
    let mut target = Target::spawn(command).await_output("ready");
    let mut command = Command::new(ipath());
    command.args([
        "attach",
        &target.pid().to_string(),
        "--no-tui",
        "-f",
        "work",
        "-o",
    ]);
    command.arg(&file);
    let mut attached = Target::spawn(command).await_output("work");
    fs::write(&gate, "").expect("a file of its own");
    let status = target.wait(LIMIT);
    assert!(status.success(), "{status}: {}", target.report());
    assert!(attached.wait(LIMIT).success(), "{}", attached.report());
    let profile = Profile::read(&file);
    profile.assert_lossless();
    profile.assert_complete(how);
    assert_eq!(count(&profile.functions[0].totals), 1250, "{how}");
    let callers = profile.paths.iter().map(|path| {
        let caller = &profile.frames[path.stack[0]];
        caller.function.clone().unwrap_or_default()
    });
    let callers: BTreeSet<String> = callers.collect();
    let expected = ["from_first", "from_second"].map(str::to_owned);
    assert_eq!(callers, BTreeSet::from(expected), "{how}");
}

#[test]
fn a_text_that_has_been_copied_is_measured() {
    for how in ["none", "whole", "part", "named"] {
        measured(&[], how);
    }
}

/// At a fixed address, with the headers in the text's segment, and by frame pointers.
#[test]
fn a_text_that_has_been_copied_is_found_by_its_segments() {
    for flags in [
        &["-no-pie"][..],
        &["-no-pie", "-Wl,-z,noseparate-code"],
        &["-Wl,-z,noseparate-code"],
        &["-fno-omit-frame-pointer"],
    ] {
        measured(flags, "whole");
    }
}

/// Paths through a text that is copied during a session are complete once the command has read the
/// maps. Until then they are incomplete.
#[test]
fn a_text_that_is_copied_later_is_walked() {
    let scratch = Scratch::new("remapped");
    let [gate, end, seen, file] = ["gate", "end", "seen", "profile"].map(|name| scratch.file(name));
    let mut command = Command::new(program_with("copies_its_text.c", &[]));
    command.arg(&gate).arg("later").arg(&end);
    let mut target = Target::spawn(command).await_output("ready");
    let pid = target.pid().to_string();
    let mut command = Command::new(ipath());
    command.args(["attach", &pid, "--no-tui", "-f", "work", "-o"]);
    command.arg(&file);
    let mut attached = Target::spawn(command).await_output("work");
    fs::write(&gate, "").expect("a file of its own");
    let snapshot = || {
        let path = seen.display().to_string();
        Run::ipath(["snapshot", &pid, "-o", &path]).run().expect(0);
        Profile::read(&seen)
    };
    // The first call is made after the copy.
    target.until(LIMIT, "a complete path", |_| {
        snapshot().paths.iter().any(|path| path.complete)
    });
    let incomplete = snapshot().losses.incomplete;
    fs::write(&end, "").expect("a file of its own");
    let status = target.wait(LIMIT);
    assert!(status.success(), "{status}: {}", target.report());
    assert!(attached.wait(LIMIT).success(), "{}", attached.report());
    let profile = Profile::read(&file);
    // Calls in `from_second` may be on incomplete paths until a question about it is answered.
    let from_second = 250;
    let found = profile.losses.incomplete;
    assert!(found <= incomplete + from_second, "{found} of {incomplete}");
}

/// After a session the copied text is unchanged.
#[test]
fn a_copied_text_is_restored() {
    let scratch = Scratch::new("remapped");
    let gate = scratch.file("gate");
    let mut command = Command::new(program_with("copies_its_text.c", &[]));
    command.arg(&gate).arg("whole");
    let mut target = Target::spawn(command).await_output("ready");
    let before = ProcessState::of(target.pid());
    let mut command = Command::new(ipath());
    command.args(["attach", &target.pid().to_string(), "--no-tui"]);
    command.args(["-f", "work", "--duration", "200ms"]);
    let mut attached = Target::spawn(command);
    assert!(attached.wait(LIMIT).success(), "{}", attached.report());
    before.assert_unchanged(target.pid());
    fs::write(&gate, "").expect("a file of its own");
    assert!(target.wait(LIMIT).success(), "{}", target.report());
    assert!(target.stdout().contains("calls work 1250"));
}
