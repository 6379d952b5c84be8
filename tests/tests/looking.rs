//! Inspection changes nothing: `maps_unreadable`, `out_of_descriptors`, and the messages of
//! `status` about segments that are not sessions.

use ipath_tests::command::{NOBODY, Run};
use ipath_tests::compile::program;
use ipath_tests::place::{Scratch, ipath};
use ipath_tests::racing::segment_names;
use ipath_tests::session::{Session, listed_in};
use ipath_tests::snapshot::ProcessState;
use ipath_tests::target::Target;
use nix::sys::signal::Signal;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// The path of a copy of a program in the scratch folder, where every user can run it.
fn public(scratch: &Scratch, file: &PathBuf) -> PathBuf {
    let copy = scratch.path().join(file.file_name().expect("a file"));
    fs::copy(file, &copy).expect("room for a copy");
    copy
}

fn nobody(program: &PathBuf, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).uid(NOBODY).gid(NOBODY);
    command
}

/// Serializes the tests that inspect remains of ended processes, and those that clean up.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An unreadable process has not ended: `top` continues and reports it, and the session stays.
#[test]
fn maps_unreadable_does_not_mean_ended() {
    let scratch = Scratch::public("unreadable");
    let (own, file) = (public(&scratch, &ipath()), program("undumpable.c"));
    let file = public(&scratch, &file);
    let mut target = Target::spawn(nobody(&file, &[])).await_output("ready");
    let pid = target.pid().to_string();
    let session = Session::attach(target.pid(), &["step"]);
    let top = ["top", &pid, "--no-tui", "--interval", "20ms"];
    let mut top = Target::spawn(nobody(&own, &top));
    top.until(LIMIT, "begun", |t| t.stdout().contains("step: "));
    target.signal(Signal::SIGUSR1);
    target.until(LIMIT, "hidden itself", |t| t.stdout().contains("hidden"));
    top.until(LIMIT, "said so", |t| {
        t.stderr().contains("cannot determine whether")
    });
    let summaries = |t: &Target| t.stdout().matches("step: ").count();
    let before = summaries(&top);
    top.until(LIMIT, "gone on", |t| summaries(t) > before + 2);
    top.signal(Signal::SIGINT);
    assert!(top.wait(LIMIT).success(), "{}", top.report());
    assert_eq!(segment_names(target.pid()).len(), 1);
    target.signal(Signal::SIGUSR2);
    target.until(LIMIT, "shown itself", |t| t.stdout().contains("dumpable"));
    assert!(session.detach().calls("step") > 0);
    target.finish("ok calls ");
}

/// `top` has no free descriptor for a while. It says so and continues, and the session stays.
#[test]
fn out_of_descriptors() {
    let target = Target::start(program("undumpable.c"), [""; 0]).await_output("ready");
    let session = Session::attach(target.pid(), &["step"]);
    let pid = target.pid().to_string();
    let args = ["top", &pid, "--no-tui", "--interval", "20ms"];
    let mut top = Target::start(ipath(), args);
    top.until(LIMIT, "begun", |t| t.stdout().contains("step: "));
    let id = top.pid() as i32;
    let limit = |most: u64| {
        let limit = libc::rlimit {
            rlim_cur: most,
            rlim_max: 1024,
        };
        let none = std::ptr::null_mut();
        // SAFETY: reads a live value; the old limit is not requested.
        let done = unsafe { libc::prlimit(id, libc::RLIMIT_NOFILE, &raw const limit, none) };
        assert_eq!(done, 0, "prlimit: {}", std::io::Error::last_os_error());
    };
    limit(3);
    top.until(LIMIT, "said so", |t| {
        t.stderr().contains("cannot determine whether")
    });
    limit(1024);
    top.signal(Signal::SIGINT);
    assert!(top.wait(LIMIT).success(), "{}", top.report());
    assert!(session.snapshot().calls("step") > 0);
    session.detach();
    target.finish("ok calls ");
}

/// The program ends under `top`: its measurements stay for the session's owner.
#[test]
fn top_leaves_what_has_ended() {
    let _alone = alone();
    let target = Target::start(program("undumpable.c"), [""; 0]).await_output("ready");
    let id = target.pid();
    let session = Session::attach(id, &["step"]);
    let pid = id.to_string();
    let mut top = Target::start(ipath(), ["top", &pid, "--no-tui", "--interval", "20ms"]);
    top.until(LIMIT, "begun", |t| t.stdout().contains("step: "));
    target.finish("ok calls ");
    assert!(top.wait(LIMIT).success(), "{}", top.report());
    assert_eq!(segment_names(id).len(), 1);
    assert!(session.snapshot().calls("step") > 0);
    session.detach();
    assert!(segment_names(id).is_empty());
}

/// A file that is not a session does not stop `status` from showing the others, and is named.
#[test]
fn status_beside_corrupt_segments() {
    let target = Target::start(program("undumpable.c"), [""; 0]).await_output("ready");
    let other = Target::start(program("undumpable.c"), [""; 0]).await_output("ready");
    let session = Session::attach(target.pid(), &["step"]);
    let mut forged = Vec::new();
    for (number, bytes) in [vec![1u8; 4096], vec![7; 5000]].into_iter().enumerate() {
        let path = format!("/dev/shm/ipath-{}-{}", other.pid(), number + 1);
        fs::write(&path, bytes).expect("room for a page");
        // Like a real segment: files that others can write are ignored.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("an own file");
        forged.push(path);
    }
    let status = Run::ipath(["status"]).run();
    for path in &forged {
        fs::remove_file(path).expect("still there: looking removes nothing");
    }
    assert_eq!(status.code(), 0, "{}", status.report());
    for path in &forged {
        assert!(status.stderr.contains(path), "{path}: {}", status.report());
    }
    let line = format!("{}  ", target.pid());
    assert!(
        status.stdout.lines().any(|l| l.starts_with(&line)),
        "{}",
        status.report()
    );
    session.detach();
    target.finish("ok calls ");
    other.finish("ok calls ");
}

/// A watching command maps the session's segment. `status` does not list it, because it has no
/// session of its own.
#[test]
fn status_beside_watchers() {
    let target = Target::start(program("busy.c"), ["1", "600"]).await_output("ready");
    let pid = target.pid().to_string();
    let watch = ["attach", &pid, "-f", "step", "--format", "jsonl"];
    let mut watching = Command::new(ipath())
        .args(watch)
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let mut first = String::new();
    let mut out = BufReader::new(watching.stdout.take().expect("a pipe"));
    out.read_line(&mut first).expect("a line");
    let own = watching.id();
    let status = Run::ipath(["status"]).run();
    let of_it = Run::ipath(["status", &own.to_string()]).run();
    let traced = Run::ipath([
        "attach",
        &own.to_string(),
        "-f",
        "malloc",
        "--duration",
        "1ms",
    ]);
    let traced = traced.arg("--no-tui").run();
    let to = nix::unistd::Pid::from_raw(own as i32);
    nix::sys::signal::kill(to, Signal::SIGINT).expect("an own child");
    let ended = watching.wait().expect("an own child");
    let status = status.expect(0);
    assert!(listed_in(&status, target.pid()).is_some());
    assert_eq!(listed_in(&status, own), None);
    let head = format!("{pid}  ");
    let of_target = status.stdout.lines().filter(|l| l.starts_with(&head));
    assert_eq!(of_target.count(), 1, "{}", status.report());
    assert_eq!(of_it.code(), 1, "{}", of_it.report());
    assert!(of_it.stderr.contains("no session"), "{}", of_it.report());
    traced.expect(0);
    assert!(ended.success());
    target.finish("ok calls ");
}

/// A session can be listed, changed and removed from a time namespace, in which the clocks differ
/// (time_namespaces(7)).
#[test]
fn from_another_time() {
    let target = Target::start(program("busy.c"), ["1", "600"]).await_output("ready");
    let session = Session::attach(target.pid(), &["step"]);
    let pid = target.pid().to_string();
    let there = |given: &[&str]| {
        Run::new("unshare")
            .args(["--time", "--boottime", "100000", "--fork"])
            .arg(ipath())
            .args(given)
            .run()
            .expect(0)
    };
    for given in [&["status"][..], &["status", &pid]] {
        let of_it = listed_in(&there(given), target.pid()).expect("its session");
        assert!(!of_it.contains("ended"), "{of_it}");
        assert!(of_it.contains("step"), "{of_it}");
    }
    let of_it = there(&["status", &pid]);
    assert_eq!(of_it.stderr, "", "{}", of_it.report());
    there(&["add", &pid, "-f", "mix"]);
    assert!(session.snapshot().calls("mix") > 0);
    there(&["detach", &pid]);
    assert_eq!(ProcessState::session_in(target.pid()), [""; 0]);
    target.finish("ok calls ");
}

/// In a pid namespace without its process, a live session is not reported as ended, and is not
/// removed.
#[test]
fn from_another_pid_namespace() {
    let _alone = alone();
    let target = Target::start(program("busy.c"), ["1", "600"]).await_output("ready");
    let session = Session::attach(target.pid(), &["step"]);
    let there = |given: &[&str]| {
        let namespaces = ["--pid", "--fork", "--mount-proc"];
        Run::new("unshare")
            .args(namespaces)
            .arg(ipath())
            .args(given)
            .run()
    };
    let of_it = listed_in(&there(&["status"]).expect(0), target.pid()).expect("its session");
    assert!(!of_it.contains("has ended"), "{of_it}");
    assert!(of_it.contains("another pid namespace"), "{of_it}");
    there(&["status", "--clean"]).expect(0);
    assert!(session.snapshot().calls("step") > 0);
    drop(session);
    target.finish("ok calls ");
}

/// Cleaning removes the remains of ended processes' sessions, and nothing else.
#[test]
fn status_clean_removes_only_remains_of_ended_processes() {
    let _alone = alone();
    let target = Target::start(program("undumpable.c"), [""; 0]).await_output("ready");
    let ended = Target::start(program("undumpable.c"), [""; 0]).await_output("ready");
    let (lives, gone) = (target.pid(), ended.pid());
    let session = Session::attach(lives, &["step"]);
    Session::attach(gone, &["step"]);
    ended.finish("ok calls ");
    let path = segment_names(gone).pop().expect("a segment that is left");
    // Another user may not clean, and the message says so.
    let scratch = Scratch::public("clean");
    let own = public(&scratch, &ipath());
    let denied = Run::new(&own).args(["status", "--clean"]).as_nobody().run();
    assert_eq!(denied.code(), 0, "{}", denied.report());
    assert!(
        denied.stderr.contains(&*path.to_string_lossy()),
        "{}",
        denied.report()
    );
    assert!(path.exists());
    let cleaned = Run::ipath(["status", "--clean"]).run().expect(0);
    let line = format!("removed {}", path.display());
    assert!(
        cleaned.stdout.lines().any(|l| l == line),
        "{}",
        cleaned.report()
    );
    assert!(segment_names(gone).is_empty());
    assert_eq!(segment_names(lives).len(), 1);
    assert!(session.detach().calls("step") > 0);
    target.finish("ok calls ");
}

/// The remains of an ended process's session are removed when their owner next attaches, but only
/// after they were unused for days.
#[test]
fn old_sessions_are_swept() {
    let _alone = alone();
    let start = || Target::start(program("undumpable.c"), [""; 0]).await_output("ready");
    let [target, old, young] = [(); 3].map(|()| start());
    let ids = [old.pid(), young.pid()];
    for ended in [old, young] {
        Session::attach(ended.pid(), &["step"]);
        ended.finish("ok calls ");
    }
    let path = segment_names(ids[0]).pop().expect("a segment that is left");
    let aged = Run::new("touch").args(["-d", "3 days ago"]).arg(&path);
    aged.run().expect(0);
    let session = Session::attach(target.pid(), &["step"]);
    assert!(segment_names(ids[0]).is_empty());
    assert_eq!(segment_names(ids[1]).len(), 1);
    Run::ipath(["detach", &ids[1].to_string()]).run().expect(0);
    assert!(segment_names(ids[1]).is_empty());
    session.detach();
    target.finish("ok calls ");
}
