//! Memory that goes away while the runtime reads it: libraries that other threads unload, and what lies beside stacks.

use ipath_tests::command::Run;
use ipath_tests::compile::{program, program_with};
use ipath_tests::place::Scratch;
use ipath_tests::profile::{CallPath, Profile, count};
use ipath_tests::program::Program;
use ipath_tests::session::own_counts;
use std::time::Duration;

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
        // 45 s where nothing else runs.
        .limit(Duration::from_secs(300))
        .run()
        .expect(0);
    let own = own_counts(&finished.stdout);
    let profile = Profile::read(&file);
    assert_eq!(own["work"], 8 * 3000 * 16);
    assert_eq!(profile.calls("work"), own["work"]);
    assert_eq!(profile.losses.missed, 0);
}

/// `stale_stack`: memory above a thread's stack, into which wrong unwind entries lead.
#[test]
fn stale_stack() {
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

/// `reloaded`: what is known of a library's frames goes with it, also where another one comes to its place.
#[test]
fn reloaded() {
    const ROUNDS: u64 = 200;
    let library = |frame| program_with("reloaded_lib.c", &["-shared", "-fPIC", frame]);
    let scratch = Scratch::new("reloaded");
    let (file, place) = (scratch.file("p.json"), scratch.file("plugin.so"));
    let libraries = [library("-DFRAME=1032"), library("-DFRAME=2056"), place];
    let arguments = libraries.map(|path| path.display().to_string());
    let arguments = arguments.into_iter().chain([ROUNDS.to_string()]);
    let target = Program::new(&program("reloaded.c"), arguments);
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

/// `rewritten`: what was no code when it was first come through may be code by now.
#[test]
fn rewritten() {
    let scratch = Scratch::new("rewritten");
    let file = scratch.file("p.json");
    let target = Program::new(&program("rewritten.c"), ["1000"]);
    let finished = target.under_ipath(&["work"], "count", &file).expect(0);
    let profile = Profile::read(&file);
    assert_eq!(own_counts(&finished.stdout)["work"], 1003);
    assert_eq!(profile.calls("work"), 1003);
    assert!(profile.losses.incomplete <= 3, "{:?}", profile.losses);
}
