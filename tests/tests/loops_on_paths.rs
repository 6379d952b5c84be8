//! The loops around the calls on a path, compared with the source.

use ipath_tests::command::Run;
use ipath_tests::compile::{program_with, source};
use ipath_tests::inside::{json, list, number};
use ipath_tests::place::Scratch;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The number of the line with this mark.
fn line(mark: &str) -> u64 {
    let text = std::fs::read_to_string(source("loops_on_paths.c")).expect("the source");
    let mark = format!("/* {mark} */");
    let at = text.lines().position(|line| line.contains(&mark));
    at.unwrap_or_else(|| panic!("a line with {mark}")) as u64 + 1
}

/// Measures `leaf` in the program, compiled with these flags. Returns the profile's file.
fn measured(scratch: &Scratch, flags: &[&str]) -> PathBuf {
    let file = scratch.file("p.json");
    let run = Run::ipath(["run", "--no-tui", "-f", "leaf", "-o"]).arg(&file);
    let program = program_with("loops_on_paths.c", flags);
    run.arg("--").arg(program).run().expect(0);
    file
}

/// The frames of the calls of `leaf`, by the line of the call.
fn calls(flags: &[&str]) -> BTreeMap<u64, Value> {
    let scratch = Scratch::new("loops-on-paths");
    let file = measured(&scratch, flags);
    let json = json(&file);
    let frames = list(&json, "frames");
    let paths = list(&json, "paths").iter().map(|path| {
        let caller = &frames[number(&list(path, "stack")[0]) as usize];
        let inlined = caller["inlined"].get(0);
        let at = number(&inlined.unwrap_or(caller)["line"]);
        (at, caller.clone())
    });
    paths.collect()
}

/// A loop of a frame: the first and the last line, and the number of inlined functions around it.
fn loops(frame: &Value) -> Vec<(u64, u64, u64)> {
    let all = frame.get("loops").and_then(Value::as_array);
    let of = |of: &Value| {
        let file = of["file"].as_str().expect("a file");
        assert!(file.ends_with("loops_on_paths.c"), "{of}");
        let [first, last, inlined] = ["line", "end_line", "inlined"].map(|key| number(&of[key]));
        (first, last, inlined)
    };
    all.map_or_else(Vec::new, |all| all.iter().map(of).collect())
}

#[test]
fn calls_are_shown_in_their_loops() {
    for flags in [&["-O0", "-g"][..], &["-O1", "-g"], &["-Os", "-g"]] {
        let calls = calls(flags);
        let found = |mark: &str| {
            let frame = calls.get(&line(mark));
            loops(frame.unwrap_or_else(|| panic!("{flags:?}: {mark} in {calls:#?}")))
        };
        let is = |of: (u64, u64, u64), name: &str, inlined: u64| {
            let [first, last] = ["first", "last"].map(|end| line(&format!("{end} of {name}")));
            // The start of a block may be after the first line.
            let is_it = (first..=last).contains(&of.0) && of.0 <= of.1 && of.1 <= last;
            assert!(
                is_it && of.2 == inlined,
                "{flags:?}: {name}: {of:?} {first}-{last}"
            );
        };
        let [inner, outer] = found("call in inner")[..] else {
            panic!("{flags:?}: two loops around the inner call: {calls:#?}");
        };
        is(inner, "inner", 0);
        is(outer, "outer", 0);
        let [each, outer] = found("call in each")[..] else {
            panic!("{flags:?}: two loops around the inlined call: {calls:#?}");
        };
        is(each, "each", 1);
        is(outer, "outer", 0);
        let [last] = found("call in last")[..] else {
            panic!("{flags:?}: a loop around the last call: {calls:#?}");
        };
        is(last, "last", 0);
        assert_eq!(found("call in none"), [], "{flags:?}");
    }
}

#[test]
fn reports_show_loops_between_callers() {
    let scratch = Scratch::new("loops-in-reports");
    let file = measured(&scratch, &["-O1", "-g"]);
    for arguments in [&["--tree"][..], &["--verbose"]] {
        let report = Run::ipath(["report"]).arg(&file).args(arguments);
        let report = report.run().expect(0).stdout;
        let [first, last] = ["first", "last"].map(|end| line(&format!("{end} of inner")));
        let inner = (first..=last).any(|end| {
            let text = format!("loop at loops_on_paths.c:{first}-{end}");
            report.contains(&text)
        });
        assert!(inner, "{report}");
    }
}

/// Without source positions, a loop is given by the offset of its header in the function.
#[test]
fn loops_without_lines_have_offsets() {
    let scratch = Scratch::new("loops-without-lines");
    let file = measured(&scratch, &["-O1"]);
    let report = Run::ipath(["report", "--tree"]).arg(&file);
    let report = report.run().expect(0).stdout;
    assert!(report.contains("loop at +0x"), "{report}");
}

/// Exports show the loops if they are asked for, and have the same calls without them.
#[test]
fn exports_show_loops_between_callers() {
    let scratch = Scratch::new("loops-in-exports");
    let file = measured(&scratch, &["-O1", "-g"]);
    let folded = |options: &[&str]| {
        let export = Run::ipath(["export"]).arg(&file).args(options);
        let export = export.args(["--to", "folded", "--metric", "count", "-o", "-"]);
        export.run().expect(0).stdout
    };
    let sums = |text: &str| {
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        for line in text.lines() {
            let (stack, count) = line.rsplit_once(' ').expect("a count");
            let names = stack
                .split(';')
                .filter(|name| !name.starts_with("loop at "));
            let names: Vec<&str> = names.collect();
            *sums.entry(names.join(";")).or_default() += count.parse::<u64>().expect("a number");
        }
        sums
    };
    let (with, without) = (folded(&["--loops"]), folded(&[]));
    assert!(!without.contains("loop at"), "{without}");
    let [first, last] = ["first", "last"].map(|end| line(&format!("{end} of inner")));
    let inner = (first..=last).any(|end| {
        let names = format!("loop at loops_on_paths.c:{first}-{end};leaf ");
        with.contains(&names)
    });
    assert!(inner, "{with}");
    assert_eq!(sums(&with), sums(&without));
    let refused = Run::ipath(["export"]).arg(&file);
    let refused = refused.args(["--loops", "--to", "callgrind", "-o", "-"]);
    let refused = refused.run().expect(1);
    let cause =
        "ipath: export --loops: callgrind cannot show loops between the functions of a path";
    assert!(refused.stderr.contains(cause), "{}", refused.report());
}
