//! Losses that the session knows of are in the profile and in the report. The report then does not
//! claim that nothing was lost.

use ipath_tests::command::{Finished, Run};
use ipath_tests::compile::{program, program_with};
use ipath_tests::place::{Scratch, ipath};
use ipath_tests::profile::{Profile, count};
use ipath_tests::target::Target;
use nix::sys::signal::Signal;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
/// The number of calls of `later` in one round of the program that loads a library.
const CALLS: u64 = 5;

fn library() -> String {
    let library = program_with("dlopen_later_lib.c", &["-shared", "-fPIC"]);
    library.display().to_string()
}

fn loading() -> PathBuf {
    program_with("dlopen_later.c", &["-rdynamic"])
}

fn calls_of(profile: &Profile) -> u64 {
    let functions = profile.functions.iter();
    functions.map(|function| count(&function.totals)).sum()
}

/// The report of a profile, which must say that it is not exact.
fn reported(file: &Path) -> String {
    let report = Run::ipath(["report"]).arg(file).run().expect(0).stdout;
    assert!(report.contains("Not exact:"), "{report}");
    assert!(!report.contains("Nothing was lost"), "{report}");
    report
}

/// Libraries that are loaded after the watching command was killed are reported by their number.
#[test]
fn libraries_that_come_unwatched() {
    let scratch = Scratch::new("unseen");
    let file = scratch.file("profile.json");
    let mut command = Command::new(loading());
    command.args([&library(), "7", "here", "wait"]);
    let mut target = Target::spawn(command).await_output("ready");
    let pid = target.pid().to_string();
    let mut command = Command::new(ipath());
    command.args(["attach", &pid, "--pending", "--no-tui", "-f", "later"]);
    let mut attached = Target::spawn(command).await_output("0");
    attached.signal(Signal::SIGKILL);
    attached.wait(LIMIT);
    target.signal(Signal::SIGTERM);
    target.until(LIMIT, "its calls", |t| t.stdout().contains("calls moved"));
    let taken = Run::ipath(["snapshot", &pid, "-o"]).arg(&file).run();
    // It may have ended by itself. Its session can still be read.
    let taken = match taken.code() {
        0 => taken,
        _ => Run::ipath(["detach", &pid, "-o"]).arg(&file).run(),
    };
    let profile = Profile::read(&file);
    // Each is loaded and unloaded.
    let unseen = profile.losses.unseen.get("loads").copied();
    assert_eq!(unseen, Some(14), "{}", taken.report());
    assert_eq!((calls_of(&profile), profile.losses.unseen.len()), (0, 1));
    assert!(reported(&file).contains("14 changes of the loaded libraries"));
}

fn run(options: &[&str], program: &Path, words: &[&str], file: &Path) -> Finished {
    let run = Run::ipath(["run"]).args(options).arg("-o").arg(file);
    run.arg("--").arg(program).args(words).limit(LIMIT).run()
}

/// Without `--pending`, a library is reported that has requested functions and is loaded into a
/// program which has some of them itself.
#[test]
fn libraries_that_come_unawaited() {
    let scratch = Scratch::new("unseen");
    let file = scratch.file("profile.json");
    let (library, loading) = (library(), loading());
    let words = [library.as_str(), "3"];
    let named = ["-f", "/^(count_call|later)$/"];
    let finished = run(&named, &loading, &words, &file).expect(0);
    let profile = Profile::read(&file);
    assert_eq!(calls_of(&profile), 3 * CALLS, "{}", finished.report());
    let unseen = profile.losses.unseen.get("libraries").copied();
    assert_eq!(unseen, Some(1), "{}", finished.report());
    let report = reported(&file);
    assert!(
        report.contains("dlopen_later_lib_c was loaded later"),
        "{report}"
    );
    // Other functions of the libraries do not count as missed.
    run(&["-f", "count_call"], &loading, &words, &file).expect(0);
    Profile::read(&file).assert_lossless();
    // Neither do functions of a pending pattern.
    let named = ["--pending", "-f", "later"];
    run(&named, &loading, &words, &file).expect(0);
    let profile = Profile::read(&file);
    profile.assert_lossless();
    assert_eq!(calls_of(&profile), 3 * CALLS);
}

/// Children that are not followed are noted.
#[test]
fn children_that_are_not_followed() {
    let scratch = Scratch::new("unseen");
    let (file, folder) = (scratch.file("profile.json"), scratch.file("worked"));
    std::fs::create_dir(&folder).expect("a folder of its own");
    for (way, notes) in [("fork", 1), ("spawn", 1)] {
        let run = Run::ipath(["run", "-f", "work", "-o"]).arg(&file);
        let run = run.arg("--").arg(program("followed.c")).args([way, "3"]);
        let finished = run.env("WORKED", &folder).limit(LIMIT).run().expect(3);
        let told = Profile::read(&file).session.notes;
        let told = told.iter().filter(|note| note.contains("--follow"));
        assert_eq!(told.count(), notes, "{way}: {}", finished.report());
    }
    let alone = run(&["-f", "work"], &program("paths.c"), &[], &file);
    let notes = Profile::read(&file).session.notes.join("\n");
    assert!(!notes.contains("--follow"), "{}", alone.report());
}
