//! Calls that leave by a tail call, and end when the tail callee ends, however it ends, and while
//! the measured functions change.

use ipath_tests::compile::{program, program_with};
use ipath_tests::place::Scratch;
use ipath_tests::profile::{Function, Profile, count};
use ipath_tests::program::Program;
use ipath_tests::session::{Session, counts_of, own_counts};
use ipath_tests::target::Target;

/// A figure of a function's elapsed time, in nanoseconds.
fn wall(function: &Function, what: &str) -> u64 {
    function.totals["wall"][what].as_u64().expect("ns")
}

/// Calls that end by an exception, a jump or the end of the thread count as unwound, and have no
/// time. The set of measured functions does not matter.
#[test]
fn tail_call_ends() {
    let program = Program::new(&program("tail_calls.cc"), ["ends"]);
    let scratch = Scratch::new("ends");
    let file = scratch.file("p.json");
    for functions in [
        &["outer"][..],
        &["outer", "middle"],
        &["outer", "inner"],
        &["outer", "middle", "inner"],
    ] {
        let ours = program
            .under_ipath(functions, "count,wall", &file)
            .expect(0);
        let calls = own_counts(&ours.stdout)["outer"];
        let left = counts_of(&ours.stdout, "left")["outer"];
        let took = counts_of(&ours.stdout, "took")["outer"];
        let profile = Profile::read(&file);
        for function in &profile.functions {
            assert_eq!(count(&function.totals), calls, "{}", function.name);
            assert_eq!(function.tail, 0, "{}", function.name);
            let sum = wall(function, "sum");
            assert!(
                sum <= took + took / 50,
                "{}: {sum} of {took} ns",
                function.name
            );
        }
        let losses = &profile.losses;
        let of_each = functions.len() as u64 * left;
        assert_eq!(
            (losses.unwound, losses.open),
            (Some(of_each), Some(0)),
            "{losses:?}"
        );
        assert_eq!((losses.missed, losses.incomplete), (0, 0), "{losses:?}");
    }
}

/// A tail call that switches stacks, and returns later or not at all, does not have the time up to
/// another call's return.
#[test]
fn tail_call_that_switches_stacks() {
    let program = Program::new(&program("tail_calls.cc"), ["switches"]);
    let scratch = Scratch::new("switches");
    let file = scratch.file("p.json");
    let ours = program.under_ipath(&["outer", "elsewhere"], "count,wall", &file);
    let longest = counts_of(&ours.expect(0).stdout, "longest")["outer"];
    let profile = Profile::read(&file);
    for function in &profile.functions {
        let max = wall(function, "max");
        assert!(max <= longest, "{}: {max} of {longest} ns", function.name);
    }
    assert_eq!(profile.calls("outer"), 40);
    assert_eq!(profile.losses.missed, 0);
}

/// The reason for a refusal if the few possible targets of a short function's jump are occupied,
/// which can happen in any process.
const NO_PLACE: &str = "pun-out-of-reach";

/// A change to one function, measured or not, does not affect the bytes that another one depends
/// on. Patches that ipath added by itself make room for requested ones.
#[test]
fn tail_callees_with_neighbours() {
    let path = program_with("tail_neighbours.c", &["-O2"]);
    let mut target = Target::start(&path, [""; 0]).await_output("ready");
    let session = Session::attach(target.pid(), &["tail_neighbours*!main"]);
    for (add, functions) in [
        (true, &["long_one"][..]),
        (false, &["long_one"]),
        // long_one as the tail callee of to_long, beside a function whose jump may reach into its
        // first bytes.
        (true, &["to_long", "before"]),
        (true, &["long_one"]),
        (false, &["long_one"]),
        (false, &["to_long"]),
        (true, &["to_long"]),
        (true, &["to_short"]),
        (true, &["after"]),
        (true, &["short_one"]),
        (true, &["last"]),
        (false, &["to_short"]),
        (true, &["to_short"]),
    ] {
        let done = if add {
            session.add(functions)
        } else {
            session.remove(functions)
        };
        let is_refused = |why| done.stderr.contains(why);
        let has_no_room = is_refused("overlaps-function") || is_refused(NO_PLACE);
        assert!(done.code() == 0 || has_no_room, "{}", done.report());
        assert!(
            target.poll().is_none(),
            "{functions:?}: {}",
            target.report()
        );
    }
    session.detach();
    target.finish("ok");
    // Each can be added alone, whatever its tail callee is.
    let target = Target::start(&path, [""; 0]).await_output("ready");
    let session = Session::attach(target.pid(), &["to_short"]);
    let done = session.add(&["after"]);
    let has_no_place = done.stderr.contains(NO_PLACE);
    assert!(done.code() == 0 || has_no_place, "{}", done.report());
    session.detach();
    target.finish("ok");
}

/// The tail callees are repeatedly added and removed while calls are inside them. No call has
/// another call's time, or more than the program's own measurement.
#[test]
fn tail_calls_in_a_session_that_changes() {
    let mut target = Target::start(program("tail_calls.cc"), ["runs"]).await_output("ready");
    let session = Session::attach(target.pid(), &["outer"]);
    let mut was = 0;
    for round in 0..12 {
        let functions = [&["inner"][..], &["middle"], &["inner", "middle"]][round % 3];
        session.add(functions).expect(0);
        let until = |profile: &Profile| {
            let outer = &profile.functions[0];
            // Timed up to the return since the change.
            count(&outer.totals) - outer.tail > was + 100
        };
        let mut profile = session.snapshot();
        target.until(std::time::Duration::from_secs(20), "gone on", |_| {
            profile = session.snapshot();
            until(&profile)
        });
        was = count(&profile.functions[0].totals) - profile.functions[0].tail;
        session.remove(functions).expect(0);
    }
    let profile = session.detach();
    let last = target.finish("longest ");
    let numbers: Vec<u64> = last
        .split(' ')
        .filter_map(|word| word.parse().ok())
        .collect();
    let [longest, took, calls] = numbers[..] else {
        panic!("{last}");
    };
    for function in &profile.functions {
        assert!(count(&function.totals) <= calls, "{}", function.name);
        let (max, sum) = (wall(function, "max"), wall(function, "sum"));
        assert!(
            max <= longest + longest / 50,
            "{}: {max} of {longest} ns",
            function.name
        );
        assert!(
            sum <= took + took / 50,
            "{}: {sum} of {took} ns",
            function.name
        );
    }
    let losses = &profile.losses;
    assert_eq!((losses.missed, losses.incomplete), (0, 0), "{losses:?}");
    // Calls that were under way during the changes and at the end.
    let rest = losses.unwound.zip(losses.open).map(|(u, o)| u + o);
    assert!(rest.is_some_and(|rest| rest < 500), "{losses:?}");
}
