//! Calls that leave by a tail call, and end with what that calls: however it ends, and while what is measured changes.

use ipath_tests::compile::program;
use ipath_tests::place::Scratch;
use ipath_tests::profile::{Function, Profile, count};
use ipath_tests::program::Program;
use ipath_tests::session::{Session, counts_of, own_counts};
use ipath_tests::target::Target;

fn wall(function: &Function, what: &str) -> u64 {
    function.totals["wall"][what].as_u64().expect("ns")
}

/// Those that an exception, a jump or the end of the thread ends count as unwound, and have no time; whichever of the
/// functions are measured.
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

/// What the tail calls lead to is measured and is not, again and again, while calls are in it: none of them has another one's
/// time, nor more than the program itself has seen.
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
    // Those that the changes have come upon, and the ends.
    let rest = losses.unwound.zip(losses.open).map(|(u, o)| u + o);
    assert!(rest.is_some_and(|rest| rest < 500), "{losses:?}");
}
