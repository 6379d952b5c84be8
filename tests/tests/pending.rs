//! Functions of libraries that are loaded later: they are instrumented before the library's own
//! code runs.

use ipath_tests::command::Run;
use ipath_tests::compile::{program_with, source};
use ipath_tests::place::{Scratch, ipath};
use ipath_tests::profile::{Profile, count};
use ipath_tests::program::Program;
use ipath_tests::session::own_counts;
use ipath_tests::snapshot::ProcessState;
use ipath_tests::target::Target;
use nix::sys::signal::Signal;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

fn library() -> PathBuf {
    program_with("dlopen_later_lib.c", &["-shared", "-fPIC"])
}

fn loading() -> PathBuf {
    program_with("dlopen_later.c", &["-rdynamic"])
}

/// Runs the program with these arguments, the first of which is the number of rounds, and checks
/// that all calls are counted. Returns the profile, and how often the library moved.
fn all_are_counted(arguments: &[&str]) -> (Profile, u64) {
    let scratch = Scratch::new("pending");
    let file = scratch.file("p.json");
    let library = library().display().to_string();
    let arguments = [&[library.as_str()], arguments].concat();
    let program = Program::new(&loading(), arguments);
    let plain = own_counts(&program.plain().expect(0).stdout);
    let finished = Run::ipath(["run", "--pending", "-f", "later", "-o"])
        .arg(&file)
        .arg("--")
        .arg(loading())
        .args(&program.args)
        .limit(LIMIT)
        .run()
        .expect(0);
    let own = own_counts(&finished.stdout);
    assert_eq!(own, plain, "{}", finished.report());
    let profile = Profile::read(&file);
    assert_eq!(calls(&profile), own["later"], "{}", finished.report());
    profile.assert_lossless();
    (profile, own["moved"])
}

/// The number of calls of `later`, summed over the addresses at which the library was loaded.
fn calls(profile: &Profile) -> u64 {
    let later = profile.functions.iter().filter(|f| f.name == "later");
    later.map(|f| count(&f.totals)).sum()
}

/// `dlopen_later`: the constructor's calls are counted as well.
#[test]
fn dlopen_later_counts_calls_of_the_constructor() {
    let (profile, _) = all_are_counted(&["1"]);
    let callers = profile.paths.iter().map(|path| {
        let frame = &profile.frames[path.stack[0]];
        frame.function.clone().expect("a name")
    });
    let mut callers: Vec<String> = callers.collect();
    callers.sort();
    callers.dedup();
    assert_eq!(callers, ["from_constructor", "main"]);
}

/// `dlclose_probed`: a thousand rounds at the same address.
#[test]
fn dlclose_probed_counts_all_calls_at_the_same_address() {
    let (profile, moved) = all_are_counted(&["1000"]);
    assert_eq!(moved, 0);
    assert!(profile.functions.len() <= 2, "{:?}", profile.functions);
    // A thousand waits for the library are not part of the overhead of calls.
    let overhead = profile.session.overhead.expect("what measuring takes");
    assert!(overhead.libraries_ns > overhead.total_ns, "{overhead:?}");
}

/// The library has a different address in each round.
#[test]
fn reload_elsewhere_counts_calls_at_each_address() {
    let (_, moved) = all_are_counted(&["40", "elsewhere"]);
    assert!(moved >= 20, "{moved}");
}

/// A pending pattern is added to a running process, displayed, and removed. Nothing is left.
#[test]
fn added_and_taken_back() {
    let library = library().display().to_string();
    let mut target =
        Target::start(loading(), [library.as_str(), "100", "x", "wait"]).await_output("ready");
    let id = target.pid().to_string();
    let on = |arguments: &[&str]| Run::ipath([arguments[0], &id]).args(&arguments[1..]).run();
    let missing = on(&["attach", "-f", "later", "--quiet", "--duration", "1ms"]);
    assert!(
        missing.expect_error().contains("later"),
        "{}",
        missing.report()
    );
    let hinted = on(&[
        "attach",
        "-f",
        "liblater*!later",
        "--quiet",
        "--duration",
        "1ms",
    ]);
    assert!(hinted.hints().contains("--pending"), "{}", hinted.report());
    let kept = on(&[
        "attach",
        "-f",
        "later",
        "--pending",
        "--keep",
        "--quiet",
        "--duration",
        "1ms",
    ])
    .expect(0);
    assert!(kept.report().contains("ipath top"), "{}", kept.report());
    let status = on(&["status"]).expect(0);
    assert!(
        status.stdout.contains("later  waits for libraries"),
        "{}",
        status.report()
    );
    let added = on(&["add", "-f", "from_*", "--pending"]).expect(0);
    assert!(
        added.stderr.contains("only while a command watches"),
        "{}",
        added.report()
    );
    // Metrics are removed from existing functions. Pending patterns stay pending.
    let measured = on(&["remove", "-f", "from_*", "-m", "wall"]);
    assert!(
        measured.expect_error().contains("from_*"),
        "{}",
        measured.report()
    );
    let status = on(&["status"]).expect(0);
    assert!(
        status.stdout.contains("from_*  waits for libraries"),
        "{}",
        status.report()
    );
    let removed = on(&["remove", "-f", "from_*"]).expect(0);
    assert!(removed.stdout.contains("from_*"), "{}", removed.report());
    let mut command = Command::new(ipath());
    let scratch = Scratch::new("pending");
    let file = scratch.file("p.json");
    command.args(["top", &id, "--no-tui", "-o"]).arg(&file);
    let mut top = Target::spawn(command).await_output("in all");
    target.signal(Signal::SIGTERM);
    let status = target.wait(LIMIT);
    assert!(status.success(), "{status}: {}", target.report());
    assert!(top.wait(LIMIT).success(), "{}", top.report());
    let own = own_counts(&target.stdout());
    assert_eq!(calls(&Profile::read(&file)), own["later"]);
}

/// A session is removed at once while a thread waits for the analysis of a library.
#[test]
fn detached_amid_loading() {
    let library = library().display().to_string();
    for _ in 0..4 {
        let arguments = [library.as_str(), "1000000000", "x", "wait"];
        let target = Target::start(loading(), arguments).await_output("ready");
        let id = target.pid().to_string();
        let mut command = Command::new(ipath());
        command.args(["attach", &id, "--pending", "--no-tui", "-f", "later"]);
        let mut watching = Target::spawn(command);
        let waits = |watching: &Target| watching.stderr().contains("'later' waits");
        watching.until(LIMIT, "said that it waits", |watching| waits(watching));
        target.signal(Signal::SIGTERM);
        watching.until(LIMIT, "put it in", |watching| {
            watching.stdout().contains("later")
        });
        Run::ipath(["detach", &id]).run().expect(0);
        assert!(watching.wait(LIMIT).success(), "{}", watching.report());
        assert_eq!(ProcessState::session_in(target.pid()), Vec::<String>::new());
        target.signal(Signal::SIGKILL);
    }
}

/// A child that is forked after a library was unloaded is measured as its parent is.
#[test]
fn children_of_what_has_unloaded() {
    let library = program_with("told_lib.c", &["-shared", "-fPIC"]);
    let load = format!("load:{}", library.display());
    let steps = [&load[..], "call:3", "unload", "fork:7"];
    let scratch = Scratch::new("pending");
    let file = scratch.file("p.json");
    let mut command = Command::new(ipath());
    command
        .args(["run", "--follow", "--pending", "--quiet", "-o"])
        .arg(&file);
    command.args(["-f", "note", "-f", "later", "--"]);
    command
        .arg(program_with("told.c", &["-rdynamic"]))
        .args(steps);
    let mut running = Target::spawn(command).await_output("ready");
    let child = Run::new("pgrep").args(["-P", &running.pid().to_string()]);
    let told: i32 = child
        .run()
        .expect(0)
        .stdout
        .trim()
        .parse()
        .expect("one child");
    let told = nix::unistd::Pid::from_raw(told);
    for step in 1..=steps.len() {
        nix::sys::signal::kill(told, Signal::SIGUSR1).expect("it waits");
        let line = format!("done {step}\n");
        running.until(LIMIT, "taken its step", |r| r.stdout().contains(&line));
    }
    nix::sys::signal::kill(told, Signal::SIGTERM).expect("it waits");
    assert!(running.wait(LIMIT).success(), "{}", running.report());
    assert!(
        !running.stderr().contains("not measured"),
        "{}",
        running.report()
    );
    let profile = Profile::read(&file);
    assert_eq!(calls(&profile), 3);
    assert_eq!(profile.calls("note"), 3 + 7, "{}", running.report());
}

/// A watching command traces briefly for each new library. A changing command waits for that and
/// succeeds.
#[test]
fn changed_while_libraries_come() {
    let library = library().display().to_string();
    let arguments = [library.as_str(), "1000000000", "x", "wait"];
    let target = Target::start(loading(), arguments).await_output("ready");
    let id = target.pid().to_string();
    let mut command = Command::new(ipath());
    command.args(["attach", &id, "--pending", "--no-tui", "-f", "later"]);
    let mut watching = Target::spawn(command).await_output("in all");
    target.signal(Signal::SIGTERM);
    watching.until(LIMIT, "put it in", |watching| {
        watching.stdout().contains("later")
    });
    for _ in 0..20 {
        for change in ["add", "remove"] {
            Run::ipath([change, &id, "-f", "count_call"])
                .run()
                .expect(0);
        }
    }
    Run::ipath(["detach", &id]).run().expect(0);
    assert!(watching.wait(LIMIT).success(), "{}", watching.report());
    target.signal(Signal::SIGKILL);
}

/// A child that immediately loads a library waits for its functions as its parent does.
#[test]
fn loaded_by_children() {
    let scratch = Scratch::new("pending");
    let file = scratch.file("p.json");
    let finished = Run::ipath(["run", "--follow", "--pending", "--quiet", "-f", "later"])
        .arg("-o")
        .arg(&file)
        .arg("--")
        .arg(program_with("forked_loads.c", &["-rdynamic"]))
        .arg(library())
        .arg("30")
        .limit(LIMIT)
        .run()
        .expect(0);
    let own = own_counts(&finished.stdout);
    assert_eq!(
        calls(&Profile::read(&file)),
        own["later"],
        "{}",
        finished.report()
    );
}

/// A pattern that matched in one of several processes is not reported as unmatched. A pattern that
/// matched in none is.
#[test]
fn what_waits_in_vain_is_said() {
    let scratch = Scratch::new("pending");
    let file = scratch.file("p.json");
    let script = format!("{} {} 1; true", loading().display(), library().display());
    let report = |pattern: &str| {
        Run::ipath([
            "run",
            "--follow",
            "--pending",
            "--quiet",
            "-f",
            pattern,
            "-o",
        ])
        .arg(&file)
        .args(["--", "sh", "-c", &script])
        .limit(LIMIT)
        .run()
        .expect(0);
        Run::ipath(["report"]).arg(&file).run().expect(0).stdout
    };
    let met = report("later");
    assert!(!met.contains("waits for a library"), "{met}");
    assert!(calls(&Profile::read(&file)) > 0, "{met}");
    let unmet = report("neither_here_nor_there");
    let note = "note: 'neither_here_nor_there' waits for a library";
    assert!(unmet.contains(note), "{unmet}");
}

/// Functions of libraries that musl's loader loads later are counted.
#[test]
fn musl_loads_later() {
    let scratch = Scratch::new("pending");
    let musl = |name: &str, flags: &[&str]| {
        let output = scratch.file(name);
        let compile = Run::new("musl-gcc").args(["-O1", "-o"]).arg(&output);
        compile.args(flags).arg(source(name)).run().expect(0);
        output
    };
    let library = musl("dlopen_later_lib.c", &["-shared", "-fPIC"]);
    let program = musl("dlopen_later.c", &["-rdynamic"]);
    let file = scratch.file("p.json");
    let finished = Run::ipath(["run", "--pending", "-f", "later", "-o"])
        .arg(&file)
        .arg("--")
        .arg(program)
        .arg(library)
        .arg("3")
        .run()
        .expect(0);
    let own = own_counts(&finished.stdout);
    // musl's dlclose does nothing. The destructor runs at the very end, after the program has
    // printed its counts.
    assert_eq!(calls(&Profile::read(&file)), own["later"] + 1);
}

/// A function of numpy's linear algebra, which Python loads while it runs, is counted.
#[test]
fn python_with_numpy_later() {
    let scratch = Scratch::new("pending");
    let file = scratch.file("p.json");
    let script = "import numpy\na = numpy.ones((8, 8))\nfor _ in range(50): a = a @ numpy.ones((8, 8)) / 8\nprint(a[0][0])";
    let finished = Run::ipath(["run", "--pending", "-f", "*blas*!cblas_dgemm", "-o"])
        .arg(&file)
        .args(["--", "/usr/bin/python3", "-c", script])
        .limit(LIMIT)
        .run()
        .expect(0);
    assert_eq!(finished.stdout, "1.0\n", "{}", finished.report());
    let profile = Profile::read(&file);
    let calls: u64 = profile.functions.iter().map(|f| count(&f.totals)).sum();
    assert_eq!(calls, 50, "{}", finished.report());
}

/// A program without a loader is refused, because nothing would report new libraries.
#[test]
fn programs_without_a_loader_are_refused() {
    let scratch = Scratch::new("pending");
    let program = scratch.file("sleeper");
    let compile = Run::new("musl-gcc")
        .args(["-O1", "-static", "-o"])
        .arg(&program);
    compile.arg(source("sleeper.c")).run().expect(0);
    let target = Target::start(program, ["60"]).await_output("ready");
    let refused = Run::ipath(["attach", &target.pid().to_string()])
        .args([
            "-f",
            "nothing_yet",
            "--pending",
            "--quiet",
            "--duration",
            "1ms",
        ])
        .run();
    let error = refused.expect_error();
    assert!(error.contains("_dl_debug_state"), "{}", refused.report());
    assert_eq!(ProcessState::session_in(target.pid()), Vec::<String>::new());
}

/// A pattern that matched too many functions of a program is not reported as unmatched.
#[test]
fn what_a_program_has_had_does_not_wait() {
    let scratch = Scratch::new("pending");
    let file = scratch.file("profile.json");
    let run = [
        "run",
        "--follow",
        "--pending",
        "-f",
        "ls!*",
        "-f",
        "nosuch",
        "-o",
    ];
    let shell = ["--", "sh", "-c", "ls > /dev/null; true"];
    let finished = Run::ipath(run).arg(&file).args(shell).run().expect(0);
    assert!(
        finished.stderr.contains("ls is not measured"),
        "{}",
        finished.report()
    );
    let said = Run::ipath(["report"]).arg(&file).run().expect(0).stdout;
    assert!(said.contains("'nosuch' waits for a library"), "{said}");
    assert!(!said.contains("'ls!*' waits"), "{said}");
}
