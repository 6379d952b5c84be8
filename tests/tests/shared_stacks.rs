//! Several stacks take turns in one memory range by copying. ipath does not know the switching
//! function. A call whose return could belong to another call is counted but has no time. No call
//! has another call's time.

use ipath_tests::compile::program_with;
use ipath_tests::place::Scratch;
use ipath_tests::profile::{CallPath, Profile, count};
use ipath_tests::program::{Program, ipath_arguments};
use ipath_tests::session::counts_of;

/// The profile of a function of shared_stack.c with this argument, and the program's output.
fn run(argument: &str, level: &str, function: &str) -> (Profile, String) {
    let program = Program::new(&program_with("shared_stack.c", &[level]), [argument]);
    let scratch = Scratch::new("shared");
    let file = scratch.file("p.json");
    let mut arguments = ipath_arguments(&[function], "count,wall", &file);
    // The program's own times include the cost of measuring.
    arguments.insert(1, "--no-correction".to_owned());
    let finished = program.under_ipath_as(arguments).expect(0);
    (Profile::read(&file), finished.stdout)
}

/// The name of the direct caller on a path.
fn caller(profile: &Profile, path: &CallPath) -> String {
    let frame = path.stack.first().map(|&frame| &profile.frames[frame]);
    frame
        .and_then(|frame| frame.function.clone())
        .expect("a caller")
}

/// The difference allowed between the two clocks, in nanoseconds.
fn apart(ns: u64) -> u64 {
    ns / 500 + 2000
}

#[test]
fn calls_on_a_shared_stack_have_no_other_ones_time() {
    for argument in ["callers", "same"] {
        for level in ["-O0", "-O2"] {
            let (profile, stdout) = run(argument, level, "work");
            let what = format!("{argument} {level}\n{stdout}");
            let [calls, shortest, longest] =
                ["calls", "shortest", "longest"].map(|of| counts_of(&stdout, of));
            let mut timed = 0;
            for (name, &expected) in &calls {
                let paths = profile.paths.iter();
                let own = || paths.clone().filter(|path| caller(&profile, path) == *name);
                let counted: u64 = own().map(|path| count(&path.metrics)).sum();
                assert_eq!(counted, expected, "{name}: {what}");
                for path in own() {
                    let wall = |key: &str| path.metrics["wall"][key].as_u64().unwrap_or(0);
                    let lost = path.unwound.unwrap_or(0) + path.open.unwrap_or(0);
                    let with_time = count(&path.metrics) - lost;
                    timed += with_time;
                    // If all calls share a call site, the first return may end another call.
                    let sure = with_time.saturating_sub(u64::from(argument == "same"));
                    let (least, sum) = (sure * shortest[name], wall("sum"));
                    assert!(
                        sum + apart(sum) >= least,
                        "{name}: {sum} of {least}: {what}"
                    );
                    let (most, max) = (longest[name], wall("max"));
                    assert!(max <= most + apart(max), "{name}: {max} of {most}: {what}");
                }
            }
            assert!(timed > 0, "the last of those that wait is known: {what}");
            let losses = &profile.losses;
            assert!(losses.unwound > Some(0), "the others are not: {losses:?}");
        }
    }
}

/// A program that jumps out of its calls looks similar at first. Its other calls keep their times.
#[test]
fn calls_that_jumps_leave_cost_others_no_times() {
    for level in ["-O0", "-O2"] {
        let (profile, stdout) = run("jumps", level, "leave");
        let number = |of: &str| counts_of(&stdout, of)["leave"];
        assert_eq!(profile.calls("leave"), number("calls"), "{level}");
        let losses = &profile.losses;
        let lost = losses.unwound.unwrap_or(0) + losses.open.unwrap_or(0);
        assert_eq!(lost, number("left"), "{level}: {losses:?}");
    }
}
