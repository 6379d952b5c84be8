//! Unwind rules that the runtime requests while the program runs, and that a watching command
//! finds.

use ipath_tests::command::Run;
use ipath_tests::compile::{program, program_with};
use ipath_tests::epoch::state_of;
use ipath_tests::faulty::faulty;
use ipath_tests::place::Scratch;
use ipath_tests::profile::{CallPath, Profile, count};
use ipath_tests::program::Program;
use ipath_tests::questions::Questions;
use ipath_tests::racing::{Running, segment_names};
use ipath_tests::session::{Session, own_counts};
use ipath_tests::target::Target;
use nix::sys::signal::Signal;
use std::fs::{self, OpenOptions};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
/// Flags for programs with neither unwind entries nor names.
const BULK: [&str; 5] = [
    "-no-pie",
    "-rdynamic",
    "-s",
    "-fno-asynchronous-unwind-tables",
    "-fno-unwind-tables",
];

/// The return addresses of a path in the memory of the process, innermost first.
fn returns(profile: &Profile, path: &CallPath) -> Vec<u64> {
    let frames = path.stack.iter().map(|&at| &profile.frames[at]);
    let address = |frame: &ipath_tests::profile::Frame| {
        let module = frame.module.map(|at| &profile.modules[at]);
        frame.address + module.and_then(|m| m.base).unwrap_or(0) + 1
    };
    frames.map(address).collect()
}

/// The numbers of calls of `work` on complete paths that begin with these return addresses, and on
/// all other complete paths.
fn complete(profile: &Profile, expected: &[u64]) -> (u64, u64) {
    let paths = profile.paths.iter().filter(|path| path.complete);
    let (right, wrong): (Vec<_>, Vec<_>) =
        paths.partition(|path| returns(profile, path).starts_with(expected));
    let sum = |paths: Vec<&CallPath>| paths.iter().map(|path| count(&path.metrics)).sum();
    (sum(right), sum(wrong))
}

/// `bulk`: 72 MiB of code with neither unwind entries nor symbols.
#[test]
fn bulk_code_is_walked_completely_once_watched() {
    let program = program_with("bulk.c", &BULK);
    let mut target = Target::start(program, [""; 0]).await_output("ready");
    let said = target.stdout();
    let expected: Vec<u64> = said
        .split_whitespace()
        .filter_map(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok())
        .collect();
    assert_eq!(expected.len(), 4, "{said}");
    let session = Session::attach(target.pid(), &["work"]);
    // No command has watched until now.
    let pid = target.pid().to_string();
    let watcher = Running::start(&["top", &pid, "--no-tui", "--interval", "1s"]);
    let begun = Instant::now();
    while complete(&session.snapshot(), &expected).0 == 0 {
        assert!(begun.elapsed() < PATIENCE, "no path is complete by now");
    }
    let before = session.snapshot();
    target.signal(Signal::SIGUSR1);
    target.until(PATIENCE, "made its calls", |t| t.stdout().contains("made"));
    let after = session.detach();
    watcher.finish();
    target.finish("ok ");
    let ((right, wrong), (then, _)) = (complete(&after, &expected), complete(&before, &expected));
    assert_eq!((wrong, right - then >= 5000), (0, true), "{right} - {then}");
    assert_eq!(after.losses.incomplete, before.losses.incomplete);
}

/// `frames_in_doubt`: one walk asks for the rules of all callers. After the answer no rule is asked
/// for again, and the rules of functions that they call are published ahead.
#[test]
fn frames_in_doubt() {
    const LEVELS: u64 = 6;
    /// More than the size of `further` up to its call.
    const NEAR: u64 = 64;
    let program = program_with("frames_in_doubt.c", &BULK);
    let mut target = Target::start(program, [""; 0]).await_output("ready");
    let said = target.stdout();
    let further = said.trim().rsplit("0x").next().expect("an address");
    let further = u64::from_str_radix(further, 16).expect("an address");
    let session = Session::attach(target.pid(), &["work"]);
    let questions = Questions::of(target.pid());
    assert_eq!(questions.asked(), 0);
    target.signal(Signal::SIGUSR1);
    target.until(PATIENCE, "a call", |t| t.stdout().contains("made 1"));
    assert!(questions.asked() >= LEVELS, "{}", questions.asked());
    let watchers = watched_until_done(target.pid(), &questions, 1);
    let asked = questions.asked();
    target.signal(Signal::SIGUSR1);
    target.until(PATIENCE, "a second", |t| t.stdout().contains("made 2"));
    let is_further = |at: &u64| (further..further + NEAR).contains(at);
    let begun = Instant::now();
    while !questions.published().iter().flatten().any(is_further) {
        assert!(begun.elapsed() < PATIENCE, "no rule ahead by now");
    }
    target.signal(Signal::SIGUSR2);
    target.until(PATIENCE, "a third", |t| t.stdout().contains("made 3"));
    let profile = session.detach();
    watchers
        .into_iter()
        .for_each(|watcher| drop(watcher.finish()));
    target.finish("ok ");
    assert_eq!((profile.losses.incomplete, questions.asked()), (1, asked));
}

/// With several watchers one publishes the rules that each has found.
#[test]
fn several_watch_and_one_publishes_the_rules() {
    let program = program_with("bulk.c", &BULK);
    let mut target = Target::start(program, [""; 0]).await_output("ready");
    let session = Session::attach(target.pid(), &["work"]);
    let questions = Questions::of(target.pid());
    let watchers = watched_until_done(target.pid(), &questions, 4);
    target.signal(Signal::SIGUSR1);
    target.until(PATIENCE, "its calls", |t| t.stdout().contains("made"));
    let mut published: Vec<u64> = questions.published().into_iter().flatten().collect();
    session.detach();
    watchers
        .into_iter()
        .for_each(|watcher| drop(watcher.finish()));
    target.finish("ok ");
    published.sort_unstable();
    let is_one = |all: &[u64]| all.first() == all.last();
    // At most one table published ahead of the question, and one as the answer.
    assert!(!published.windows(3).any(is_one), "{published:x?}");
}

/// Starts this many watchers, and waits until at least one question was asked and all are answered.
fn watched_until_done(pid: u32, questions: &Questions, watchers: usize) -> Vec<Running> {
    let pid = pid.to_string();
    let watch = |_| Running::start(&["top", &pid, "--no-tui", "--interval", "1s"]);
    let watchers = (0..watchers).map(watch).collect();
    let begun = Instant::now();
    while questions.asked() == 0 || questions.done() != questions.asked() {
        let (asked, done) = (questions.asked(), questions.done());
        assert!(begun.elapsed() < PATIENCE, "{done} of {asked} by now");
    }
    watchers
}

/// `later`: a library without unwind entries that is loaded while a command watches.
#[test]
fn later_library_is_walked_while_a_command_watches() {
    let flags = [
        "-shared",
        "-fPIC",
        "-s",
        "-fno-asynchronous-unwind-tables",
        "-fno-unwind-tables",
    ];
    let library = program_with("later_lib.c", &flags);
    let target = Target::start(program("later.c"), [library]).await_output("ready");
    let session = Session::attach(target.pid(), &["work"]);
    let pid = target.pid().to_string();
    let watcher = Running::start(&["top", &pid, "--no-tui", "--interval", "1s"]);
    target.signal(Signal::SIGUSR1);
    let begun = Instant::now();
    let is_complete = |profile: Profile| profile.paths.iter().any(|path| path.complete);
    while !is_complete(session.snapshot()) {
        assert!(begun.elapsed() < PATIENCE, "no path is complete by now");
    }
    session.detach();
    watcher.finish();
    target.finish("ok ");
}

/// `callee_pops`: the apparent effect of instructions is not taken for the stack's actual layout.
#[test]
fn callee_pops_do_not_mislead_the_walk() {
    let scratch = Scratch::new("callee_pops");
    let file = scratch.file("p.json");
    let target = Program::new(&program("callee_pops.c"), ["1000"]);
    let finished = target.under_ipath(&["work"], "count", &file).expect(0);
    assert_eq!(own_counts(&finished.stdout)["work"], 1000);
    let profile = Profile::read(&file);
    profile.assert_complete("all have unwind entries");
    let names = |path: &CallPath| -> Vec<String> {
        let frames = path.stack.iter().take(3).map(|&at| &profile.frames[at]);
        frames
            .map(|frame| frame.function.clone().unwrap_or_default())
            .collect()
    };
    let paths: Vec<Vec<String>> = profile.paths.iter().map(names).collect();
    assert_eq!(paths, [["frame", "use", "main"]]);
}

/// A watching command reports that the session's file was truncated.
#[test]
fn cut_while_watched() {
    let target = Target::start(program("later.c"), ["/nowhere"]).await_output("ready");
    let pid = target.pid().to_string();
    let watcher = Running::start(&[
        "attach",
        &pid,
        "-f",
        "work",
        "--no-tui",
        "--duration",
        "60s",
    ]);
    let begun = Instant::now();
    let is_there = || {
        Run::ipath(["status"])
            .run()
            .stdout
            .contains(&format!("{pid}  "))
    };
    while !is_there() {
        assert!(begun.elapsed() < PATIENCE, "there is no session by now");
    }
    cut(&target, watcher, "while watched");
}

/// An attaching command reports that the session's file was truncated, at each of its steps.
#[test]
fn cut_amid_attach() {
    const STEPS: [&str; 7] = [
        "segment header",
        "to call",
        "document",
        "document turn",
        "journal",
        "journal state",
        "state active",
    ];
    for step in STEPS {
        let target = Target::start(program("later.c"), ["/nowhere"]).await_output("ready");
        let pid = target.pid().to_string();
        let mut command = Command::new(faulty());
        command.env("IPATH_STOP_AT", step);
        let arguments = [
            "attach",
            &pid,
            "-f",
            "work",
            "--no-tui",
            "--duration",
            "60s",
        ];
        let attaching = Running::spawn(command, &arguments);
        let begun = Instant::now();
        while state_of(attaching.id()) != 'T' {
            assert!(begun.elapsed() < PATIENCE, "it does not come to {step}");
            sleep(Duration::from_millis(1));
        }
        cut(&target, attaching, step);
    }
}

/// Truncates the target's segment, lets the command continue if it is stopped, checks that it
/// reports a corrupt file, and removes the segment.
fn cut(target: &Target, watcher: Running, when: &str) {
    for name in segment_names(target.pid()) {
        let file = OpenOptions::new()
            .write(true)
            .open(&name)
            .expect("a segment");
        file.set_len(0).expect("cut");
    }
    watcher.signal(Signal::SIGCONT);
    let (code, said) = watcher.finish();
    let is_said = code == 1 && said.contains("corrupt");
    assert!(is_said, "{when}: {code}: {said}");
    for name in segment_names(target.pid()) {
        let _ = fs::remove_file(name);
    }
}
