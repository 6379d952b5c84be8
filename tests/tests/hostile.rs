//! Targets that try to misuse root's ipath, targets whose behavior looks as if they had ended, and
//! interference from other processes.

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

/// A program of an unprivileged user, whose /dev/shm has too little room for a session.
fn in_small_place(scratch: &Scratch, program: &Path, args: &[&str]) -> Target {
    const SCRIPT: &str = "mount -t tmpfs -o size=16k tmpfs /dev/shm && exec \"$@\"";
    let copy = scratch.path().join(program.file_name().expect("a file"));
    // A running file cannot be overwritten.
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

/// `ipath attach` for 1 ms.
fn attach(pid: &str) -> Run {
    Run::ipath(["attach", pid, "-f", "work", "--no-tui", "--duration", "1ms"])
}

fn ends_well(mut target: Target) {
    target.signal(Signal::SIGTERM);
    let status = target.wait(LIMIT);
    let is_well = status.success() && target.stdout().lines().any(|l| l.starts_with("ok"));
    assert!(is_well, "{}", target.report());
}

/// `swapped_descriptors`: ipath changes no file that the target itself could not change.
#[test]
fn swapped_descriptors_change_no_other_users_file() {
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

/// `leased`: commands do not wait for a process that holds a lease on a file which looks like its
/// segment.
#[test]
fn leased_file_does_not_delay_commands() {
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
        // The kernel breaks a lease after 45 s (fs.lease-break-time).
        assert!(begin.elapsed() < LIMIT, "{}", finished.report());
        assert!(finished.code() >= 0, "{}", finished.report());
    }
    ends_well(target);
}

/// `borrowed_id`: another user's effective id for a while does not give that user the session. It
/// can be removed once the program has its own id again.
#[test]
fn borrowed_id_does_not_give_the_session_away() {
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

/// `queued_signals`: signals that arrive while a thread works for ipath are delivered to the
/// program afterwards, with all their data.
#[test]
fn queued_signals_are_delivered_with_their_data() {
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

/// `descriptors`: the runtime uses none of the program's descriptors for the stacks of threads.
#[test]
fn descriptors_of_the_program_stay_untouched() {
    let mut target = Target::start(program("descriptors.c"), ["100000"]).await_output("ready");
    let session = Session::attach(target.pid(), &["work"]);
    // By then the runtime has analyzed the program's code.
    target.until(LIMIT, "calls", |_| session.snapshot().calls("work") > 100);
    target.signal(Signal::SIGUSR1);
    let says_ok = |t: &Target| t.stdout().ends_with("ok\n");
    target.until(Duration::from_secs(60), "ended", says_ok);
    let said = target.stdout();
    assert!(said.contains("other 0\nclosed 0\n"), "{said}");
    assert!(target.wait(LIMIT).success());
    session.detach();
}

/// `handed_over`: the first thread has ended, and no other thread lives long. Requests may be
/// refused, but the process is never taken for ended.
#[test]
fn handed_over_process_is_never_taken_for_ended() {
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
        // Commands may be refused until only one thread is left again.
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
