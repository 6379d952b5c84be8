//! `lost_terminal`, `closed_pipe`, `panic_in_view`: ipath removes the session from the target
//! before it ends, even if its readers disappear or it panics.

use ipath_tests::command::Run;
use ipath_tests::compile::{program, program_with};
use ipath_tests::dump::family;
use ipath_tests::faulty::faulty;
use ipath_tests::place::{Scratch, ipath};
use ipath_tests::profile::Profile;
use ipath_tests::pty::Pty;
use ipath_tests::snapshot::ProcessState;
use ipath_tests::target::Target;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A target, and its state before the session.
struct Watched {
    target: Target,
    before: ProcessState,
}

impl Watched {
    fn new() -> Self {
        let target = Target::start(program("busy.c"), ["1", "600"]).await_output("ready");
        let before = ProcessState::of(target.pid());
        Self { target, before }
    }

    /// A command that attaches to the target, with an interval of 20 ms unless `more` has another
    /// one.
    fn attach(&self, ipath: &Path, more: &[&str]) -> Command {
        let mut command = Command::new(ipath);
        let pid = self.target.pid().to_string();
        command.args(["attach", &pid, "-f", "step"]);
        command.args(more);
        if !more.contains(&"--interval") {
            command.args(["--interval", "20ms"]);
        }
        command
    }

    /// Checks that nothing is left in it, and that it still works.
    fn assert_clean(self) {
        self.before.assert_unchanged(self.target.pid());
        self.target.finish("ok calls ");
    }
}

/// Text that shows that the view has drawn the table.
const DRAWN: &str = " help";

#[test]
fn lost_terminal_ends_the_session_and_writes_the_profile() {
    let scratch = Scratch::new("lost");
    // Wait for a caller: the thread may not have run before the rest is shown.
    for (more, shown) in [(&[][..], "├"), (&["--no-tui"], "calls  thread")] {
        let watched = Watched::new();
        let file = scratch.file("p.json");
        let mut command = watched.attach(&ipath(), more);
        command.arg("-o").arg(&file);
        let mut view = Pty::spawn(command, true);
        view.shows(shown);
        view.hang_up();
        assert_eq!(view.wait_unread(), 0, "{more:?}: {}", view.report());
        assert!(Profile::read(&file).calls("step") > 0);
        watched.assert_clean();
    }
}

/// Under nohup(1) no signal arrives, so only reads and writes reveal the loss.
#[test]
fn lost_terminal_without_a_signal() {
    for (more, shown) in [(&[][..], "quit"), (&["--no-tui"], "step: ")] {
        let watched = Watched::new();
        let mut command = watched.attach(&ipath(), more);
        // SAFETY: makes only one system call.
        unsafe {
            command.pre_exec(|| {
                libc::signal(libc::SIGHUP, libc::SIG_IGN);
                Ok(())
            })
        };
        let mut view = Pty::spawn(command, true);
        view.shows(shown);
        view.hang_up();
        assert_eq!(view.wait_unread(), 0, "{more:?}: {}", view.report());
        watched.assert_clean();
    }
}

/// The purpose of nohup(1): the terminal disappears, and a measurement that writes elsewhere
/// continues.
#[test]
fn a_hangup_that_is_ignored_ends_nothing() {
    let scratch = Scratch::new("nohup");
    let watched = Watched::new();
    let mut command = Command::new("nohup");
    let pid = watched.target.pid().to_string();
    command.arg(ipath()).args(["attach", &pid, "-f", "step"]);
    command.args(["--interval", "20ms", "--format", "jsonl"]);
    let out = scratch.file("out");
    let create = |name| File::create(scratch.file(name)).expect("create in an own folder");
    command.stdin(Stdio::null());
    command.stdout(create("out")).stderr(create("err"));
    let mut nohup = Pty::spawn(command, false);
    let lines = || {
        std::fs::read_to_string(&out)
            .unwrap_or_default()
            .lines()
            .count()
    };
    nohup.until("begun", |_| lines() > 0);
    nohup.hang_up();
    nohup.signal(Signal::SIGHUP);
    let before = lines();
    nohup.until("gone on", |_| lines() > before + 2);
    nohup.signal(Signal::SIGTERM);
    assert_eq!(nohup.wait_unread(), 0, "{}", nohup.report());
    watched.assert_clean();
}

/// SIGTERM ends ipath although the terminal accepts no more output, as with a stalled connection.
#[test]
fn unread_terminal_does_not_block_the_end() {
    let watched = Watched::new();
    let mut view = Pty::spawn(watched.attach(&ipath(), &["--interval", "1ms"]), true);
    view.shows(DRAWN);
    // The unread terminal fills within this time. If it does not, the test is weaker.
    std::thread::sleep(Duration::from_secs(3));
    view.signal(Signal::SIGTERM);
    view.wait_unread();
    watched.assert_clean();
}

fn piped(mut command: Command) -> std::process::Child {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    ipath_tests::apart::spawn(&mut command).expect("start ipath")
}

/// Waits for the end of ipath. Returns its exit status, `None` if a signal ended it, and standard
/// error without the warning about high overhead, which depends on the machine's load.
fn ends(mut child: std::process::Child) -> (Option<i32>, String) {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(status) = child.try_wait().expect("wait for an own child") {
            let mut text = String::new();
            if let Some(mut err) = child.stderr.take() {
                err.read_to_string(&mut text).expect("readable");
            }
            let is_said = |line: &&str| !line.starts_with("ipath: measuring takes ");
            let said = text.split_inclusive('\n').filter(is_said);
            return (status.code(), said.collect());
        }
        if Instant::now() > end {
            let _ = child.kill();
            let _ = child.wait();
            panic!("ipath has not ended");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn closed_pipe_ends_the_session() {
    for more in [
        &["--no-tui"][..],
        &["--format", "jsonl"],
        &["--format", "json"],
    ] {
        let watched = Watched::new();
        let mut attach = piped(watched.attach(&ipath(), more));
        let out = attach.stdout.take().expect("a pipe");
        if more[1..] != ["json"] {
            let lines = BufReader::new(out).lines().take(2);
            assert_eq!(lines.map_while(Result::ok).count(), 2);
        } else {
            drop(out);
        }
        assert_eq!(ends(attach), (Some(0), String::new()), "{more:?}");
        watched.assert_clean();
    }
}

/// If neither stream has a reader, ipath removes the session and ends with status 0.
#[test]
fn closed_streams_end_the_session() {
    let watched = Watched::new();
    let mut attach = piped(watched.attach(&ipath(), &["--no-tui"]));
    drop((attach.stdout.take(), attach.stderr.take()));
    assert_eq!(ends(attach).0, Some(0));
    watched.assert_clean();
}

/// SIGTERM ends ipath although its pipe is full and the reader does not read.
#[test]
fn unread_pipe_does_not_block_the_end() {
    let watched = Watched::new();
    let more = ["--format", "jsonl", "--interval", "1ms"];
    let attach = piped(watched.attach(&ipath(), &more));
    let pid = nix::unistd::Pid::from_raw(attach.id() as i32);
    // The pipe fills within this time. If it does not, the test is weaker.
    std::thread::sleep(Duration::from_secs(3));
    nix::sys::signal::kill(pid, Signal::SIGTERM).expect("it runs");
    assert_eq!(ends(attach), (Some(0), String::new()));
    watched.assert_clean();
}

/// The duration ends ipath even while the pipe is not read.
#[test]
fn unread_pipe_at_the_end_of_the_time() {
    let watched = Watched::new();
    let more = ["--format", "jsonl", "--interval", "1ms", "--duration", "2s"];
    let attach = piped(watched.attach(&ipath(), &more));
    assert_eq!(ends(attach), (Some(0), String::new()));
    watched.assert_clean();
}

/// The reader of the program's and ipath's output disappears: the program sees the same as without
/// ipath.
#[test]
fn closed_pipe_of_run() {
    let mut command = Command::new(ipath());
    command.args(["run", "-f", "step", "--no-tui", "--interval", "20ms", "--"]);
    command.arg(program("busy.c")).args(["1", "2"]);
    let mut run = piped(command);
    drop(run.stdout.take());
    let alone = {
        let mut command = Command::new(program("busy.c"));
        command.args(["1", "2"]);
        let mut alone = piped(command);
        drop(alone.stdout.take());
        ends(alone).0
    };
    let (code, text) = ends(run);
    let code = code.filter(|&code| code < 128);
    assert_eq!(code, alone, "{text}");
}

/// The options that end the session if it must panic at this place; none if it panics while it
/// watches.
fn until(place: &str) -> &'static [&'static str] {
    if ["collect", "detach", "report"].contains(&place) {
        &["--duration", "100ms"]
    } else {
        &[]
    }
}

/// If ipath panics with a view, it removes the session, restores the terminal, prints the error and
/// ends with status 1.
#[test]
fn panic_in_view() {
    // Build before the targets start.
    faulty();
    for place in [
        "draw",
        "look",
        "collect",
        "detach",
        "report",
        "draw:thread",
        "look:thread",
    ] {
        let watched = Watched::new();
        let mut command = watched.attach(&faulty(), until(place));
        command.env("IPATH_PANIC_AT", place);
        let mut view = Pty::spawn(command, true);
        let before = view.termios();
        let code = view.wait();
        let seen = view.seen();
        let said = seen.rsplit("\x1b[?1049l").next().unwrap_or_default();
        assert_eq!(code, 1, "{place}: {}", view.report());
        assert!(
            said.contains("ipath: internal error in "),
            "{place}: {said:?}"
        );
        assert!(said.contains("and says so"), "{place}: {said:?}");
        assert_eq!(view.termios(), before, "{place}");
        watched.assert_clean();
    }
}

/// If ipath panics without a view, it removes the session, prints two lines and ends with status 1.
#[test]
fn panic_in_summaries() {
    faulty();
    for place in ["summary", "look", "collect", "detach", "report"] {
        let watched = Watched::new();
        let more = [&["--no-tui"], until(place)].concat();
        let mut command = watched.attach(&faulty(), &more);
        command.env("IPATH_PANIC_AT", place);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let attach = command.stderr(Stdio::piped()).spawn().expect("started");
        let (code, text) = ends(attach);
        assert_eq!(code, Some(1), "{place}: {text}");
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{place}: {text}");
        assert!(lines[0].starts_with("ipath: internal error in "), "{text}");
        watched.assert_clean();
    }
}

/// The measurements are written even if the removal of the session fails.
#[test]
fn the_profile_is_written_whatever_happens() {
    let scratch = Scratch::new("written");
    let file = scratch.file("p.json");
    let watched = Watched::new();
    let more = [&["--no-tui"], until("detach")].concat();
    let mut command = watched.attach(&faulty(), &more);
    command.arg("-o").arg(&file);
    command.env("IPATH_PANIC_AT", "detach");
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let attach = command.stderr(Stdio::piped()).spawn().expect("started");
    let (code, text) = ends(attach);
    assert_eq!(code, Some(1), "{text}");
    assert!(Profile::read(&file).calls("step") > 0);
    watched.assert_clean();
}

/// SIGINT at one step of attach and at every later one, for every 23rd step. The first signal takes
/// effect once the session is complete, and no other one interrupts the cleanup.
#[test]
fn signals_at_every_step() {
    faulty();
    let watched = Watched::new();
    let pid = watched.target.pid().to_string();
    for step in (1..400).step_by(23) {
        let finished = Run::new(faulty())
            .args(["attach", &pid, "-f", "step", "-f", "mix", "--no-tui"])
            .args(["--duration", "50ms"])
            .env("IPATH_SIGNAL_AT", step.to_string())
            .run();
        assert_eq!(finished.code(), 0, "step {step}: {}", finished.report());
        watched.before.assert_unchanged(watched.target.pid());
    }
    watched.assert_clean();
}

/// Like [`signals_while_watching`], with a program that ipath started: the profile is written, and
/// the program runs to its end.
#[test]
fn signals_while_running_a_program() {
    let scratch = Scratch::new("lost");
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        for more in [&[][..], &["--follow"]] {
            let file = scratch.file(signal.as_str());
            let mut command = Command::new(ipath());
            command.args(["run", "-f", "step"]).args(more);
            command.arg("-o").arg(&file).arg("--");
            command.arg(program("busy.c")).args(["1", "600"]);
            let mut view = Pty::spawn(command, true);
            // A caller.
            view.shows("├");
            let program = family(view.pid())
                .into_iter()
                .find(|&pid| pid != view.pid());
            view.signal(signal);
            // The program's own end would also end the view, and a later signal would kill ipath.
            view.shows("\u{1b}[?1049l");
            let program = Pid::from_raw(program.expect("a child") as i32);
            kill(program, Signal::SIGTERM).expect("sent");
            assert_eq!(view.wait(), 0, "{signal}: {}", view.report());
            assert!(Profile::read(&file).calls("step") > 0, "{signal} {more:?}");
        }
    }
}

/// Each signal that would end ipath while it watches ends the session, restores the terminal and
/// gives status 0.
#[test]
fn signals_while_watching() {
    use Signal::*;
    let watched = Watched::new();
    let pid = watched.target.pid();
    for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGALRM, SIGXCPU] {
        let mut view = Pty::spawn(watched.attach(&ipath(), &[]), true);
        let before = view.termios();
        view.shows(DRAWN);
        view.signal(signal);
        view.signal(signal);
        assert_eq!(view.wait(), 0, "{signal}: {}", view.report());
        assert_eq!(view.termios(), before, "{signal}");
        watched.before.assert_unchanged(pid);
    }
    watched.assert_clean();
}

/// Ctrl-Z by the key and by the signal: ipath releases the terminal while it is stopped, and takes
/// it again when it continues.
#[test]
fn suspended_view_releases_the_terminal_and_takes_it_again() {
    let watched = Watched::new();
    // As a job of a shell: a session leader itself cannot be stopped.
    let mut command = Command::new("bash");
    let attach = watched.attach(&ipath(), &[]);
    let words = std::iter::once(attach.get_program()).chain(attach.get_args());
    let words: Vec<_> = words.map(|w| w.to_string_lossy()).collect();
    command.args(["--norc", "-i"]);
    let mut shell = Pty::spawn(command, true);
    shell.send(format!("{}\n", words.join(" ")).as_bytes());
    shell.shows(DRAWN);
    for by_key in [true, false] {
        shell.forget();
        if by_key {
            shell.send(b"\x1a");
        } else {
            let name = format!("{}", ipath().display());
            let jobs = ipath_tests::dump::family(shell.pid());
            let is_it = |pid: &&u32| {
                std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|e| *e == *name)
            };
            let job = *jobs.iter().find(is_it).expect("ipath runs");
            let pid = nix::unistd::Pid::from_raw(job as i32);
            nix::sys::signal::kill(pid, Signal::SIGTSTP).expect("it runs");
        }
        shell.shows("\x1b[?1049l");
        shell.shows("Stopped");
        shell.forget();
        shell.send(b"fg\n");
        shell.shows("\x1b[?1049h");
        shell.shows(DRAWN);
    }
    shell.forget();
    shell.send(b"q");
    shell.shows("\x1b[?1049l");
    shell.send(b"echo left=$?\n");
    shell.shows("left=0");
    watched.assert_clean();
}

/// The state letters of the threads of a process (proc(5)).
fn states(pid: u32) -> String {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    let stats = tasks.flatten().filter_map(|task| {
        let stat = std::fs::read_to_string(task.path().join("stat")).ok()?;
        stat.rsplit_once(") ")?.1.chars().next()
    });
    stats.collect()
}

/// Stopping ipath does not stop measured processes: it holds none of them at that moment. With
/// `--follow` it refuses to stop, because they would stop with it.
#[test]
fn stopped_beside_what_is_measured() {
    const LIMIT: Duration = Duration::from_secs(30);
    let library = program_with("dlopen_later_lib.c", &["-shared", "-fPIC"]);
    let arguments = [&library.display().to_string(), "1000000000", "x", "wait"];
    let loading = program_with("dlopen_later.c", &["-rdynamic"]);
    for (mode, is_stopped) in [("--pending", true), ("--follow", false)] {
        let target = Target::start(&loading, arguments).await_output("ready");
        let mut command = Command::new(ipath());
        command.args(["attach", &target.pid().to_string(), mode, "--no-tui"]);
        let name = if is_stopped { "later" } else { "count_call" };
        command.args(["--interval", "20ms", "-f", name]);
        let mut watching = Target::spawn(command);
        watching.until(LIMIT, "begun", |w| {
            w.stdout().contains("in all") || w.stderr().contains("waits")
        });
        target.signal(Signal::SIGTERM);
        for round in 0..30 {
            std::thread::sleep(Duration::from_millis(7));
            watching.signal(Signal::SIGTSTP);
            if !is_stopped {
                let warned = |w: &Target| w.stderr().matches("cannot suspend").count() > round;
                watching.until(LIMIT, "refused", warned);
                continue;
            }
            watching.until(LIMIT, "stopped", |w| states(w.pid()).starts_with('T'));
            let held = states(target.pid());
            watching.signal(Signal::SIGCONT);
            assert!(!held.contains('t'), "round {round}: {held}");
        }
        watching.signal(Signal::SIGINT);
        assert!(watching.wait(LIMIT).success(), "{}", watching.report());
        target.signal(Signal::SIGKILL);
    }
}
