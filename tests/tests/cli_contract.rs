//! The commands, exit statuses and formats that scripts rely on.

use ipath_tests::command::Run;
use ipath_tests::compile::program;
use ipath_tests::place::{Scratch, ipath};
use ipath_tests::profile::Profile;
use ipath_tests::program::Program;
use ipath_tests::session::listed;
use ipath_tests::symbols::sites;
use ipath_tests::target::Target;
use ipath_tests::terminal::Terminal;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

const COMMANDS: &[&str] = &[
    "attach", "run", "list", "status", "top", "add", "remove", "snapshot", "detach", "report",
    "export", "doctor", "demo",
];

/// The help names each command, and each command has a help of its own.
#[test]
fn help_and_version() {
    let help = Run::ipath(["--help"]).run().expect(0);
    for command in COMMANDS {
        assert!(
            help.stdout.contains(command),
            "{command} is not in the help:\n{}",
            help.stdout
        );
        let own = Run::ipath([command, "--help"]).run().expect(0);
        assert!(own.stdout.contains("Usage"), "{}", own.report());
    }
    assert!(
        Run::ipath(["help"])
            .run()
            .expect(0)
            .stdout
            .contains("attach")
    );
    assert!(
        Run::ipath(["--version"])
            .run()
            .expect(0)
            .stdout
            .starts_with("ipath ")
    );
}

/// A program starts with the same signals and descriptors as without ipath, even where Rust's
/// runtime changed them for ipath.
#[test]
fn run_hands_on_what_it_was_given() {
    const ASK: &str = "grep SigIgn /proc/self/status; \
                       for fd in 0 2; do test -e /proc/self/fd/$fd && echo $fd || echo closed; done";
    let scratch = Scratch::new("handed-on");
    let run = format!(
        "{} run --no-tui -m count -f 'libc*!malloc' -o {} -- sh -c '{ASK}'",
        ipath().display(),
        scratch.file("p.json").display()
    );
    let begin = |begin: &str, command: &str| {
        let script = format!("trap '' PIPE; exec {begin} 0<&-; {command}");
        let shown = Run::new("sh").args(["-c", &script]).run().expect(0);
        let lines = shown.stdout.lines().take(3).map(str::to_owned);
        lines.collect::<Vec<_>>()
    };
    let plain = begin("", ASK);
    assert_eq!(plain[1..], ["closed", "2"]);
    assert_eq!(begin("", &run), plain);
}

/// `run` ends with the program's exit status, or with 128 + N if signal N ended the program.
#[test]
fn exit_status_of_run() {
    let endings = program("endings.c");
    let scratch = Scratch::new("endings");
    let file = scratch.file("p.json");
    for (how, number, code) in [
        ("exit", 0, 0),
        ("exit", 7, 7),
        ("exit", 255, 255),
        ("signal", 15, 143),
        ("signal", 9, 137),
        ("signal", 11, 139),
        ("signal", 6, 134),
    ] {
        let program = Program::new(&endings, [how.to_owned(), number.to_string()]);
        let ours = program
            .under_ipath(&["step"], "count,wall", &file)
            .expect(code);
        assert!(ours.stdout.contains("sum 12"), "{}", ours.report());
        assert_eq!(Profile::read(&file).calls("step"), 3, "{how} {number}");
        fs::remove_file(&file).expect("the profile");
    }
}

#[test]
fn count_alone_patches_no_exit() {
    let scratch = Scratch::new("count");
    let file = scratch.file("p.json");
    let program = Program::new(&program("endings.c"), ["exit", "0"]);
    program.under_ipath(&["step"], "count", &file).expect(0);
    let profile = Profile::read(&file);
    let function = profile.function("step").expect("step");
    assert!(
        function.exits.is_empty() && function.entry.is_string(),
        "{function:?}"
    );
    assert_eq!((profile.losses.open, profile.losses.unwound), (None, None));
    program
        .under_ipath(&["step"], "count,wall", &file)
        .expect(0);
    let profile = Profile::read(&file);
    let function = profile.function("step").expect("step");
    assert!(!function.exits.is_empty(), "{function:?}");
    assert_eq!(profile.losses.open, Some(0));
    let wall = &function.totals["wall"];
    let field = |name| {
        wall[name]
            .as_u64()
            .unwrap_or_else(|| panic!("no {name} in {wall}"))
    };
    assert!(
        field("min") <= field("max") && field("max") <= field("sum"),
        "{wall}"
    );
    assert_eq!(
        (field("outermost"), field("exclusive")),
        (field("sum"), field("sum"))
    );
    for path in &profile.paths {
        let hist = path.metrics["wall"]["hist"]
            .as_array()
            .expect("a histogram");
        let calls: u64 = hist
            .iter()
            .map(|pair| pair[1].as_u64().expect("[k, n]"))
            .sum();
        assert_eq!(Some(calls), path.metrics["count"].as_u64());
    }
}

#[test]
fn the_profile_says_where_it_comes_from() {
    let scratch = Scratch::new("origin");
    let file = scratch.file("p.json");
    let endings = program("endings.c");
    Program::new(&endings, ["exit", "0"])
        .under_ipath(&["step"], "count,wall", &file)
        .expect(0);
    let profile = Profile::read(&file);
    assert_eq!(profile.target.exe, endings.display().to_string());
    assert_eq!(profile.target.args[1..], ["exit", "0"]);
    assert!(profile.session.elapsed_ns > 0 && profile.session.clock_hz > 1_000_000);
    let function = profile.function("step").expect("step");
    assert_eq!(vec![function.address], addresses(&endings, "step"));
    let module = &profile.modules[function.module];
    assert_eq!(module.path, endings.display().to_string());
    let notes = Run::new("readelf")
        .arg("-n")
        .arg(&endings)
        .run()
        .expect(0)
        .stdout;
    let id = notes
        .lines()
        .find_map(|l| l.trim().strip_prefix("Build ID: ").map(str::to_owned));
    assert_eq!(module.build_id, id);
    let main = profile
        .frames
        .iter()
        .find(|f| f.function.as_deref() == Some("main"));
    assert!(main.is_some(), "{:?}", profile.frames);
}

fn addresses(file: &std::path::Path, function: &str) -> Vec<u64> {
    sites(file, function)
        .into_iter()
        .map(|site| site.address)
        .collect()
}

#[test]
fn list_json_has_addresses_sizes_and_coverage() {
    let file = program("paths.c");
    let listed = Run::ipath(["list", "--json"])
        .arg(&file)
        .args(["work", "down"])
        .run()
        .expect(0)
        .json();
    let functions = listed["functions"].as_array().expect("functions");
    assert_eq!(functions.len(), 2, "{listed}");
    for function in functions {
        let name = function["name"].as_str().expect("a name");
        let address = function["address"].as_u64().expect("an address");
        assert_eq!(vec![address], addresses(&file, name));
        assert_eq!(function["linkage"], name);
        assert!(
            function["size"].as_u64() > Some(0) && function["inlined"].is_u64(),
            "{function}"
        );
        assert!(
            function["aliases"].is_array() && function["exits"].is_array(),
            "{function}"
        );
        assert!(
            function["refused"].is_null() && function["entry"].is_string(),
            "{function}"
        );
        assert!(
            function
                .as_object()
                .is_some_and(|f| f.contains_key("module")),
            "{function}"
        );
    }
    let coverage = &listed["coverage"];
    for field in ["functions", "entry", "full"] {
        assert_eq!(coverage[field], 2, "{coverage}");
    }
    assert!(coverage["refused"].is_object(), "{coverage}");
    let text = Run::ipath(["list"]).arg(&file).arg("work").run().expect(0);
    assert!(
        text.stdout.contains("work") && text.stdout.contains("window"),
        "{}",
        text.report()
    );
}

/// `list` finds functions of a process by glob, regular expression, module and address.
#[test]
fn list_of_a_process_and_of_patterns() {
    let file = program("busy.c");
    let target = Target::start(&file, ["1", "60"]).await_output("ready");
    let pid = target.pid().to_string();
    let names = |args: &[&str]| {
        let listed = Run::ipath(["list", "--json", &pid])
            .args(args)
            .run()
            .expect(0)
            .json();
        let functions = listed["functions"].as_array().expect("functions").clone();
        let name = |f: &Value| f["linkage"].as_str().expect("a linkage").to_owned();
        functions.iter().map(name).collect::<BTreeSet<_>>()
    };
    let both = BTreeSet::from(["add_left".to_owned(), "add_right".to_owned()]);
    assert_eq!(names(&["busy_c!add_*"]), both);
    assert_eq!(names(&["/^add_(left|right)$/"]), both);
    assert_eq!(names(&["busy_c!add_????", "busy_c!add_rig*"]), both);
    let address = addresses(&file, "step")[0];
    assert_eq!(
        names(&[&format!("busy_c+{address:#x}")]),
        BTreeSet::from(["step".to_owned()])
    );
    assert!(names(&["libc.so.6!malloc"]).contains("malloc"));
    assert!(names(&[]).is_superset(&both));
    target.finish("ok calls ");
}

#[test]
fn a_demangled_name_selects() {
    let listed = Run::ipath(["list", "--json"])
        .arg(program("paths.cc"))
        .arg("geometry::area");
    let listed = listed.run().expect(0).json();
    assert_eq!(listed["functions"][0]["linkage"], "_ZN8geometry4areaEl");
    assert_eq!(listed["functions"][0]["name"], "geometry::area(long)");
    assert_eq!(listed["functions"].as_array().map(Vec::len), Some(1));
}

/// Reports and exports have the calls of the profile.
#[test]
fn report_and_export() {
    let scratch = Scratch::new("report");
    let file = scratch.file("p.json");
    let program = Program::new(&program("paths.c"), [""; 0]);
    program
        .under_ipath(&["work"], "count,wall", &file)
        .expect(3);
    let calls = Profile::read(&file).calls("work");
    let report = Run::ipath(["report"]).arg(&file).run().expect(0);
    for word in ["work", "big_frame", "down", &calls.to_string()] {
        assert!(
            report.stdout.contains(word),
            "{word} is not in\n{}",
            report.report()
        );
    }
    let json = scratch.file("again.json");
    let export = |format: &str, out: &std::path::Path| {
        let run = Run::ipath(["export"])
            .arg(&file)
            .args(["--to", format, "-o"])
            .arg(out);
        run.run().expect(0);
        fs::read_to_string(out).expect("the exported file")
    };
    let again: Value = serde_json::from_str(&export("json", &json)).expect("JSON");
    let first: Value =
        serde_json::from_str(&fs::read_to_string(&file).expect("p.json")).expect("JSON");
    assert_eq!(again, first);
    let out = scratch.file("folded");
    let run = Run::ipath(["export"])
        .arg(&file)
        .args(["--to", "folded", "--metric", "count", "-o"]);
    run.arg(&out).run().expect(0);
    let folded = fs::read_to_string(&out).expect("folded");
    let value = |line: &str| line.rsplit(' ').next().and_then(|v| v.parse::<u64>().ok());
    let sum: u64 = folded
        .lines()
        .map(|line| value(line).expect("a value"))
        .sum();
    assert_eq!(sum, calls);
    assert!(
        folded
            .lines()
            .all(|line| line.split(' ').next_back().is_some() && line.contains(";work "))
    );
}

/// The bars of a report are the histograms of the profile's paths.
#[test]
fn report_with_histograms() {
    let scratch = Scratch::new("histogram");
    let file = scratch.file("p.json");
    let program = Program::new(&program("paths.c"), [""; 0]);
    program
        .under_ipath(&["work"], "count,wall,cycles", &file)
        .expect(3);
    let report = |options: &[&str]| Run::ipath(["report"]).arg(&file).args(options).run();
    let text = report(&["--histogram", "--paths", "1", "--depth", "1"]).expect(0);
    let profile = Profile::read(&file);
    for metric in ["wall", "cycles"] {
        let mut buckets: BTreeMap<u64, u64> = BTreeMap::new();
        for path in &profile.paths {
            let hist = path.metrics[metric]["hist"].as_array();
            for pair in hist.expect("a histogram") {
                let number = |i: usize| pair[i].as_u64().expect("[k, n]");
                *buckets.entry(number(0)).or_default() += number(1);
            }
        }
        let shown = text.stdout.lines();
        let shown = shown.skip_while(|line| !line.starts_with(&format!("  {metric} of ")));
        let shown = shown.take_while(|line| !line.is_empty());
        // Calls come before their share and its bar.
        let counts = shown.filter(|line| line.contains('#')).map(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            words[words.len() - 4].parse::<u64>().expect("calls")
        });
        let counts: Vec<u64> = counts.collect();
        assert!(!counts.is_empty(), "{}", text.report());
        let expected: Vec<u64> = buckets.into_values().collect();
        assert_eq!(counts, expected, "{}", text.report());
    }
    assert!(text.stdout.contains("p99.9 "), "{}", text.report());
    let first = report(&["--metric", "cycles"]).expect(0);
    assert!(first.stdout.contains("  cycles  "), "{}", first.report());
    let none = report(&["--metric", "cpu"]).expect_usage();
    let cause = "the profile has no metric `cpu`, only count, wall, cycles";
    assert!(none.contains(cause), "{none}");
}

#[test]
fn summaries_go_to_standard_output() {
    let target = Target::start(program("busy.c"), ["1", "60"]).await_output("ready");
    let pid = target.pid().to_string();
    let attach = |format: &str| {
        Run::ipath([
            "attach",
            &pid,
            "-f",
            "step",
            "--duration",
            "500ms",
            "--format",
            format,
        ])
        .run()
        .expect(0)
    };
    assert!(attach("text").stdout.contains("step"));
    assert_eq!(attach("json").json()["schema"], "ipath-profile/1");
    let lines = attach("jsonl").stdout;
    let whole = lines
        .lines()
        .all(|l| serde_json::from_str::<Value>(l).is_ok());
    assert!(whole && !lines.is_empty(), "{lines}");
    target.finish("ok calls ");
}

#[test]
fn status_lists_sessions() {
    let target = Target::start(program("busy.c"), ["1", "60"]).await_output("ready");
    let pid = target.pid().to_string();
    assert_eq!(listed(target.pid()), None);
    Run::ipath([
        "attach",
        &pid,
        "-f",
        "step",
        "--keep",
        "--no-tui",
        "--duration",
        "100ms",
    ])
    .run()
    .expect(0);
    let of_it = listed(target.pid()).expect("a session");
    assert!(of_it.contains("step"), "{of_it}");
    // Another user gets one line about all sessions.
    let other = Run::ipath(["status"]).as_nobody().run().expect(0);
    let unread = other
        .stderr
        .lines()
        .filter(|l| l.contains("cannot be read"));
    assert_eq!(
        (unread.count(), other.stderr.lines().count()),
        (1, 1),
        "{}",
        other.report()
    );
    assert!(!other.stdout.contains(&pid), "{}", other.report());
    Run::ipath(["detach", &pid]).run().expect(0);
    assert_eq!(listed(target.pid()), None);
    target.finish("ok calls ");
}

/// `doctor` prints its findings with status 0 or 1, and `demo` prints a summary.
#[test]
fn doctor_and_demo() {
    let doctor = Run::ipath(["doctor"]).run();
    assert!([0, 1].contains(&doctor.code()), "{}", doctor.report());
    assert!(
        doctor.stdout.lines().count() > 3 && doctor.stdout.contains("pass"),
        "{}",
        doctor.report()
    );
    let demo = Run::ipath(["demo", "--duration", "1s", "--no-tui"])
        .run()
        .expect(0);
    assert!(demo.stdout.lines().count() > 5, "{}", demo.report());
}

#[test]
fn closed_stdout_ends_the_list_without_a_panic() {
    let target = Target::start(program("busy.c"), ["1", "60"]).await_output("ready");
    let pid = target.pid();
    let shell = format!(
        "{} list {pid} --json --all-modules | head -c 10",
        ipath().display()
    );
    let finished = Run::new("sh").args(["-c", &shell]).run();
    assert!(
        !finished.stderr.contains("panicked"),
        "{}",
        finished.report()
    );
    let out = &finished.stdout;
    assert!(
        out.len() == 10 && out.starts_with('{'),
        "{}",
        finished.report()
    );
    target.finish("ok calls ");
}

#[test]
fn terminal_resize_redraws_the_view() {
    let target = Target::start(program("busy.c"), ["1", "120"]).await_output("ready");
    let command = format!(
        "{} attach {} -f step; echo left=$?; sleep 60",
        ipath().display(),
        target.pid()
    );
    let terminal = Terminal::start(&command);
    // The heaviest caller is expanded. Which one that is depends on a few nanoseconds.
    let words = ["step", "down", "q quit"];
    let live = terminal.shows(&words);
    // Too small for any content, then the original size, then wider.
    for (width, height) in [(20, 4), (120, 40), (200, 50)] {
        terminal.resize(width, height);
        std::thread::sleep(Duration::from_millis(300));
    }
    let resized = terminal.shows(&words);
    terminal.keys(&["q"]);
    let left = terminal.shows(&["left=0"]);
    for word in words {
        assert!(live.contains(word), "{word} is not on the screen:\n{live}");
        assert!(
            resized.contains(word),
            "after resizing, no {word}:\n{resized}"
        );
    }
    assert!(left.contains("left=0"), "{left}");
    target.finish("ok calls ");
}

/// A background job, such as a launcher of parallel programs starts, can write to the terminal but
/// not control it. It prints, and is not stopped for attempting more.
#[test]
fn a_job_in_the_background_prints() {
    // The terminal's own program ignores the signals of job control.
    let command = format!(
        "env --default-signal bash -c 'set -m; {} run -f step -- {} 1 3 & wait %1; echo left=$?; sleep 60'",
        ipath().display(),
        program("busy.c").display()
    );
    let terminal = Terminal::start(&command);
    let left = terminal.shows(&["left="]);
    assert!(left.contains("left=0"), "{left}");
}
