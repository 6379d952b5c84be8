//! Processes with very many runnable threads: each operation on them ends, and they continue
//! unchanged.

use ipath_tests::command::Run;
use ipath_tests::compile::program;
use ipath_tests::place::{Scratch, ipath};
use ipath_tests::profile::Profile;
use ipath_tests::pty::Pty;
use ipath_tests::racing::segment_names;
use ipath_tests::session::Session;
use ipath_tests::target::Target;
use nix::sys::signal::Signal;
use std::fs;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// The state of each thread of a process, and its tracer's id (`0` for none), both from /proc.
fn threads(pid: u32) -> Vec<(String, String)> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    let status = |task: std::io::Result<fs::DirEntry>| {
        let text = fs::read_to_string(task.ok()?.path().join("status")).ok()?;
        let field = |key: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(key));
            value.unwrap_or_default().trim().to_owned()
        };
        Some((field("State:"), field("TracerPid:")))
    };
    tasks.filter_map(status).collect()
}

/// Checks that the target has at least `count` threads, and that all run or sleep untraced.
fn assert_untouched(target: &Target, count: usize) {
    let all = threads(target.pid());
    assert!(all.len() >= count, "{}", all.len());
    for (state, tracer) in all {
        assert!(
            state.starts_with(['R', 'S']) && tracer == "0",
            "{state}, {tracer}"
        );
    }
}

/// All threads run all the time, at the lowest priority so that other tests make progress.
#[test]
fn many_threads_that_run() {
    const THREADS: usize = 600;
    let count = THREADS.to_string();
    let mut command = std::process::Command::new("nice");
    command
        .args(["-n", "19"])
        .arg(program("crowd_that_runs.c"))
        .arg(count);
    let target = Target::spawn(command).await_output("ready");
    let scratch = Scratch::new("crowds");
    let file = scratch.file("p.json").display().to_string();
    let pid = target.pid().to_string();
    for _ in 0..2 {
        let attached = Run::ipath(["attach", &pid, "-f", "turn", "-q", "-o", &file])
            .args(["--no-tui", "--duration", "1s"])
            .limit(Duration::from_secs(120))
            .run()
            .expect(0);
        assert!(attached.stdout.is_empty(), "{}", attached.report());
        let profile = Profile::read(file.as_ref());
        assert!(profile.calls("turn") > 0);
        assert_untouched(&target, THREADS);
    }
    drop(target);
}

/// Threads in the runtime that get no processor run while all others are stopped.
#[test]
fn detach_gives_late_threads_turns() {
    let target = Target::start(program("late_threads.c"), [""; 0]).await_output("ready");
    let session = Session::attach(target.pid(), &["step"]);
    while session.snapshot().calls("step") < 100_000 {}
    target.signal(Signal::SIGUSR1);
    let target = target.await_output("busy");
    let profile = session.detach();
    assert!(profile.calls("step") >= 100_000);
    assert_untouched(&target, 109);
    let maps = fs::read_to_string(format!("/proc/{}/maps", target.pid())).expect("it runs");
    assert!(!maps.contains("/dev/shm/"), "{maps}");
    target.signal(Signal::SIGUSR2);
    target.await_output("idle").finish("ok");
}

/// A thread that stays in the runtime makes `detach` give up. The next `detach` finishes, once the
/// thread has left.
#[test]
fn a_later_detach_finishes() {
    let target = Target::start(program("held_in_walk.c"), [""; 0]).await_output("ready");
    let pid = target.pid().to_string();
    let _session = Session::attach(target.pid(), &["step"]);
    target.signal(Signal::SIGUSR1);
    let target = target.await_output("held");
    let first = Run::ipath(["detach", &pid]).run();
    assert_eq!(first.code(), 1, "{}", first.report());
    let cause = "is still in the runtime, which stays mapped; try again later";
    assert!(first.stderr.contains(cause), "{}", first.report());
    assert_untouched(&target, 2);
    target.signal(Signal::SIGUSR1);
    let target = target.await_output("on");
    Run::ipath(["detach", &pid]).run().expect(0);
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("it runs");
    assert!(!maps.contains("/dev/shm/"), "{maps}");
    target.finish("ok");
}

/// A command that waits names the reason, gives up after a time, and leaves everything unchanged.
#[test]
fn a_wait_is_named_and_ends() {
    let target = Target::start(program("busy.c"), ["1", "600"]).await_output("ready");
    let session = Session::attach(target.pid(), &["step"]);
    let segment = fs::File::open(&segment_names(target.pid())[0]).expect("the session's");
    // SAFETY: the descriptor is open.
    let locked = unsafe { libc::flock(segment.as_raw_fd(), libc::LOCK_EX) };
    assert_eq!(locked, 0, "nobody else has the lock");
    let pid = target.pid().to_string();
    let mut add = Pty::start(ipath(), ["add", &pid, "-f", "mix"]);
    add.shows(&format!(
        "ipath: add {pid}: waiting for another command that changes the session ("
    ));
    assert_eq!(add.wait(), 1, "{}", add.report());
    assert!(add.seen().contains("another ipath"), "{}", add.report());
    drop(segment);
    let profile = session.detach();
    assert!(profile.calls("step") > 0);
    target.finish("ok calls ");
}
