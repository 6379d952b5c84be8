//! Targets that want root's ipath to do something for them, whose own doings look as if they were gone, or
//! that others interfere with.

use ipath_tests::command::{NOBODY, Run};
use ipath_tests::compile::program;
use ipath_tests::place::Scratch;
use ipath_tests::racing::rounds;
use ipath_tests::session::Session;
use ipath_tests::snapshot::ProcessState;
use ipath_tests::target::Target;
use nix::sys::signal::Signal;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(20);

/// A program of an ordinary user's, with no room for a session in the /dev/shm that it sees.
fn in_small_place(scratch: &Scratch, program: &Path, args: &[&str]) -> Target {
    const SCRIPT: &str = "mount -t tmpfs -o size=16k tmpfs /dev/shm && exec \"$@\"";
    let copy = scratch.path().join(program.file_name().expect("a file"));
    // One that runs from there cannot be written over.
    if !copy.exists() {
        fs::copy(program, &copy).expect("room for a copy");
    }
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", SCRIPT, "sh", "setpriv"]);
    let user = NOBODY.to_string();
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups"]);
    command.arg(copy).args(args);
    Target::spawn(command).await_output("ready")
}

/// Attaches for a moment.
fn attach(pid: &str) -> Run {
    Run::ipath(["attach", pid, "-f", "work", "--no-tui", "--duration", "1ms"])
}

fn ends_well(mut target: Target) {
    target.signal(Signal::SIGTERM);
    let status = target.wait(LIMIT);
    let is_well = status.success() && target.stdout().lines().any(|l| l.starts_with("ok"));
    assert!(is_well, "{}", target.report());
}

/// `swapped_descriptors`: nothing of a file is changed that the target itself could not change.
#[test]
fn swapped_descriptors() {
    const TEXT: &str = "nobody but root may write to this\n";
    let scratch = Scratch::public("swapped");
    for (how, mode) in [("r", 0o644), ("p", 0o600)] {
        let victim = scratch.file("victim");
        fs::write(&victim, TEXT).expect("room");
        fs::set_permissions(&victim, fs::Permissions::from_mode(mode)).expect("an own file");
        let path = victim.to_str().expect("text");
        let target = in_small_place(&scratch, &program("swapped_descriptors.c"), &[path, how]);
        let pid = target.pid().to_string();
        for _ in 0..6 {
            let attached = attach(&pid).run();
            let now = fs::metadata(&victim).expect("still there");
            assert_eq!(now.len(), TEXT.len() as u64, "{how}: {}", attached.report());
            assert_eq!(fs::read_to_string(&victim).expect("readable"), TEXT);
        }
        ends_well(target);
        fs::remove_file(&victim).expect("an own file");
    }
}

/// `leased`: looking at all processes does not wait for one.
#[test]
fn leased() {
    let mut command = Command::new("setpriv");
    let user = NOBODY.to_string();
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups"]);
    let scratch = Scratch::public("leased");
    let copy = scratch.file("leased");
    fs::copy(program("leased.c"), &copy).expect("room for a copy");
    let target = Target::spawn({
        command.arg(&copy);
        command
    });
    let target = target.await_output("ready");
    let pid = target.pid().to_string();
    let given = [&["status"][..], &["status", &pid], &["detach", &pid]];
    let looks = given.into_iter().map(Run::ipath);
    for command in looks.chain([attach(&pid)]) {
        let begin = Instant::now();
        let finished = command.run();
        // Its lease is broken by force after 45 s (fs.lease-break-time).
        assert!(begin.elapsed() < LIMIT, "{}", finished.report());
        assert!(finished.code() >= 0, "{}", finished.report());
    }
    ends_well(target);
}

/// `borrowed_id`: whose effective id it has for a while may not write to its session, and it is taken out
/// however it has its own again.
#[test]
fn borrowed_id() {
    let user = NOBODY.to_string();
    let mut target = Target::start(program("borrowed_id.c"), [&user]).await_output("ready");
    let before = ProcessState::of(target.pid());
    let session = Session::attach(target.pid(), &["work"]);
    for name in ProcessState::shared_of(target.pid()) {
        let file = fs::metadata(format!("/dev/shm/{name}")).expect("still there");
        assert_eq!(file.uid(), 0, "{name}");
    }
    target.signal(Signal::SIGUSR1);
    let is_root = |t: &Target| t.stdout().lines().any(|l| l == "root");
    target.until(LIMIT, "its own id", is_root);
    assert!(session.detach().calls("work") > 0);
    let left = ProcessState::shared_of(target.pid());
    assert!(left.is_empty(), "{left:?}");
    before.assert_unchanged(target.pid());
    ends_well(target);
}

/// `queued_signals`: what comes while a thread works for ipath comes to the program afterwards, with all that was
/// sent with it.
#[test]
fn queued_signals() {
    let mut sender = Target::start(program("queued_signals.c"), [""; 0]).await_output("ready");
    let said = sender.stdout();
    let pid = said.split_whitespace().nth(1).expect("a number").to_owned();
    for _ in 0..40 {
        attach(&pid).run().expect(0);
    }
    sender.signal(Signal::SIGTERM);
    sender.wait(LIMIT);
    let said = sender.stdout();
    assert!(said.contains("lost 0\nchanged 0\n"), "{said}");
}

/// `descriptors`: the runtime takes none of the program's for the stacks of threads.
#[test]
fn descriptors() {
    let mut target = Target::start(program("descriptors.c"), ["100000"]).await_output("ready");
    let session = Session::attach(target.pid(), &["work"]);
    // What there is of code has been learnt by then.
    target.until(LIMIT, "calls", |_| session.snapshot().calls("work") > 100);
    target.signal(Signal::SIGUSR1);
    let says_ok = |t: &Target| t.stdout().ends_with("ok\n");
    target.until(Duration::from_secs(60), "ended", says_ok);
    let said = target.stdout();
    assert!(said.contains("other 0\nclosed 0\n"), "{said}");
    assert!(target.wait(LIMIT).success());
    session.detach();
}

/// `handed_over`: the first thread has ended and no other one lives for long. What is asked of the process
/// may be refused, and it is never taken for gone.
#[test]
fn handed_over() {
    for round in 0..rounds(6) {
        let calls = (3000 + 1500 * round % 20_000).to_string();
        let target = Target::start(program("handed_over.c"), [&calls]).await_output("ready");
        // One thread is left.
        sleep(Duration::from_millis(50));
        let pid = target.pid().to_string();
        Session::attach(target.pid(), &["work"]);
        assert!(!ProcessState::session_in(target.pid()).is_empty());
        target.signal(Signal::SIGUSR1);
        let limit = Instant::now() + Duration::from_secs(2);
        while Instant::now() < limit {
            let detached = Run::ipath(["detach", &pid]).run();
            let said = &detached.stderr;
            let is_untrue = [
                "had ended",
                "has ended",
                "no such process",
                "another program",
            ];
            let is_untrue = is_untrue.iter().any(|t| said.contains(t));
            assert!(!is_untrue, "round {round}: {}", detached.report());
            if detached.code() == 0 {
                break;
            }
        }
        target.signal(Signal::SIGUSR2);
        // Until one is left again it may be refused.
        let limit = Instant::now() + LIMIT;
        let refused = |command: Run| {
            assert!(Instant::now() < limit, "round {round}: not in time");
            command.run().code() != 0
        };
        let is_in = || !ProcessState::session_in(target.pid()).is_empty();
        while is_in() && refused(Run::ipath(["detach", &pid])) {}
        while refused(attach(&pid)) {}
        let left = ProcessState::session_in(target.pid());
        assert!(left.is_empty(), "round {round}: {left:?}");
        ends_well(target);
    }
}
