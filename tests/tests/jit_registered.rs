//! Unwind entries that a process registers for code that it has generated. Walks go through the
//! code as long as its entries are registered.

use ipath_tests::compile::program_with;
use ipath_tests::profile::{Profile, count};
use ipath_tests::racing::Running;
use ipath_tests::session::Session;
use ipath_tests::target::Target;
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// The numbers of calls on complete paths from generated code through `name` and `main`, on
/// incomplete paths, and on other complete paths.
fn calls_through(profile: &Profile, name: &str) -> (u64, u64, u64) {
    let mut calls = (0, 0, 0);
    for path in &profile.paths {
        let of = |at: usize| Some(&profile.frames[*path.stack.get(at)?]);
        let through = of(1).and_then(|frame| frame.function.as_deref());
        let is_right = through == Some(name)
            && of(2).and_then(|frame| frame.function.as_deref()) == Some("main");
        let times = count(&path.metrics);
        match (path.complete, is_right) {
            (true, true) => calls.0 += times,
            (true, false) => calls.2 += times,
            (false, _) => calls.1 += times,
        }
    }
    calls
}

/// Takes snapshots until there are more than `than` calls on complete paths through `name`.
fn until_complete(session: &Session, name: &str, than: u64) -> Profile {
    let begun = Instant::now();
    loop {
        let profile = session.snapshot();
        if calls_through(&profile, name).0 > than {
            return profile;
        }
        assert!(
            begun.elapsed() < PATIENCE,
            "no path through {name} is complete"
        );
    }
}

/// Checks that paths lead through generated code while its entries are registered in this way, and
/// end there while they are not.
fn walks_go_through(how: &str, flags: &[&str]) {
    let all = [&["-O1", "-fno-omit-frame-pointer", "-no-pie"], flags].concat();
    let program = program_with("jit_registered.c", &all);
    let mut target = Target::start(program, [how]).await_output("first");
    let session = Session::attach(target.pid(), &["work"]);
    let first = until_complete(&session, "enter", 10);
    assert_eq!(
        first.losses.incomplete, 0,
        "{how}: known before the first call"
    );
    let pid = target.pid().to_string();
    let watcher = Running::start(&["top", &pid, "--no-tui", "--interval", "1s"]);
    target.signal(Signal::SIGUSR1);
    target.until(PATIENCE, "unknown", |t| t.stdout().contains("unknown"));
    let unknown = session.snapshot();
    let (right, incomplete, _) = calls_through(&unknown, "enter");
    assert_eq!(
        incomplete, 1000,
        "{how}: other code is there, of which nothing is known"
    );
    target.signal(Signal::SIGUSR1);
    target.until(PATIENCE, "second", |t| t.stdout().contains("second"));
    let second = until_complete(&session, "enter_second", 10);
    target.signal(Signal::SIGUSR1);
    let (first, _, others) = calls_through(&second, "enter");
    let (second, _, _) = calls_through(&second, "enter_second");
    assert_eq!(
        (first, others),
        (right, second),
        "{how}: no path is another one's"
    );
    target.until(PATIENCE, "ok", |t| t.stdout().contains("ok"));
    watcher.finish();
    target.finish("ok");
}

/// Entries that are registered by `__register_frame` give complete paths.
#[test]
fn with_the_unwinder() {
    walks_go_through("frames", &[]);
}

/// The unwinder's list has no symbols there.
#[test]
fn with_the_unwinder_of_a_static_program() {
    walks_go_through("frames", &["-static"]);
}

#[test]
fn with_debuggers_registered_code_is_on_complete_paths() {
    walks_go_through("debuggers", &[]);
}

/// Entries of which only a loaded copy contains addresses, registered with debuggers, give complete
/// paths.
#[test]
fn with_debuggers_in_a_loaded_section() {
    walks_go_through("loaded", &[]);
}
