//! Concurrent commands in random order. Some are stopped for a while, before they have the lock or
//! while they hold it, and some are killed. The program stays correct, and never has two sessions.

use ipath_tests::command::Run;
use ipath_tests::compile::program;
use ipath_tests::epoch::state_of;
use ipath_tests::faulty::faulty;
use ipath_tests::place::ipath;
use ipath_tests::racing::{
    Chance, Running, assert_done_or_excused, is_done_or_excused, rounds, segment_names,
};
use ipath_tests::snapshot::ProcessState;
use ipath_tests::target::Target;
use nix::sys::signal::Signal;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The commands. `PID` stands for the target's pid, `F` for one of its functions.
const COMMANDS: [&[&str]; 7] = [
    &[
        "attach",
        "PID",
        "--keep",
        "--no-tui",
        "--duration",
        "1ms",
        "-f",
        "F",
    ],
    &["attach", "PID", "--no-tui", "--duration", "1ms", "-f", "F"],
    &["add", "PID", "-f", "F"],
    &["remove", "PID", "-f", "F"],
    &["detach", "PID"],
    &["status", "PID"],
    &["snapshot", "PID", "-o", "/dev/null"],
];

/// A way to delay or kill a command.
#[derive(Debug, Clone, Copy)]
enum Hold {
    Not,
    /// Stopped at a step, given by its name or number, and continued after this many milliseconds.
    At(&'static str, u64),
    /// Stopped anywhere, and continued after this many milliseconds.
    Anywhere(u64),
    /// Killed this many microseconds after its start.
    Kill(u64),
}

/// A random way to delay a command, or also to kill it if `kills`.
fn hold(chance: &mut Chance, kills: bool) -> Hold {
    const STEPS: [&str; 8] = [
        "before lock",
        "lock",
        "seize",
        "interrupt",
        "journal",
        "segment file",
        "state active",
        "state leaving",
    ];
    let pause = chance.below(40);
    match chance.below(8) {
        0..=2 => Hold::Not,
        3..=5 => Hold::At(chance.of::<&str>(&STEPS), pause),
        6 if kills => Hold::Kill(chance.below(40_000)),
        _ => Hold::Anywhere(pause),
    }
}

/// Starts a command, and stops or kills it as `hold` says.
fn start(arguments: &[&str], hold: Hold, chance: &mut Chance) -> Running {
    let mut command = Command::new(ipath());
    if let Hold::At(step, _) = hold {
        command = Command::new(faulty());
        command.env("IPATH_STOP_AT", step);
    }
    let mut running = Running::spawn(command, arguments);
    match hold {
        Hold::Not => {}
        Hold::Kill(after) => {
            sleep(Duration::from_micros(after));
            running.signal(Signal::SIGKILL);
        }
        Hold::Anywhere(pause) => {
            sleep(Duration::from_micros(chance.below(20_000)));
            running.signal(Signal::SIGSTOP);
            sleep(Duration::from_millis(pause));
        }
        Hold::At(_, pause) => {
            // It may never reach that step, because it may wait for another delayed command.
            let end = Instant::now() + Duration::from_millis(200);
            while state_of(running.id()) != 'T' && !running.has_ended() && Instant::now() < end {
                sleep(Duration::from_micros(200));
            }
            sleep(Duration::from_millis(pause));
        }
    }
    running
}

/// One round: starts some commands concurrently, and continues all of them at the end.
fn race(pid: &str, functions: &[&str], excuses: &[&str], chance: &mut Chance, what: &str) {
    let mut begun = Vec::new();
    for _ in 0..2 + chance.below(4) {
        let template = *chance.of(&COMMANDS);
        let function = *chance.of(functions);
        let given = template.iter().map(|&a| match a {
            "PID" => pid,
            "F" => function,
            other => other,
        });
        let arguments: Vec<&str> = given.collect();
        let held = hold(chance, true);
        let running = start(&arguments, held, chance);
        begun.push((format!("{held:?} {arguments:?}"), held, running));
        sleep(Duration::from_micros(chance.below(3000)));
    }
    let story: Vec<String> = begun.iter().map(|(text, ..)| text.clone()).collect();
    let end = Instant::now() + Duration::from_secs(120);
    let mut said = Vec::new();
    // Also continues a command that reaches its step only now.
    while let Some(at) = begun.iter_mut().position(|(.., r)| {
        r.signal(Signal::SIGCONT);
        r.has_ended()
    }) {
        let (text, held, running) = begun.swap_remove(at);
        said.push((text, held, running.finish()));
    }
    while !begun.is_empty() {
        begun.iter().for_each(|(.., r)| r.signal(Signal::SIGCONT));
        if let Some(at) = begun.iter_mut().position(|(.., r)| r.has_ended()) {
            let (text, held, running) = begun.swap_remove(at);
            said.push((text, held, running.finish()));
        }
        assert!(Instant::now() < end, "{what}: hangs: {begun:?}\n{story:#?}");
        sleep(Duration::from_millis(1));
    }
    for (text, held, (code, said)) in said {
        let is_killed = matches!(held, Hold::Kill(_)) && code == -1;
        let is_excused = is_done_or_excused(code, &said, excuses);
        assert!(
            is_killed || is_excused,
            "{what}: {text}: {code} {said}\n{story:#?}"
        );
    }
}

/// Removes the session, if there is one.
fn detach(pid: &str, excuses: &[&str], what: &str) {
    assert_done_or_excused(&Run::ipath(["detach", pid]).run(), excuses, what);
}

#[test]
fn commands_race_on_a_busy_program() {
    faulty();
    let target = Target::start(program("busy.c"), ["2", "7200"]).await_output("ready");
    let pid = target.pid().to_string();
    let clean = ProcessState::of(target.pid());
    let mut chance = Chance::new();
    for round in 0..rounds(40) {
        let what = format!("round {round}");
        race(
            &pid,
            &["busy*!step", "mix", "down"],
            &[],
            &mut chance,
            &what,
        );
        assert!(segment_names(target.pid()).len() <= 1, "{what}");
        detach(&pid, &[], &what);
        clean.assert_unchanged(target.pid());
    }
    target.finish("ok calls ");
}

#[test]
fn commands_race_on_a_program_that_execs() {
    const EXCUSES: [&str; 7] = [
        // Attached before the program's code was mapped.
        "no function matches",
        "has executed another",
        "another program",
        "has ended",
        "no such process",
        "zombie",
        "waits for its parent",
    ];
    faulty();
    let usual = 30;
    let seconds = 15 * rounds(usual) as u64 / usual as u64;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let until = now.expect("after 1970").as_secs() + seconds;
    let mut target =
        Target::start(program("exec_loop.c"), [until.to_string()]).await_output("ready");
    let pid = target.pid().to_string();
    let mut chance = Chance::new();
    let mut raced = 0;
    while target.poll().is_none() {
        let what = format!("round {raced}");
        race(&pid, &["work"], &EXCUSES, &mut chance, &what);
        detach(&pid, &EXCUSES, &what);
        raced += 1;
    }
    println!("{raced} rounds");
    let status = target.wait(Duration::from_secs(60));
    assert!(status.success(), "{}", target.report());
    assert!(target.stdout().contains("ok execs "), "{}", target.report());
    let _ = Run::ipath(["detach", &pid]).run();
    let left = segment_names(target.pid());
    assert!(left.is_empty(), "{left:?}");
}
