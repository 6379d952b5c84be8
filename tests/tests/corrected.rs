//! Times without the overhead: together with the overhead they add up to the elapsed time.

use ipath_tests::compile::program;
use ipath_tests::place::Scratch;
use ipath_tests::profile::{Profile, count};
use ipath_tests::program::{Program, ipath_arguments};

/// The number of calls of `outer` in each run.
const CALLS: u64 = 500_000;

/// Times of a run in nanoseconds: `all` by the program's own clock and by ipath's, the exclusive
/// times of `all`, `outer` and `inner`, and the overhead.
struct Taken {
    own: u64,
    sum: u64,
    exclusive: [u64; 3],
    overhead: u64,
}

/// Measures `corrected.c`, which calls `inner` so often in each call of `outer`. Checks counts and
/// clock.
fn run(inner: u64, options: &[&str]) -> Taken {
    let scratch = Scratch::new("corrected");
    let file = scratch.file("p.json");
    let program = Program::new(
        &program("corrected.c"),
        [CALLS, inner].map(|n| n.to_string()),
    );
    let mut ipath = ipath_arguments(&["all", "outer", "inner"], "wall", &file);
    ipath.splice(1..1, options.iter().map(|&option| option.to_owned()));
    let ours = program.under_ipath_as(ipath).expect(0);
    let line = ours
        .stdout
        .lines()
        .find_map(|line| line.strip_prefix("all "));
    let own = line.and_then(|line| line.strip_suffix(" ns"));
    let profile = Profile::read(&file);
    profile.assert_lossless();
    let function = |name: &str| {
        let mut functions = profile.functions.iter();
        functions.find(|f| f.linkage == name).expect("measured")
    };
    assert_eq!(count(&function("outer").totals), CALLS);
    assert_eq!(count(&function("inner").totals), CALLS * inner);
    let wall = |name: &str, field: &str| function(name).totals["wall"][field].as_u64().expect("ns");
    let overhead = profile.session.overhead.as_ref().expect("known");
    assert_eq!(overhead.corrected, !options.contains(&"--no-correction"));
    let is_loose = options.contains(&"loose");
    let clock = if is_loose { "loose" } else { "ordered" };
    assert_eq!(profile.session.clock.as_deref(), Some(clock));
    let notes = profile.session.notes.iter();
    let said = notes.filter(|note| note.starts_with("the clock is loose"));
    assert_eq!(said.count(), usize::from(is_loose));
    Taken {
        own: own.and_then(|ns| ns.parse().ok()).expect("ns"),
        sum: wall("all", "sum"),
        exclusive: ["all", "outer", "inner"].map(|name| wall(name, "exclusive")),
        overhead: overhead.total_ns,
    }
}

/// The allowed gap: the overhead of the first call outside its measured time, and the time that the
/// thread waits for a processor just then.
const SLACK_NS: u64 = 50_000_000;

#[test]
fn times_and_what_measuring_takes_are_all_the_time() {
    let ordered: &[&str] = &[];
    for (inner, clock) in [(1, ordered), (8, ordered), (8, &["--clock", "loose"])] {
        let taken = run(inner, clock);
        let Taken {
            own, sum, overhead, ..
        } = taken;
        let what = format!("{clock:?}, {inner} inner: {sum} and {overhead} of {own}");
        assert!(sum <= own, "{what}");
        // The runtime may have calibrated its cost of a call earlier.
        assert!((sum + overhead).abs_diff(own) <= SLACK_NS, "{what}");
        // A considerable part of the time on a machine of any speed.
        assert!(overhead >= CALLS * (inner + 1) * 10, "{what}");
        // Each exclusive time is rounded down on each path.
        let parts: u64 = taken.exclusive.iter().sum();
        assert!(parts.abs_diff(taken.sum) <= 2, "{parts}, {}", taken.sum);
    }
}

#[test]
fn uncorrected_times_have_what_measuring_takes() {
    let taken = run(8, &["--no-correction"]);
    let Taken { own, sum, .. } = taken;
    assert!(sum <= own && sum + SLACK_NS >= own, "{sum} of {own}");
}

/// The mean corrected times of functions of `tail_costs.c`, in ns, by name.
fn tail_means(functions: &[&str], metric: &str, options: &[&str]) -> Vec<f64> {
    let scratch = Scratch::new("tail-costs");
    let file = scratch.file("p.json");
    let program = Program::new(&program("tail_costs.c"), ["200000"]);
    let mut ipath = ipath_arguments(functions, metric, &file);
    ipath.splice(1..1, options.iter().map(|&option| option.to_owned()));
    program.under_ipath_as(ipath).expect(0);
    let profile = Profile::read(&file);
    profile.assert_lossless();
    let mean = |name: &&str| {
        let mut all = profile.functions.iter();
        let totals = &all.find(|f| f.linkage == *name).expect("measured").totals;
        totals[metric]["sum"].as_u64().expect("ns") as f64 / count(totals) as f64
    };
    functions.iter().map(mean).collect()
}

/// A call that leaves by a tail call takes at least as long as its callee. So the correction
/// subtracts no more from it than measuring the callee takes until the return.
///
/// Other processes disturb single runs, by what they take of a call or of the calibration. A
/// correction that subtracts too much does so in all runs.
#[test]
fn tail_calls_take_as_long_as_their_callees() {
    /// The part of the callee's time that the correction may miss by.
    const LEAST: f64 = 0.85;
    let runs: [(&str, &[&str]); 3] = [("wall", &[]), ("cpu", &[]), ("wall", &["--clock", "loose"])];
    let highest = |ratios: Vec<f64>| ratios.into_iter().fold(0.0, f64::max);
    for (metric, options) in runs {
        let mut found = [const { Vec::new() }; 3];
        for _ in 0..5 {
            let [chain, wrapper, inner, other] =
                tail_means(&["chain", "wrapper", "inner", "other"], metric, options)[..]
            else {
                unreachable!("four functions")
            };
            let ratios = [wrapper / inner, chain / wrapper, other / inner];
            found
                .iter_mut()
                .zip(ratios)
                .for_each(|(all, one)| all.push(one));
        }
        let ratios = found.map(highest);
        println!("{metric} {options:?}: {ratios:?}");
        assert!(
            ratios.iter().all(|&ratio| ratio >= LEAST),
            "{metric} {options:?}: {ratios:?}"
        );
    }
}

/// The overhead excludes the time of other threads. On a processor shared with four others, neither
/// the overhead nor the correction exceeds the run time of the program. This holds with the
/// kernel's page that shows switches (`cpu`), without it (`wall`), and without system calls.
#[test]
fn preemption_is_no_part_of_what_measuring_takes() {
    for (metric, option) in [
        ("wall", "--quiet"),
        ("cpu,wall", "--quiet"),
        ("wall", "--no-system-calls"),
    ] {
        let scratch = Scratch::new("preempted-slowly");
        let file = scratch.file("p.json");
        let program = Program::new(&program("preempted_slowly.c"), ["150000", "4"]);
        let mut ipath = ipath_arguments(&["all", "leaf"], metric, &file);
        ipath.splice(1..1, [option, "--max-paths", "64"].map(str::to_owned));
        let ours = program.under_ipath_as(ipath).expect(0);
        let line = ours.stdout.lines().find_map(|l| l.strip_prefix("all "));
        let numbers = line
            .expect("a line")
            .split(' ')
            .map(|n| n.parse().expect("ns"));
        let [wall, cpu]: [u64; 2] = numbers.collect::<Vec<_>>().try_into().expect("two");
        let profile = Profile::read(&file);
        let mut functions = profile.functions.iter();
        let all = functions.find(|f| f.linkage == "all").expect("measured");
        let sum = all.totals["wall"]["sum"].as_u64().expect("ns");
        let overhead = profile.session.overhead.as_ref().map(|o| o.total_ns);
        let what =
            format!("{metric} {option}: {sum} of {wall}, {cpu} on a processor, {overhead:?}");
        println!("{what}");
        assert!(overhead.is_none_or(|overhead| overhead <= cpu), "{what}");
        assert!(sum <= wall && sum + cpu >= wall, "{what}");
    }
}
