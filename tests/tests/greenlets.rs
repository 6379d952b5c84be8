//! Stacks that share one memory range, as greenlets do. Each call gets its own time, no matter
//! which other greenlets' frames occupied its place in the meantime. The measured library also
//! measures the times, within its function and around the call.

use ipath_tests::compile::{program_with, source};
use ipath_tests::own_times::Options;
use ipath_tests::place::Scratch;
use ipath_tests::profile::{Profile, count};
use ipath_tests::program::{Program, ipath_arguments};
use ipath_tests::racing::{Chance, rounds};
use ipath_tests::session::counts_of;
use ipath_tests::tools::python;
use std::fs;
use std::path::Path;
use std::process::Command;

const LIBRARY: &[&str] = &["-shared", "-fPIC"];

/// Runs greenlets.py under ipath, which waits for the library. Returns the profile and the
/// program's own counts.
fn run(kind: &str, seed: u32, packages: Option<&Path>, options: &[&str]) -> (Profile, String) {
    let scratch = Scratch::new("greenlets");
    let (file, go) = (scratch.file("p.json"), scratch.file("go"));
    fs::write(&go, "").expect("the folder is the test's");
    let library = program_with("greenlets.c", LIBRARY);
    let script = source("greenlets.py");
    let words = [&script, &library, &go].map(|path| path.display().to_string());
    let words = words.into_iter().chain([kind.to_owned(), seed.to_string()]);
    let mut program = Program::new(&python(), words);
    if let Some(packages) = packages {
        program = program.env("PYTHONPATH", &packages.display().to_string());
    }
    let pattern = format!("{}!hold", library.file_name().expect("a name").display());
    let mut arguments = ipath_arguments(&[&pattern], "count,wall", &file);
    let end = arguments.len() - 1;
    // The library's own times include the measuring overhead.
    let all = ["--pending", "--no-correction"].iter().chain(options);
    arguments.splice(end..end, all.map(|&option| option.to_owned()));
    let finished = program.under_ipath_as(arguments).expect(0);
    (Profile::read(&file), finished.stdout)
}

/// Checks that each greenlet's calls have their own number and times, and that no call is lost.
fn assert_own_times(kind: &str, seed: u32, packages: Option<&Path>, options: &[&str]) {
    let (profile, stdout) = run(kind, seed, packages, options);
    let what = format!("{kind} {seed} {options:?}\n{stdout}");
    let [calls, from, inside, outside] =
        ["calls", "from", "inside", "outside"].map(|of| counts_of(&stdout, of));
    assert_eq!(profile.calls("hold"), calls["hold"], "{what}");
    let ends = (
        profile.losses.open,
        profile.losses.unwound,
        profile.losses.missed,
    );
    assert_eq!(ends, (Some(0), Some(0), 0), "{what}");
    for (name, &least) in &inside {
        let own = || {
            profile.paths.iter().filter(|path| {
                let caller = path.stack.first().map(|&frame| &profile.frames[frame]);
                caller.and_then(|frame| frame.function.as_ref()) == Some(name)
            })
        };
        let counted: u64 = own().map(|path| count(&path.metrics)).sum();
        assert_eq!(counted, from[name], "{name}: {what}");
        let wall: u64 = own()
            .filter_map(|path| path.metrics["wall"]["sum"].as_u64())
            .sum();
        // The frequencies of the two clocks are known with this accuracy.
        let apart = |ns: u64| ns / 500 + 2000 * counted;
        let (least, most) = (least - apart(least), outside[name] + apart(outside[name]));
        assert!(
            (least..=most).contains(&wall),
            "{name}: {wall} of {least} to {most}: {what}"
        );
    }
}

#[test]
fn greenlets_keep_their_times() {
    for kind in ["random", "same", "nested", "threads"] {
        for seed in 1..=2 {
            assert_own_times(kind, seed, None, &[]);
        }
    }
    assert_own_times("random", 3, None, &["--depth", "2"]);
    assert_own_times("nested", 3, None, &["--collapse-recursion"]);
}

/// Random options, as in `any_options_keep_counts_and_times`.
#[test]
fn any_options_keep_counts_and_times_of_greenlets() {
    let mut chance = Chance::new();
    for round in 0..rounds(4) {
        let kind = ["random", "same", "nested", "gevent"][round % 4];
        let drawn = Options::drawn(&mut chance).others;
        // It is always given.
        let others = drawn.iter().filter(|option| *option != "--no-correction");
        let others: Vec<&str> = others.map(String::as_str).collect();
        assert_own_times(kind, 1 + chance.below(1 << 16) as u32, None, &others);
    }
}

#[test]
fn tasks_of_gevent_keep_their_times() {
    assert_own_times("gevent", 1, None, &[]);
    assert_own_times("gevent", 2, None, &["--depth", "1"]);
}

/// Without symbols the switch is recognized by its code.
#[test]
fn greenlets_without_symbols_keep_their_times() {
    let scratch = Scratch::new("stripped");
    let script = "import greenlet, os; print(os.path.dirname(greenlet.__file__))";
    let found = Command::new(python())
        .args(["-c", script])
        .output()
        .expect("Python runs");
    let package = String::from_utf8(found.stdout).expect("a path");
    let copied = Command::new("cp")
        .args(["-r", package.trim()])
        .arg(scratch.file(""))
        .status();
    assert!(copied.is_ok_and(|status| status.success()));
    let files = fs::read_dir(scratch.file("greenlet")).expect("copied");
    let library = files
        .filter_map(|file| Some(file.ok()?.path()))
        .find(|path| path.extension().is_some_and(|e| e == "so"))
        .expect("it is an extension");
    let stripped = Command::new("strip").arg(&library).status();
    assert!(stripped.is_ok_and(|status| status.success()));
    assert_own_times("random", 4, Some(&scratch.file("")), &[]);
}
