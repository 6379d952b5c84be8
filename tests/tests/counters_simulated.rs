//! The whole path of a counter's values on any machine, from each thread's event to the profile.
//! The program plays the kernel and the processor of its own counter
//! (tests/programs/simulated_counter.c).

use ipath_tests::command::Run;
use ipath_tests::compile::{program, program_with};
use ipath_tests::place::Scratch;
use ipath_tests::profile::{CallPath, Profile, count};
use ipath_tests::session::Session;
use ipath_tests::simulated::count_for;
use ipath_tests::target::Target;

/// The number of calls of each function by one thread.
const CALLS: u64 = 100;

/// The paths of a function.
fn paths_of<'p>(profile: &'p Profile, function: &str) -> Vec<&'p CallPath> {
    let is_of = |path: &&CallPath| profile.functions[path.function].name == function;
    profile.paths.iter().filter(is_of).collect()
}

/// Totals over these paths: calls, and the counter's number of values, their sum, the sum outside
/// nested functions, minimum and maximum.
fn numbers(paths: &[&CallPath]) -> [u64; 6] {
    let number = |path: &CallPath, field: &str| path.metrics["instructions"][field].as_u64();
    let values = |path: &CallPath| -> u64 {
        let buckets = path.metrics["instructions"]["hist"].as_array();
        let buckets = buckets.into_iter().flatten();
        buckets.filter_map(|bucket| bucket[1].as_u64()).sum()
    };
    let sum = |of: &dyn Fn(&CallPath) -> u64| paths.iter().map(|path| of(path)).sum();
    let field = |field: &'static str| move |path: &CallPath| number(path, field).expect("a number");
    [
        sum(&|path| count(&path.metrics)),
        sum(&values),
        sum(&field("sum")),
        sum(&field("exclusive")),
        paths
            .iter()
            .map(|path| field("min")(path))
            .min()
            .expect("a path"),
        paths
            .iter()
            .map(|path| field("max")(path))
            .max()
            .expect("a path"),
    ]
}

#[test]
fn calls_have_what_was_counted_during_them() {
    let scratch = Scratch::new("simulated_counter");
    let [event, thread] = ["event", "thread"].map(|name| scratch.file(name));
    let mut target = Target::start(program("simulated_counter.c"), [&event, &thread]);
    target = target.await_output("ready");
    let pid = target.pid();
    let preload = program_with("simulated_event.c", &["-shared", "-fPIC", "-ldl"]);
    let functions = ["work", "switched", "shared", "uncounted", "inner", "outer"];
    Run::ipath(["attach", &pid.to_string(), "--keep", "--no-tui"])
        .args(["--duration", "1ms", "-m", "instructions"])
        .args(functions.iter().flat_map(|f| ["-f", f]))
        .env("LD_PRELOAD", &preload)
        .env("EVENT", &event)
        .run()
        .expect(0);
    let (opened, read) = count_for(pid, &event);
    // Each of the two threads opens one event. A counted call reads its counter at least twice.
    assert_eq!(opened, 2);
    assert!(read >= 2 * 6 * CALLS as u32, "{read}");
    let profile = Session::of(pid).detach();
    target.finish("ok");
    profile.check_sums();
    let found = |function: &str| numbers(&paths_of(&profile, function));
    let all_of = |n: u64, each: u64, own: u64| [n, n, n * each, n * own, each, each];
    assert_eq!(found("work"), all_of(2 * CALLS, 7, 7));
    assert_eq!(found("switched"), all_of(CALLS, 11, 11));
    // 10 in 100 ns, and 300 ns more.
    assert_eq!(found("shared"), all_of(CALLS, 40, 40));
    assert_eq!(found("inner"), all_of(CALLS, 4, 4));
    assert_eq!(found("outer"), all_of(CALLS, 7, 3));
    assert_eq!(found("uncounted"), [CALLS, 0, 0, 0, 0, 0]);
    let noted = |note: &String| note.starts_with("instructions was counted ");
    let notes = &profile.session.notes;
    assert!(notes.iter().any(noted), "{notes:?}");
}
