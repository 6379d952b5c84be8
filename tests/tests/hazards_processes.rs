//! Processes that stop, receive signals, wait in system calls, hold locks, create children and
//! threads, lose their first thread, or are debugged. ipath attaches to them and measures them.

use ipath_tests::command::Run;
use ipath_tests::compile::{program, program_with};
use ipath_tests::epoch::{Counted, state_of};
use ipath_tests::faulty::faulty;
use ipath_tests::place::Scratch;
use ipath_tests::profile::Profile;
use ipath_tests::racing::{self, Running};
use ipath_tests::session::{Session, assert_attach_refused};
use ipath_tests::snapshot::ProcessState;
use ipath_tests::target::Target;
use nix::sys::signal::Signal;
use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A state change that the kernel reports to the parent of a stopped or continued child.
#[derive(Debug, PartialEq, Eq)]
enum Told {
    Stopped,
    Continued,
}

/// The next state change that the kernel reports; `None` if it reports none within the limit.
fn told(target: &Target, limit: Duration) -> Option<Told> {
    let end = Instant::now() + limit;
    loop {
        // SAFETY: plain integers, for which all zeroes is a valid value.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let which = libc::WSTOPPED | libc::WCONTINUED | libc::WNOHANG;
        // SAFETY: the pointer is to a live siginfo_t; an ended child is left for its owner.
        let r = unsafe { libc::waitid(libc::P_PID, target.pid(), &raw mut info, which) };
        assert_eq!(r, 0, "waitid: {}", std::io::Error::last_os_error());
        match info.si_code {
            0 if Instant::now() > end => return None,
            0 => sleep(Duration::from_millis(1)),
            libc::CLD_STOPPED => return Some(Told::Stopped),
            libc::CLD_CONTINUED => return Some(Told::Continued),
            other => panic!("a child was said to have code {other}"),
        }
    }
}

/// The time limit for a state change that must come.
const SOON: Duration = Duration::from_secs(10);
/// The time in which no state change may come.
const SILENCE: Duration = Duration::from_millis(50);

fn stop(target: &Target) {
    target.signal(Signal::SIGSTOP);
    assert_eq!(told(target, SOON), Some(Told::Stopped));
}

fn go_on(target: &Target) {
    target.signal(Signal::SIGCONT);
    assert_eq!(told(target, SOON), Some(Told::Continued));
}

fn stays_stopped(target: &Target, after: &str) {
    assert_eq!(told(target, SILENCE), None, "after {after}");
    assert_eq!(state_of(target.pid()), 'T', "after {after}");
}

/// Time for the target to make calls that are counted.
const A_WHILE: Duration = Duration::from_millis(20);

#[test]
fn group_stop_outlasts_attach_change_and_detach() {
    let mut counted = Counted::start(program("callers.c"), ["4", "whole"]);
    // Attaching, changing and detaching leave a stopped process stopped.
    for _ in 0..20 {
        stop(&counted.target);
        counted.attach();
        stays_stopped(&counted.target, "attach");
        go_on(&counted.target);
        sleep(A_WHILE);
        assert_ne!(state_of(counted.target.pid()), 'T');
        stop(&counted.target);
        counted.remove();
        stays_stopped(&counted.target, "remove");
        counted.add();
        stays_stopped(&counted.target, "add");
        go_on(&counted.target);
        sleep(A_WHILE);
        stop(&counted.target);
        counted.detach();
        stays_stopped(&counted.target, "detach");
        // The mask of sigwait changes while it waits, so masks are not compared.
        counted.assert_code_unchanged();
        go_on(&counted.target);
        assert_eq!(told(&counted.target, SILENCE), None, "after going on");
    }
    counted.finish();
}

/// For a stopped process ipath reports that no call was made, and that a call begun before is not
/// seen.
#[test]
fn stopped_is_said() {
    let target = Target::start("sleep", ["600"]).await_syscall(libc::SYS_clock_nanosleep);
    let pid = target.pid().to_string();
    let nothing = || {
        let attach = Run::ipath(["attach", &pid, "-f", "clock_nanosleep", "--no-tui"]);
        let attach = attach.args(["--duration", "10ms"]).run().expect(0);
        assert!(
            attach
                .stdout
                .contains("no call began: calls that were already running are not seen"),
            "{}",
            attach.report()
        );
        attach.stderr
    };
    assert!(!nothing().contains("stopped"));
    stop(&target);
    let said = nothing();
    assert!(said.contains("it is stopped by a signal"), "{said}");
    assert!(said.contains(&format!("kill -CONT {pid}")), "{said}");
}

/// A stop and a continuation by signals during a session have their normal effect, and calls are
/// exact.
#[test]
fn stopped_while_measured() {
    let mut counted = Counted::start(program("callers.c"), ["4", "whole"]);
    counted.hold_calls();
    for _ in 0..5 {
        counted.attach();
        for _ in 0..20 {
            stop(&counted.target);
            go_on(&counted.target);
        }
        assert_eq!(told(&counted.target, SILENCE), None, "after going on");
        counted.detach();
        counted.assert_unchanged();
    }
    counted.finish();
}

/// Repeated sessions: first with calls under way, then with calls held back, so counts are exact.
fn rounds(counted: &mut Counted, rounds: u32, unchanged: impl Fn(&Counted)) {
    for round in 0..rounds {
        if round == rounds / 2 {
            counted.hold_calls();
        }
        counted.attach();
        sleep(A_WHILE);
        counted.remove();
        counted.add();
        sleep(A_WHILE);
        let profile = counted.detach();
        assert!(profile.calls("work") > 0, "round {round}");
        unchanged(counted);
    }
}

#[test]
fn zombie_leader_does_not_prevent_sessions() {
    let mut counted = Counted::start(program("callers.c"), ["3", "headless"]);
    assert_eq!(state_of(counted.target.pid()), 'Z');
    rounds(&mut counted, 20, Counted::assert_unchanged);
    counted.finish();
}

/// Repeatedly attaches to and detaches from `churn.c` during its activity.
fn storm(kind: &str) {
    let mut counted = Counted::start(program("churn.c"), [kind]);
    rounds(&mut counted, 30, Counted::assert_code_unchanged);
    let line = counted.finish();
    let made = line.rsplit_once(" made ").map(|(_, n)| n.parse::<u64>());
    assert!(matches!(made, Some(Ok(200..))), "{line}");
}

#[test]
fn fork_storm_survives_repeated_sessions() {
    storm("fork");
}

/// Sessions begin and end while a process creates children by vfork(2).
#[test]
fn vfork_child_in_attach() {
    storm("vfork");
}

#[test]
fn spawn_storm_survives_repeated_sessions() {
    storm("spawn");
}

#[test]
fn thread_storm_survives_repeated_sessions() {
    storm("threads");
    storm("chain");
}

/// The number of sessions of 5 ms each.
fn short_rounds() -> usize {
    racing::rounds(60)
}

/// Signals that arrive while sessions begin and end are handled, and calls are counted.
#[test]
fn signals_during_attach() {
    let mut counted = Counted::start(program("signals.c"), [""; 0]);
    let short = "attach PID -f work --no-tui --duration 5ms";
    let short: Vec<_> = short.split(' ').collect();
    let rounds = short_rounds();
    for round in 0..rounds {
        // The calls of the short sessions are in no profile, so they are unsure.
        counted.change(&short);
        if round % 10 == 0 {
            counted.attach();
            sleep(A_WHILE);
            counted.detach();
            counted.assert_code_unchanged();
        }
    }
    counted.hold_calls();
    counted.attach();
    sleep(A_WHILE * 10);
    counted.detach();
    counted.assert_code_unchanged();
    let line = counted.finish();
    let taken = line.rsplit_once(" taken ").map(|(_, n)| n.parse::<u64>());
    assert!(matches!(taken, Some(Ok(1500..))), "{line}");
}

#[test]
fn syscall_restart_is_unnoticed_by_the_program() {
    let scratch = Scratch::new("syscalls");
    let file = scratch.file("p.json").display().to_string();
    let targets = [("syscalls.c", "600"), ("sleeper.c", "600")];
    let targets = targets.map(|(p, time)| Target::start(program(p), [time]).await_output("ready"));
    let start = Instant::now();
    let (mut calls, mut longest) = (0, 0);
    let rounds = short_rounds();
    for round in 0..rounds {
        for target in &targets {
            let pid = target.pid().to_string();
            let ipath = |arguments: &str| {
                let arguments = arguments.split(' ').map(|a| match a {
                    "PID" => &pid,
                    "FILE" => &file,
                    other => other,
                });
                Run::ipath(arguments).run().expect(0);
            };
            if round % 4 == 0 {
                ipath("attach PID -f tick --keep --no-tui --duration 1ms");
                ipath("remove PID -f tick");
                ipath("add PID -f tick");
                sleep(A_WHILE);
                ipath("detach PID -o FILE");
            } else {
                ipath("attach PID -f tick --no-tui --duration 5ms -o FILE");
            }
            let profile = Profile::read(&scratch.file("p.json"));
            calls += profile.calls("tick");
            longest = longest.max(profile.stops().0 / 1000);
        }
    }
    let took = start.elapsed();
    println!("{rounds} rounds in {took:?}, {calls} calls, longest stop {longest} us");
    assert!(calls > 30, "only {calls} calls");
    for target in targets {
        target.finish("ok calls ");
    }
}

#[test]
fn locked_malloc_does_not_block_a_session() {
    let library = program_with("locks.c", &["-DLIBRARY", "-shared", "-fPIC"]);
    let mut counted = Counted::start(program_with("locks.c", &["-rdynamic"]), [library]);
    let start = Instant::now();
    rounds(&mut counted, 10, Counted::assert_unchanged);
    let took = start.elapsed();
    println!("10 rounds with both locks held: {took:?}");
    assert!(took < SOON * 2, "10 rounds took {took:?}");
    assert!(!counted.target.stdout().contains("free"));
    // Threads that waited for the locks during the measurement get them.
    counted.attach();
    counted.target.signal(Signal::SIGUSR1);
    let free = |t: &Target| t.stdout().contains("free");
    counted.target.until(SOON, "found the locks free", free);
    counted.detach();
    counted.finish();
}

/// A thread has ended, and its tracer has not waited for it. It is still listed, and cannot be
/// stopped.
#[test]
fn ended_thread_of_a_tracer_is_no_obstacle() {
    let mut target = Target::start(program("traced_thread_ends.c"), [] as [&str; 0]);
    target = target.await_output("ready");
    let pid = target.pid();
    let stdout = target.stdout();
    let tid = stdout.trim().strip_prefix("ready ").expect("the thread");
    let tracer = Target::start(program("tracer.c"), [tid]).await_output("ready");
    let said = format!("is traced by {} (tracer", tracer.pid());
    assert_attach_refused(&mut target, "step", &said);
    target.signal(Signal::SIGUSR1);
    target = target.await_output("ended");
    assert_eq!(state_of(tid.parse().expect("a number")), 'Z');
    Run::ipath(["attach", &pid.to_string(), "-f", "step"])
        .args(["--no-tui", "--keep", "--duration", "50ms"])
        .run()
        .expect(0);
    let profile = Session::of(pid).detach();
    assert!(profile.paths.iter().all(|path| path.complete));
    drop(tracer);
    target.finish("ok");
}

#[test]
fn already_traced_target_is_measured_but_not_changed() {
    let mut counted = Counted::start(program("callers.c"), ["3", "whole"]);
    counted.hold_calls();
    counted.attach();
    let pid = counted.target.pid().to_string();
    let mut seen = 0;
    for _ in 0..10 {
        let gdb = Run::new("gdb").args(["-nx", "-batch", "-p", &pid]);
        let gdb = gdb.args(["-ex", "thread apply all backtrace", "-ex", "detach"]);
        let gdb = gdb.run().expect(0);
        let threads = gdb.stdout.lines().filter(|l| l.starts_with("Thread "));
        assert_eq!(threads.count(), 5, "{}", gdb.report());
        assert!(gdb.stdout.contains("detached]"), "{}", gdb.report());
        seen += gdb.stdout.matches(" in caller (").count();
        let before = counted.snapshot().calls("work");
        sleep(A_WHILE);
        let after = counted.snapshot().calls("work");
        assert!(after > before, "{before} calls, then {after}");
    }
    assert!(seen > 0, "gdb has seen no caller of work");
    // While another tracer is attached nothing can be changed. The session itself continues.
    let tracer = Target::start(program("tracer.c"), [&pid]).await_output("ready");
    for arguments in ["add PID -f work", "remove PID -f work", "detach PID"] {
        let refused = counted.ipath(&arguments.split(' ').collect::<Vec<_>>());
        let line = refused.expect_error();
        let by = tracer.pid().to_string();
        assert!(line.contains("traced") && line.contains(&by), "{line}");
    }
    let before = counted.snapshot().calls("work");
    sleep(A_WHILE);
    assert!(counted.snapshot().calls("work") > before);
    drop(tracer);
    counted.remove();
    counted.add();
    sleep(A_WHILE);
    counted.detach();
    counted.assert_unchanged();
    counted.finish();
}

/// `same_base`: threads that cannot be distinguished.
#[test]
fn same_base_of_two_threads_is_refused() {
    let mut target = Target::start(program("same_base.c"), [] as [&str; 0]).await_output("ready");
    assert_attach_refused(&mut target, "work", "the same FS base");
    target.finish("ok");
}

/// A child that shares the memory but is not a thread: ipath could not stop it.
#[test]
fn shared_memory_with_a_child_is_refused() {
    let mut target =
        Target::start(program("shared_memory.c"), [] as [&str; 0]).await_output("ready");
    assert_attach_refused(&mut target, "work", "shares its memory");
    target.signal(Signal::SIGUSR1);
    target.until(Duration::from_secs(20), "be alone", |t| {
        t.stdout().contains("alone")
    });
    let session = Session::attach(target.pid(), &["work"]);
    target.until(Duration::from_secs(20), "call work", |_| {
        session.snapshot().calls("work") > 0
    });
    session.detach();
    target.finish("ok calls ");
}

/// Kernel threads that work for a process: their operations would fail if they were stopped.
#[test]
fn uring_operations_survive_attaching() {
    for count in ["4", "30"] {
        let scratch = Scratch::new("uring");
        let folder = scratch.path().display().to_string();
        let mut target = Target::start(program("uring.c"), [count, &folder]).await_output("ready");
        let clean = ProcessState::of(target.pid());
        for _ in 0..3 {
            let session = Session::attach(target.pid(), &["work"]);
            let limit = Duration::from_secs(20);
            target.until(limit, "call work", |_| session.snapshot().calls("work") > 0);
            session.detach();
            clean.assert_unchanged(target.pid());
        }
        target.finish("ok calls ");
    }
}

/// `forks_when_left`: a handler interrupts the recording of a call while all measured functions are
/// removed, and then forks. The child returns to the recording, and both end normally.
#[test]
fn forks_when_left() {
    const LIMIT: Duration = Duration::from_secs(60);
    for end in ["detach", "remove"].repeat(3) {
        let mut target = Target::start(program("forks_when_left.c"), [""; 0]).await_output("ready");
        let before = ProcessState::of(target.pid());
        let session = Session::attach(target.pid(), &["work"]);
        let said = |word: &'static str| move |t: &Target| t.stdout().contains(word);
        target.until(LIMIT, "stood on a recording", said("standing"));
        let pid = target.pid().to_string();
        let options: &[&str] = if end == "remove" {
            &["-f", "work"]
        } else {
            &[]
        };
        let ending = racing::Running::start(&[&[end, &pid], options].concat());
        target.until(LIMIT, "forked", said("child"));
        assert!(
            target.stdout().contains("child 0\n"),
            "{end}: {}",
            target.report()
        );
        let (code, said) = ending.finish();
        assert_eq!(code, 0, "{end}: {said}");
        if end == "remove" {
            session.detach();
        }
        before.assert_unchanged(target.pid());
        target.finish("ok");
    }
}

/// Children that are forked while `attach --follow` creates the session of their parent are
/// measured, too.
#[test]
fn forked_while_it_is_attached_to() {
    const CALLS: u64 = 20;
    let scratch = Scratch::new("forking");
    // A unique name identifies the children.
    let server = scratch.file("forking_server");
    fs::copy(program("forking_server.c"), &server).expect("a copy");
    let mut target = Target::start(&server, [""; 0]).await_output("ready");
    let pid = target.pid().to_string();
    let file = scratch.file("p.json");
    for _ in 0..12 {
        assert!(target.poll().is_none(), "{}", target.report());
        let attach = [
            "attach",
            &pid,
            "--follow",
            "-f",
            "work",
            "--quiet",
            "--duration",
            "100ms",
            "-o",
        ];
        let attached = Run::ipath(attach).arg(&file).run().expect(0);
        assert_eq!(attached.stderr, "");
        let profile = Profile::read(&file);
        assert_eq!(profile.session.notes, Vec::<String>::new());
        // At the end some children are inside their calls, or have just started.
        let (calls, children) = (profile.calls("work"), profile.processes.len() as u64 - 1);
        let least = CALLS * children.saturating_sub(3);
        assert!(
            calls > least && calls <= CALLS * children,
            "{calls} calls of {children}"
        );
    }
    target.finish("ok children ");
    // Children forked at the end of following have no session either.
    let left = Run::ipath(["status"]).run().expect(0).stdout;
    let server = server.display().to_string();
    assert!(!left.contains(&server), "{left}");
}

/// A child is forked while its parent's session is created. It inherits memory of that session, but
/// not all hooks. Its calls are all counted.
#[test]
fn forked_amid_attach() {
    const LIMIT: Duration = Duration::from_secs(60);
    let scratch = Scratch::new("forked-amid");
    let file = scratch.file("p.json");
    let path = file.to_string_lossy();
    for step in ["document", "document turn", "state active"] {
        let target = Target::start(program("forks_when_told.c"), [""; 0]).await_output("ready");
        let pid = target.pid();
        let mut command = Command::new(faulty());
        command.env("IPATH_STOP_AT", step);
        let attach = [
            "attach",
            &pid.to_string(),
            "--follow",
            "-f",
            "work",
            "--quiet",
        ];
        let attaching = Running::spawn(command, &[&attach[..], &["-o", &path]].concat());
        let begun = Instant::now();
        let await_state = |pid, wanted| {
            while state_of(pid) != wanted {
                assert!(begun.elapsed() < LIMIT, "{pid} is not {wanted} at {step}");
                sleep(Duration::from_millis(1));
            }
        };
        await_state(attaching.id(), 'T');
        // The target stays in `fork` until its tracer resumes it.
        target.signal(Signal::SIGUSR1);
        await_state(pid, 't');
        attaching.signal(Signal::SIGCONT);
        let target = target.await_output("children 1");
        attaching.signal(Signal::SIGINT);
        let (code, said) = attaching.finish();
        assert_eq!(code, 0, "{step}: {said}");
        assert!(!said.contains("not measured"), "{step}: {said}");
        let profile = Profile::read(&file);
        assert_eq!(profile.session.notes, Vec::<String>::new(), "{step}");
        assert_eq!(profile.calls("work"), 20, "{step}");
        target.finish("ok");
    }
}
