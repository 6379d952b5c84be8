//! The counts of paths inside functions, compared with single steps.

use ipath_tests::command::Run;
use ipath_tests::compile::{program, program_with};
use ipath_tests::inside::{
    DISPATCHES, Walked, counts_of_paths, entries, insides, json, list, number, printed_numbers,
    ranges, routes,
};
use ipath_tests::inside_trips::{Trips, trips};
use ipath_tests::place::Scratch;
use ipath_tests::snapshot::ProcessState;
use ipath_tests::stepped::visit;
use ipath_tests::target::Target;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

/// Counts the paths of these functions of a program, and returns them by name.
fn counted(
    functions: &[&str],
    more: &[&str],
    program: &Path,
    arguments: &[&str],
) -> BTreeMap<String, Value> {
    counted_by("--paths", functions, more, program, arguments)
}

/// As [`counted`], by another option.
fn counted_by(
    option: &str,
    functions: &[&str],
    more: &[&str],
    program: &Path,
    arguments: &[&str],
) -> BTreeMap<String, Value> {
    let scratch = Scratch::new("paths");
    let file = scratch.file("p.json");
    let mut run = Run::ipath(["run", "--no-tui", "-o"])
        .arg(&file)
        .args(more)
        .limit(LIMIT);
    for function in functions {
        run = run.args([option, function]);
    }
    let finished = run.arg("--").arg(program).args(arguments).run().expect(0);
    let alone = Command::new(program)
        .args(arguments)
        .output()
        .expect("it runs");
    assert_eq!(finished.stdout.as_bytes(), alone.stdout);
    entries(&file)
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

/// Compares the paths of a program's functions with single steps. Returns the entries.
fn equal(
    functions: &[&str],
    more: &[&str],
    program: &Path,
    arguments: &[&str],
) -> BTreeMap<String, Value> {
    let found = counted(functions, more, program, arguments);
    assert_eq!(found.len(), functions.len(), "{:?}", found.keys());
    let blocks = found.values().map(ranges).enumerate().collect();
    let mut walked: Vec<Walked> = found.values().map(Walked::of).collect();
    let mut command = Command::new(program);
    command.args(arguments);
    let file = program.file_name().and_then(|name| name.to_str());
    visit(
        &command,
        file.expect("a name"),
        &blocks,
        |own, calls, transfer| {
            walked[own].see(calls, transfer);
        },
    );
    for ((name, inside), walked) in found.iter().zip(walked) {
        assert_eq!(&routes(inside), walked.routes(inside), "{name}: {inside:#}");
        assert_eq!(inside["path_totals"]["unknown"], 0, "{name}");
        assert_eq!(inside["path_totals"]["uncounted"], 0, "{name}");
    }
    let taken = found.values().map(|inside| routes(inside).len());
    assert!(taken.sum::<usize>() >= functions.len(), "{found:#?}");
    found
}

#[test]
fn path_counts_are_those_of_single_steps() {
    let with_frames = ["-O3", "-g", "-fno-omit-frame-pointer"];
    for flags in [&["-O2"][..], &["-O0"], &with_frames, &["-Os", "-no-pie"]] {
        let program = program_with("branches.c", flags);
        // Optimized for size, `jumps` has no room.
        let functions = &ALL[usize::from(flags.contains(&"-Os"))..];
        equal(functions, &[], &program, &["12"]);
    }
}

/// Paths begin, change and end on the way from a jump through a table to code at which control
/// arrives from elsewhere, too.
#[test]
fn paths_of_jumps_through_tables_are_those_of_single_steps() {
    for flags in DISPATCHES {
        let program = program_with("dispatches.c", flags);
        equal(&["continues", "loops"], &[], &program, &["30"]);
        if flags.contains(&"-fcf-protection=full") {
            // Control may arrive at each marked label from outside, and by a jump.
            continue;
        }
        // Its loops are not reducible, so the stepper does not know where paths end.
        let of = |option| counted_by(option, &["interprets"], &[], &program, &["30"]);
        let [paths, edges] = ["--paths", "--edges"].map(of);
        assert_eq!(paths["interprets"]["blocks"], edges["interprets"]["blocks"]);
    }
}

/// The frames of two threads differ by as much as the keys of two functions, in either direction.
#[test]
fn threads_on_near_stacks_do_not_mix_paths() {
    let program = program_with("near_stacks.c", &["-O2", "-pthread"]);
    for distance in (1024..1040).map(|units| 16 * units) {
        for distance in [distance, -distance] {
            let arguments = [&distance.to_string(), "20000"];
            let found = counted(&["one", "other"], &[], &program, &arguments);
            for (name, inside) in found {
                let paths = list(&inside, "paths").iter();
                let counts: Vec<u64> = paths.map(|path| number(&path["count"])).collect();
                assert_eq!(counts, [20_000], "{name}, {distance} bytes: {inside:#}");
                assert_eq!(inside["path_totals"]["unknown"], 0, "{name}");
            }
        }
    }
}

/// Entries of a jump table that are never used do not end the table.
#[test]
fn tables_with_holes_are_read_whole() {
    let more = ipath_tests::compile::source("table_holes.S");
    let more = more.display().to_string();
    let program = program_with("table_holes.c", &["-O2", &more]);
    let found = equal(&["holes"], &[], &program, &["40"]);
    let blocks = list(&found["holes"], "blocks");
    let taken = blocks.iter().filter(|block| number(&block["count"]) > 0);
    assert!(taken.count() >= 12, "{blocks:#?}");
    let edges = counted_by("--edges", &["holes"], &[], &program, &["40"]);
    assert_eq!(edges["holes"]["blocks"], found["holes"]["blocks"]);
}

/// The calls or the edges are measured beside the paths.
#[test]
fn path_counts_are_the_same_beside_others() {
    let program = program_with("branches.c", &["-O2"]);
    for option in ["-f", "--edges"] {
        let functions = ALL.iter().flat_map(|name| [option, name]);
        let more: Vec<&str> = functions.chain(["-m", "count,wall"]).collect();
        equal(&ALL, &more[..], &program, &["12"]);
    }
}

/// More threads than there are banks of counters.
#[test]
fn path_counts_of_many_threads_are_exact() {
    let program = program_with("branches.c", &["-O2", "-pthread"]);
    let one = counted(&ALL, &[], &program, &["300"]);
    for threads in [4, 100] {
        let many = counted(&ALL, &[], &program, &["300", &threads.to_string()]);
        for (name, inside) in &many {
            let expected = routes(&one[name]).into_iter();
            let expected: BTreeMap<_, _> = expected.map(|(r, n)| (r, threads * n)).collect();
            assert_eq!(routes(inside), expected, "{name}");
            let begun = |inside: &Value| number(&inside["path_totals"]["begun"]);
            assert_eq!(begun(inside), threads * begun(&one[name]), "{name}");
        }
    }
}

/// Exceptions leave paths, and other paths begin at landing pads.
#[test]
fn paths_that_exceptions_leave_are_not_counted() {
    let program = program_with("throws_by_block.cc", &["-O2"]);
    let names = ["outer(int)", "middle(int)", "thrower(int)"];
    let found = equal(&names, &[], &program, &["20"]);
    let ended = |name: &str| -> u64 {
        let ended = routes(&found[name])
            .into_iter()
            .filter(|((_, _, ends), _)| *ends);
        ended.map(|(_, count)| count).sum()
    };
    let begun = |name: &str| number(&found[name]["path_totals"]["begun"]);
    // Each third call throws. `middle` begins again at a landing pad, which it leaves.
    assert_eq!([begun("thrower(int)"), ended("thrower(int)")], [20, 13]);
    assert_eq!([begun("middle(int)"), ended("middle(int)")], [27, 13]);
    assert_eq!([begun("outer(int)"), ended("outer(int)")], [27, 20]);
}

/// The report and the command that exports the counts say how many paths are missing, and why.
#[test]
fn paths_that_did_not_end_are_said_to_be_missing() {
    let program = program_with("throws_by_block.cc", &["-O2", "-g"]);
    let scratch = Scratch::new("paths-missing");
    let file = scratch.file("p.json");
    let run = Run::ipath(["run", "--no-tui", "--paths", "thrower(int)", "-o"]).arg(&file);
    run.arg("--").arg(&program).arg("20").run().expect(0);
    let doubt = "may be off by 7: 7 paths that did not end (exception, longjmp, or still running)";
    let report = Run::ipath(["report"]).arg(&file).run().expect(0);
    assert!(report.stdout.contains(doubt), "{}", report.report());
    let export = Run::ipath(["export", "--to", "lcov", "-o", "-"]).arg(&file);
    let export = export.run().expect(0);
    let said = format!("thrower(int): counts {doubt}");
    assert!(export.stderr.contains(&said), "{}", export.report());
}

/// A child made by fork counts for itself if it is followed, and nothing if it is not.
#[test]
fn forked_children_do_not_disturb_paths() {
    let program = program_with("forks_in_loop.c", &["-O2"]);
    for (more, processes) in [(&[][..], 1), (&["--follow"], 4)] {
        let found = counted(&["rounds"], more, &program, &["3", "1000"]);
        let counts: Vec<u64> = routes(&found["rounds"]).into_values().collect();
        let iterations: u64 = counts.iter().sum();
        assert_eq!(iterations, processes * 1000, "{found:#?}");
    }
}

/// Signals interrupt hooks at any instruction, and their handlers are on paths of the same
/// function.
#[test]
fn signal_handlers_are_on_paths_of_their_own() {
    let program = program_with("counts_in_handler.c", &["-O2"]);
    let scratch = Scratch::new("paths-signals");
    let file = scratch.file("p.json");
    let run = Run::ipath(["run", "--no-tui", "--paths", "counted", "-o"]).arg(&file);
    let finished = run.arg("--").arg(&program).arg("20000").run().expect(0);
    let own = finished.stdout.split_whitespace().next_back();
    let own: u64 = own
        .and_then(|word| word.parse().ok())
        .expect("its own count");
    let json = json(&file);
    let inside = &list(&json, "inside")[0];
    let turns: u64 = routes(inside).into_values().sum();
    assert_eq!(turns, own, "{inside:#}");
    assert_eq!(inside["uncertain"], 0, "{inside:#}");
}

/// Activations on several stacks, which also change threads, do not mix their paths.
#[test]
fn coroutines_do_not_mix_paths() {
    let program = program_with("path_counts.c", &["-O2", "-pthread"]);
    let [alone, woven, moved] = ["alone", "woven", "moved"].map(|how| {
        let found = counted(&["weave"], &[], &program, &["weave", "400", how]);
        let inside = &found["weave"];
        assert_eq!(inside["uncertain"], 0, "{how}: {inside:#}");
        routes(inside)
    });
    assert_eq!(woven, alone);
    assert_eq!(moved, alone);
    assert!(alone.len() > 8, "{alone:?}");
}

/// Many activations are on a path at the same time, so that some do not have the slot that is tried
/// first.
#[test]
fn paths_of_many_activations_do_not_mix() {
    for flags in ["-O1", "-O2", "-Os"] {
        let program = program_with("path_counts.c", &[flags, "-pthread"]);
        equal(&["deep"], &[], &program, &["deep", "700", "9"]);
    }
}

/// A function with more paths than there are counters has a hash table.
#[test]
fn functions_of_many_paths_have_a_table() {
    let program = program_with("path_counts.c", &["-O1", "-pthread"]);
    let run = |distinct: &str| {
        let found = counted(&["many"], &[], &program, &["many", "100000", distinct]);
        let inside = found["many"].clone();
        assert_eq!(inside["path_totals"]["possible"], 8192);
        assert_eq!(inside["path_totals"]["begun"], 100_000);
        let own = printed_numbers(&program, &["many", "100000", distinct]);
        let counts = counts_of_paths(&inside);
        (inside, counts, own)
    };
    let (_, counts, own) = run("500");
    assert_eq!(counts, own);
    let (inside, counts, own) = run("8191");
    let uncounted = number(&inside["path_totals"]["uncounted"]);
    assert!(uncounted > 0 && counts.len() < own.len(), "{inside:#}");
    assert_eq!(counts.iter().sum::<u64>() + uncounted, 100_000);
    assert!(counts.len() >= 900, "{}", counts.len());
}

/// The numbers of paths and the steps to them do not fit the operands of instructions.
#[test]
fn functions_of_billions_of_paths_have_a_table() {
    for flags in ["-O1", "-O2"] {
        let program = program_with("path_counts.c", &[flags, "-pthread"]);
        let arguments = ["huge", "100000", "300"];
        let found = counted(&["huge"], &[], &program, &arguments);
        assert_eq!(found["huge"]["path_totals"]["possible"], 1_u64 << 35);
        assert_eq!(found["huge"]["path_totals"]["uncounted"], 0);
        let own = printed_numbers(&program, &arguments);
        assert_eq!(counts_of_paths(&found["huge"]), own, "{flags}");
    }
}

/// In a function with too many paths for counters of their own, paths end where a loop is entered.
#[test]
fn paths_end_at_loops_if_there_are_many() {
    for flags in [["-O1", "-pthread"], ["-O2", "-pthread"]] {
        let program = program_with("path_counts.c", &flags);
        let found = equal(&["chained"], &[], &program, &["chained", "40", "5"]);
        let totals = &found["chained"]["path_totals"];
        assert_eq!(totals["split"], true, "{totals}");
        assert!(number(&totals["possible"]) < 4096, "{totals}");
        let paths = list(&found["chained"], "paths");
        assert!(
            paths.iter().any(|path| path["end"] == "enter"),
            "{paths:#?}"
        );
    }
}

/// Paths of functions that return twice are refused with the reason.
#[test]
fn functions_that_call_setjmp_are_refused() {
    let program = program_with("branches.c", &["-O2"]);
    let scratch = Scratch::new("paths-refused");
    let file = scratch.file("p.json");
    let run = Run::ipath(["run", "--no-tui", "--paths", "attempts,mixed", "-o"]).arg(&file);
    let finished = run.arg("--").arg(&program).arg("40").run().expect(0);
    let said = finished.stderr.contains("attempts: not instrumented: ")
        && finished.stderr.contains("may return several times");
    assert!(said, "{}", finished.report());
}

/// Hooks come into a loop that never ends, and leave it. Afterwards the code is as it was. Paths
/// that had begun before are not known.
#[test]
fn hooks_of_paths_come_and_go_in_an_endless_loop() {
    let program = program_with("endless.c", &["-O2", "-pthread"]);
    let mut target = Target::start(&program, ["4"]).await_output("ready");
    let before = ProcessState::of(target.pid());
    let pid = target.pid().to_string();
    let places = ["--paths", "turns"];
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
    let scratch = Scratch::new("paths-endless");
    let file = scratch.file("p.json");
    Run::ipath(["detach", &pid, "-o"])
        .arg(&file)
        .run()
        .expect(0);
    before.assert_unchanged(target.pid());
    let json = json(&file);
    let inside = &list(&json, "inside")[0];
    let taken = routes(inside);
    assert!(taken.values().sum::<u64>() > 1000, "{inside:#}");
    // The two ways through the loop take turns.
    let ways: Vec<u64> = taken.values().copied().filter(|&n| n > 100).collect();
    assert_eq!(ways.len(), 2, "{inside:#}");
    assert!(ways[0].abs_diff(ways[1]) <= 6 * 4, "{inside:#}");
    // Four threads were on a path each time that the hooks came in. On a busy machine, not all of
    // them ran before the hooks went out.
    let unknown = number(&inside["path_totals"]["unknown"]);
    assert!((4..=6 * 4).contains(&unknown), "{inside:#}");
    assert!(target.poll().is_none());
    target.finish("ok");
}

/// Go's runtime moves stacks, and frame addresses with them.
#[test]
fn functions_of_go_are_refused() {
    let scratch = Scratch::new("paths-go");
    let file = scratch.file("p.json");
    let run = Run::ipath(["run", "--no-tui", "--paths", "main.*", "-o"]).arg(&file);
    let finished = run.arg("--").arg(program("shop.go")).run().expect(1);
    assert!(
        finished.stderr.contains("Go moves its stack"),
        "{}",
        finished.report()
    );
}

/// Two ways to count the same: by counters of edges, and by paths.
#[test]
fn blocks_run_as_often_as_their_paths() {
    let scratch = Scratch::new("paths-blocks");
    let file = scratch.file("p.json");
    let input = scratch.file("input");
    std::fs::write(&input, include_bytes!("path_counts.rs")).expect("a file");
    let run = Run::ipath(["run", "--no-tui", "--yes", "-o"]).arg(&file);
    let places = [
        "--edges", "gzip!*", "--paths", "gzip!*", "--", "gzip", "-9", "-c",
    ];
    let run = run.args(places).arg(&input).limit(LIMIT).run().expect(0);
    let alone = Command::new("gzip").args(["-9", "-c"]).arg(&input).output();
    let alone = alone.expect("it runs").stdout;
    assert_eq!(run.stdout, String::from_utf8_lossy(&alone));
    let json = json(&file);
    let mut compared = 0;
    for inside in list(&json, "inside") {
        let totals = &inside["path_totals"];
        let taken = routes(inside);
        let ended = taken.iter().filter(|((_, _, ends), _)| *ends);
        let ended: u64 = ended.map(|(_, count)| count).sum();
        if totals.is_null() || number(&totals["begun"]) != ended {
            // It is left by `exit`.
            continue;
        }
        for (index, block) in list(inside, "blocks").iter().enumerate() {
            let through = taken
                .iter()
                .filter(|((_, blocks, _), _)| blocks.contains(&index));
            let through: u64 = through.map(|(_, count)| count).sum();
            assert_eq!(
                number(&block["count"]),
                through,
                "block {index} of {inside:#}"
            );
            compared += usize::from(through > 0);
        }
    }
    assert!(compared > 200, "{compared}");
}

/// The counts of all blocks of gzip's functions, by their addresses. `option` says what is counted.
/// Functions that the end of the program leaves are left out.
fn blocks_of_gzip(option: &str) -> BTreeMap<u64, u64> {
    let scratch = Scratch::new("paths-or-edges");
    let file = scratch.file("p.json");
    let input = scratch.file("input");
    std::fs::write(&input, include_bytes!("path_counts.rs")).expect("a file");
    let run = Run::ipath(["run", "--no-tui", "--yes", "-o"]).arg(&file);
    let places = [option, "gzip!*", "--", "gzip", "-9", "-c"];
    run.args(places).arg(&input).limit(LIMIT).run().expect(0);
    let json = json(&file);
    let certain = list(&json, "inside").iter();
    let certain = certain.filter(|inside| inside["uncertain"] == 0);
    let blocks = certain.flat_map(|inside| list(inside, "blocks"));
    let counts = blocks.map(|block| (number(&block["address"]), number(&block["count"])));
    counts.collect()
}

/// Paths in copies of loops, and edges in copies of the same loops.
#[test]
fn paths_in_copies_have_the_counts_of_edges() {
    let by_edges = blocks_of_gzip("--edges");
    let by_paths = blocks_of_gzip("--paths");
    let both = by_paths.iter().filter(|(at, _)| by_edges.contains_key(at));
    let (mut compared, mut taken) = (0, 0);
    for (at, count) in both {
        assert_eq!(by_edges[at], *count, "block at {at:#x}");
        compared += 1;
        taken += usize::from(*count > 0);
    }
    assert!(compared > 1000 && taken > 200, "{taken} of {compared}");
}

/// The trips through loops are those of single steps, at each level of optimization.
#[test]
fn trips_are_those_of_single_steps() {
    for flags in [&["-O2"][..], &["-O0"], &["-O3", "-g"]] {
        let program = program_with("branches.c", flags);
        let names = ["mixed", "left", "ends_with_calls"];
        let found = counted_by("--loops", &names, &[], &program, &["40"]);
        let blocks = found.values().map(ranges).enumerate().collect();
        let mut stepped: Vec<Trips> = found.values().map(Trips::of).collect();
        let mut command = Command::new(&program);
        command.arg("40");
        let file = program.file_name().and_then(|name| name.to_str());
        visit(
            &command,
            file.expect("a name"),
            &blocks,
            |own, calls, transfer| {
                stepped[own].see(calls, transfer);
            },
        );
        let mut compared = 0;
        for ((name, inside), stepped) in found.iter().zip(stepped) {
            let own: Vec<_> = trips(inside)
                .into_iter()
                .map(|(_, _, trips)| trips)
                .collect();
            assert_eq!(own, stepped.found, "{name}: {inside:#}");
            compared += own.iter().flatten().count();
        }
        assert!(compared >= 4, "{found:#?}");
    }
}

/// Coroutines and threads do not mix the trips through their loops.
#[test]
fn coroutines_do_not_mix_trips() {
    let program = program_with("path_counts.c", &["-O2", "-pthread"]);
    let [alone, woven, moved] = ["alone", "woven", "moved"].map(|how| {
        let found = counted_by("--loops", &["weave"], &[], &program, &["weave", "400", how]);
        trips(&found["weave"])
    });
    assert_eq!(woven, alone);
    assert_eq!(moved, alone);
    let (entries, iterations, counts) = &alone[0];
    assert_eq!(counts.values().sum::<u64>(), *entries, "{alone:?}");
    // One to eight iterations.
    assert_eq!(counts.keys().copied().collect::<Vec<u64>>(), [0, 1, 2, 3]);
    assert!(iterations > entries, "{alone:?}");
}

/// The counts of the paths of a function, by the words of a report: start, lines, end.
fn by_lines(inside: &Value) -> BTreeMap<Vec<String>, u64> {
    let blocks = list(inside, "blocks");
    let mut sums = BTreeMap::new();
    for ((is_entry, path, is_exit), count) in routes(inside) {
        let mut words = vec![["loop", "entry"][usize::from(is_entry)].to_owned()];
        words.extend(path.iter().map(|&block| blocks[block]["line"].to_string()));
        words.push(["again", "exit"][usize::from(is_exit)].to_owned());
        words.dedup();
        *sums.entry(words).or_default() += count;
    }
    sums
}

/// Two builds have other addresses, and the same lines.
#[test]
fn paths_of_two_builds_are_compared() {
    let scratch = Scratch::new("paths-of-builds");
    let sides = [
        ("-falign-functions=16", "12"),
        ("-falign-functions=512", "24"),
    ];
    let sides = sides.map(|(alignment, rounds)| {
        let program = program_with("branches.c", &["-O1", "-g", alignment]);
        let file = scratch.file(&format!("{rounds}.json"));
        let run = Run::ipath(["run", "--no-tui", "--paths", "chosen,mixed", "-o"]);
        let run = run.arg(&file).limit(LIMIT).arg("--").arg(&program);
        run.arg(rounds).run().expect(0);
        (insides(&file), file)
    });
    let [(old, old_file), (new, new_file)] = sides;
    let start = |inside: &BTreeMap<String, Value>| number(&inside["mixed"]["blocks"][0]["address"]);
    assert_ne!(start(&old), start(&new));
    let diff = Run::ipath(["diff", "--json"]).arg(&old_file).arg(&new_file);
    let diff: Value = serde_json::from_str(&diff.run().expect(0).stdout).expect("JSON");
    let compared = list(&diff, "inside");
    assert_eq!(compared.len(), 2, "{diff:#}");
    for function in compared {
        let name = function["function"].as_str().expect("a name");
        let found = list(function, "paths").iter().map(|path| {
            let words = list(path, "path").iter().filter_map(Value::as_str);
            let counts = [0, 1].map(|side| number(&path["counts"][side]));
            (words.map(str::to_owned).collect::<Vec<_>>(), counts)
        });
        let [was, now] = [&old, &new].map(|side| by_lines(&side[name]));
        let all = was.keys().chain(now.keys());
        let count =
            |side: &BTreeMap<Vec<String>, u64>, words| side.get(words).copied().unwrap_or(0);
        let expected = all.map(|words| (words.clone(), [count(&was, words), count(&now, words)]));
        let expected: BTreeMap<_, _> = expected.collect();
        assert_eq!(found.collect::<BTreeMap<_, _>>(), expected, "{function:#}");
        let common = expected.values().filter(|counts| !counts.contains(&0));
        assert!(common.count() >= 2, "{function:#}");
    }
    let text = Run::ipath(["diff"]).arg(&old_file).arg(&new_file);
    let text = text.run().expect(0).stdout;
    assert!(
        text.contains("  path\n") && text.contains("loop "),
        "{text}"
    );
}
