//! Calls whose stack continues on another thread, with every setting for paths, and with or without
//! a known root of the stack. The programs measure the time of each call within the function and
//! around the call. ipath's value is between the two, however busy the machine is.

use ipath_tests::compile::program;
use ipath_tests::own_times::{Options, assert_own_times};
use ipath_tests::profile::CallPath;
use ipath_tests::program::Program;
use ipath_tests::racing::{Chance, rounds};

/// Options that change only the kept part of a path.
const OPTIONS: &[&[&str]] = &[
    &[],
    &["--depth", "1"],
    &["--depth", "2"],
    &["--depth", "4", "--per-thread"],
    &["--collapse-recursion"],
    &["--depth", "3", "--collapse-recursion", "--no-correction"],
];

fn assert_whatever_is_kept(program: &Program, function: &str) {
    for options in OPTIONS {
        assert_own_times(program, function, &Options::of(options));
    }
}

#[test]
fn goroutines_keep_their_times_whatever_is_kept_of_paths() {
    assert_whatever_is_kept(
        &Program::new(&program("stolen_stacks.go"), [""; 0]),
        "main.work",
    );
}

/// Stacks that end in the return address 0: in one mapping, each in its own, and in a thread's own
/// stack.
#[test]
fn stacks_that_end_in_0_keep_their_times_whatever_is_kept_of_paths() {
    let file = program("stolen_stacks.c");
    assert_whatever_is_kept(&Program::new(&file, ["null"]), "work");
    for arguments in [&["null", "apart"][..], &["frame"]] {
        let program = Program::new(&file, arguments.iter().copied());
        let profile = assert_own_times(&program, "work", &Options::of(&[]));
        // Not a frame, but the reason has a name.
        assert_eq!(
            profile.losses.causes["null-return-address"],
            profile.calls("work")
        );
        let is_frame = |path: &CallPath| {
            path.stack
                .iter()
                .all(|&f| profile.frames[f].function.is_some())
        };
        assert!(profile.paths.iter().all(is_frame), "{:?}", profile.frames);
        assert_own_times(&program, "work", &Options::of(&["--depth", "2"]));
    }
}

/// Stacks without identifiable roots, in one mapping and each in its own.
#[test]
fn stacks_without_a_root_keep_their_times() {
    let file = program("stolen_stacks.c");
    for (what, cause) in [
        ("word", "unknown-code"),
        ("code", "no-return-address"),
        ("untabled", "no-unwind-rule"),
        ("jumps", "no-unwind-rule"),
    ] {
        for (apart, depth) in [("", "2"), ("apart", "9")] {
            let arguments = [what, apart].into_iter().filter(|word| !word.is_empty());
            let program = Program::new(&file, arguments);
            let profile = assert_own_times(&program, "work", &Options::of(&[]));
            assert_eq!(profile.losses.causes[cause], profile.calls("work"));
            assert_own_times(&program, "work", &Options::of(&["--depth", depth]));
        }
    }
}

/// Goroutines, threads, fibers that change threads, and stacks of unknown roots, with random
/// options. `IPATH_TEST_ROUNDS` sets the number of runs, `IPATH_TEST_SEED` repeats them.
#[test]
fn any_options_keep_counts_and_times() {
    let (stolen, own) = (program("stolen_stacks.c"), program("own_times.c"));
    let goroutines = program("stolen_stacks.go");
    let programs = [
        (Program::new(&goroutines, [""; 0]), "main.work"),
        (Program::new(&own, ["contexts"]), "work"),
        (Program::new(&own, ["threads"]), "work"),
        (Program::new(&stolen, ["null"]), "work"),
        (Program::new(&stolen, ["untabled", "apart"]), "work"),
        (Program::new(&stolen, ["jumps"]), "work"),
    ];
    let mut chance = Chance::new();
    for round in 0..rounds(12) {
        let (program, function) = &programs[round % programs.len()];
        assert_own_times(program, function, &Options::drawn(&mut chance));
    }
}
