//! The counts of edges, blocks and loops, compared with single steps.

use ipath_tests::command::Run;
use ipath_tests::compile::program_with;
use ipath_tests::inside::{
    DISPATCHES, check_conservation, compare, insides, json, list, number, ranges,
};
use ipath_tests::place::{Scratch, ipath};
use ipath_tests::profile::Profile;
use ipath_tests::pty::Pty;
use ipath_tests::snapshot::ProcessState;
use ipath_tests::stepped::transfers;
use ipath_tests::target::Target;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

/// Counts the edges of these functions of a program, and returns them by name.
fn counted(
    functions: &[&str],
    more: &[&str],
    program: &Path,
    arguments: &[&str],
) -> BTreeMap<String, Value> {
    let scratch = Scratch::new("edges");
    let file = scratch.file("p.json");
    let mut run = Run::ipath(["run", "--no-tui", "-o"])
        .arg(&file)
        .args(more)
        .limit(LIMIT);
    for function in functions {
        run = run.args(["--edges", function]);
    }
    run.arg("--").arg(program).args(arguments).run().expect(0);
    insides(&file)
}

const ALL: [&str; 7] = [
    "jumps",
    "mixed",
    "chosen",
    "interprets",
    "descends",
    "left",
    "ends_with_calls",
];

/// Compares the counts of a program's functions with single steps.
fn equal(functions: &[&str], more: &[&str], program: &Path, arguments: &[&str]) {
    let found = counted(functions, more, program, arguments);
    assert_eq!(found.len(), functions.len(), "{:?}", found.keys());
    let names: Vec<&String> = found.keys().collect();
    let ranges = found.values().map(ranges).enumerate().collect();
    let mut command = Command::new(program);
    command.args(arguments);
    let file = program
        .file_name()
        .and_then(|name| name.to_str())
        .expect("a name");
    let (stepped, _) = transfers(&command, file, &ranges);
    for (index, name) in names.into_iter().enumerate() {
        let of = stepped.get(&index);
        compare(
            name,
            &found[name],
            of.unwrap_or_else(|| panic!("{name} was stepped through")),
        );
    }
}

#[test]
fn counts_are_those_of_single_steps() {
    let with_frames = ["-O3", "-g", "-fno-omit-frame-pointer"];
    for flags in [&["-O2"][..], &["-O0"], &with_frames, &["-Os", "-no-pie"]] {
        let program = program_with("branches.c", flags);
        // Optimized for size, `jumps` has no room.
        let functions = &ALL[usize::from(flags.contains(&"-Os"))..];
        equal(functions, &[], &program, &["12"]);
    }
}

/// Jumps through tables lead to code at which control arrives from elsewhere, too.
#[test]
fn counts_of_jumps_through_tables_are_those_of_single_steps() {
    for flags in DISPATCHES {
        let program = program_with("dispatches.c", flags);
        // Elsewhere, `interprets` has no room, or jumps to a label in a variable, as if it left.
        let is_short = ["-O1", "-O0", "-Os"].contains(&flags[0]);
        let functions = &["interprets", "continues", "loops"][usize::from(is_short)..];
        equal(functions, &[], &program, &["30"]);
    }
}

/// Interpreters jump to more labels than a hook can compare. Their jumps lead to a hub, from which
/// the labels are reached.
#[test]
fn labels_of_interpreters_are_counted() {
    for flags in ["-O1", "-O2", "-O3"] {
        let program = program_with("labels.c", &[flags]);
        let mut hubs = 0;
        let names = ["threaded", "central"];
        let found = counted(&names, &[], &program, &["2000"]);
        let own = Command::new(&program).arg("2000").output();
        let own = String::from_utf8(own.expect("it runs").stdout).expect("text");
        for (name, line) in names.into_iter().zip(own.lines()) {
            let inside = &found[name];
            check_conservation(inside);
            assert_eq!(number(&inside["uncertain"]), 0, "{name} {flags}");
            let own = line
                .split_whitespace()
                .map(|count| count.parse().expect("a count"));
            let mut own: Vec<u64> = own.collect();
            own.sort_unstable();
            let blocks = list(inside, "blocks");
            let is_hub = |block: usize| blocks[block]["size"] == 0;
            hubs += (0..blocks.len()).filter(|&block| is_hub(block)).count();
            let mut labels: BTreeMap<usize, u64> = BTreeMap::new();
            let edges = list(inside, "edges").iter();
            for edge in edges.filter(|edge| edge["kind"] == "case") {
                let to = number(&edge["to"]) as usize;
                if !is_hub(to) {
                    *labels.entry(to).or_default() += number(&edge["count"]);
                }
            }
            let mut labels: Vec<u64> = labels.into_values().collect();
            labels.sort_unstable();
            assert_eq!(labels, own, "{name} {flags}");
        }
        // Compilers join the jumps first, and divide them again.
        assert!(hubs > 0 || flags == "-O1", "{flags}");
    }
}

/// Another function jumps into the middle, by an instruction that data before it hides.
#[test]
fn arrivals_by_hidden_branches_are_counted() {
    let more = ipath_tests::compile::source("hidden_branch.S");
    let more = more.display().to_string();
    let program = program_with("hidden_branch.c", &["-O2", &more]);
    let found = counted(&["counted"], &[], &program, &[]);
    let blocks = list(&found["counted"], "blocks").iter();
    let counts: Vec<u64> = blocks.map(|block| number(&block["count"])).collect();
    assert_eq!(counts, [100, 66, 1100]);
}

/// The calls are measured beside the edges.
#[test]
fn counts_are_the_same_beside_measured_calls() {
    let program = program_with("branches.c", &["-O2"]);
    let functions = ALL.iter().flat_map(|name| ["-f", name]);
    let more: Vec<&str> = functions.chain(["-m", "count,wall"]).collect();
    equal(&ALL, &more, &program, &["12"]);
}

/// More threads than there are banks of counters.
#[test]
fn counts_of_many_threads_are_exact() {
    let program = program_with("branches.c", &["-O2", "-pthread"]);
    let one = counted(&ALL, &[], &program, &["300"]);
    for threads in [4, 100] {
        let many = counted(&ALL, &[], &program, &["300", &threads.to_string()]);
        for (name, inside) in &many {
            let counts = |inside: &Value, times: u64| -> Vec<u64> {
                let edges = list(inside, "edges").iter();
                edges.map(|edge| times * number(&edge["count"])).collect()
            };
            assert_eq!(counts(inside, 1), counts(&one[name], threads), "{name}");
        }
    }
}

/// Sums of all counts of edges inside an entry.
fn sum(inside: &Value) -> u64 {
    list(inside, "edges")
        .iter()
        .map(|edge| number(&edge["count"]))
        .sum()
}

/// Counters come into a loop that never ends, and leave it. Afterwards the code is as it was.
#[test]
fn counters_come_and_go_in_an_endless_loop() {
    let program = program_with("endless.c", &["-O2", "-pthread"]);
    let mut target = Target::start(&program, ["4"]).await_output("ready");
    let before = ProcessState::of(target.pid());
    let pid = target.pid().to_string();
    let places = ["--edges", "turns"];
    let keep = ["--keep", "--no-tui", "--duration", "100ms"];
    Run::ipath(["attach", &pid])
        .args(places)
        .args(keep)
        .run()
        .expect(0);
    for _ in 0..5 {
        Run::ipath(["remove", &pid]).args(places).run().expect(0);
        Run::ipath(["add", &pid]).args(places).run().expect(0);
    }
    let again = Run::ipath(["add", &pid]).args(places).run().expect(0);
    assert!(again.stdout.contains("already"), "{}", again.report());
    let scratch = Scratch::new("edges-endless");
    let file = scratch.file("p.json");
    Run::ipath(["detach", &pid, "-o"])
        .arg(&file)
        .run()
        .expect(0);
    before.assert_unchanged(target.pid());
    let json = json(&file);
    let inside = &list(&json, "inside")[0];
    assert!(sum(inside) > 1000, "{inside}");
    // Four threads were in the loop each time that counting began or ended.
    assert!(number(&inside["uncertain"]) <= 12 * 4, "{inside}");
    assert!(number(&inside["uncertain"]) > 0, "{inside}");
    assert!(target.poll().is_none());
    target.finish("ok");
}

/// Counters come into a function whose calls are measured, and leave it. The calls stay measured,
/// and the counts go on. Afterwards the code is as it was.
#[test]
fn counters_come_and_go_beside_measured_calls() {
    let program = program_with("busy.c", &["-O2", "-pthread"]);
    let mut target = Target::start(&program, ["2", "600"]).await_output("ready");
    let before = ProcessState::of(target.pid());
    let pid = target.pid().to_string();
    let change = |command: &str, option: &str, says: &str| {
        let run = Run::ipath([command, &pid, option, "down"]);
        let finished = run.run().expect(0);
        assert_eq!(finished.stdout.trim(), says, "{}", finished.report());
    };
    let keep = ["--keep", "--no-tui", "--duration", "100ms"];
    let attach = Run::ipath(["attach", &pid, "-f", "down"]).args(keep);
    attach.run().expect(0);
    for _ in 0..3 {
        change("add", "--edges", "added down:edges");
        change("remove", "--edges", "removed down:edges");
    }
    // In the other order.
    change("remove", "-f", "removed down");
    let now = ProcessState::of(target.pid()).text;
    assert_eq!(of_program(&now), of_program(&before.text));
    change("add", "--edges", "added down:edges");
    change("add", "-f", "added down");
    change("add", "--edges", "already in: down:edges");
    std::thread::sleep(Duration::from_millis(100));
    let scratch = Scratch::new("edges-beside");
    let file = scratch.file("p.json");
    let detach = Run::ipath(["detach", &pid, "-o"]).arg(&file);
    detach.run().expect(0);
    before.assert_unchanged(target.pid());
    let json = json(&file);
    let functions = list(&json, "functions");
    assert_eq!(functions.len(), 1, "one row for both");
    // Calls in the milliseconds between are missing, and the profile says so.
    assert!(number(&json["losses"]["unseen"]["replaced"]) >= 4, "{json}");
    let calls = number(&functions[0]["totals"]["count"]);
    let inside = &list(&json, "inside")[0];
    assert!(calls > 1000 && sum(inside) > 1000, "{calls} {inside}");
    // Two threads were in the function each time that counting began or ended.
    assert!(number(&inside["uncertain"]) <= 10 * 2, "{inside}");
    assert!(target.poll().is_none());
    target.finish("ok");
}

/// In the live view, `e` counts the edges of a measured function, and takes that back.
#[test]
fn keys_of_the_view_count_edges() {
    let program = program_with("busy.c", &["-O2", "-g", "-pthread"]);
    let target = Target::start(&program, ["2", "600"]).await_output("ready");
    let before = ProcessState::of(target.pid());
    let scratch = Scratch::new("edges-view");
    let file = scratch.file("p.json");
    let pid = target.pid().to_string();
    let attach = ["attach", &pid, "-f", "down", "--interval", "100ms", "-o"];
    let mut command = Command::new(ipath());
    command.args(attach).arg(&file).env("IPATH_CONFIG", "");
    let mut view = Pty::spawn(command, true);
    view.shows(" help");
    view.shows("down");
    view.send(b"I");
    view.shows("no edges are counted, e counts them: down");
    view.send(b"e");
    view.shows("edges counted from now on: down");
    let mut counts: Vec<u64> = Vec::new();
    view.until("shown counts that grow", |view| {
        counts.extend(count_of_block(&view.screen()).filter(|&count| count > 0));
        counts.dedup();
        counts.len() >= 3
    });
    assert!(counts.is_sorted(), "{counts:?}");
    view.shows("busy.c:");
    view.shows("→ block");
    view.send(b"e");
    view.shows("edges no longer counted: down");
    let last = view.screen();
    view.send(b"\x1b");
    view.shows("edges counted");
    view.send(b"d");
    view.shows("remove down? (y/n)");
    view.send(b"y");
    view.shows("removed down");
    let now = ProcessState::of(target.pid()).text;
    assert_eq!(of_program(&now), of_program(&before.text));
    view.send(b"q");
    assert_eq!(view.wait(), 0, "{}", view.report());
    before.assert_unchanged(target.pid());
    let json = json(&file);
    let block = &list(&list(&json, "inside")[0], "blocks")[0];
    let (count, shown) = (number(&block["count"]), count_of_block(&last));
    assert!(Some(count) >= shown && count > 0, "{count} {shown:?}");
    target.finish("ok");
}

/// The count of the first block in a screen of the view.
fn count_of_block(screen: &str) -> Option<u64> {
    let row = screen.lines().find(|line| line.contains(" block0 "))?;
    row.split_whitespace().next()?.parse().ok()
}

/// The text of the program itself.
fn of_program(text: &BTreeMap<String, u64>) -> Vec<u64> {
    let own = text.iter().filter(|(line, _)| line.contains("busy"));
    own.map(|(_, &hash)| hash).collect()
}

/// Exceptions leave functions inside calls, and arrive at landing pads.
#[test]
fn exceptions_are_seen_where_they_leave() {
    let program = program_with("throws_by_block.cc", &["-O2"]);
    equal(
        &["outer(int)", "middle(int)", "thrower(int)"],
        &[],
        &program,
        &["20"],
    );
    let found = counted(&["middle(int)"], &[], &program, &["20"]);
    let inside = &found["middle(int)"];
    let edges = list(inside, "edges").iter();
    let left = edges.filter(|edge| edge["in_call"] == true && edge["to"].is_null());
    let left: u64 = left.map(|edge| number(&edge["count"])).sum();
    // Each third call throws, and is left inside the call of `thrower`, then inside that of
    // _Unwind_Resume.
    assert_eq!(left, 2 * 7, "{inside}");
}

/// An activation that `longjmp` brings back to a `setjmp` has not begun again, and the loop around
/// it has no other entry or iteration.
#[test]
fn returns_of_setjmp_are_no_activations() {
    for flags in ["-O0", "-O2"] {
        let program = program_with("returns_again.c", &[flags, "-g"]);
        let scratch = Scratch::new("edges-again");
        let file = scratch.file("p.json");
        let run = Run::ipath(["run", "--no-tui", "--edges", "tries,begins", "-o"]).arg(&file);
        let run = run.arg("--").arg(&program).args(["6", "9"]).run().expect(0);
        assert!(run.stdout.contains("ok 20"), "{}", run.report());
        let found = insides(&file);
        let again = |name: &str| -> u64 {
            let edges = list(&found[name], "edges").iter();
            let again = edges.filter(|edge| edge["in_call"] == true && edge["from"].is_null());
            again.map(|edge| number(&edge["count"])).sum()
        };
        assert_eq!([again("tries"), again("begins")], [6 * 3, 2], "{found:#?}");
        let own = &list(&found["tries"], "loops")[0];
        assert_eq!(
            [number(&own["entries"]), number(&own["iterations"])],
            [6, 6 * 9]
        );
        let export = Run::ipath(["export", "--to", "lcov", "-o", "-"]).arg(&file);
        let lcov = export.run().expect(0).stdout;
        for row in ["FNDA:6,tries", "FNDA:6,begins"] {
            assert!(lcov.lines().any(|line| line == row), "{row}: {lcov}");
        }
        let report = Run::ipath(["report"]).arg(&file).run().expect(0).stdout;
        assert_eq!(report.matches("6 activations").count(), 2, "{report}");
    }
}

/// A child made by fork counts for itself if it is followed, and nothing if it is not.
#[test]
fn forked_children_do_not_disturb_counts() {
    let program = program_with("forks_in_loop.c", &["-O2"]);
    for (more, processes) in [(&[][..], 1), (&["--follow"], 4)] {
        let found = counted(&["rounds"], more, &program, &["3", "1000"]);
        let inside = &found["rounds"];
        let loops = list(inside, "loops");
        let iterations = loops.iter().map(|of| number(&of["iterations"])).max();
        assert_eq!(iterations, Some(processes * 1000), "{inside}");
    }
}

/// Signals interrupt hooks at any instruction, and their handlers count in the same function.
#[test]
fn signal_handlers_count_in_the_same_function() {
    let program = program_with("counts_in_handler.c", &["-O2"]);
    let scratch = Scratch::new("edges-signals");
    let file = scratch.file("p.json");
    let run = Run::ipath(["run", "--no-tui", "--edges", "counted", "-o"]).arg(&file);
    let finished = run.arg("--").arg(&program).arg("20000").run().expect(0);
    let own = finished.stdout.split_whitespace().next_back();
    let own: u64 = own
        .and_then(|word| word.parse().ok())
        .expect("its own count");
    let inside = &insides(&file)["counted"];
    let loops = list(inside, "loops");
    let iterations = loops.iter().map(|of| number(&of["iterations"])).max();
    assert_eq!(iterations, Some(own), "{inside}");
}

/// A function whose edges cannot be counted is named with the reason, and the others are counted.
#[test]
fn what_cannot_be_counted_is_named() {
    let program = program_with("branches.c", &["-Os", "-no-pie"]);
    let scratch = Scratch::new("edges-refused");
    let file = scratch.file("p.json");
    let run = Run::ipath(["run", "--no-tui", "--edges", "jumps,mixed", "-o"]).arg(&file);
    let finished = run.arg("--").arg(&program).arg("40").run().expect(0);
    let said = finished
        .stderr
        .contains("jumps: not instrumented: call-in-window");
    assert!(said, "{}", finished.report());
    assert_eq!(insides(&file).len(), 1);
    let error = Run::ipath(["run", "--no-tui", "--edges", "missing", "--"])
        .arg(&program)
        .run();
    error.expect(1).expect_error();
}

/// Counts alone are in reports and in the answer at the end. A function whose calls are measured
/// too has one row.
#[test]
fn counts_alone_are_reported() {
    let program = program_with("branches.c", &["-O2", "-g"]);
    let scratch = Scratch::new("edges-alone");
    let file = scratch.file("p.json");
    let run = |more: &[&str]| {
        let places = ["run", "--edges", "mixed", "--no-tui", "-o"];
        let run = Run::ipath(places).arg(&file).args(more);
        let run = run.arg("--").arg(&program).arg("20").run().expect(0);
        let report = Run::ipath(["report"]).arg(&file).run().expect(0);
        (run, report.stdout)
    };
    let (_, alone) = run(&[]);
    assert!(alone.contains("Inside mixed:"), "{alone}");
    assert!(!alone.contains("Functions"), "{alone}");
    let (_, both) = run(&["-f", "mixed"]);
    assert!(both.contains("Inside mixed:"), "{both}");
    let rows = both.lines().filter(|line| line.contains("mixed, "));
    assert_eq!(rows.count(), 1, "{both}");
    let profile = Profile::read(&file);
    let named = profile.functions.iter().filter(|f| f.name == "mixed");
    assert_eq!(named.count(), 1);
}
