//! Inlined copies that are measured by themselves, compared with the program's counts and clock.

use ipath_tests::command::Run;
use ipath_tests::compile::{build_by, program_with, source};
use ipath_tests::inside::{json, list, number, printed_spans};
use ipath_tests::place::Scratch;
use ipath_tests::profile::Profile;
use ipath_tests::snapshot::ProcessState;
use ipath_tests::target::Target;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

/// The inlined functions, each with the functions that contain its copies.
const INLINED: [(&str, &[&str]); 9] = [
    ("plain", &["nests", "plain_often", "plain_twice"]),
    ("looping", &["loops"]),
    ("throwing", &["throws", "throws_on"]),
    ("catching", &["catches"]),
    ("nesting", &["nests"]),
    ("descending", &["descend"]),
    ("jumping", &["jumps_on"]),
    ("spinning", &["spins"]),
    ("returning", &["returns"]),
];

/// The name without parameters.
fn plain(name: &str) -> &str {
    let name = name.split('(').next().unwrap_or_default();
    name.rsplit("::").next().unwrap_or_default()
}

/// The rows of the copies of a function.
fn rows<'p>(json: &'p Value, name: &str) -> Vec<&'p Value> {
    let all = list(json, "functions").iter();
    let of = |row: &&Value| !row["inlined_copy"].is_null() && plain(text(&row["name"])) == name;
    all.filter(of).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("a text: {value}"))
}

fn program(compiler: &str, level: &str) -> PathBuf {
    let flags = [level, "-g", "-pthread", "-Wno-error"];
    build_by(compiler, &source("inlined_spans.cc"), &flags)
}

/// Measures all copies, and compares them with the program's own counts. Returns the profile.
fn compare(program: &Path, arguments: &[&str], more: &[&str]) -> Value {
    let scratch = Scratch::new("inlined-spans");
    let file = scratch.file("p.json");
    let run = Run::ipath(["run", "--no-tui", "--inlined", "-o"]).arg(&file);
    let names = INLINED.map(|(name, _)| name).join(",");
    let run = run.args(["-f", &names]).args(more).arg("--").arg(program);
    let finished = run.args(arguments).limit(LIMIT).run().expect(0);
    assert!(
        !finished.stderr.contains("not instrumented"),
        "{}",
        finished.report()
    );
    let own = printed_spans(&finished.stdout);
    let profile = Profile::read(&file);
    assert_eq!(profile.losses.missed, 0);
    let json = json(&file);
    let sees_ends = !more.contains(&"count");
    for (name, containing) in INLINED {
        let rows = rows(&json, name);
        let within = rows.iter().map(|row| text(&row["inlined_copy"]["within"]));
        let within: BTreeSet<&str> = within.map(plain).collect();
        assert_eq!(within, BTreeSet::from_iter(containing.iter().copied()));
        let totals: Vec<&Value> = rows.iter().map(|row| &row["totals"]).collect();
        let sum = |key: &str| totals.iter().filter_map(|of| of[key].as_u64()).sum::<u64>();
        let [entered, left, ns] = own[name];
        assert_eq!(sum("count"), entered, "{name}: {totals:?}");
        if !sees_ends {
            continue;
        }
        assert_eq!(sum("open"), 0, "{name}: {totals:?}");
        assert_eq!(sum("unwound"), left, "{name}: {totals:?}");
        if name == "spinning" {
            let wall: u64 = totals.iter().map(|of| number(&of["wall"]["sum"])).sum();
            // It takes 100 microseconds or more. The program reads its clock before and after it.
            assert!(
                (entered * 100_000..=ns).contains(&wall),
                "{wall} ns, by its own clock {ns} ns in {entered} executions"
            );
        }
    }
    check_paths(&json);
    json
}

/// Each execution of a copy is on the path of the function that contains it.
fn check_paths(json: &Value) {
    let (functions, frames) = (list(json, "functions"), list(json, "frames"));
    let mut seen = 0;
    for path in list(json, "paths") {
        let row = &functions[number(&path["function"]) as usize];
        let copy = &row["inlined_copy"];
        if copy.is_null() {
            continue;
        }
        seen += 1;
        let caller = &frames[number(&list(path, "stack")[0]) as usize];
        assert_eq!(caller["copy"], copy["entry"], "{path}");
        assert_eq!(caller["address"], row["address"], "{path}");
        let function = text(&caller["function"]);
        let within = plain(text(&copy["within"]));
        assert!(function.contains(within), "{function} for {within}");
        // The call of a copy in another copy is at a line of that one.
        let of_call = match list(caller, "inlined").first() {
            Some(inner) => &inner["line"],
            None => &caller["line"],
        };
        assert_eq!(*of_call, copy["line"], "{caller} for {copy}");
    }
    assert!(seen >= INLINED.len(), "{seen} paths");
}

#[test]
fn executions_of_copies_are_those_of_the_program() {
    for compiler in ["g++", "clang++"] {
        for level in ["-O0", "-O1", "-O2", "-O3"] {
            compare(&program(compiler, level), &["100"], &[]);
        }
    }
}

#[test]
fn copies_in_threads_are_exact() {
    compare(&program("g++", "-O2"), &["200", "4"], &[]);
    compare(&program("clang++", "-O2"), &["200", "4"], &["--per-thread"]);
}

#[test]
fn copies_can_be_counted_alone_or_by_other_metrics() {
    let program = program("g++", "-O2");
    compare(&program, &["50"], &["-m", "count"]);
    compare(&program, &["50"], &["-m", "wall,cpu"]);
}

/// The containing functions are measured, too. The time of a copy is a part of theirs.
#[test]
fn copies_are_timed_beside_their_functions() {
    for compiler in ["g++", "clang++"] {
        let functions = "spins,nests,descend,catches,loops";
        let json = compare(&program(compiler, "-O2"), &["100", "2"], &["-f", functions]);
        let wall = |of: &Value| number(&of["totals"]["wall"]["sum"]);
        for (name, containing) in [("spinning", "spins"), ("nesting", "nests")] {
            let mut all = list(&json, "functions").iter();
            let whole = all.find(|row| plain(text(&row["name"])) == containing);
            let whole = whole.unwrap_or_else(|| panic!("{containing} in {json}"));
            let [copy] = rows(&json, name)[..] else {
                panic!("{name} in {json}");
            };
            assert!(wall(copy) <= wall(whole), "{name}: {copy} of {whole}");
            assert_eq!(copy["totals"]["count"], whole["totals"]["count"]);
        }
        // The copy of plain in nesting is a part of that copy.
        let inner = rows(&json, "plain");
        let inner = inner.iter().find(|row| {
            let within = text(&row["inlined_copy"]["within"]);
            plain(within) == "nests"
        });
        let inner = inner.expect("a copy in a copy");
        assert!(wall(inner) <= wall(rows(&json, "nesting")[0]));
    }
}

#[test]
fn copies_of_rust_functions_are_exact() {
    for level in ["1", "2", "3"] {
        let flags = ["-C", &format!("opt-level={level}"), "-g"];
        let program = program_with("inlined_rows.rs", &flags);
        let scratch = Scratch::new("inlined-rust");
        let file = scratch.file("p.json");
        let run = Run::ipath(["run", "--no-tui", "--inlined", "-o"]).arg(&file);
        let run = run.args(["-f", "inlined_rows::mixed,inlined_rows::summed", "--"]);
        let finished = run.arg(&program).arg("300").limit(LIMIT).run().expect(0);
        let json = json(&file);
        for (name, [entered, ..]) in printed_spans(&finished.stdout) {
            let rows = rows(&json, &name);
            let counts = rows.iter().map(|row| number(&row["totals"]["count"]));
            assert_eq!(
                counts.sum::<u64>(),
                entered,
                "{name}: {}",
                finished.report()
            );
        }
    }
}

/// Copies come into a program that runs, and leave it. Afterwards the code is as it was.
#[test]
fn copies_come_and_go() {
    let program = program("g++", "-O2");
    let mut target = Target::start(&program, ["1000000000", "2"]).await_output("ready");
    let before = ProcessState::of(target.pid());
    let pid = target.pid().to_string();
    let keep = ["--keep", "--no-tui", "--duration", "100ms"];
    let of = ["-f", "nest*,pla?n", "--inlined"];
    Run::ipath(["attach", &pid])
        .args(of)
        .args(keep)
        .run()
        .expect(0);
    let status = Run::ipath(["status", &pid]).run().expect(0).stdout;
    let name = "nesting inlined in nests(unsigned int)+0x";
    assert!(status.contains(name), "{status}");
    for _ in 0..3 {
        for command in ["remove", "add"] {
            let run = Run::ipath([command, &pid, "-f", "plain", "--inlined"])
                .run()
                .expect(0);
            let copies = run.stdout.matches("plain inlined in").count();
            assert_eq!(copies, 4, "{}", run.report());
        }
    }
    let again = Run::ipath(["add", &pid, "-f", "plain", "--inlined"])
        .run()
        .expect(0);
    assert!(again.stdout.contains("already in: "), "{}", again.report());
    let metrics = Run::ipath(["remove", &pid, "-f", "plain", "--inlined", "-m", "wall"]).run();
    let why = metrics.expect_usage();
    let expected = "the metrics of an inlined copy do not change in a session";
    assert!(why.contains(expected), "{why}");
    let scratch = Scratch::new("inlined-come");
    let file = scratch.file("p.json");
    Run::ipath(["detach", &pid, "-o"])
        .arg(&file)
        .run()
        .expect(0);
    // Its heap grows.
    assert_eq!(ProcessState::of(target.pid()).text, before.text);
    assert!(target.poll().is_none(), "{}", target.report());
    Profile::read(&file);
    let json = json(&file);
    for row in rows(&json, "plain")
        .into_iter()
        .chain(rows(&json, "nesting"))
    {
        assert!(number(&row["totals"]["count"]) > 0, "{row}");
    }
    check_report(&file);
}

/// The report names each copy, and the calls of the function with all copies.
fn check_report(file: &Path) {
    let report = Run::ipath(["report"]).arg(file).run().expect(0).stdout;
    for part in [
        "(inlined in nests(unsigned int), inlined_spans.cc:",
        "an inlined copy",
        "of the function and its inlined copies",
        "executions without code of their own",
    ] {
        assert!(report.contains(part), "{part} in {report}");
    }
    assert!(!report.contains("contradicts"), "{report}");
}

/// Threads that are in an endless copy enter and leave a copy in it. Both come in and go out.
#[test]
fn copies_in_an_endless_loop_come_and_go() {
    for compiler in ["gcc", "clang"] {
        let flags = ["-O2", "-g", "-pthread"];
        let program = build_by(compiler, &source("inlined_endless.c"), &flags);
        let mut target = Target::start(&program, ["4"]).await_output("ready");
        let before = ProcessState::of(target.pid());
        let pid = target.pid().to_string();
        let scratch = Scratch::new("inlined-endless");
        let file = scratch.file("p.json");
        for _ in 0..3 {
            Run::ipath(["attach", &pid, "-f", "step,turning", "--inlined"])
                .args(["--no-tui", "--duration", "100ms", "-o"])
                .arg(&file)
                .run()
                .expect(0);
            before.assert_unchanged(target.pid());
            let json = json(&file);
            let [step] = rows(&json, "step")[..] else {
                panic!("{json}");
            };
            assert!(number(&step["totals"]["count"]) > 1000, "{step}");
            // The executions in which the threads are had begun before.
            let turning = rows(&json, "turning");
            let counts = turning.iter().map(|row| number(&row["totals"]["count"]));
            assert_eq!(counts.sum::<u64>(), 0, "{turning:?}");
        }
        assert!(target.poll().is_none());
        target.finish("ok");
    }
}

/// A function that also exists out of line has its calls and its copies.
#[test]
fn refused_copies_are_named() {
    let program = build_by("gcc", &source("inlined_unrolled.c"), &["-O3", "-g"]);
    let scratch = Scratch::new("inlined-unrolled");
    let file = scratch.file("p.json");
    let run = Run::ipath(["run", "--no-tui", "--inlined", "-f", "inlined*!step", "-o"]).arg(&file);
    let run = run.args(["-f", "whole,single", "--"]);
    let finished = run.arg(&program).arg("10").run().expect(0);
    assert!(finished.stdout.starts_with("60 "), "{}", finished.report());
    let why = "its code has several executions in a row";
    let said = finished.stderr.lines();
    let refused: Vec<&str> = said.filter(|line| line.contains(why)).collect();
    assert_eq!(refused.len(), 1, "{}", finished.report());
    assert!(
        refused[0].contains("step inlined in unrolled+0x"),
        "{refused:?}"
    );
    let json = json(&file);
    // The first and the last instruction of `whole` are those of its copy.
    for containing in ["single", "whole"] {
        let mut all = list(&json, "functions").iter();
        let whole = all.find(|row| row["name"] == containing);
        let whole = whole.unwrap_or_else(|| panic!("{containing} in {json}"));
        let mut copies = rows(&json, "step").into_iter();
        let copy = copies.find(|row| row["inlined_copy"]["within"] == containing);
        let copy = copy.unwrap_or_else(|| panic!("a copy in {containing} in {json}"));
        for row in [whole, copy] {
            let totals = &row["totals"];
            assert_eq!(number(&totals["count"]), 10, "{row}");
            let sum = |key: &str| totals[key].as_u64().unwrap_or(0);
            assert_eq!(sum("unwound") + sum("open"), 0, "{row}");
        }
        let wall = |row: &Value| number(&row["totals"]["wall"]["sum"]);
        assert!(wall(copy) <= wall(whole), "{copy} {whole}");
    }
    assert!(text(&list(&json, "refused")[0]["reason"]).contains(why));
}

#[test]
fn what_is_missing_is_said() {
    let source = source("inlined_unrolled.c");
    let (with, without) = (
        build_by("gcc", &source, &["-O2", "-g"]),
        build_by("gcc", &source, &["-O2", "-g0"]),
    );
    let run = |program: &Path, options: &[&str]| {
        let run = Run::ipath(["run", "--no-tui"]).args(options).arg("--");
        run.arg(program).arg("3").run()
    };
    let none = run(&with, &["-f", "inlined*!leaf", "--inlined"]).expect(0);
    let expected = "'inlined*!leaf' has no inlined copies";
    assert!(none.stderr.contains(expected), "{}", none.report());
    let bare = run(&without, &["-f", "inlined*!leaf", "--inlined"]).expect(0);
    let expected = "has no debug information (compile with -g)";
    assert!(bare.stderr.contains(expected), "{}", bare.report());
    let hint = run(&with, &["-f", "inlined*!step"]);
    assert!(hint.hints().contains("--inlined"), "{}", hint.report());
    let value = run(&with, &["-m", "arg1", "-f", "inlined*!step", "--inlined"]);
    let error = value.expect_error();
    assert!(
        error.contains("an inlined copy has no value arg1"),
        "{error}"
    );
    let loops = run(&with, &["-f", "unrolled:loops,unrolled", "--inlined"]);
    assert_eq!(loops.code(), 0, "{}", loops.report());
    let unknown = run(&with, &["-f", "inlined*!stepp", "--inlined"]).expect_error();
    assert!(unknown.contains("no function matches"), "{unknown}");
    let bare = run(&without, &["-f", "inlined*!step", "--inlined"]);
    let hints = bare.hints();
    assert!(
        hints.contains("it has no debug information"),
        "{}",
        bare.report()
    );
}
