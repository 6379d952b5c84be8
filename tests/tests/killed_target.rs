//! The target is killed while ipath is at work on it: the command ends, and nothing is left.

use ipath_tests::command::Run;
use ipath_tests::compile::program;
use ipath_tests::dump::family;
use ipath_tests::epoch::state_of;
use ipath_tests::faulty::faulty;
use ipath_tests::place::Scratch;
use ipath_tests::profile::Profile;
use ipath_tests::racing::{Chance, Running, rounds};
use ipath_tests::snapshot::ProcessState;
use ipath_tests::target::Target;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
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

/// What is attached to.
#[derive(Clone, Copy)]
enum Kind {
    Busy,
    /// Its first thread has ended: a zombie as long as others live.
    Headless,
}

impl Kind {
    /// The arguments with what stands for the target in them.
    fn given<'a>(self, arguments: &[&'a str], pid: &'a str) -> Vec<&'a str> {
        let given = arguments.iter().map(|&a| match (a, self) {
            ("PID", _) => pid,
            ("F", Self::Busy) => "busy*!step",
            ("F", Self::Headless) => "callers*!work",
            _ => a,
        });
        given.collect()
    }

    /// A target for this command: with a session where the command is not to make one.
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

/// The target has been killed: the command ends, says what happened if it could not do its work, and what
/// it leaves the next one takes away; a session that could not be made is not left.
fn end(mut target: Target, command: Running, arguments: &[&str], when: &str) {
    let (code, said) = command.finish();
    let what = format!("{arguments:?} {when}: {code}: {said}");
    let own_words = said.lines().filter(|l| l.starts_with("ipath: "));
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

/// Kills a target when the command has come to a step; whether it did.
fn kill_at(kind: Kind, arguments: &[&str], step: &str) -> bool {
    let (target, _scratch) = kind.target_for(arguments);
    let pid = target.pid().to_string();
    let mut command = Command::new(faulty());
    command.env("IPATH_STOP_AT", step);
    let mut running = Running::spawn(command, &kind.given(arguments, &pid));
    let limit = Instant::now() + Duration::from_secs(60);
    let mut stopped = false;
    while !stopped && !running.has_ended() {
        stopped = state_of(running.id()) == 'T';
        assert!(Instant::now() < limit, "{step}: neither stops nor ends");
        sleep(Duration::from_millis(1));
    }
    target.signal(Signal::SIGKILL);
    running.signal(Signal::SIGCONT);
    end(target, running, arguments, &format!("at {step}"));
    stopped
}

#[test]
fn killed_target_anywhere() {
    for (arguments, at_least) in [(ATTACH, 20), (ADD, 3), (REMOVE, 3), (DETACH, 8)] {
        let mut steps = (1..).step_by(7);
        let come = steps.position(|step| !kill_at(Kind::Busy, arguments, &step.to_string()));
        println!("{arguments:?}: killed at {come:?} steps");
        assert!(come >= Some(at_least), "{arguments:?}: at {come:?} steps");
    }
}

/// `killed_target_in_remote_call`: one of its threads is on the way to a call, in it, or on its way back.
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

#[test]
fn killed_target_at_any_moment() {
    let mut chance = Chance::new();
    // How long each takes here, as far as known.
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

/// A child of a program that is followed is killed while it gets its session: what is left goes on, and the command ends with it.
#[test]
fn killed_child_of_one_that_is_followed() {
    const STEP: usize = 5;
    const LIMIT: Duration = Duration::from_secs(60);
    let program = program("forked_checked.c").display().to_string();
    let arguments = ["run", "--follow", "--quiet", "-f", "work", "--", &program];
    let mut killed = 0;
    for step in (1..).step_by(STEP) {
        let mut command = Command::new(faulty());
        command.env("IPATH_STOP_AT", step.to_string());
        let mut running = Running::spawn(command, &arguments);
        let limit = Instant::now() + LIMIT;
        let mut stopped = false;
        while !stopped && !running.has_ended() {
            stopped = state_of(running.id()) == 'T';
            assert!(Instant::now() < limit, "{step}: neither stops nor ends");
            sleep(Duration::from_millis(1));
        }
        // Itself, the program, and the child.
        if let [_, _, child] = family(running.id())[..] {
            kill(Pid::from_raw(child as i32), Signal::SIGKILL).expect("it is there");
            killed += 1;
        }
        running.signal(Signal::SIGCONT);
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

/// What is followed gets a signal as it becomes another program: ipath ends when all have ended, and nothing that was done is missing.
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
        // One that is killed in its call may not have come to counting it.
        let begun = calls - open.unwrap_or(0);
        assert!(
            begun <= worked && worked <= calls,
            "{signal}: {}",
            run.report()
        );
        if signal == Signal::SIGSTOP {
            assert_eq!((worked, calls), (CHILDREN, CHILDREN), "{}", run.report());
        }
        // Of what has ended by itself nothing is to be said.
        assert!(!run.stderr.contains("not measured"), "{}", run.report());
    }
}

/// What is begun gets signals that stop it before it has run anything, and one that lets it go on a moment later: it is measured like
/// any other.
#[test]
fn stopped_as_it_is_begun() {
    const STOPPED: Duration = Duration::from_millis(5);
    let scratch = Scratch::new("killed_target");
    let file = scratch.file("p.json").display().to_string();
    let program = program("killed_executing.c").display().to_string();
    let options = ["run", "--follow", "--quiet", "-f", "work", "-o", &file];
    let arguments = [&options[..], &["--", &program, "1", "18"]].concat();
    for round in 0..rounds(20) {
        let mut run = Running::start(&arguments);
        let child = loop {
            if let Some(&child) = family(run.id()).get(1) {
                break Pid::from_raw(child as i32);
            }
            assert!(!run.has_ended(), "round {round}: {:?}", run.finish());
        };
        let begun = Instant::now();
        while begun.elapsed() < STOPPED {
            // It fails where the program has ended.
            let _ = kill(child, Signal::SIGSTOP);
        }
        while !run.has_ended() {
            let _ = kill(child, Signal::SIGCONT);
            sleep(Duration::from_millis(5));
        }
        let (code, said) = run.finish();
        assert_eq!(code, 0, "round {round}: {said}");
        assert_eq!(Profile::read(Path::new(&file)).calls("work"), 1, "{said}");
    }
}
