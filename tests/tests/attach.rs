//! Attaching to running programs: they keep working, and nothing is left behind.

use ipath_tests::command::Run;
use ipath_tests::compile::program;
use ipath_tests::place::{Scratch, ipath};
use ipath_tests::profile::Profile;
use ipath_tests::session::{Session, listed};
use ipath_tests::snapshot::ProcessState;
use ipath_tests::target::Target;
use ipath_tests::terminal::Terminal;
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// `busy` with a shared counter file.
fn busy(threads: &str, scratch: &Scratch) -> Target {
    let counter = scratch.file("counter").display().to_string();
    Target::start_nice(program("busy.c"), [threads, "300", &counter]).await_output("ready")
}

/// The number of calls of `step` so far, as the program itself counts them.
fn counted(scratch: &Scratch) -> u64 {
    let bytes = std::fs::read(scratch.file("counter")).expect("the counter file");
    let lines = bytes
        .chunks_exact(64)
        .map(|c| u64::from_le_bytes(c[..8].try_into().expect("8 bytes")));
    lines.sum()
}

/// Commands report that processes which the target has started are not included, and name the
/// options that include them. They may be workers that the user meant to measure.
#[test]
fn workers_are_said_not_to_be_measured() {
    let script = "while :; do sleep 100; done & echo ready; wait";
    let server = Target::start("bash", ["-c", script]).await_output("ready");
    let pid = server.pid();
    // A new process may be short-lived and does not count as a worker.
    std::thread::sleep(Duration::from_millis(1100));
    let scratch = Scratch::new("workers");
    let attach = |more: &[&str]| {
        let run = attach(pid, &["wait_for"], "1ms", &scratch.file("p.json"));
        run.args(more).run().expect(0)
    };
    let said = "a process that it has started runs the same program and is not measured";
    for (more, otherwise) in [
        (&[][..], "--follow measures the processes that it starts"),
        (&["--follow"], "processes that start from now on"),
    ] {
        let attached = attach(more);
        let is_said = |line: &str| {
            [said, otherwise, "--children measures them"]
                .iter()
                .all(|words| line.contains(words))
        };
        assert!(
            attached.stderr.lines().any(is_said),
            "{}",
            attached.report()
        );
    }
    let pid = pid.to_string();
    for (command, words) in [
        (
            &["suggest", &pid, "--duration", "1ms"][..],
            "not sampled: --children samples them",
        ),
        (
            &["attach", &pid, "--search", "--duration", "1ms"],
            "not measured: --children searches in them",
        ),
    ] {
        let said = Run::ipath(command).run();
        assert!(said.stderr.contains(words), "{}", said.report());
    }
}

/// Without a function `attach` opens the session of a process. It refuses to begin a second one
/// before it samples or analyzes anything.
#[test]
fn a_session_that_exists_is_opened() {
    let scratch = Scratch::new("existing");
    let target = busy("1", &scratch);
    let pid = target.pid().to_string();
    let session = Session::attach(target.pid(), &["step"]);
    let file = scratch.file("p.json");
    let shown = Run::ipath(["attach", &pid, "--duration", "300ms", "-o"]);
    let shown = shown.arg(&file).run().expect(0);
    let is_said = shown.stderr.contains(&format!("`ipath detach {pid}`"));
    assert!(
        is_said && shown.stdout.contains("step"),
        "{}",
        shown.report()
    );
    assert!(Profile::read(&file).calls("step") > 0);
    for more in [
        &["-f", "down"][..],
        &["-f", "down", "--follow"],
        &["--search"],
        &["--search", "-f", "down"],
    ] {
        let refused = Run::ipath(["attach", &pid]).args(more).run();
        let error = refused.expect_error();
        assert!(error.contains("has a session already"), "{error}");
        let add = format!("`ipath add {pid} -f FUNC`");
        assert!(refused.hints().contains(&add), "{}", refused.report());
    }
    Run::ipath(["attach", &pid, "-m", "bogus"])
        .run()
        .expect_usage();
    let command = format!(
        "{} attach {pid}; echo left=$?; sleep 600",
        ipath().display()
    );
    let terminal = Terminal::start(&command);
    terminal.shows(&["step", "CALLS"]);
    terminal.keys(&["q"]);
    terminal.shows(&["left=0"]);
    assert!(listed(target.pid()).is_some());
    session.detach();
    let none = Run::ipath(["attach", &pid, "--no-tui"]).run();
    assert!(none.expect_error().contains("no function is named"));
    target.finish("ok calls ");
}

/// `ipath attach` for this time, which writes its profile to a file.
fn attach(pid: u32, functions: &[&str], duration: &str, profile: &Path) -> Run {
    let patterns = functions.iter().flat_map(|f| ["-f", f]);
    Run::ipath([
        "attach",
        &pid.to_string(),
        "-m",
        "count,wall",
        "--no-tui",
        "--duration",
        duration,
    ])
    .args(patterns)
    .arg("-o")
    .arg(profile)
}

/// The process is unchanged after a session, which counted at most as many calls as were made.
#[test]
fn detach_leaves_nothing() {
    let scratch = Scratch::new("attach");
    let target = busy("2", &scratch);
    let before = ProcessState::of(target.pid());
    let profile = scratch.file("p.json");
    let count_before = counted(&scratch);
    attach(target.pid(), &["step"], "2s", &profile)
        .run()
        .expect(0);
    let most = counted(&scratch) - count_before;
    before.assert_unchanged(target.pid());
    let profile = Profile::read(&profile);
    let calls = profile.calls("step");
    assert!(
        (1000..=most).contains(&calls),
        "{calls} calls counted of {most} made"
    );
    profile.assert_lossless();
    println!("stops: {}", profile.stops().1);
    assert!(!profile.session.stops.is_empty());
    assert_eq!(profile.target.pid, target.pid());
    target.finish("ok calls ");
}

/// Every path is complete, and there is one for each way to the function, although the program runs
/// before ipath attaches.
#[test]
fn attached_paths_are_complete() {
    let scratch = Scratch::new("attach-paths");
    let target = busy("2", &scratch);
    let file = scratch.file("p.json");
    attach(target.pid(), &["step"], "500ms", &file)
        .run()
        .expect(0);
    let profile = Profile::read(&file);
    // add_left, add_right, jump by the table, and down at depths 0 to 22, each ending in `jump`,
    // whose tail call leaves no frame of its own
    assert_eq!(profile.paths.len(), 3 + 23, "{:?}", profile.paths);
    assert!(profile.paths.iter().all(|path| path.complete));
    target.finish("ok calls ");
}

/// A hundred sessions one after the other leave the process as it was.
#[test]
fn attach_detach_rounds() {
    let scratch = Scratch::new("rounds");
    let target = busy("8", &scratch);
    let before = ProcessState::of(target.pid());
    let file = scratch.file("p.json");
    let mut longest = 0;
    let start = Instant::now();
    for round in 0..100 {
        let functions: &[&str] = if round % 2 == 0 {
            &["step"]
        } else {
            &["step", "down", "mix"]
        };
        attach(target.pid(), functions, "20ms", &file)
            .run()
            .expect(0);
        let profile = Profile::read(&file);
        longest = longest.max(profile.stops().0);
        assert_eq!(target.stdout(), "ready\n", "round {round}");
    }
    println!(
        "100 rounds in {:?}, longest stop {} us",
        start.elapsed(),
        longest / 1000
    );
    before.assert_unchanged(target.pid());
    target.finish("ok calls ");
}

#[test]
fn every_call_since_attach_is_counted() {
    let scratch = Scratch::new("counter");
    let mut target = busy("4", &scratch);
    let file = scratch.file("p.json");
    let pid = target.pid();
    let mut command = Command::new(ipath());
    command
        .args([
            "attach",
            &pid.to_string(),
            "-f",
            "step",
            "-m",
            "count",
            "--no-tui",
            "-o",
        ])
        .arg(&file);
    let mut session = Target::spawn(command);
    // A session lists its functions before it installs their probes.
    session.until(Duration::from_secs(20), "counted", |_| {
        let so_far = scratch.file("so-far.json");
        let snapshot = Run::ipath(["snapshot", &pid.to_string(), "-o"]).arg(&so_far);
        snapshot.run().code() == 0 && Profile::read(&so_far).calls("step") > 0
    });
    let before = counted(&scratch);
    std::thread::sleep(Duration::from_millis(300));
    let after = counted(&scratch);
    target.signal(nix::sys::signal::Signal::SIGTERM);
    assert!(target.wait(Duration::from_secs(20)).success());
    assert!(
        session.wait(Duration::from_secs(20)).success(),
        "{}",
        session.report()
    );
    let total = counted(&scratch);
    let calls = Profile::read(&file).calls("step");
    // All calls after `before` are in the profile, up to the target's end.
    assert!(
        calls >= total - before,
        "{calls} counted, {} made since",
        total - before
    );
    assert!(
        calls <= total && after > before,
        "{calls} counted, {total} made"
    );
}

/// The lines of a session's JSONL output so far.
fn records(session: &Target) -> Vec<Value> {
    let text = session.stdout();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let parse = |l: &str| serde_json::from_str(l).unwrap_or_else(|e| panic!("{e}: {l}"));
    whole.lines().map(parse).collect()
}

/// The number of calls of a function in the latest record; `None` if there is no record, or the
/// record does not have the function.
fn latest(session: &Target, function: &str) -> Option<u64> {
    let last = records(session).pop()?;
    let functions = last["functions"].as_array()?;
    functions.iter().find(|f| f["name"] == function)?["totals"]["count"].as_u64()
}

/// A watching command shows functions that another command adds, and counts none that is removed.
#[test]
fn add_remove_while_watching() {
    let scratch = Scratch::new("watch");
    let target = busy("2", &scratch);
    let before = ProcessState::of(target.pid());
    let pid = target.pid().to_string();
    let file = scratch.file("p.json");
    let mut command = Command::new(ipath());
    command.args([
        "attach", &pid, "-f", "step", "--no-tui", "--format", "jsonl",
    ]);
    command
        .args(["--interval", "100ms", "--duration", "60s", "-o"])
        .arg(&file);
    let mut watching = Target::spawn(command);
    let limit = Duration::from_secs(15);
    watching.until(limit, "shown step", |w| latest(w, "step") > Some(0));
    assert_eq!(latest(&watching, "down"), None);

    Run::ipath(["add", &pid, "-f", "down"]).run().expect(0);
    watching.until(limit, "shown down", |w| latest(w, "down") > Some(0));
    let status = Run::ipath(["status", &pid]).run().expect(0);
    assert!(
        status.stdout.contains("down") && status.stdout.contains("step"),
        "{}",
        status.report()
    );

    Run::ipath(["remove", &pid, "-f", "down"]).run().expect(0);
    std::thread::sleep(Duration::from_millis(300));
    let (down, step) = (latest(&watching, "down"), latest(&watching, "step"));
    watching.until(limit, "gone on counting step", |w| latest(w, "step") > step);
    let later = latest(&watching, "down");
    assert!(
        later.is_none() || later == down,
        "down is still counted: {down:?}, {later:?}"
    );

    watching.signal(nix::sys::signal::Signal::SIGINT);
    assert!(watching.wait(limit).success(), "{}", watching.report());
    let profile = Profile::read(&file);
    assert!(profile.calls("step") > 0);
    before.assert_unchanged(target.pid());
    target.finish("ok calls ");
}

/// `--keep` leaves the session in the process, where later commands read, change and end it.
#[test]
fn a_kept_session() {
    let scratch = Scratch::new("keep");
    let target = busy("2", &scratch);
    let before = ProcessState::of(target.pid());
    let pid = target.pid().to_string();
    let kept = Run::ipath([
        "attach",
        &pid,
        "-f",
        "step",
        "--keep",
        "--no-tui",
        "--duration",
        "200ms",
    ]);
    kept.run().expect(0);
    let tracer = &ProcessState::of(target.pid()).status["TracerPid"];
    assert_eq!(tracer, "0", "nothing is attached between changes");
    let file = scratch.file("p.json");
    let snapshot = || {
        Run::ipath(["snapshot", &pid, "-o"])
            .arg(&file)
            .run()
            .expect(0);
        Profile::read(&file)
    };
    let first = snapshot().calls("step");
    std::thread::sleep(Duration::from_millis(100));
    let second = snapshot().calls("step");
    assert!(0 < first && first < second, "{first}, then {second}");
    Run::ipath(["add", &pid, "-f", "down"]).run().expect(0);
    std::thread::sleep(Duration::from_millis(100));
    assert!(snapshot().calls("down") > 0);
    Run::ipath(["remove", &pid, "-f", "step"]).run().expect(0);
    Run::ipath(["detach", &pid, "-o"])
        .arg(&file)
        .run()
        .expect(0);
    assert!(Profile::read(&file).calls("down") > 0);
    before.assert_unchanged(target.pid());
    let none = Run::ipath(["snapshot", &pid, "-o"]).arg(&file).run();
    none.expect_error();
    target.finish("ok calls ");
}

/// A process is named by `-p PID` or by its name, and several functions by one `-f`.
#[test]
fn processes_and_functions_have_short_forms() {
    let scratch = Scratch::new("short-forms");
    let name = format!("short-{}", std::process::id());
    let server = scratch.file(&name);
    std::fs::copy(program("named.c"), &server).expect("a copy");
    let file = scratch.file("p.json");
    let target = Target::start(&server, [] as [&str; 0]).await_output("ready");
    let pid = target.pid().to_string();
    let run = |words: &[&str]| Run::ipath(words).run();
    run(&[
        "attach",
        &name,
        "-f",
        "MPI_Wait,solve",
        "--keep",
        "--duration",
        "1ms",
        "--no-tui",
    ])
    .expect(0);
    run(&["snapshot", "-p", &pid, "-o", &file.to_string_lossy()]).expect(0);
    let functions = Profile::read(&file).functions;
    let names: Vec<&str> = functions.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(names, ["MPI_Wait", "solve"]);
    run(&["remove", &format!("--pid={pid}"), "-f", "solve"]).expect(0);
    // Without a process, and with one too many.
    assert_eq!(run(&["detach"]).code(), 2);
    assert_eq!(run(&["detach", &pid, "-p", &pid]).code(), 2);
    assert_eq!(run(&["attach", "-f", "solve"]).code(), 2);
    let twin = Target::start(&server, [] as [&str; 0]).await_output("ready");
    let two = run(&["detach", &name]).expect_error();
    assert!(two.contains("2 processes have this name: "), "{two}");
    assert!(
        two.contains(&pid) && two.contains(&twin.pid().to_string()),
        "{two}"
    );
    drop(twin);
    run(&["detach", &name]).expect(0);
    drop(target);
    let none = run(&["attach", &name, "-f", "solve"]).expect_usage();
    assert!(none.contains("no process has this name"), "{none}");
}
