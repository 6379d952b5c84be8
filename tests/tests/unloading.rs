//! Memory that disappears while the runtime reads it: libraries that other threads unload, and
//! memory next to stacks.

use ipath_tests::command::Run;
use ipath_tests::compile::{program, program_with};
use ipath_tests::place::Scratch;
use ipath_tests::profile::{CallPath, Profile, count};
use ipath_tests::program::Program;
use ipath_tests::session::own_counts;
use std::time::Duration;

/// No call is missed while other threads load and unload a library.
#[test]
fn unloading_amid_walks() {
    let library = program_with("unloading_lib.c", &["-shared", "-fPIC"]);
    let program = program("unloading.c");
    let scratch = Scratch::new("unloading");
    let file = scratch.file("p.json");
    let finished = Run::ipath(["run", "--no-tui", "--interval", "10m", "-f", "work", "-o"])
        .arg(&file)
        .arg("--")
        .arg(&program)
        .arg(&library)
        .arg(scratch.path())
        .args(["8", "3000"])
        // Takes 45 s on an idle machine.
        .limit(Duration::from_secs(300))
        .run()
        .expect(0);
    let own = own_counts(&finished.stdout);
    let profile = Profile::read(&file);
    assert_eq!(own["work"], 8 * 3000 * 16);
    assert_eq!(profile.calls("work"), own["work"]);
    assert_eq!(profile.losses.missed, 0);
}

/// `stale_stack`: no call is missed if wrong unwind entries lead to memory above a thread's stack.
#[test]
fn stale_stack_misses_no_call() {
    let scratch = Scratch::new("stale_stack");
    let file = scratch.file("p.json");
    let finished = Run::ipath(["run", "--no-tui", "--interval", "10m", "-f", "work", "-o"])
        .arg(&file)
        .arg("--")
        .arg(program("stale_stack.c"))
        .arg("1000")
        .run()
        .expect(0);
    let profile = Profile::read(&file);
    assert_eq!(profile.calls("work"), own_counts(&finished.stdout)["work"]);
    assert_eq!(profile.losses.missed, 0);
}

/// The program of this name, which loads two libraries in turn at the same address, and a folder
/// for its files.
fn reloading(name: &str, rounds: u64) -> (Program, Scratch) {
    let library = |frame| program_with("reloaded_lib.c", &["-shared", "-fPIC", frame]);
    let scratch = Scratch::new("reloaded");
    let place = scratch.file("plugin.so");
    let libraries = [library("-DFRAME=1032"), library("-DFRAME=2056"), place];
    let arguments = libraries.map(|path| path.display().to_string());
    let arguments = arguments.into_iter().chain([rounds.to_string()]);
    (Program::new(&program(name), arguments), scratch)
}

/// `reloaded`: knowledge about a library's frames is dropped with it, even if another library is
/// loaded at its address.
#[test]
fn reloaded_library_is_walked_by_its_own_frames() {
    const ROUNDS: u64 = 200;
    let (target, scratch) = reloading("reloaded.c", ROUNDS);
    let file = scratch.file("p.json");
    let finished = target.under_ipath(&["work"], "count", &file).expect(0);
    let own = own_counts(&finished.stdout);
    assert_eq!((own["work"], own["moved"]), (6 * ROUNDS, 0));
    let profile = Profile::read(&file);
    profile.assert_complete("all have unwind entries");
    let through = |name: &str| -> u64 {
        let has_it = |path: &&CallPath| {
            let mut frames = path.stack.iter().map(|&at| &profile.frames[at]);
            frames.any(|frame| frame.function.as_deref() == Some(name))
        };
        let paths = profile.paths.iter().filter(has_it);
        paths.map(|path| count(&path.metrics)).sum()
    };
    assert_eq!(
        (through("first"), through("second")),
        (3 * ROUNDS, 3 * ROUNDS)
    );
}

/// A call from a library in the place of an earlier one stays open when its function catches an
/// exception, and ends by its return.
#[test]
fn reloaded_library_calls_outlast_a_catch() {
    const ROUNDS: u64 = 20;
    let (target, scratch) = reloading("reloaded_catch.cc", ROUNDS);
    let file = scratch.file("p.json");
    let finished = target.under_ipath(&["guarded", "thrower"], "wall", &file);
    let own = own_counts(&finished.expect(0).stdout);
    assert_eq!((own["guarded"], own["caught"]), (3 * ROUNDS, 3 * ROUNDS));
    let profile = Profile::read(&file);
    assert_eq!(profile.calls("guarded"), 3 * ROUNDS);
    assert_eq!(profile.calls("thrower"), 3 * ROUNDS);
    // All calls of `thrower`, and none of `guarded`.
    let losses = &profile.losses;
    assert_eq!((losses.unwound, losses.open), (Some(3 * ROUNDS), Some(0)));
}

/// `rewritten`: memory that was not code at the first walk may be code at a later one, and is then
/// walked.
#[test]
fn rewritten_memory_is_walked_once_it_is_code() {
    let scratch = Scratch::new("rewritten");
    let file = scratch.file("p.json");
    let target = Program::new(&program("rewritten.c"), ["1000"]);
    let finished = target.under_ipath(&["work"], "count", &file).expect(0);
    let profile = Profile::read(&file);
    assert_eq!(own_counts(&finished.stdout)["work"], 1003);
    assert_eq!(profile.calls("work"), 1003);
    assert!(profile.losses.incomplete <= 3, "{:?}", profile.losses);
}
