//! Paths inside functions that are timed, by call path, compared with the program's own counts and
//! clock, and with the counts of paths alone.

use ipath_tests::command::Run;
use ipath_tests::compile::program_with;
use ipath_tests::inside::{DISPATCHES, entries, json, list, number, printed_spans};
use ipath_tests::place::Scratch;
use ipath_tests::profile::Profile;
use ipath_tests::snapshot::ProcessState;
use ipath_tests::target::Target;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

/// What each kind of call does, in the order of the program's kinds.
const KINDS: [&str; 6] = ["fast", "slow", "loop", "thrown", "jumped", "again"];

/// Runs a program and times the paths of these functions. Returns its output and the profile.
fn timed(
    program: &Path,
    arguments: &[&str],
    functions: &[&str],
    more: &[&str],
) -> (String, Value, BTreeMap<String, Value>) {
    let scratch = Scratch::new("timed-paths");
    let file = scratch.file("p.json");
    let mut run = Run::ipath(["run", "--no-tui", "-o"]).arg(&file).args(more);
    for function in functions {
        run = run.args(["-f", &format!("{function}:paths")]);
    }
    let run = run.arg("--").arg(program).args(arguments).limit(LIMIT);
    let stdout = run.run().expect(0).stdout;
    let profile = Profile::read(&file);
    assert_eq!(profile.losses.missed, 0);
    (stdout, json(&file), entries(&file))
}

/// The counts of the paths of a function by their numbers. With timed paths, those of all call
/// paths; every path has a call path then.
fn counts(inside: &Value, are_timed: bool) -> BTreeMap<u64, u64> {
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    for path in list(inside, "paths") {
        assert_eq!(path["path"].is_u64(), are_timed, "{path}");
        *counts.entry(number(&path["number"])).or_default() += number(&path["count"]);
    }
    counts
}

/// Checks that the calls of each function are those on its call paths, and that a path whose number
/// is known has ended. At most so many may have been at their ends when the hooks went out.
fn check_totals(profile: &Value, at_ends: u64) {
    let mut sums: BTreeMap<usize, u64> = BTreeMap::new();
    for path in list(profile, "paths") {
        let count = number(&path["metrics"]["count"]);
        *sums.entry(number(&path["function"]) as usize).or_default() += count;
        let first = list(path, "stack").first().map(number);
        let first = first.map(|at| &list(profile, "frames")[at as usize]);
        if first.is_some_and(|frame| frame["path"].is_u64()) {
            let of = |key: &str| path[key].as_u64().unwrap_or(0);
            assert!(of("open") <= at_ends && of("unwound") == 0, "{path}");
        }
    }
    for (index, function) in list(profile, "functions").iter().enumerate() {
        let of = number(&function["totals"]["count"]);
        assert_eq!(of, sums.get(&index).copied().unwrap_or(0), "{function}");
    }
}

/// The names of the frames of a call path of the profile, from the innermost on.
fn frames<'p>(profile: &'p Value, path: &Value) -> Vec<&'p str> {
    let all = list(profile, "frames");
    let stack = list(path, "stack").iter();
    let names = stack.map(|index| all[number(index) as usize]["function"].as_str());
    names.map(Option::unwrap_or_default).collect()
}

/// A caller and whether `work` calls itself on the way; for each number of a path, the count and
/// the nanoseconds. Paths without a number have been left.
type ByCaller = BTreeMap<(&'static str, bool), BTreeMap<Option<u64>, (u64, u64)>>;

fn by_caller(profile: &Value) -> ByCaller {
    let mut all = ByCaller::new();
    let functions = list(profile, "functions");
    let of = functions.iter().position(|f| f["timed_paths"] == true);
    let of = of.expect("timed paths") as u64;
    let frame = |index: &Value| &list(profile, "frames")[number(index) as usize];
    for path in list(profile, "paths")
        .iter()
        .filter(|path| path["function"] == of)
    {
        let names = frames(profile, path);
        let is_in = |part: &str| names.iter().any(|name| name.contains(part));
        let callers = ["from_left", "from_right"].into_iter();
        let caller = callers.filter(|caller| is_in(caller)).collect::<Vec<_>>();
        let [caller] = caller[..] else {
            panic!("{names:?}")
        };
        let inner = list(path, "stack")
            .first()
            .and_then(|f| frame(f)["path"].as_u64());
        let sum = all.entry((caller, is_in("workil"))).or_default();
        let (count, ns) = sum.entry(inner).or_default();
        let metrics = &path["metrics"];
        *count += number(&metrics["count"]);
        *ns += metrics["wall"]["sum"].as_u64().unwrap_or(0);
    }
    all
}

/// Checks the paths of `work` by their callers. Returns what the program says of itself.
fn compare(program: &Path, times: u64, more: &[&str]) -> ByCaller {
    let (output, profile, inside) = timed(program, &[&times.to_string()], &["work"], more);
    let name = "work(int, long):paths";
    assert!(inside.contains_key(name), "{:?}", inside.keys());
    let own = |kind: usize, caller: &str| {
        let begin = format!("{kind} {caller} ");
        let line = output.lines().find_map(|line| line.strip_prefix(&begin));
        let words = line.expect("a line").split(' ');
        let numbers: Vec<u64> = words.map(|word| word.parse().expect("a number")).collect();
        (numbers[0], numbers[1])
    };
    let found = by_caller(&profile);
    let ended = |caller, nested| -> BTreeMap<u64, (u64, u64)> {
        let all = found[&(caller, nested)].iter();
        all.filter_map(|(number, sums)| Some(((*number)?, *sums)))
            .collect()
    };
    for (caller, calls) in [("from_left", times), ("from_right", 2 * times)] {
        let [top, nested] = [false, true].map(|nested| ended(caller, nested));
        // `work` calls itself twice in one of its kinds: slow, and fast, for which optimized code
        // has no call.
        assert!(matches!(nested.len(), 1 | 2), "{caller}: {nested:?}");
        assert!(
            nested.values().all(|(count, _)| *count == calls),
            "{nested:?}"
        );
        for number in nested.keys() {
            assert_eq!(top[number].0, calls, "{caller}, path {number}");
        }
        // Each iteration of the loop ends a path. The last one may be a path of its own.
        let all: u64 = top.values().map(|(count, _)| count).sum();
        let expected = [8, 9].map(|of_loop| calls * (3 + of_loop));
        assert!(expected.contains(&all), "{caller}: {top:?}");
        let left = found[&(caller, false)].get(&None).map_or(0, |sums| sums.0);
        assert_eq!(left, 2 * calls, "{caller}: {found:?}");
        let wall: u64 = top.values().map(|(_, ns)| ns).sum();
        let kinds = (0..KINDS.len()).filter(|&kind| !matches!(KINDS[kind], "thrown" | "jumped"));
        let by_own_clock: u64 = kinds.map(|kind| own(kind, caller).1).sum();
        // It waits for so long at least.
        let least = calls * (1_000 + 20_000 + 2 * 3_000 + 23_000);
        assert!(
            (least..=by_own_clock).contains(&wall),
            "{caller}: {wall} ns, by its own clock {by_own_clock} ns"
        );
        let slowest = nested.values().map(|(count, ns)| ns / count).max();
        assert!(slowest.is_some_and(|ns| ns >= 20_000), "{nested:?}");
    }
    // Every path that has ended is timed.
    counts(&inside[name], true);
    found
}

#[test]
fn timed_paths_have_the_callers_and_times_of_the_program() {
    for level in ["-O0", "-O1", "-O2", "-O3"] {
        let program = program_with("timed_paths.cc", &[level, "-g"]);
        compare(&program, 200, &[]);
    }
}

#[test]
fn timed_paths_have_other_metrics_and_neighbours() {
    let program = program_with("timed_paths.cc", &["-O1", "-g"]);
    compare(&program, 50, &["-m", "wall,cpu"]);
    compare(&program, 50, &["--per-thread"]);
    compare(&program, 50, &["-f", "work"]);
    compare(&program, 50, &["-f", "spend,from_left,from_right"]);
    compare(&program, 50, &["--edges", "spend"]);
}

/// In each of these programs, the counts of timed paths are those of paths that are only counted,
/// and all of them are timed.
#[test]
fn timed_paths_are_counted_as_others_are() {
    let same = |program: &Path, arguments: &[&str], functions: &[&str], more: &[&str]| {
        let scratch = Scratch::new("timed-paths-alone");
        let file = scratch.file("p.json");
        let mut run = Run::ipath(["run", "--no-tui", "-o"]).arg(&file).args(more);
        for function in functions {
            run = run.args(["--paths", function]);
        }
        let run = run.arg("--").arg(program).args(arguments).limit(LIMIT);
        run.run().expect(0);
        let alone = entries(&file);
        let (_, profile, timed) = timed(program, arguments, functions, more);
        check_totals(&profile, 0);
        let keys = |of: &BTreeMap<String, Value>| of.keys().cloned().collect::<Vec<_>>();
        let expected: Vec<String> = keys(&alone).iter().map(|n| format!("{n}:paths")).collect();
        assert_eq!(keys(&timed), expected, "{arguments:?}");
        for (name, inside) in &alone {
            let own = &timed[&format!("{name}:paths")];
            let expected = counts(inside, false);
            assert!(!expected.is_empty(), "{name}");
            assert_eq!(counts(own, true), expected, "{name} {arguments:?}");
            assert_eq!(own["path_totals"]["unknown"], 0, "{name}");
        }
    };
    let branches = [
        "jumps",
        "mixed",
        "chosen",
        "interprets",
        "descends",
        "left",
        "ends_with_calls",
    ];
    for flags in [
        &["-O2", "-pthread"][..],
        &["-O0", "-pthread"],
        &["-O3", "-fno-omit-frame-pointer", "-pthread"],
    ] {
        let program = program_with("branches.c", flags);
        same(&program, &["12"], &branches, &[]);
        same(&program, &["40", "8"], &branches, &["--depth", "1"]);
    }
    for flags in DISPATCHES {
        let program = program_with("dispatches.c", flags);
        // In other builds, a hook of `continues` has no room, so that only a copy of the function
        // has its counts.
        let have_room = ["-O2", "-O3"].contains(&flags[0]);
        let functions = &["continues", "loops"][usize::from(!have_room)..];
        same(&program, &["30"], functions, &[]);
    }
    let throws = program_with("throws_by_block.cc", &["-O2"]);
    let names = ["outer(int)", "middle(int)", "thrower(int)"];
    same(&throws, &["20"], &names, &[]);
    let many = program_with("path_counts.c", &["-O2", "-pthread"]);
    same(&many, &["deep", "700", "9"], &["deep"], &[]);
    same(&many, &["chained", "40", "5"], &["chained"], &[]);
    for how in ["alone", "woven", "moved"] {
        same(&many, &["weave", "400", how], &["weave"], &[]);
    }
    let hashed = program_with("path_counts.c", &["-O1", "-pthread"]);
    same(&hashed, &["many", "100000", "500"], &["many"], &[]);
    let forks = program_with("forks_in_loop.c", &["-O2"]);
    same(&forks, &["3", "1000"], &["rounds"], &[]);
    same(&forks, &["3", "1000"], &["rounds"], &["--follow"]);
}

/// Signals interrupt hooks at any instruction, and their handlers are on paths of the same
/// function. A handler that interrupts the recording of a call is not timed.
#[test]
fn timed_paths_of_signal_handlers_do_not_mix() {
    let program = program_with("counts_in_handler.c", &["-O2"]);
    let scratch = Scratch::new("timed-paths-signals");
    let file = scratch.file("p.json");
    let run = Run::ipath(["run", "--no-tui", "-f", "counted:paths", "-o"]).arg(&file);
    let finished = run
        .arg("--")
        .arg(&program)
        .args(["20000", "2000"])
        .run()
        .expect(0);
    let own = finished.stdout.split_whitespace().next_back();
    let own: u64 = own
        .and_then(|word| word.parse().ok())
        .expect("its own count");
    let profile = json(&file);
    let inside = &list(&profile, "inside")[0];
    let sum = |is_meant: &dyn Fn(&Value) -> bool| -> u64 {
        let paths = list(inside, "paths").iter().filter(|path| is_meant(path));
        paths.map(|path| number(&path["count"])).sum()
    };
    assert_eq!(sum(&|_| true), own, "{inside:#}");
    let not_timed = sum(&|path| path["path"].is_null());
    let missed = number(&profile["losses"]["missed"]);
    assert!(not_timed <= missed, "{not_timed} paths, {missed} missed");
}

/// With a condition on the time, only paths that meet it are counted by call path.
#[test]
fn timed_paths_are_counted_on_a_condition() {
    let program = program_with("timed_paths.cc", &["-O1", "-g"]);
    let more = ["--when", "wall > 15us"];
    let (_, profile, _) = timed(&program, &["50"], &["work"], &more);
    check_totals(&profile, 0);
    let found = by_caller(&profile);
    let slow: Vec<(u64, u64)> = found[&("from_left", true)].values().copied().collect();
    assert!(
        matches!(slow[..], [(50.., ns)] if ns >= 50 * 20_000),
        "{slow:?}"
    );
}

/// A function whose edges are counted and whose paths are timed has two graphs. Exports of lines
/// have the counts of one.
#[test]
fn timed_paths_do_not_double_counts_of_lines() {
    let program = program_with("timed_paths.cc", &["-O1", "-g"]);
    let scratch = Scratch::new("timed-paths-lines");
    let lines = |more: &[&str]| {
        let file = scratch.file("p.json");
        let run = Run::ipath(["run", "--no-tui", "--edges", "work"]).args(more);
        let run = run.arg("-o").arg(&file).arg("--").arg(&program).arg("20");
        run.run().expect(0);
        let export = Run::ipath(["export", "--to", "lcov", "-o", "-"]).arg(&file);
        let text = export.run().expect(0).stdout;
        assert!(text.contains(",_Z4workil\n"), "{text}");
        let lines = text.lines().filter(|line| line.starts_with("DA:"));
        lines.map(str::to_owned).collect::<Vec<String>>()
    };
    let alone = lines(&[]);
    assert!(alone.len() > 10, "{alone:?}");
    assert_eq!(lines(&["-f", "work:paths"]), alone);
}

/// Timed paths come into a program that runs, and leave it. Afterwards the code is as it was.
#[test]
fn timed_paths_come_and_go() {
    let program = program_with("busy.c", &["-O1", "-g", "-pthread"]);
    let mut target = Target::start(&program, ["2", "600"]).await_output("ready");
    let before = ProcessState::of(target.pid());
    let pid = target.pid().to_string();
    let function = "busy*!thread:paths";
    let change = |command: &str, says: &str| {
        let run = Run::ipath([command, &pid, "-f", function]).run().expect(0);
        assert_eq!(run.stdout.trim(), says, "{}", run.report());
    };
    let keep = ["--keep", "--no-tui", "--duration", "100ms"];
    let attach = Run::ipath(["attach", &pid, "-f", function]).args(keep);
    attach.run().expect(0);
    for _ in 0..3 {
        change("remove", "removed thread:paths");
        change("add", "added thread:paths");
    }
    change("add", "already in: thread:paths");
    std::thread::sleep(Duration::from_millis(100));
    let scratch = Scratch::new("timed-paths-add");
    let file = scratch.file("p.json");
    Run::ipath(["detach", &pid, "-o"])
        .arg(&file)
        .run()
        .expect(0);
    before.assert_unchanged(target.pid());
    assert!(target.poll().is_none());
    check_totals(&json(&file), 8);
    let profile = Profile::read(&file);
    assert!(profile.calls("thread:paths") > 100, "{profile:?}");
    let text = Run::ipath(["report"]).arg(&file).run().expect(0).stdout;
    assert!(
        text.contains("its paths") && text.contains("path "),
        "{text}"
    );
}

/// The sum of two profiles has the counts and times of both, by path and call path.
#[test]
fn timed_paths_are_added_up() {
    let program = program_with("timed_paths.cc", &["-O2", "-g"]);
    let scratch = Scratch::new("timed-paths-sum");
    let [one, two, sum] = ["1.json", "2.json", "sum.json"].map(|name| scratch.file(name));
    for file in [&one, &two] {
        let run = Run::ipath(["run", "--no-tui", "-f", "work:paths", "-o"]).arg(file);
        run.arg("--").arg(&program).arg("30").run().expect(0);
    }
    let merge = Run::ipath(["merge"])
        .arg(&one)
        .arg(&two)
        .arg("-o")
        .arg(&sum);
    merge.run().expect(0);
    let [first, all] = [&one, &sum].map(|file| by_caller(&json(file)));
    assert_eq!(first.len(), 4);
    for (caller, paths) in &first {
        let doubled = paths.iter().map(|(number, sums)| (*number, 2 * sums.0));
        let found = all[caller].iter().map(|(number, sums)| (*number, sums.0));
        assert!(found.eq(doubled), "{caller:?}: {all:?}");
    }
    let report = Run::ipath(["report"]).arg(&sum).run().expect(0).stdout;
    for part in ["wall total  wall mean", "path 0: entry ", "its paths"] {
        assert!(report.contains(part), "{report}");
    }
    let inside = "work(int, long):paths";
    let [first, all] = [&one, &sum].map(|file| counts(&entries(file)[inside], true));
    assert!(
        all.into_iter()
            .eq(first.into_iter().map(|(n, count)| (n, 2 * count)))
    );
}

/// Other builds give the paths other numbers. The same lines are compared.
#[test]
fn timed_paths_of_two_builds_are_compared_by_their_lines() {
    let scratch = Scratch::new("timed-paths-builds");
    let [old, new] = ["-DOTHER=1", "-DOTHER=2"].map(|flag| {
        let program = program_with("timed_paths.cc", &["-O0", "-g", flag, "-Wl,--build-id"]);
        let file = scratch.file(&format!("{flag}.json"));
        let run = Run::ipath(["run", "--no-tui", "-f", "work:paths", "-o"]).arg(&file);
        run.arg("--").arg(&program).arg("30").run().expect(0);
        file
    });
    let diff = Run::ipath(["diff", "--json"]).arg(&old).arg(&new).run();
    let compared: Value = serde_json::from_str(&diff.stdout).expect("JSON");
    let paths = list(&compared, "paths");
    assert!(!paths.is_empty(), "{compared}");
    for path in paths {
        assert!(!path["old"].is_null() && !path["new"].is_null(), "{path}");
    }
}

/// A path ends in the middle of a loop, so that the two cannot be timed together in one command.
#[test]
fn timed_paths_are_refused_beside_loops() {
    let program = program_with("timed_loops.cc", &["-O2", "-g", "-pthread"]);
    let scratch = Scratch::new("timed-paths-refused");
    let file = scratch.file("p.json");
    let run = Run::ipath(["run", "--no-tui", "-f", "nested:paths,nested:loops", "-o"]);
    let run = run
        .arg(&file)
        .arg("--")
        .arg(&program)
        .arg("20")
        .run()
        .expect(0);
    assert!(
        run.stderr.contains("are not timed together"),
        "{}",
        run.report()
    );
    let own = printed_spans(&run.stdout);
    let profile = Profile::read(&file);
    assert_eq!(profile.calls("nested:loop0"), own["outer"][0]);
    let alone = Run::ipath(["run", "--no-tui", "-m", "arg1", "-f", "nested:paths", "--"]);
    let error = alone.arg(&program).arg("1").run().expect_error();
    assert!(error.contains("a path has no value arg1"), "{error}");
    let counted = Run::ipath(["run", "--no-tui", "-m", "count", "-f", "nested:paths", "--"]);
    let error = counted.arg(&program).arg("1").run().expect_error();
    assert!(error.contains("--paths counts them"), "{error}");
}

/// Nor in two commands.
#[test]
fn timed_paths_are_refused_beside_loops_of_another_command() {
    let program = program_with("busy.c", &["-O1", "-g", "-pthread"]);
    let target = Target::start(&program, ["1", "600"]).await_output("ready");
    let pid = target.pid().to_string();
    let keep = ["--keep", "--no-tui", "--duration", "50ms"];
    for (one, other) in [("loops", "paths"), ("paths", "loops")] {
        let [one, other] = [one, other].map(|part| format!("busy*!thread:{part}"));
        let attach = Run::ipath(["attach", &pid, "-f", &one]).args(keep);
        attach.run().expect(0);
        let add = Run::ipath(["add", &pid, "-f", &other]).run();
        let said = add.expect_error();
        assert!(said.contains("are not timed together"), "{said}");
        Run::ipath(["detach", &pid]).run().expect(0);
    }
}

/// The functions of a thread that never ends a path are left at once.
#[test]
fn endless_paths_can_be_left() {
    let program = program_with("endless.c", &["-O2", "-g", "-pthread"]);
    let mut target = Target::start(&program, ["4"]).await_output("ready");
    let before = ProcessState::of(target.pid());
    let pid = target.pid().to_string();
    Run::ipath(["attach", &pid, "-f", "turns:paths"])
        .args(["--no-tui", "--duration", "200ms"])
        .run()
        .expect(0);
    before.assert_unchanged(target.pid());
    assert!(target.poll().is_none());
    target.finish("ok");
}
