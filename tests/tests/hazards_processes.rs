//! What processes do while they are attached to and measured: stop, make children and threads, lose
//! their first thread.

use ipath_tests::compile::program;
use ipath_tests::epoch::{Counted, state_of};
use ipath_tests::target::Target;
use nix::sys::signal::Signal;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// What a parent is told of a child that stops or goes on.
#[derive(Debug, PartialEq, Eq)]
enum Told {
    Stopped,
    Continued,
}

/// The next thing the kernel has for the parent, within a time.
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

const SOON: Duration = Duration::from_secs(10);
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
fn group_stop() {
    let mut counted = Counted::start(program("callers.c"), ["4", "whole"]);
    // Attached to, changed and detached from while it is stopped: it stays so.
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
        counted.assert_unchanged();
        go_on(&counted.target);
        assert_eq!(told(&counted.target, SILENCE), None, "after going on");
    }
    counted.finish();
}

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

/// Sessions that come and go, first while calls are under way, then exact ones.
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
fn zombie_leader() {
    let mut counted = Counted::start(program("callers.c"), ["3", "headless"]);
    assert_eq!(state_of(counted.target.pid()), 'Z');
    rounds(&mut counted, 20, Counted::assert_unchanged);
    counted.finish();
}

/// Attaches to and detaches from `churn.c` again and again while it does what it does.
fn storm(kind: &str) {
    let mut counted = Counted::start(program("churn.c"), [kind]);
    rounds(&mut counted, 30, Counted::assert_code_unchanged);
    let line = counted.finish();
    let made = line.rsplit_once(" made ").map(|(_, n)| n.parse::<u64>());
    assert!(matches!(made, Some(Ok(200..))), "{line}");
}

#[test]
fn fork_storm() {
    storm("fork");
}

#[test]
fn vfork_child_in_attach() {
    storm("vfork");
}

#[test]
fn spawn_storm() {
    storm("spawn");
}

#[test]
fn thread_storm() {
    storm("threads");
    storm("chain");
}
