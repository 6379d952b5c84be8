//! Calls whose stack continues on another thread, with every setting for paths, and with or without
//! a known root of the stack. The programs measure the time of each call within the function and
//! around the call. ipath's value is between the two, however busy the machine is.

use ipath_tests::compile::program;
use ipath_tests::place::Scratch;
use ipath_tests::profile::{CallPath, Profile, count};
use ipath_tests::program::{Program, ipath_arguments};
use ipath_tests::session::counts_of;

/// Options that change only the kept part of a path.
const OPTIONS: &[&[&str]] = &[
    &[],
    &["--depth", "1"],
    &["--depth", "2"],
    &["--depth", "4", "--per-thread"],
    &["--collapse-recursion"],
    &["--depth", "3", "--collapse-recursion", "--no-correction"],
];

/// Runs a program under ipath with these options. Returns the profile and the program's output.
fn run(program: &Program, function: &str, options: &[&str]) -> (Profile, String) {
    let scratch = Scratch::new("stolen");
    let file = scratch.file("p.json");
    let mut arguments = ipath_arguments(&[function], "count,wall", &file);
    let end = arguments.len() - 1;
    arguments.splice(end..end, options.iter().map(|&o| o.to_owned()));
    let finished = program.under_ipath_as(arguments).expect(0);
    (Profile::read(&file), finished.stdout)
}

/// The function that made the calls of a path.
fn caller(profile: &Profile, path: &CallPath) -> String {
    let frame = path.stack.first().map(|&frame| &profile.frames[frame]);
    frame
        .and_then(|frame| frame.function.clone())
        .expect("a caller")
}

/// Checks that each caller's calls have their own times, and that no call is lost.
fn assert_own_times(program: &Program, function: &str, options: &[&str]) -> Profile {
    let (profile, stdout) = run(program, function, options);
    let what = format!("{:?} {options:?}\n{stdout}", program.args);
    let number = |of: &str| counts_of(&stdout, of)[function];
    assert_eq!(profile.calls(function), number("calls"), "{what}");
    let losses = &profile.losses;
    assert_eq!(losses.open, Some(0), "{what}: {losses:?}");
    assert_eq!(losses.unwound, Some(number("left")), "{what}: {losses:?}");
    let (inside, outside) = (counts_of(&stdout, "inside"), counts_of(&stdout, "outside"));
    for (name, &least) in &inside {
        let paths = profile.paths.iter();
        let own = || paths.clone().filter(|path| caller(&profile, path) == *name);
        let wall: u64 = own()
            .filter_map(|path| path.metrics["wall"]["sum"].as_u64())
            .sum();
        let calls: u64 = own().map(|path| count(&path.metrics)).sum();
        // The frequencies of the two clocks are known with this accuracy.
        let apart = |ns: u64| ns / 500 + 1000 * calls;
        let (least, most) = (least - apart(least), outside[name] + apart(outside[name]));
        assert!(
            (least..=most).contains(&wall),
            "{name}: {wall} ns of {least} to {most}: {what}"
        );
    }
    profile
}

fn assert_whatever_is_kept(program: &Program, function: &str) {
    for options in OPTIONS {
        assert_own_times(program, function, options);
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
        let profile = assert_own_times(&program, "work", &[]);
        // It is not a frame, but it is named.
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
        assert_own_times(&program, "work", &["--depth", "2"]);
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
            let profile = assert_own_times(&program, "work", &[]);
            assert_eq!(profile.losses.causes[cause], profile.calls("work"));
            assert_own_times(&program, "work", &["--depth", depth]);
        }
    }
}
