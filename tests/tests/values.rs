//! Arguments and return values, and calls that count only if a comparison holds.

use ipath_tests::command::{Finished, Run};
use ipath_tests::compile::program_with;
use ipath_tests::place::Scratch;
use ipath_tests::profile::Profile;
use serde::Deserialize;
use serde_json::Value;
use std::path::PathBuf;

const CALLS: i64 = 1000;

fn values() -> PathBuf {
    program_with("values.c", &["-g"])
}

/// A finished run, and its profile if there is one.
fn measured(function: &str, more: &[&str]) -> (Finished, Option<Profile>) {
    let scratch = Scratch::new("values");
    let file = scratch.file("profile.json");
    let program = values();
    let name = file.display().to_string();
    let finished = Run::ipath(["run", "-f", function, "-o", &name])
        .args(more.iter().copied())
        .args(["--", &program.display().to_string()])
        .run();
    let profile = file.exists().then(|| Profile::read(&file));
    (finished, profile)
}

/// The totals of a function, which is measured alone. Checks that no call is open.
fn totals(function: &str, more: &[&str]) -> Value {
    let (finished, profile) = measured(function, more);
    let profile = profile.unwrap_or_else(|| panic!("{}", finished.stderr));
    profile.check_sums();
    for path in &profile.paths {
        let left = path.unwound.unwrap_or(0) + path.open.unwrap_or(0);
        assert_eq!(left, 0, "unwound or open");
    }
    let function = profile.function(function).expect("measured");
    function.totals.clone()
}

/// The sum, minimum and maximum of a metric in a function's totals.
fn of(totals: &Value, name: &str) -> (i64, i64, i64) {
    let number = |field: &str| totals[name][field].as_i64().expect("a number");
    (number("sum"), number("min"), number("max"))
}

/// The sum, minimum and maximum of numbers.
fn expected(numbers: impl Iterator<Item = i64> + Clone) -> (i64, i64, i64) {
    let least = numbers.clone().min().expect("some");
    let most = numbers.clone().max().expect("some");
    (numbers.sum(), least, most)
}

#[test]
fn integers_have_their_width_and_sign() {
    const METRICS: [&str; 2] = ["-m", "count,arg1,arg2,arg3,arg4,ret"];
    let totals = totals("narrow", &METRICS);
    assert_eq!(totals["count"], CALLS);
    let calls = 0..CALLS;
    let narrow = |name: &str| of(&totals, name);
    assert_eq!(
        narrow("arg1"),
        expected(calls.clone().map(|i| i as i8 as i64))
    );
    assert_eq!(
        narrow("arg2"),
        expected(calls.clone().map(|i| (i * 100) as u16 as i64))
    );
    assert_eq!(narrow("arg3"), expected(calls.clone()));
    assert_eq!(narrow("arg4"), expected(calls.clone().map(|_| -7)));
    assert_eq!(narrow("ret"), expected(calls.map(|i| i - 500)));
}

#[test]
fn numbers_with_a_fraction_are_read_from_vector_registers() {
    let totals = totals("real", &["-m", "wall,arg1,arg2,ret"]);
    let calls = 0..CALLS;
    assert_eq!(of(&totals, "arg1"), expected(calls.clone()));
    assert_eq!(of(&totals, "arg2"), expected(calls.clone().map(|i| 2 * i)));
    assert_eq!(of(&totals, "ret"), expected(calls.map(|i| -2 * i)));
}

/// Sums can exceed 2^64, for instance those of many addresses, whichever way a call is counted.
#[test]
fn sums_are_whole_beyond_64_bits() {
    #[derive(Deserialize)]
    struct Written {
        functions: [Function; 1],
    }
    #[derive(Deserialize)]
    struct Function {
        totals: Totals,
    }
    #[derive(Deserialize)]
    struct Totals {
        arg1: Option<Sum>,
        ret: Option<Sum>,
    }
    #[derive(Deserialize)]
    struct Sum {
        sum: i128,
    }
    let value = |i: i64| if i % 3 == 0 { -i } else { i64::MAX - i };
    let sum: i128 = (0..CALLS).map(|i| i128::from(value(i))).sum();
    assert!(sum > 1 << 64);
    let scratch = Scratch::new("values");
    let file = scratch.file("profile.json");
    for metrics in [
        "count,arg1",
        "count,ret",
        "wall,arg1",
        "wall,ret",
        "wall,arg1,ret",
        "cpu,arg1,ret",
    ] {
        let run = Run::ipath(["run", "-f", "extreme", "-m", metrics, "-o"]).arg(&file);
        run.arg("--").arg(values()).run().expect(0);
        let text = std::fs::read_to_string(&file).expect("written");
        let written: Written = serde_json::from_str(&text).expect("a profile");
        let [Function { totals }] = written.functions;
        let sums = [("arg1", totals.arg1, sum), ("ret", totals.ret, -sum)];
        for (name, said, right) in sums {
            let said = said.map(|said| said.sum);
            let right = metrics.contains(name).then_some(right);
            assert_eq!(said, right, "{name} of {metrics}");
        }
    }
}

/// Arguments alone need no exits.
#[test]
fn arguments_alone_patch_no_exit() {
    let (_, profile) = measured("narrow", &["-m", "count,arg3"]);
    let profile = profile.expect("written");
    let function = profile.function("narrow").expect("measured");
    assert!(function.exits.is_empty());
    assert_eq!(of(&function.totals, "arg3"), expected(0..CALLS));
}

/// The number of calls of `nested` at a depth: each of a thousand calls goes down from 0 to 7.
fn of_depth(depth: i64) -> i64 {
    CALLS / 8 * (8 - depth)
}

#[test]
fn calls_count_where_an_argument_says_so() {
    let totals = totals("nested", &["-m", "wall,arg1", "--when", "arg1 >= 6"]);
    let count = of_depth(6) + of_depth(7);
    assert_eq!(totals["count"], count);
    assert_eq!(
        of(&totals, "arg1"),
        (6 * of_depth(6) + 7 * of_depth(7), 6, 7)
    );
}

#[test]
fn calls_count_where_their_return_value_says_so() {
    let totals = totals("nested", &["-m", "count,arg1,ret", "--when", "ret<0"]);
    assert_eq!(totals["count"], of_depth(0) + of_depth(1));
    assert_eq!(of(&totals, "arg1"), (of_depth(1), 0, 1));
    assert_eq!(of(&totals, "ret"), (-2 * of_depth(0) - of_depth(1), -2, -1));
}

#[test]
fn calls_count_where_their_time_says_so() {
    let none = totals("narrow", &["-m", "wall", "--when", "wall > 100s"]);
    assert_eq!(none["count"], 0);
    let all = totals("narrow", &["-m", "cpu", "--when", "wall < 100s"]);
    assert_eq!(all["count"], CALLS);
}

#[test]
fn what_is_read_without_knowing_the_types_is_said_to_be() {
    let scratch = Scratch::new("values");
    let file = scratch.file("profile.json");
    let program = program_with("values.c", &["-g0"]);
    let of = |function: &str| {
        let name = file.display().to_string();
        Run::ipath(["run", "-f", function, "-m", "arg1", "-o", &name, "--"])
            .arg(&program)
            .run()
            .expect(0)
    };
    let finished = of("narrow");
    let line = "narrow: no debug information: values are whole registers";
    assert!(finished.stderr.contains(line), "{}", finished.stderr);
    let notes = Profile::read(&file).session.notes;
    assert!(notes.iter().any(|note| note.contains(line)), "{notes:?}");
    let (finished, profile) = measured("narrow", &["-m", "arg1"]);
    assert!(!finished.stderr.contains("no debug"), "{}", finished.stderr);
    assert!(profile.is_some_and(|p| p.session.notes.is_empty()));
}

#[test]
fn what_cannot_be_read_is_refused() {
    let ends = |status: i32, function: &str, more: &[&str], says: &str| {
        let (finished, profile) = measured(function, more);
        assert!(profile.is_none());
        let finished = finished.expect(status);
        assert!(finished.stderr.contains(says), "{}", finished.stderr);
    };
    let refused = |function: &str, more: &[&str], says: &str| ends(1, function, more, says);
    let nonsense = |more: &[&str], says: &str| ends(2, "narrow", more, says);
    refused("by_memory", &["-m", "arg1"], "is passed in memory");
    refused("narrow", &["-m", "arg5"], "`narrow` has 4 arguments");
    nonsense(&["-m", "arg7"], "there is no such metric");
    nonsense(&["--when", "arg1 ~ 3"], "--when 'arg1 ~ 3'");
    nonsense(&["--when", "wall > 3"], "a time");
    let too_many =
        "wall,cpu,blocked,run-delay,block-io,page-faults,context-switches,arg1,arg2,arg3,arg4,ret";
    refused("narrow", &["-m", too_many], "too many metrics");
}
