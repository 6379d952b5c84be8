//! `report`, `diff` and `merge` of profiles from programs, and of files that are not profiles.

use ipath_tests::command::{Finished, Run};
use ipath_tests::compile::{program, program_with};
use ipath_tests::place::Scratch;
use ipath_tests::profile::Profile;
use ipath_tests::program::Program;
use ipath_tests::target::Target;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// The path of the profile of a new run.
fn measured(scratch: &Scratch, name: &str) -> PathBuf {
    let file = scratch.file(name);
    let program = Program::new(&program("paths.c"), [""; 0]);
    program
        .under_ipath(&["work"], "count,wall", &file)
        .expect(3);
    file
}

fn value(file: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(file).expect("readable")).expect("JSON")
}

fn report(file: &Path, options: &[&str]) -> Finished {
    Run::ipath(["report"]).arg(file).args(options).run()
}

#[test]
fn reports_show_what_is_asked_for() {
    let scratch = Scratch::new("asked");
    let file = measured(&scratch, "p.json");
    let profile = Profile::read(&file);
    let paths = profile.paths.len();
    assert!(paths > 2, "{paths}");
    let calls = |report: &Value| -> u64 {
        let paths = report["paths"].as_array().expect("paths").iter();
        paths
            .map(|p| p["metrics"]["count"].as_u64().expect("calls"))
            .sum()
    };
    let all = report(&file, &["--json", "--limit", "0"]).expect(0).json();
    assert_eq!(all["paths_in_all"], paths);
    assert_eq!(calls(&all), profile.calls("work"));
    assert_eq!(all["not_exact"], json!([]));
    let few = report(&file, &["--json", "--limit", "2", "--sort", "calls"])
        .expect(0)
        .json();
    let counts: Vec<u64> = few["paths"]
        .as_array()
        .expect("paths")
        .iter()
        .map(|p| p["metrics"]["count"].as_u64().expect("calls"))
        .collect();
    let mut most: Vec<u64> = profile
        .paths
        .iter()
        .map(|p| p.metrics["count"].as_u64().expect("calls"))
        .collect();
    most.sort_unstable_by(|a, b| b.cmp(a));
    assert_eq!(counts, most[..2]);
    // `--under` selects the paths that contain the name.
    let under = report(
        &file,
        &["--json", "--limit", "0", "--depth", "0", "--under", "down"],
    );
    let under = under.expect(0).json();
    let through = all_through(&all, "down");
    assert!(through > 0 && through < paths, "{through} of {paths}");
    assert_eq!(under["paths_in_all"], through);
    let tree = report(&file, &["--tree"]).expect(0).stdout;
    assert!(tree.contains("  100.0 %  100.0 %  work"), "{tree}");
    let quiet = report(&file, &["--quiet"]).expect(0).stdout;
    assert!(
        quiet.starts_with("\nFunctions\n") && quiet.contains("Nothing was lost"),
        "{quiet}"
    );
    let line = report(&file, &["--function", "nix"]).expect_error();
    assert!(line.ends_with("it has no function `nix`"), "{line}");
    let line = report(&file, &["--thread", "1"]).expect_error();
    assert!(line.contains("not kept apart"), "{line}");
}

/// The number of paths in a report that contain a function.
fn all_through(report: &Value, name: &str) -> usize {
    let paths = report["paths"].as_array().expect("paths").iter();
    let is_it = |frame: &Value| {
        let text = frame.as_str().expect("a name");
        text == name || text.split(['+', ' ']).next() == Some(name)
    };
    paths
        .filter(|p| p["stack"].as_array().expect("a stack").iter().any(is_it))
        .count()
}

#[test]
fn what_is_no_profile_is_said_in_plain_words() {
    let scratch = Scratch::new("no-profile");
    let with = |name: &str, content: &[u8]| {
        let file = scratch.file(name);
        fs::write(&file, content).expect("an own folder");
        file
    };
    for (file, cause) in [
        (program("paths.c"), "it is a program or a library"),
        (scratch.path().to_owned(), "is a directory"),
        (with("empty", b""), "it is empty"),
        (with("binary", b"\x1f\x8b\x08\0\0"), "it is binary"),
        (with("text", b"hello"), "it is text"),
        (with("list", b"[1]"), "it is other JSON"),
        (
            with("object", b"{\"a\": [1, {}]}"),
            "it is JSON without a schema",
        ),
        (
            with("newer", b"{\"schema\": \"ipath-profile/2\"}"),
            "another version of ipath",
        ),
    ] {
        for command in ["report", "merge", "diff"] {
            let run = Run::ipath([command]).arg(&file);
            let run = match command {
                "merge" => run.args(["-o", "/dev/null"]),
                "diff" => run.arg(&file),
                _ => run,
            };
            let line = run.run().expect_error();
            assert!(line.contains(cause), "{line}");
            assert!(line.starts_with(&format!("ipath: {command} ")), "{line}");
        }
    }
}

#[test]
fn two_runs_are_one_profile_and_do_not_differ() {
    let scratch = Scratch::new("two-runs");
    let (one, two) = (measured(&scratch, "1.json"), measured(&scratch, "2.json"));
    let all = scratch.file("all.json");
    let merge =
        |files: &[&Path], to: &Path| Run::ipath(["merge"]).args(files).arg("-o").arg(to).run();
    merge(&[&one, &two], &all).expect(0);
    let sum = Profile::read(&all);
    sum.check_sums();
    sum.assert_lossless();
    let parts = [Profile::read(&one), Profile::read(&two)];
    assert_eq!(
        sum.calls("work"),
        parts.iter().map(|p| p.calls("work")).sum::<u64>()
    );
    assert_eq!(sum.paths.len(), parts[0].paths.len());
    let text = report(&all, &[]).expect(0).stdout;
    assert!(text.starts_with("2 processes as one; "), "{text}");
    assert!(text.contains("in 2 of 2 processes: min "), "{text}");
    assert_eq!(
        value(&all)["processes"]
            .as_array()
            .expect("processes")
            .len(),
        2
    );
    let twice = merge(&[&one, &one], &all).expect_error();
    assert!(twice.contains("the same session"), "{twice}");

    let diff = |old: &Path, new: &Path, options: &[&str]| {
        Run::ipath(["diff"]).arg(old).arg(new).args(options).run()
    };
    let none = diff(&one, &two, &["--threshold", "100000%"]).expect(0);
    assert!(
        none.stdout.contains(" 0 new, 0 vanished"),
        "{}",
        none.report()
    );
    let same = diff(&one, &one, &["--json"]).expect(0).json();
    let paths = same["paths"].as_array().expect("paths");
    assert_eq!(paths.len(), parts[0].paths.len());
    for path in paths {
        assert_eq!(path["function"], "work");
        assert_eq!(path["old"], path["new"]);
        assert_eq!(path["p_value"].as_f64().unwrap_or(1.0), 1.0);
        assert!(
            path["stack"]
                .as_array()
                .is_some_and(|stack| !stack.is_empty())
        );
    }
    let first = one.clone();
    // A thousand times the calls, and also sixteen times the duration of each.
    let times = |calls: i64, shift: u32| {
        let mut changed = value(&first);
        for path in changed["paths"].as_array_mut().expect("paths") {
            let count = path["metrics"]["count"].as_i64().expect("calls");
            path["metrics"]["count"] = json!(count * calls);
            let wall = path["metrics"]["wall"].as_object_mut().expect("wall");
            for (key, by) in [("sum", calls), ("min", 1), ("max", 1)] {
                wall[key] = json!((wall[key].as_i64().expect("ns") * by) << shift);
            }
            for bucket in wall["hist"].as_array_mut().expect("buckets") {
                bucket[0] = json!(bucket[0].as_u64().expect("a bucket") + u64::from(shift));
                bucket[1] = json!(bucket[1].as_i64().expect("calls") * calls);
            }
        }
        changed
    };
    let one = scratch.file("many.json");
    let parts = [
        (&one, times(1000, 0)),
        (&scratch.file("slow.json"), times(1000, 4)),
    ];
    for (file, profile) in parts {
        fs::write(file, profile.to_string()).expect("an own folder");
    }
    let file = scratch.file("slow.json");
    let worse = diff(&one, &file, &["--threshold", "5%"]).expect(3);
    assert!(worse.stdout.contains("+1500.0 %"), "{}", worse.report());
    assert!(
        worse.stderr.contains("worse by 5.0 % or more"),
        "{}",
        worse.report()
    );
    assert_eq!(
        diff(&one, &file, &["--threshold", "5%", "-q"])
            .expect(3)
            .stdout,
        ""
    );
    diff(&file, &one, &["--threshold", "5%"]).expect(0);
}

#[test]
fn functions_have_their_definitions() {
    let scratch = Scratch::new("definitions");
    let file = scratch.file("p.json");
    let program = program_with("busy.c", &["-g"]);
    let run = Run::ipath(["run", "-q", "-f", "step", "-o"]).arg(&file);
    run.arg("--").arg(program).args(["1", "1"]).run().expect(0);
    let profile = value(&file);
    let step = &profile["functions"][0];
    let file = step["file"].as_str().expect("a file");
    let source = fs::read_to_string(file).expect("a source file");
    let line = step["line"].as_u64().expect("a line") as usize;
    // Compilers use the line of the function's name, or that of its brace.
    let around: Vec<&str> = source
        .lines()
        .skip(line.saturating_sub(2))
        .take(2)
        .collect();
    let is_defined = around.iter().any(|text| text.contains(" step("));
    assert!(
        file.ends_with("busy.c") && is_defined,
        "{file}:{line}: {around:?}"
    );
}

/// Runs of one program differ from each other. Only larger differences are changes.
#[test]
fn several_runs_a_side_are_compared() {
    let scratch = Scratch::new("runs");
    let first = measured(&scratch, "first.json");
    let run = |name: &str, percent: i64| {
        let mut changed = value(&first);
        for path in changed["paths"].as_array_mut().expect("paths") {
            let wall = path["metrics"]["wall"].as_object_mut().expect("wall");
            let sum = wall["sum"].as_i64().expect("ns");
            wall["sum"] = json!(sum * percent / 100);
        }
        let file = scratch.file(name);
        fs::write(&file, changed.to_string()).expect("an own folder");
        file
    };
    let runs = |side: &str, of: [i64; 5]| -> Vec<PathBuf> {
        let names = (0..5).map(|n| format!("{side}{n}.json"));
        names
            .zip(of)
            .map(|(name, percent)| run(&name, percent))
            .collect()
    };
    let before = runs("before", [100, 103, 97, 101, 99]);
    let alike = runs("alike", [101, 98, 102, 97, 103]);
    let slower = runs("slower", [121, 118, 122, 117, 123]);
    let diff = |new: &[PathBuf]| {
        let run = Run::ipath(["diff"]).args(&before).arg("--").args(new);
        run.args(["--threshold", "5%", "--metric", "wall"]).run()
    };
    let same = diff(&alike).expect(0);
    assert!(
        same.stdout.contains("of 5 runs before and 5 runs after"),
        "{}",
        same.report()
    );
    assert!(
        same.stdout.contains("runs differ: by wall, "),
        "{}",
        same.report()
    );
    let worse = diff(&slower).expect(3);
    assert!(worse.stdout.contains("+20.2 %"), "{}", worse.report());
    // One run is too little evidence for so many paths.
    diff(&slower[..1]).expect(0);
    // Comparing one run with one other run is a different question.
    let one = Run::ipath(["diff"])
        .arg(&before[0])
        .arg(&alike[0])
        .run()
        .expect(0);
    assert!(
        one.stdout.contains("one run per side does not show"),
        "{}",
        one.report()
    );
    for (args, cause) in [
        (vec![&before[0]], "1 profile without --"),
        (
            vec![&before[0], &before[1], &before[2]],
            "3 profiles without --",
        ),
    ] {
        let refused = Run::ipath(["diff"]).args(args).run().expect(2);
        assert!(refused.stderr.contains(cause), "{}", refused.report());
        assert!(
            refused.stderr.contains("ipath diff OLD... -- NEW..."),
            "{}",
            refused.report()
        );
    }
    // A metric that one run lacks is a fault of that run. A metric that all lack is a slip.
    let without = run("without.json", 100);
    let renamed = fs::read_to_string(&without).expect("a profile");
    let renamed = renamed.replace(r#""wall""#, r#""blocked""#);
    fs::write(&without, renamed).expect("an own folder");
    let lacking = diff(&[alike[0].clone(), without]);
    let cause = lacking.expect_error();
    assert!(cause.contains("without.json: the profile has no metric `wall`, only"));
    assert!(lacking.hints().contains("measure this run again"));
    let unknown = Run::ipath(["diff", "--metric", "stalls"]).arg(&before[0]);
    unknown.arg(&alike[0]).run().expect(2);
    let refused = diff(&[slower[0].clone(), slower[0].clone()]).expect(2);
    assert!(
        refused.stderr.contains("given twice"),
        "{}",
        refused.report()
    );
}

/// The memory for merging does not grow with the number of files.
#[test]
fn merging_takes_memory_for_the_result_alone() {
    let scratch = Scratch::new("bounded");
    let of = measured(&scratch, "p.json");
    let mut part = value(&of);
    let paths = part["paths"].as_array().expect("paths").clone();
    let frames = part["frames"].as_array().expect("frames").len();
    // Distributes the calls over many more paths, for a file of some size.
    let longer = |n: usize| {
        let mut path = paths[n % paths.len()].clone();
        let stack = path["stack"].as_array_mut().expect("a stack");
        stack.extend((0..8).map(|bit| json!((n >> bit) % frames)));
        path
    };
    part["paths"] = (0..2000).map(longer).collect();
    let file = |n: u64| {
        let file = scratch.file(&format!("{n}.json"));
        let mut part = part.clone();
        part["target"]["pid"] = json!(n + 1);
        fs::write(&file, part.to_string()).expect("an own folder");
        file
    };
    let files: Vec<PathBuf> = (0..100).map(file).collect();
    let most = |number: usize| {
        let run = Run::ipath(["merge"]).args(&files[..number]);
        let merged = run.arg("-o").arg(scratch.file("all.json")).run().expect(0);
        merged.cost.max_rss_kib
    };
    let (few, many) = (most(5), most(100));
    let size = fs::metadata(&files[0]).expect("there").len() >> 10;
    assert!(size > 300, "{size} KiB a file");
    assert!(
        many < few + 10 * size,
        "{few} KiB, then {many} KiB; {size} KiB a file"
    );
}

/// Threads have their names in a profile, even if they ended before any command read the session.
#[test]
fn short_threads_have_their_names() {
    let scratch = Scratch::new("names");
    let file = scratch.file("p.json");
    Run::ipath(["run", "--per-thread", "-q", "-f", "work", "-o"])
        .arg(&file)
        .arg("--")
        .arg(program("short_threads.c"))
        .run()
        .expect(0);
    for number in 0..5 {
        let name = format!("short-{number}");
        let report = Run::ipath(["report", "--json", "--thread", &name]).arg(&file);
        let report: serde_json::Value = report.run().expect(0).json();
        assert_eq!(report["functions"][0]["totals"]["count"], 10, "{report}");
    }
}

/// If measuring takes most of the program's time, the session reports it at once, with advice.
/// Other sessions do not.
#[test]
fn what_is_too_much_is_said() {
    let scratch = Scratch::new("heavy");
    let file = scratch.file("p.json");
    let path = file.display().to_string();
    // Nearly all of its time is spent in a recursive function, on more paths than are kept apart.
    let target = Target::start(program("recursion.c"), ["fib", "60"]);
    let pid = target.pid().to_string();
    let watched = |how: &str| {
        Run::ipath(["attach", &pid, "-f", "fib", how, "-o", &path])
            .args(["--interval", "500ms", "--duration", "6s"])
            .args(["--max-paths", "1000"])
            .run()
            .expect(0)
    };
    // Without summaries it is one line among the remarks.
    let quiet = watched("--quiet").stderr;
    assert_eq!(quiet.matches("measuring takes ").count(), 1, "{quiet}");
    let watched = watched("--no-tui");
    assert_eq!(watched.stderr, "");
    let mut summaries = watched.stdout.lines();
    let has_said = summaries.any(|line| line.starts_with("  measuring takes "));
    assert!(has_said, "{}", watched.report());
    let heavy = report(&file, &["--limit", "1"]).expect(0).stdout;
    let has = |part: &str| assert!(heavy.contains(part), "{part}: {heavy}");
    has("warning: measuring is expensive: ");
    // The share is printed once, and is at most 100 %.
    assert_eq!(heavy.matches(" % of its CPU time").count(), 1, "{heavy}");
    let overhead = Profile::read(&file).session.overhead.expect("known");
    assert!(overhead.share <= 1.0, "{overhead:?}");
    has(" calls are calls of fib, on ");
    has("are without their own path (more paths than --max-paths), the most expensive case");
    has("To reduce it: --collapse-recursion, which folds its recursion, or --depth N");
    has("--max-paths above the ");
    has("-m count for fib");
    // The measured part of the program is small.
    let light = Run::ipath(["run", "--no-tui", "-q", "-o", &path, "-f", "rounds", "--"]);
    let light = light.arg(program("counted_loop.c")).args(["1", "300"]);
    light.run().expect(0);
    let light = report(&file, &["--limit", "1"]).expect(0).stdout;
    assert!(!light.contains("is expensive"), "{light}");
}
