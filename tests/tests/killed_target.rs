//! The target is killed while ipath works on it: the command ends, and nothing is left.

use ipath_tests::command::Run;
use ipath_tests::compile::program;
use ipath_tests::dump::{dump, family};
use ipath_tests::epoch::state_of;
use ipath_tests::faulty::faulty;
use ipath_tests::place::{Scratch, ipath};
use ipath_tests::profile::Profile;
use ipath_tests::racing::{Chance, Running, rounds};
use ipath_tests::snapshot::ProcessState;
use ipath_tests::target::Target;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

const ATTACH: &[&str] = &[
    "attach",
    "PID",
    "--keep",
    "--no-tui",
    "--duration",
    "1ms",
    "-f",
    "F",
];
const ADD: &[&str] = &["add", "PID", "-f", "mix"];
const REMOVE: &[&str] = &["remove", "PID", "-f", "step"];
const DETACH: &[&str] = &["detach", "PID"];

/// The time limit of one command.
const LIMIT: Duration = Duration::from_secs(60);

/// The kind of target.
#[derive(Clone, Copy)]
enum Kind {
    Busy,
    /// A target whose first thread has ended. That thread stays a zombie while others live.
    Headless,
}

impl Kind {
    /// The arguments with the target's pid and function filled in.
    fn given<'a>(self, arguments: &[&'a str], pid: &'a str) -> Vec<&'a str> {
        let given = arguments.iter().map(|&a| match (a, self) {
            ("PID", _) => pid,
            ("F", Self::Busy) => "busy*!step",
            ("F", Self::Headless) => "callers*!work",
            _ => a,
        });
        given.collect()
    }

    /// A target for this command. It has a session unless the command creates one.
    fn target_for(self, arguments: &[&str]) -> (Target, Scratch) {
        let scratch = Scratch::new("killed_target");
        let target = match self {
            Self::Busy => Target::start_nice(program("busy.c"), ["2", "600"]),
            Self::Headless => {
                let counter = scratch.file("counter").display().to_string();
                Target::start(program("callers.c"), ["3", "headless", &counter])
            }
        };
        let target = target.await_output("ready");
        if arguments[0] != "attach" {
            let pid = target.pid().to_string();
            Run::ipath(self.given(ATTACH, &pid)).run().expect(0);
        }
        (target, scratch)
    }
}

/// Checks a command whose target was killed. It must end, and report the end of the target if it
/// could not finish. A failed attach leaves no session, and `detach` removes any other remains.
fn end(mut target: Target, command: Running, arguments: &[&str], when: &str) {
    let (code, said) = command.finish();
    let what = format!("{arguments:?} {when}: {code}: {said}");
    let own_words = said.lines().filter(|l| l.starts_with("ipath: "));
    // A command that watches a process says when it ended.
    let ended = format!("process {} ended", target.pid());
    let own_words = own_words.filter(|line| !line.contains(&ended));
    let own_words: Vec<&str> = own_words.collect();
    match (code, arguments[0], &own_words[..]) {
        (0, _, []) => {}
        (0, "detach", [line]) if line.contains("the program had ended") => {}
        (1, "attach" | "add" | "remove", [line]) => {
            let told = ["has ended", "no such process"];
            assert!(
                told.iter().any(|t| line.contains(t)) && !line.contains(" thread "),
                "{what}"
            );
        }
        _ => panic!("{what}"),
    }
    target.wait(Duration::from_secs(20));
    if (code, arguments[0]) == (1, "attach") {
        let made = ProcessState::shared_of(target.pid());
        assert!(made.is_empty(), "{what}: {made:?}");
    }
    let taken_out = Run::ipath(["detach", &target.pid().to_string()]).run();
    let left = ProcessState::shared_of(target.pid());
    assert!(left.is_empty(), "{what}: {left:?}\n{}", taken_out.report());
}

/// Runs a command until it reaches a step or ends. Returns true if it reached the step, where it is
/// stopped.
fn run_to(step: &str, arguments: &[impl AsRef<OsStr>]) -> (Running, bool) {
    let mut command = Command::new(faulty());
    command.env("IPATH_STOP_AT", step);
    let mut running = Running::spawn(command, arguments);
    let limit = Instant::now() + LIMIT;
    let mut stopped = false;
    while !stopped && !running.has_ended() {
        stopped = state_of(running.id()) == 'T';
        assert!(Instant::now() < limit, "{step}: neither stops nor ends");
        sleep(Duration::from_millis(1));
    }
    (running, stopped)
}

/// Kills a target when the command reaches a step. Returns true if it reached the step.
fn kill_at(kind: Kind, arguments: &[&str], step: &str) -> bool {
    let (target, _scratch) = kind.target_for(arguments);
    let pid = target.pid().to_string();
    let (running, stopped) = run_to(step, &kind.given(arguments, &pid));
    target.signal(Signal::SIGKILL);
    running.signal(Signal::SIGCONT);
    end(target, running, arguments, &format!("at {step}"));
    stopped
}

/// The target is killed at every seventh step of each command.
#[test]
fn killed_target_anywhere() {
    for (arguments, at_least) in [(ATTACH, 20), (ADD, 3), (REMOVE, 3), (DETACH, 8)] {
        let mut steps = (1..).step_by(7);
        let come = steps.position(|step| !kill_at(Kind::Busy, arguments, &step.to_string()));
        println!("{arguments:?}: killed at {come:?} steps");
        assert!(come >= Some(at_least), "{arguments:?}: at {come:?} steps");
    }
}

/// `killed_target_in_remote_call`: a thread is on its way to a remote call, in it, or on its way
/// back.
#[test]
fn killed_target_in_remote_call() {
    const STEPS: [&str; 7] = [
        "maps",
        "way back",
        "set registers",
        "set signal mask",
        "to call",
        "mmap",
        "munmap",
    ];
    for kind in [Kind::Busy, Kind::Headless] {
        for arguments in [ATTACH, DETACH] {
            let come = STEPS.iter().filter(|step| kill_at(kind, arguments, step));
            assert!(come.count() >= 5, "{arguments:?}");
        }
    }
}

/// The target is killed at a random moment of a random command.
#[test]
fn killed_target_at_any_moment() {
    let mut chance = Chance::new();
    // The estimated duration of each command.
    let mut longest = [Duration::from_millis(60); 4];
    let mut amid = 0;
    for round in 0..rounds(40) {
        let which = chance.below(4) as usize;
        let arguments = [ATTACH, ADD, REMOVE, DETACH][which];
        let (target, _scratch) = Kind::Busy.target_for(arguments);
        let pid = target.pid().to_string();
        let moment = Duration::from_micros(chance.below(longest[which].as_micros() as u64));
        let begin = Instant::now();
        let mut running = Running::start(&Kind::Busy.given(arguments, &pid));
        while begin.elapsed() < moment && !running.has_ended() {
            sleep(Duration::from_micros(50));
        }
        let is_amid = !running.has_ended();
        amid += usize::from(is_amid);
        longest[which] = if is_amid {
            (longest[which] * 21 / 20).min(Duration::from_secs(5))
        } else {
            (longest[which] + begin.elapsed()) / 2
        };
        target.signal(Signal::SIGKILL);
        end(
            target,
            running,
            arguments,
            &format!("after {moment:?} in round {round}"),
        );
    }
    println!("killed {amid} times while the command was at work");
    assert!(amid > 0, "never in time");
}

/// A child of a followed program is killed while it gets its session. The other processes continue,
/// and the command ends with them.
#[test]
fn killed_child_of_one_that_is_followed() {
    const STEP: usize = 5;
    let program = program("forked_checked.c").display().to_string();
    let arguments = ["run", "--follow", "--quiet", "-f", "work", "--", &program];
    let mut killed = 0;
    for step in (1..).step_by(STEP) {
        let (mut running, stopped) = run_to(&step.to_string(), &arguments);
        // The command, the program, and the child.
        if let [_, _, child] = family(running.id())[..] {
            kill(Pid::from_raw(child as i32), Signal::SIGKILL).expect("it is there");
            killed += 1;
        }
        running.signal(Signal::SIGCONT);
        let limit = Instant::now() + LIMIT;
        while !running.has_ended() {
            assert!(
                Instant::now() < limit,
                "killed at step {step}: does not end"
            );
            sleep(Duration::from_millis(1));
        }
        let (code, said) = running.finish();
        assert_eq!(code, 0, "step {step}: {said}");
        if !stopped {
            break;
        }
    }
    println!("killed at {killed} steps");
    assert!(killed >= 5, "only at {killed} steps");
}

/// A followed process gets a signal while it executes another program. ipath ends when all
/// processes have ended, and no finished work is missing.
#[test]
fn killed_as_it_becomes_another_program() {
    const CHILDREN: u64 = 60;
    let scratch = Scratch::new("killed_target");
    let file = scratch.file("p.json");
    for signal in [Signal::SIGKILL, Signal::SIGTERM, Signal::SIGSTOP] {
        let run = Run::ipath(["run", "--follow", "--quiet", "-f", "work", "-o"]).arg(&file);
        let run = run.arg("--").arg(program("killed_executing.c"));
        let run = run.args([CHILDREN.to_string(), (signal as i32).to_string()]);
        let run = run.limit(Duration::from_secs(100)).run().expect(0);
        let worked = run.stdout.trim().strip_prefix("work ");
        let worked: u64 = worked.and_then(|n| n.parse().ok()).expect("calls");
        let profile = Profile::read(&file);
        let (calls, open) = (profile.calls("work"), profile.losses.open);
        println!("{signal}: {worked} of {CHILDREN} worked, {calls} calls, {open:?} open");
        // A process that was killed in its call may not have counted it.
        let begun = calls - open.unwrap_or(0);
        assert!(
            begun <= worked && worked <= calls,
            "{signal}: {}",
            run.report()
        );
        if signal == Signal::SIGSTOP {
            assert_eq!((worked, calls), (CHILDREN, CHILDREN), "{}", run.report());
        }
        // Processes that ended by themselves cause no message.
        assert!(!run.stderr.contains("not measured"), "{}", run.report());
    }
}

/// A new process is stopped by signals before it runs any code, and continued a moment later. It is
/// measured like any other.
#[test]
fn stopped_as_it_is_begun() {
    const STOPPED: Duration = Duration::from_millis(5);
    let scratch = Scratch::new("killed_target");
    let file = scratch.file("p.json");
    for round in 0..rounds(20) {
        let what = format!("round {round}");
        let mut run = Running::start(&begun(&["--follow"], &file));
        let child = first_child(&mut run, &what);
        let begun = Instant::now();
        while begun.elapsed() < STOPPED {
            // Fails if the program has ended.
            let _ = kill(child, Signal::SIGSTOP);
        }
        continue_to_the_end(run, child, &file, &what);
    }
}

/// A new process is stopped right before it executes the program. ipath traces it at that moment,
/// and has no answer from execve(2) yet. The process is measured like any other.
#[test]
fn stopped_before_it_executes() {
    let scratch = Scratch::new("killed_target");
    let file = scratch.file("p.json");
    for options in [&["--follow"][..], &[]] {
        let what = format!("{options:?}");
        let mut command = Command::new(faulty());
        command.env("IPATH_STOP_AT", "execute");
        let mut run = Running::spawn(command, &begun(options, &file));
        let child = first_child(&mut run, &what);
        continue_to_the_end(run, child, &file, &what);
    }
}

/// The arguments that measure a program which calls `work` once, in a child that executes it anew.
fn begun<'a>(options: &[&'a str], file: &'a Path) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["run".into()];
    arguments.extend(options.iter().map(Into::into));
    arguments.extend(["--quiet", "-f", "work", "-o"].map(Into::into));
    arguments.extend([
        file.into(),
        "--".into(),
        program("killed_executing.c").into(),
    ]);
    if options.contains(&"--follow") {
        arguments.extend(["1", "18"].map(Into::into));
    } else {
        arguments.extend(["once"].map(Into::into));
    }
    arguments
}

/// The process that the command starts.
fn first_child(run: &mut Running, what: &str) -> Pid {
    let limit = Instant::now() + LIMIT;
    loop {
        if let Some(&child) = family(run.id()).get(1) {
            return Pid::from_raw(child as i32);
        }
        assert!(!run.has_ended(), "{what}: has ended");
        assert!(Instant::now() < limit, "{what}: starts nothing");
    }
}

/// Continues a process until the command ends, and checks that its one call was measured.
fn continue_to_the_end(mut run: Running, child: Pid, file: &Path, what: &str) {
    let limit = Instant::now() + LIMIT;
    while !run.has_ended() {
        let _ = kill(child, Signal::SIGCONT);
        if Instant::now() > limit {
            let there = family(run.id());
            let report = dump("killed_target", &there);
            for pid in there {
                let _ = kill(Pid::from_raw(pid as i32), Signal::SIGKILL);
            }
            panic!("{what}: does not end, see {}", report.display());
        }
        sleep(Duration::from_millis(5));
    }
    let (code, said) = run.finish();
    assert_eq!(code, 0, "{what}: {said}");
    assert_eq!(Profile::read(file).calls("work"), 1, "{what}: {said}");
}

/// A program that is killed before it is measured gives its status to the command, as in a shell.
#[test]
fn killed_before_it_is_measured_gives_its_status() {
    const STEP: usize = 5;
    const KILLED: i32 = 128 + Signal::SIGKILL as i32;
    let scratch = Scratch::new("killed_target");
    let file = scratch.file("p.json");
    for options in [&[][..], &["--follow"]] {
        let mut killed = 0;
        for step in (1..).step_by(STEP) {
            let what = format!("{options:?} at step {step}");
            let (run, stopped) = run_to(&step.to_string(), &begun(options, &file));
            let program = family(run.id()).get(1).copied();
            let program = program.filter(|&pid| !matches!(state_of(pid), 'Z' | 'X'));
            if let Some(pid) = program {
                kill(Pid::from_raw(pid as i32), Signal::SIGKILL).expect("it is there");
                killed += 1;
            }
            run.signal(Signal::SIGCONT);
            let (code, said) = run.finish();
            let expected = if program.is_some() { KILLED } else { 0 };
            assert_eq!(code, expected, "{what}: {said}");
            if !stopped {
                break;
            }
        }
        println!("{options:?}: killed at {killed} steps");
        assert!(killed >= 5, "{options:?}: only at {killed} steps");
    }
}

/// The command says that its target is gone, and by which signal if the kernel tells.
#[test]
fn the_end_of_a_watched_process_is_said() {
    for (signal, how) in [
        (Signal::SIGKILL, " (SIGKILL)"),
        (Signal::SIGTERM, " (SIGTERM)"),
    ] {
        let target = Target::start(program("busy.c"), ["2"]).await_output("ready");
        let pid = target.pid();
        let id = pid.to_string();
        let options = [
            "attach",
            &id,
            "--no-tui",
            "-f",
            "busy*!step",
            "--duration",
            "60s",
        ];
        let mut watching = Target::start(ipath(), options).await_output("step");
        kill(Pid::from_raw(pid as i32), signal).expect("kill it");
        assert!(watching.wait(LIMIT).success());
        let stderr = watching.stderr();
        let line = stderr.lines().last().unwrap_or_default();
        let begins = [how, ""].map(|how| format!("ipath: process {pid} ended{how} after "));
        let is_it = begins.iter().any(|begin| line.starts_with(begin));
        assert!(is_it && line.ends_with('s'), "{stderr}");
    }
}
