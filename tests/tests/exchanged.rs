//! Counters that go to other places once the counts show that these are better.

use ipath_tests::command::Run;
use ipath_tests::compile::program_with;
use ipath_tests::inside::{check_conservation, insides, json, list, number, routes};
use ipath_tests::place::{Scratch, ipath};
use ipath_tests::racing::rounds;
use ipath_tests::snapshot::ProcessState;
use ipath_tests::target::Target;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(240);
/// The reason for the stop in which counters are exchanged, in a profile.
const WHY: &str = "counters";

/// Runs the program, and returns the entry of its function, the number of calls that it made, and
/// the number of exchanges.
fn counted(program: &Path, what: &str, arguments: [u64; 3]) -> (Value, u64, usize) {
    counted_with(program, &[what], arguments, None)
}

/// As [`counted`], with these options and what else the program does.
fn counted_with(
    program: &Path,
    options: &[&str],
    arguments: [u64; 3],
    also: Option<&str>,
) -> (Value, u64, usize) {
    let scratch = Scratch::new("exchanged");
    let file = scratch.file("p.json");
    let run = Run::ipath(["run", "--no-tui"]).args(options);
    let run = run.args(["decides", "-o"]).arg(&file);
    let run = run.limit(LIMIT).arg("--").arg(program);
    let run = run.args(arguments.map(|n| n.to_string())).args(also);
    let run = run.run().expect(0);
    let last = run.stdout.lines().find_map(|line| line.strip_prefix("ok "));
    let calls = last
        .and_then(|calls| calls.parse().ok())
        .expect("its own count");
    let inside = insides(&file)["decides"].clone();
    (inside, calls, exchanges(&json(&file)))
}

fn exchanges(profile: &Value) -> usize {
    let stops = list(&profile["session"], "stops").iter();
    stops.filter(|stop| stop["why"] == WHY).count()
}

fn edges(inside: &Value) -> Vec<u64> {
    let edges = list(inside, "edges").iter();
    edges.map(|edge| number(&edge["count"])).collect()
}

/// Each transfer is counted once, by the old counters or by the new ones, while threads and signal
/// handlers run.
#[test]
fn transfers_are_counted_by_old_or_new_counters() {
    let program = program_with("exchanges.c", &["-O2", "-pthread"]);
    let (few, calls, none) = counted(&program, "--edges", [1, 1, 0]);
    assert_eq!((calls, none), (64, 0));
    for (threads, interval) in [(1, 0), (4, 0), (2, 3000)] {
        let (many, calls, exchanges) = counted(&program, "--edges", [40_000, threads, interval]);
        let expected: Vec<u64> = edges(&few).iter().map(|count| count * calls / 64).collect();
        assert_eq!(edges(&many), expected, "{threads} {interval}");
        assert_eq!(number(&many["uncertain"]), 0, "{threads} {interval}");
        check_conservation(&many);
        // Several threads may never be outside at the same time.
        assert!(
            exchanges == 1 || threads > 1 && exchanges == 0,
            "{threads} {interval}"
        );
    }
}

/// Signal handlers switch between contexts, some of which are in the function.
#[test]
fn saved_contexts_survive_the_exchange() {
    for flags in ["-O2", "-Os"] {
        let program = program_with("exchanges.c", &[flags, "-pthread"]);
        let (few, ..) = counted(&program, "--edges", [1, 1, 0]);
        let also = Some("contexts");
        let (many, calls, _) = counted_with(&program, &["--edges"], [15_000, 1, 700], also);
        let expected: Vec<u64> = edges(&few).iter().map(|count| count * calls / 64).collect();
        assert_eq!(edges(&many), expected, "{flags}");
    }
}

/// Children that are made before, during and after the exchange are counted like their parent.
#[test]
fn children_are_counted_around_the_exchange() {
    let program = program_with("exchanges.c", &["-O2", "-pthread"]);
    let (few, ..) = counted(&program, "--edges", [1, 1, 0]);
    let options = ["--follow", "--edges"];
    let (many, calls, _) = counted_with(&program, &options, [20_000, 1, 0], Some("forks"));
    let expected: Vec<u64> = edges(&few).iter().map(|count| count * calls / 64).collect();
    assert_eq!(edges(&many), expected);
}

/// The sums of the paths that activations are on are those of the new hooks afterwards.
#[test]
fn paths_are_counted_by_old_or_new_hooks() {
    let program = program_with("exchanges.c", &["-O2", "-pthread"]);
    let (few, ..) = counted(&program, "--paths", [1, 1, 0]);
    for (threads, interval) in [(1, 0), (2, 3000)] {
        let (many, calls, exchanges) = counted(&program, "--paths", [40_000, threads, interval]);
        let mut expected = routes(&few);
        expected.values_mut().for_each(|count| *count *= calls / 64);
        assert_eq!(routes(&many), expected, "{threads} {interval}");
        assert_eq!(number(&many["uncertain"]), 0, "{threads} {interval}");
        assert_eq!(
            number(&many["path_totals"]["begun"]),
            calls,
            "{threads} {interval}"
        );
        assert!(
            exchanges == 1 || threads > 1 && exchanges == 0,
            "{threads} {interval}"
        );
    }
}

/// After the exchange, the counters can go out, come in again, and be beside measured calls. The
/// counts go on, and in the end the code is as it was.
#[test]
fn exchanged_counters_come_and_go() {
    let program = program_with("exchanges.c", &["-O2", "-pthread"]);
    let mut target = Target::start(&program, ["0", "1"]).await_output("ready");
    let before = ProcessState::of(target.pid());
    let pid = target.pid().to_string();
    let scratch = Scratch::new("exchanged-go");
    let mut last = 0;
    let mut more = |what: &str| {
        let file = scratch.file("p.json");
        Run::ipath(["snapshot", &pid, "-o"])
            .arg(&file)
            .run()
            .expect(0);
        let json = json(&file);
        let inside = &list(&json, "inside")[0];
        let sum: u64 = edges(inside).iter().sum();
        assert!(sum > last, "{what}: {sum} after {last}");
        last = sum;
        exchanges(&json)
    };
    let attach = ["attach", &pid, "--edges", "decides", "--keep", "--no-tui"];
    Run::ipath(attach)
        .args(["--duration", "5s"])
        .run()
        .expect(0);
    assert_eq!(more("attach"), 1);
    let change = |command: &str, option: &str| {
        Run::ipath([command, &pid, option, "decides"])
            .run()
            .expect(0);
        sleep(Duration::from_millis(50));
    };
    for _ in 0..3 {
        change("remove", "--edges");
        change("add", "--edges");
        more("again");
    }
    change("add", "-f");
    more("beside calls");
    change("remove", "-f");
    more("alone");
    change("remove", "--edges");
    change("add", "-f");
    change("add", "--edges");
    more("calls first");
    Run::ipath(["detach", &pid]).run().expect(0);
    before.assert_unchanged(target.pid());
    assert!(target.poll().is_none());
    target.finish("ok");
}

/// Calls are measured and given up beside the edges, while contexts that signal handlers have left
/// are in old trampolines. Each set of patches has other windows than the one before.
#[test]
fn saved_contexts_survive_calls_beside_edges() {
    let program = program_with("exchanges.c", &["-O2", "-pthread"]);
    let arguments = ["0", "1", "300", "contexts"];
    let mut target = Target::start(&program, arguments).await_output("ready");
    let pid = target.pid().to_string();
    let attach = ["attach", &pid, "--edges", "decides", "--keep", "--no-tui"];
    Run::ipath(attach)
        .args(["--duration", "600ms"])
        .run()
        .expect(0);
    for _ in 0..rounds(60) {
        for command in ["add", "remove"] {
            Run::ipath([command, &pid, "-f", "decides"]).run().expect(0);
            assert!(target.poll().is_none(), "{}", target.report());
        }
    }
    Run::ipath(["detach", &pid]).run().expect(0);
    target.finish("ok");
}

/// SIGKILL ends the command around the exchange. The program goes on, and the next command finds a
/// whole session or none.
#[test]
fn the_command_is_killed_at_the_exchange() {
    let program = program_with("exchanges.c", &["-O2", "-pthread"]);
    let mut target = Target::start(&program, ["0", "2"]).await_output("ready");
    let before = ProcessState::of(target.pid());
    let pid = target.pid().to_string();
    for round in 0..rounds(12) as u64 {
        let mut command = Command::new(ipath());
        command.args(["attach", &pid, "--edges", "decides", "--no-tui"]);
        command.env("IPATH_CONFIG", "").stdout(Stdio::null());
        let mut attach = command.spawn().expect("ipath starts");
        // The exchange begins 250 ms after the counters have come in.
        sleep(Duration::from_millis(270 + 23 * round));
        attach.kill().expect("it can be killed");
        attach.wait().expect("it has ended");
        assert!(target.poll().is_none(), "{}", target.report());
        let detach = Run::ipath(["detach", &pid]).run();
        assert!([0, 1].contains(&detach.code()), "{}", detach.report());
        before.assert_unchanged(target.pid());
    }
    target.finish("ok");
}
