//! Times of directly and mutually recursive functions, compared with the program's own record of
//! every call. The program times each call by the same counter, within the function and around the
//! call. ipath's time of the call must be between the two, and so must every sum of such times.

use ipath_tests::compile::program;
use ipath_tests::place::Scratch;
use ipath_tests::profile::{CallPath, Profile, count};
use ipath_tests::program::{Program, ipath_arguments};
use ipath_tests::trace::{Bounds, ByPath, FUNCTIONS, Totals, Trace};
use serde_json::Value;
use std::collections::BTreeMap;

const CALLS: &str = "20000";
/// All timers must satisfy the same identities. The record of calls also bounds the values of
/// `wall`.
const TIMERS: &[&str] = &[
    "wall",
    "cpu",
    "blocked",
    "run-delay",
    "page-faults",
    "major-faults",
    "context-switches",
];

/// Runs the program with these functions measured and these options. Returns the profile and the
/// calls.
fn run(seed: u32, measured: &[&str], options: &[&str]) -> (Profile, Trace) {
    let scratch = Scratch::new("recursion-times");
    let (file, trace) = (scratch.file("p.json"), scratch.file("trace"));
    let trace_name = trace.display().to_string();
    let arguments = [&seed.to_string(), CALLS, &trace_name];
    let program = Program::new(&program("recursion_times.c"), arguments);
    let mut ipath = ipath_arguments(measured, &TIMERS.join(","), &file);
    // The program's own times include the overhead.
    ipath.insert(1, "--no-correction".to_owned());
    ipath.splice(1..1, options.iter().map(|&option| option.to_owned()));
    program.under_ipath_as(ipath).expect(0);
    let profile = Profile::read(&file);
    profile.assert_lossless();
    let losses = &profile.losses;
    assert_eq!((losses.open, losses.unwound), (Some(0), Some(0)));
    (profile, Trace::read(&trace))
}

/// A figure of a timer in nanoseconds or events.
fn of_timer(metrics: &Value, timer: &str, field: &str) -> i64 {
    let value = metrics[timer][field].as_i64();
    value.unwrap_or_else(|| panic!("no {field} of {timer} in {metrics}"))
}

fn wall(metrics: &Value, field: &str) -> i64 {
    of_timer(metrics, "wall", field)
}

/// The names on a path, from the function outwards, up to the program's outermost function.
fn names(profile: &Profile, path: &CallPath) -> Vec<String> {
    let frames = path.stack.iter().map(|&frame| &profile.frames[frame]);
    let callers = frames.map(|frame| frame.function.clone().unwrap_or_default());
    let own = profile.functions[path.function].linkage.clone();
    let outside = |name: &String| matches!(name.as_str(), "morning" | "evening");
    let mut names: Vec<String> = std::iter::once(own).chain(callers).collect();
    let end = names.iter().position(outside).expect("a caller outside");
    names.truncate(end + 1);
    names
}

/// Checks the figures of a path or function against the calls.
fn assert_like(profile: &Profile, what: &[String], found: &Value, expected: &Totals) {
    assert_eq!(count(found), expected.count, "calls of {what:?}");
    let ns = |ticks: i64| ticks as f64 * 1e9 / profile.session.clock_hz as f64;
    // Each path's ticks are converted to nanoseconds separately.
    let rounding = 1.0 + expected.count as f64;
    for (field, Bounds { least, most }) in [
        ("sum", expected.sum),
        ("outermost", expected.outermost),
        ("exclusive", expected.exclusive),
    ] {
        let value = wall(found, field) as f64;
        let is_between = ns(least) - rounding <= value && value <= ns(most) + rounding;
        let (least, most) = (ns(least), ns(most));
        assert!(
            is_between,
            "{field} of {what:?}: {value}, not {least}..{most}"
        );
    }
    for (field, value) in [
        ("min", wall(found, "min") as f64),
        ("max", wall(found, "max") as f64),
    ] {
        let of = |times: &[u64]| match field {
            "min" => times.iter().min().copied(),
            _ => times.iter().max().copied(),
        };
        let bound = |times| ns(of(times).expect("a call") as i64);
        let (least, most) = (bound(&expected.within), bound(&expected.around));
        assert!(
            least - 1.0 <= value && value <= most + 1.0,
            "{field} of {what:?}: {value}, not {least}..{most}"
        );
    }
    assert_histogram(what, &found["wall"]["hist"], expected, ns);
}

/// Checks the number of calls below each power of two. The times around the calls give its lower
/// bound, and the times within the function its upper bound.
fn assert_histogram(what: &[String], hist: &Value, expected: &Totals, ns: impl Fn(i64) -> f64) {
    let buckets = buckets(hist);
    let all: u64 = buckets.iter().map(|(_, calls)| calls).sum();
    assert_eq!(all, expected.count, "{what:?}");
    for power in 0..40 {
        let limit = (1_u64 << power) as f64;
        let below = buckets.iter().filter(|(k, _)| *k < power);
        let shorter: u64 = below.map(|(_, calls)| calls).sum();
        let shorter_of = |times: &[u64], slack: f64| {
            let is_shorter = |&&ticks: &&u64| ns(ticks as i64) + slack < limit;
            times.iter().filter(is_shorter).count() as u64
        };
        let least = shorter_of(&expected.around, 1.0);
        let most = shorter_of(&expected.within, -1.0);
        assert!(
            least <= shorter && shorter <= most,
            "{what:?}: {shorter} calls below 2^{power} ns, not {least}..{most}: {hist}"
        );
    }
}

/// The pairs of a histogram: a power of two, and the number of calls in its bucket.
fn buckets(hist: &Value) -> Vec<(u64, u64)> {
    serde_json::from_value(hist.clone()).expect("pairs of numbers")
}

/// Checks the identities between the figures of a profile, which hold for any times.
fn assert_identities(profile: &Profile, measured: &[&str], timer: &str) {
    // The number and the sum of the calls that are nested in the calls of each path.
    let mut nested: BTreeMap<(usize, &[usize]), (i64, i64)> = BTreeMap::new();
    let (mut exclusive, mut roots) = (0, 0);
    for path in &profile.paths {
        let callers = names(profile, path).split_off(1);
        let own = &profile.functions[path.function].linkage;
        let sum = of_timer(&path.metrics, timer, "sum");
        let outermost = if callers.contains(own) { 0 } else { sum };
        let found = of_timer(&path.metrics, timer, "outermost");
        assert_eq!(found, outermost, "{timer}: {callers:?}");
        exclusive += of_timer(&path.metrics, timer, "exclusive");
        let is_measured = |name: &String| measured.contains(&name.as_str());
        let Some(nearest) = callers.iter().position(is_measured) else {
            roots += sum;
            continue;
        };
        let mut functions = profile.functions.iter();
        let caller = functions.position(|f| f.linkage == callers[nearest]);
        let key = (
            caller.expect("a measured function"),
            &path.stack[nearest + 1..],
        );
        let (paths, sums) = nested.entry(key).or_default();
        *paths += 1;
        *sums += sum;
    }
    // Every figure is rounded.
    let rounding = 2 * profile.paths.len() as i64;
    assert!(
        (exclusive - roots).abs() <= rounding,
        "{timer}: {exclusive} without those made in them, {roots} of the outermost"
    );
    for path in &profile.paths {
        let key = (path.function, &path.stack[..]);
        let (paths, sums) = nested.remove(&key).unwrap_or_default();
        let [sum, exclusive] =
            ["sum", "exclusive"].map(|field| of_timer(&path.metrics, timer, field));
        assert!(
            (sum - exclusive - sums).abs() <= paths + 2,
            "{timer}: {sum} with {sums} made in them, {exclusive} without"
        );
    }
    assert!(nested.is_empty(), "callers without calls: {nested:?}");
}

/// Totals by function.
fn by_function(paths: &ByPath) -> BTreeMap<&str, Totals> {
    let mut totals: BTreeMap<&str, Totals> = BTreeMap::new();
    for (names, of_path) in paths {
        totals.entry(&names[0]).or_default().add(of_path);
    }
    totals
}

/// Checks the totals of each function against the sums of `expected` over its paths.
fn assert_functions_like(profile: &Profile, expected: &ByPath) {
    let expected = by_function(expected);
    assert_eq!(profile.functions.len(), expected.len());
    for (index, function) in profile.functions.iter().enumerate() {
        let mut all: BTreeMap<u64, u64> = BTreeMap::new();
        for path in profile.paths.iter().filter(|path| path.function == index) {
            for (power, calls) in buckets(&path.metrics["wall"]["hist"]) {
                *all.entry(power).or_default() += calls;
            }
        }
        let mut found = function.totals.clone();
        found["wall"]["hist"] = all.into_iter().map(|(k, n)| vec![k, n]).collect();
        let name = &function.linkage;
        assert_like(
            profile,
            std::slice::from_ref(name),
            &found,
            &expected[&name[..]],
        );
    }
}

/// Checks a run with these functions measured: its paths, its functions and the identities.
fn check(seed: u32, measured: &[&str]) {
    let (profile, trace) = run(seed, measured, &[]);
    let expected = trace.totals(measured);
    assert_eq!(profile.paths.len(), expected.len(), "paths");
    for path in &profile.paths {
        let names = names(&profile, path);
        let expected = expected.get(&names);
        let expected = expected.unwrap_or_else(|| panic!("no call on {names:?}"));
        assert_like(&profile, &names, &path.metrics, expected);
    }
    assert_functions_like(&profile, &expected);
    for timer in TIMERS {
        assert_identities(&profile, measured, timer);
    }
    let Bounds { least, most } = expected.values().fold(Bounds::default(), |mut all, path| {
        all.add(path.sum.least, path.sum.most);
        all
    });
    println!(
        "{} paths, sums from {least} to {most} ticks",
        expected.len()
    );
}

#[test]
fn recursion_times_are_within_the_programs_own_bounds() {
    check(1, &FUNCTIONS);
}

/// Calls that are not measured are between measured ones.
#[test]
fn recursion_times_of_some_functions() {
    check(2, &["alpha", "delta"]);
    check(3, &["beta"]);
}

/// Folding recursion gives fewer paths, and the same times for each function.
#[test]
fn recursion_times_of_folded_paths() {
    let (profile, trace) = run(4, &FUNCTIONS, &["--collapse-recursion"]);
    let expected = trace.totals(&FUNCTIONS);
    assert!(profile.paths.len() < expected.len());
    assert_functions_like(&profile, &expected);
}
