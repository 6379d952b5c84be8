//! Loops that are timed by themselves, compared with the program's own counts and clock.

use ipath_tests::command::Run;
use ipath_tests::compile::{program_with, source};
use ipath_tests::inside::{json, list, number, printed_spans};
use ipath_tests::place::Scratch;
use ipath_tests::profile::Profile;
use ipath_tests::snapshot::ProcessState;
use ipath_tests::target::Target;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

/// The function of each loop that is marked in the source.
const LOOPS: [(&str, &str); 11] = [
    ("outer", "nested"),
    ("inner", "nested"),
    ("caught_outside", "catches_outside"),
    ("caught_inside", "catches_inside"),
    ("passed_on", "passes_on"),
    ("jumped", "jumps_out"),
    ("unannounced", "jumps_unannounced"),
    ("recursive", "recurses"),
    ("sleeping", "sleeps"),
    ("handler", "handles"),
    ("switching", "switches_stacks"),
];

/// The number of the line that begins this loop.
fn line(name: &str) -> u64 {
    let text = std::fs::read_to_string(source("timed_loops.cc")).expect("the source");
    let mark = format!("// loop {name}");
    let at = text.lines().position(|line| line.ends_with(&mark));
    at.unwrap_or_else(|| panic!("a line with {mark}")) as u64 + 1
}

/// The totals of the code of a loop of the source: the compiler may have made several copies.
fn totals<'p>(json: &'p Value, name: &str, function: &str) -> Vec<&'p Value> {
    let line = line(name);
    let mut found: Vec<(u64, &Value)> = Vec::new();
    for row in list(json, "functions") {
        let of = &row["loop"];
        let is_own = row["name"].as_str().expect("a name").split(':').next() == Some(function);
        if !is_own || of.is_null() {
            continue;
        }
        let (first, last) = (number(&of["line"]), number(&of["end_line"]));
        if (first..=last).contains(&line) {
            found.push((last - first, &row["totals"]));
        }
    }
    let shortest = found.iter().map(|(lines, _)| *lines).min();
    let shortest = shortest.unwrap_or_else(|| panic!("{name} at line {line} in {json}"));
    let innermost = found.into_iter().filter(|(lines, _)| *lines == shortest);
    innermost.map(|(_, totals)| totals).collect()
}

/// Measures all loops of the program, and compares them with its own counts. Returns the profile.
fn compare(program: &Path, arguments: &[&str], more: &[&str]) -> Value {
    let scratch = Scratch::new("timed-loops");
    let file: PathBuf = scratch.file("p.json");
    let mut run = Run::ipath(["run", "--no-tui", "-o"]).arg(&file).args(more);
    for (name, function) in LOOPS {
        if name != "inner" {
            run = run.args(["-f", &format!("{function}:loops")]);
        }
    }
    let run = run.arg("--").arg(program).args(arguments).limit(LIMIT);
    let finished = run.run().expect(0);
    let own = printed_spans(&finished.stdout);
    let profile = Profile::read(&file);
    assert_eq!(profile.losses.missed, 0);
    let json = json(&file);
    let sees_ends = !more.contains(&"count");
    for (name, function) in LOOPS {
        let found = totals(&json, name, function);
        let sum = |key: &str| found.iter().filter_map(|of| of[key].as_u64()).sum::<u64>();
        let [entered, left, ns] = own[name];
        assert_eq!(sum("count"), entered, "{name}: {found:?}");
        if sees_ends {
            // Jumps that no function of a library makes are seen at the next entry.
            let open = sum("open");
            assert!(open == 0 || name == "unannounced", "{name}: {found:?}");
            assert_eq!(sum("unwound") + open, left, "{name}: {found:?}");
        }
        if name == "sleeping" && sees_ends {
            let wall: u64 = found.iter().map(|of| number(&of["wall"]["sum"])).sum();
            // It sleeps twice for a millisecond each time. The program's own clock is read before
            // and after the loop.
            assert!(
                (entered * 2_000_000..=ns).contains(&wall),
                "{wall} ns, by its own clock {ns} ns in {entered} loops"
            );
        }
    }
    json
}

#[test]
fn entries_of_loops_are_those_of_the_program() {
    for level in ["-O0", "-O1", "-O2", "-O3"] {
        let program = program_with("timed_loops.cc", &[level, "-g", "-pthread"]);
        compare(&program, &["100"], &[]);
    }
}

#[test]
fn loops_of_threads_are_exact() {
    let program = program_with("timed_loops.cc", &["-O2", "-g", "-pthread"]);
    compare(&program, &["200", "4"], &[]);
}

/// The functions of the loops and their callees are measured, too. The time of a loop is a part of
/// that of its function, and contains that of its callees.
#[test]
fn loops_are_timed_beside_their_functions() {
    let program = program_with("timed_loops.cc", &["-O2", "-g", "-pthread"]);
    let functions = LOOPS.map(|(_, function)| function).join(",") + ",leaf,may_throw,may_jump";
    let json = compare(&program, &["100", "2"], &["-f", &functions]);
    let wall = |name: &str| {
        let mut rows = list(&json, "functions").iter();
        let row = rows.find(|row| row["name"] == name);
        let row = row.unwrap_or_else(|| panic!("{name} in {json}"));
        let of = |key: &str| number(&row["totals"]["wall"][key]);
        (of("sum"), of("exclusive"))
    };
    for function in ["sleeps", "catches_inside", "handles"] {
        let (whole, own) = wall(function);
        let (in_loop, _) = wall(&format!("{function}:loop0"));
        assert!(in_loop <= whole, "{function}: {in_loop} of {whole}");
        // The time outside of the loop and of callees is the function's own time.
        assert!(own <= whole - in_loop, "{function}: {own} of {whole}");
    }
}

#[test]
fn loops_can_be_counted_alone_or_by_other_metrics() {
    let program = program_with("timed_loops.cc", &["-O2", "-g", "-pthread"]);
    compare(&program, &["50"], &["-m", "count"]);
    compare(&program, &["50"], &["-m", "wall,cpu"]);
    compare(&program, &["50"], &["--per-thread", "--depth", "1"]);
}

/// A loop comes into a program that runs, and leaves it. Afterwards the code is as it was.
#[test]
fn loops_come_and_go() {
    let program = program_with("busy.c", &["-O1", "-g", "-pthread"]);
    let mut target = Target::start(&program, ["2", "600"]).await_output("ready");
    let before = ProcessState::of(target.pid());
    let pid = target.pid().to_string();
    let change = |command: &str, text: &str, says: &str| {
        let run = Run::ipath([command, &pid, "-f", text]).run().expect(0);
        assert_eq!(run.stdout.trim(), says, "{}", run.report());
    };
    let keep = ["--keep", "--no-tui", "--duration", "100ms"];
    let attach = Run::ipath(["attach", &pid, "-f", "busy*!thread:loop1"]).args(keep);
    attach.run().expect(0);
    for _ in 0..3 {
        change("remove", "busy*!thread:loop1", "removed thread:loop1");
        change("add", "busy*!thread:loop1", "added thread:loop1");
    }
    change("add", "busy*!thread:loop1", "already in: thread:loop1");
    let metrics = Run::ipath(["remove", &pid, "-f", "busy*!thread:loop1", "-m", "wall"]).run();
    let why = metrics.expect_usage();
    assert!(
        why.contains("the metrics of a loop do not change in a session"),
        "{why}"
    );
    std::thread::sleep(Duration::from_millis(100));
    let scratch = Scratch::new("timed-loops-add");
    let file = scratch.file("p.json");
    let detach = Run::ipath(["detach", &pid, "-o"]).arg(&file);
    detach.run().expect(0);
    before.assert_unchanged(target.pid());
    let profile = Profile::read(&file);
    assert!(profile.calls("thread:loop1") > 100, "{profile:?}");
    assert!(target.poll().is_none());
}

/// A loop is taken out, comes in again, and is left by exceptions.
#[test]
fn loops_that_come_again_see_exceptions() {
    let program = program_with("timed_loops.cc", &["-O2", "-g", "-pthread"]);
    let mut target = Target::start(&program, ["1000000000"]).await_output("ready");
    let before = ProcessState::of(target.pid());
    let pid = target.pid().to_string();
    let of = ["-f", "passes_on:loop0"];
    let keep = ["--keep", "--no-tui", "--duration", "50ms"];
    let attach = Run::ipath(["attach", &pid]).args(of).args(keep);
    attach.run().expect(0);
    Run::ipath(["remove", &pid]).args(of).run().expect(0);
    let scratch = Scratch::new("timed-loops-again");
    let [first, last] = ["first", "last"].map(|name| scratch.file(name));
    let snapshot = Run::ipath(["snapshot", &pid, "-o"]).arg(&first);
    snapshot.run().expect(0);
    Run::ipath(["add", &pid]).args(of).run().expect(0);
    // Another metric for another loop.
    let other = Run::ipath(["add", &pid, "-f", "nested:loops", "-m", "cpu"]);
    other.run().expect(0);
    let again = Run::ipath(["add", &pid]).args(of).args(["-m", "cpu"]).run();
    let said = format!("{}{}", again.stdout, again.stderr);
    let why = "the metrics of a loop do not change in a session";
    assert!(said.contains(why), "{}", again.report());
    std::thread::sleep(Duration::from_millis(200));
    let detach = Run::ipath(["detach", &pid, "-o"]).arg(&last);
    detach.run().expect(0);
    // Its heap grows.
    assert_eq!(ProcessState::of(target.pid()).text, before.text);
    assert!(target.poll().is_none(), "{}", target.report());
    let counts = |file: &Path| {
        let json = json(file);
        let totals = totals(&json, "passed_on", "passes_on")[0].clone();
        ["count", "unwound", "open"].map(|key| totals[key].as_u64().unwrap_or(0))
    };
    let (then, now) = (counts(&first), counts(&last));
    let [entered, left] = [0, 1].map(|at| now[at] - then[at]);
    // Five of eight entries are left, in turn.
    assert!(entered > 100, "{then:?} {now:?}");
    assert!((8 * left).abs_diff(5 * entered) <= 80, "{then:?} {now:?}");
    assert!(now[2] <= 2, "{now:?}");
    Profile::read(&last);
    let report = Run::ipath(["report"]).arg(&last).run().expect(0).stdout;
    assert!(!report.contains("contradicts"), "{report}");
    let status = Run::ipath(["report", "--json"]).arg(&last).run().expect(0);
    assert!(
        status.stdout.contains("nested:loop0"),
        "{}",
        status.report()
    );
}

/// The loop that a thread is in when it is taken out counts as still running.
#[test]
fn endless_loops_can_be_left() {
    let program = program_with("endless.c", &["-O2", "-g", "-pthread"]);
    let mut target = Target::start(&program, ["4"]).await_output("ready");
    let before = ProcessState::of(target.pid());
    let pid = target.pid().to_string();
    let scratch = Scratch::new("timed-loops-endless");
    let file = scratch.file("p.json");
    Run::ipath(["attach", &pid, "-f", "turns:loops"])
        .args(["--no-tui", "--duration", "200ms", "-o"])
        .arg(&file)
        .run()
        .expect(0);
    before.assert_unchanged(target.pid());
    assert!(target.poll().is_none());
    target.finish("ok");
}

/// With `--loops`, the loops inside a function have their times, and the time of an iteration.
#[test]
fn loops_inside_a_function_have_times() {
    let program = program_with("timed_loops.cc", &["-O2", "-g", "-pthread"]);
    let scratch = Scratch::new("timed-loops-inside");
    let [file, other] = ["p.json", "other.json"].map(|name| scratch.file(name));
    let measure = |file: &Path| {
        let run = Run::ipath(["run", "--no-tui", "-f", "nested:loops"]);
        let run = run.args(["--loops", "nested", "-o"]).arg(file);
        let run = run.arg("--").arg(&program).arg("40").run();
        printed_spans(&run.expect(0).stdout)
    };
    measure(&other);
    let own = measure(&file);
    let json = json(&file);
    let inside = &list(&json, "inside")[0];
    let inner = (0..40).map(|i| (1 + i % 4) * (1 + i % 3)).sum();
    for (name, iterations) in [("outer", own["inner"][0]), ("inner", inner)] {
        let mark = line(name);
        let loops = list(inside, "loops").iter().filter(|of| {
            let lines = number(&of["line"])..=number(&of["end_line"]);
            lines.contains(&mark)
        });
        let shortest = loops.min_by_key(|of| number(&of["end_line"]) - number(&of["line"]));
        let of = shortest.unwrap_or_else(|| panic!("{name} in {inside}"));
        assert_eq!(number(&of["entries"]), own[name][0], "{of}");
        assert_eq!(number(&of["iterations"]), iterations, "{of}");
        let row = totals(&json, name, "nested");
        assert_eq!(of["wall"], row[0]["wall"], "{name}");
    }
    let report = Run::ipath(["report"]).arg(&file).run().expect(0).stdout;
    for part in ["wall total", "an iteration", "the cost of counting inside"] {
        assert!(report.contains(part), "{report}");
    }
    // In a sum, too.
    let sum = scratch.file("sum.json");
    let merge = Run::ipath(["merge"])
        .arg(&file)
        .arg(&other)
        .arg("-o")
        .arg(&sum);
    merge.run().expect(0);
    let report = Run::ipath(["report"]).arg(&sum).run().expect(0).stdout;
    assert!(report.contains("an iteration"), "{report}");
}

#[test]
fn loops_have_no_arguments() {
    let program = program_with("timed_loops.cc", &["-O2", "-g", "-pthread"]);
    let run = Run::ipath(["run", "--no-tui", "-m", "arg1", "-f", "nested:loops", "--"]);
    let error = run.arg(&program).arg("1").run().expect_error();
    assert!(error.contains("a loop has no value arg1"), "{error}");
    let run = Run::ipath(["run", "--no-tui", "-f", "nested:loop7", "--"]);
    let error = run.arg(&program).arg("1").run().expect_error();
    assert!(error.contains("nested:loop7"), "{error}");
}
