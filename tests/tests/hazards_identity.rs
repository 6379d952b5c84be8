//! The owner of a session: two commands at once, programs that execute others, files that only have
//! the name of a segment, and segments without names.

use ipath_tests::command::{Finished, NOBODY, Run};
use ipath_tests::compile::program;
use ipath_tests::faulty::faulty;
use ipath_tests::place::{Scratch, ipath};
use ipath_tests::racing::{Running, rounds, segment_names};
use ipath_tests::session::{Session, listed};
use ipath_tests::snapshot::ProcessState;
use ipath_tests::target::Target;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

fn busy() -> Target {
    Target::start(program("busy.c"), ["2", "600"]).await_output("ready")
}

fn attach<'a>(pid: &'a str, function: &'a str) -> Vec<&'a str> {
    let mut arguments = vec!["attach", pid, "--keep", "--no-tui", "--duration", "1ms"];
    arguments.extend(["-f", function]);
    arguments
}

/// Of two concurrent attaches one succeeds, and the other one reports that there is a session.
#[test]
fn two_attaches_leave_one_session() {
    let target = busy();
    let pid = target.pid().to_string();
    let clean = ProcessState::of(target.pid());
    let mut both = 0;
    for round in 0..rounds(25) {
        let first = Running::start(&attach(&pid, "busy*!step"));
        // The delay varies: both at once, or the second after the first has begun.
        sleep(Duration::from_micros(700 * (round as u64 % 20)));
        let second = Running::start(&attach(&pid, "mix"));
        let results = [first.finish(), second.finish()];
        let done = results.iter().filter(|(code, _)| *code == 0).count();
        assert_eq!(done, 1, "round {round}: {results:?}");
        let refused = results.iter().find(|(code, _)| *code != 0);
        let (_, said) = refused.expect("the other");
        assert!(said.contains("has a session already"), "{said}");
        both += usize::from(segment_names(target.pid()).len() == 1);
        Session::of(target.pid()).detach();
        clean.assert_unchanged(target.pid());
    }
    assert_eq!(both, rounds(25), "one segment each");
    target.finish("ok calls ");
}

/// Commands of all kinds at once, in an order that changes with the round. Each succeeds or names
/// the state of the session that prevents it.
#[test]
fn add_against_remove_against_detach() {
    let target = busy();
    let pid = target.pid().to_string();
    let clean = ProcessState::of(target.pid());
    for round in 0..rounds(15) {
        let attached = Run::ipath(attach(&pid, "busy*!step")).run();
        attached.expect(0);
        let commands: [&[&str]; 4] = [
            &["add", &pid, "-f", "mix"],
            &["remove", &pid, "-f", "busy*!step"],
            &["detach", &pid],
            &attach(&pid, "down"),
        ];
        let begun: Vec<Running> = (0..commands.len())
            .map(|i| {
                sleep(Duration::from_micros((round * 313 % 1500) as u64));
                Running::start(commands[(i + round) % commands.len()])
            })
            .collect();
        for command in begun {
            let (code, said) = command.finish();
            let known = ["no session", "has a session", "no instrumented function"];
            let excused = known.iter().any(|text| said.contains(text));
            assert!(code == 0 || excused, "round {round}: {code} {said}");
        }
        assert!(
            segment_names(target.pid()).len() <= 1,
            "{:?}",
            segment_names(target.pid())
        );
        let left = Run::ipath(["detach", &pid]).run();
        assert!(
            left.code() == 0 || left.stderr.contains("no session"),
            "{}",
            left.report()
        );
        clean.assert_unchanged(target.pid());
    }
    target.finish("ok calls ");
}

/// `other_build`: one build of ipath creates the session and another changes it. Their runtimes
/// have different stub addresses.
#[test]
fn other_build_changes_and_ends_the_session() {
    let target = Target::start(program("trap.c"), ["0", "600"]).await_output("ready");
    let pid = target.pid().to_string();
    let clean = ProcessState::of(target.pid());
    let builds = [ipath(), faulty()];
    for (made, changed) in [(&builds[0], &builds[1]), (&builds[1], &builds[0])] {
        Run::new(made)
            .args(attach(&pid, "tiny_four"))
            .run()
            .expect(0);
        let change = |arguments: &[&str]| Run::new(changed).args(arguments).run().expect(0);
        change(&["add", &pid, "--allow-trap", "-f", "tiny_*"]);
        let session = Session::of(target.pid());
        let calls = || session.snapshot().calls("tiny_four");
        let (before, end) = (calls(), Instant::now() + Duration::from_secs(20));
        while calls() == before {
            assert!(Instant::now() < end, "no more calls: {before}");
            sleep(Duration::from_millis(10));
        }
        change(&["remove", &pid, "-f", "tiny_four"]);
        change(&["detach", &pid]);
        clean.assert_unchanged(target.pid());
    }
    target.finish("ok calls ");
}

/// A command waits for the lock while the session is removed and another one is created. It adds to
/// the new session, or fails with `no session`.
#[test]
fn add_after_new_session() {
    let target = busy();
    let pid = target.pid().to_string();
    let session = Session::attach(target.pid(), &["busy*!step"]);
    let segment = File::open(&segment_names(target.pid())[0]).expect("the session's");
    // SAFETY: the descriptor is open.
    let locked = unsafe { libc::flock(segment.as_raw_fd(), libc::LOCK_EX) };
    assert_eq!(locked, 0, "nobody else has the lock");
    let add = Running::start(&["add", &pid, "-f", "mix"]);
    // It has read the session and waits for the lock. Stop it so that it does not see the change.
    let id = nix::unistd::Pid::from_raw(add.id() as i32);
    let waits = || {
        let fds = fs::read_dir(format!("/proc/{id}/fd"))
            .into_iter()
            .flatten()
            .flatten();
        fds.filter_map(|e| fs::read_link(e.path()).ok())
            .any(|to| to == segment_names(target.pid())[0])
    };
    let end = Instant::now() + Duration::from_secs(30);
    while !waits() {
        assert!(Instant::now() < end, "add does not open the segment");
        sleep(Duration::from_millis(1));
    }
    nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGSTOP).expect("an own child");
    drop(segment);
    session.detach();
    let new = Session::attach(target.pid(), &["down"]);
    nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGCONT).expect("an own child");
    let (code, said) = add.finish();
    let status = Run::ipath(["status", &pid]).run().expect(0);
    assert!(!status.stdout.contains("step"), "{}", status.report());
    assert!(status.stdout.contains("down"), "{}", status.report());
    // If it had only opened the old session, it finds the new one and adds to that.
    match code {
        0 => assert!(status.stdout.contains("mix"), "{}", status.report()),
        _ => assert!(said.contains("no session"), "{said}"),
    }
    new.detach();
    target.finish("ok calls ");
}

fn seconds_from_now(seconds: u64) -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970");
    (now.as_secs() + seconds).to_string()
}

/// Attaching to a program that keeps executing itself succeeds or names the reason. At the end
/// nothing is left.
#[test]
fn exec_during_attach() {
    let mut target =
        Target::start(program("exec_loop.c"), [seconds_from_now(10)]).await_output("ready");
    let pid = target.pid().to_string();
    let mut attached = 0;
    for round in 0..rounds(60) {
        if target.poll().is_some() {
            break;
        }
        let made = Run::ipath(attach(&pid, "work")).run();
        attached += usize::from(made.code() == 0);
        let excuses = [
            // Attached before the program's code was mapped.
            "no function matches",
            "has become another program",
            "has ended",
            "has a session",
            "no such process",
            "zombie",
            "waits for its parent",
        ];
        let excused = excuses.iter().any(|text| made.stderr.contains(text));
        assert!(
            made.code() == 0 || excused,
            "round {round}: {}",
            made.report()
        );
        if round % 2 == 0 {
            let _ = Run::ipath(["detach", &pid]).run();
        }
    }
    let status = target.wait(Duration::from_secs(60));
    assert!(status.success(), "{}", target.report());
    assert!(target.stdout().contains("ok execs "), "{}", target.report());
    let _ = Run::ipath(["detach", &pid]).run();
    assert!(
        segment_names(target.pid()).is_empty(),
        "{:?}",
        segment_names(target.pid())
    );
    println!("attached {attached} times");
}

/// Following that begins while a program executes itself does not end the program. A breakpoint
/// that ipath left in a loader would.
#[test]
fn exec_as_the_following_begins() {
    let mut target =
        Target::start(program("exec_loop.c"), [seconds_from_now(15)]).await_output("ready");
    let pid = target.pid().to_string();
    let mut followed = 0;
    while target.poll().is_none() {
        let follow = ["attach", &pid, "--follow", "-f", "work", "--quiet"];
        let follow = Run::ipath(follow).args(["--duration", "30ms"]).run();
        followed += usize::from(follow.code() == 0);
        let excuses = ["no function", "has ended", "no such process", "zombie"];
        let is_excused = excuses.iter().any(|text| follow.stderr.contains(text));
        assert!(follow.code() == 0 || is_excused, "{}", follow.report());
    }
    let status = target.wait(Duration::from_secs(60));
    assert!(status.success(), "{}", target.report());
    assert!(target.stdout().contains("ok execs "), "{}", target.report());
    assert!(followed > 0);
    assert_eq!(segment_names(target.pid()).len(), 0);
}

/// A file that has the name of a segment but is not one.
struct Planted<'p> {
    /// Its path in /dev/shm.
    name: &'p Path,
    /// A copy of a real segment.
    whole: &'p Path,
    owner: u32,
}

/// The offset of the state in the header, see docs/internals/segment.md.
const STATE: u64 = 32;

impl Planted<'_> {
    /// Makes it a copy of the real segment in this state.
    fn file(&self, state: u32) {
        copy_sparse(self.whole, self.name);
        let file = File::options().write(true).open(self.name).expect("there");
        file.write_all_at(&state.to_le_bytes(), STATE)
            .expect("written");
        // A real segment has these permissions.
        file.set_permissions(fs::Permissions::from_mode(0o600))
            .expect("an own file");
        std::os::unix::fs::chown(self.name, Some(self.owner), Some(self.owner)).expect("root");
    }

    /// Makes it a file of this kind, which links to `aside` if it is a link.
    fn plant(&self, kind: &str, aside: &Path) {
        match kind {
            "being set up" => self.file(1),
            "active" => self.file(2),
            "leaving" => self.file(4),
            "another state" => self.file(77),
            "symlink" => symlink(aside, self.name).expect("made"),
            "fifo" => nix::unistd::mkfifo(self.name, nix::sys::stat::Mode::S_IRWXU).expect("made"),
            "hard link" => {
                self.file(2);
                fs::hard_link(self.name, aside.with_extension("link"))
                    .or_else(|_| {
                        // On another file system, link a file beside it.
                        fs::hard_link(self.name, self.name.with_extension("link"))
                    })
                    .expect("made");
            }
            "sparse" => {
                let file = File::create(self.name).expect("made");
                file.set_len(1 << 40).expect("grown");
                let mut header = [0; 4096];
                let whole = File::open(self.whole).expect("there");
                whole.read_exact_at(&mut header, 0).expect("read");
                file.write_all_at(&header, 0).expect("written");
                std::os::unix::fs::chown(self.name, Some(self.owner), None).expect("root");
            }
            "folder" => fs::create_dir(self.name).expect("made"),
            "empty" => drop(File::create(self.name).expect("made")),
            other => panic!("no such kind: {other}"),
        }
        let _ = std::os::unix::fs::lchown(self.name, Some(self.owner), Some(self.owner));
    }
}

fn remove(path: &Path) {
    let _ = fs::remove_file(path);
    let _ = fs::remove_dir(path);
}

#[test]
fn planted_segment_harms_no_file_and_no_process() {
    const KINDS: [&str; 10] = [
        "being set up",
        "active",
        "leaving",
        "another state",
        "symlink",
        "fifo",
        "hard link",
        "sparse",
        "folder",
        "empty",
    ];
    let target = busy();
    let pid = target.pid().to_string();
    let clean = ProcessState::of(target.pid());
    let scratch = Scratch::new("planted");
    // Copy a real segment of this very process, with its addresses.
    let session = Session::attach(target.pid(), &["busy*!step"]);
    let name = segment_names(target.pid()).remove(0);
    let whole = scratch.file("whole");
    copy_sparse(&name, &whole);
    session.detach();
    for owner in [NOBODY, 0] {
        for kind in KINDS {
            let aside = scratch.file("aside");
            fs::write(&aside, "somebody's").expect("written");
            let planted = Planted {
                name: &name,
                whole: &whole,
                owner,
            };
            planted.plant(kind, &aside);
            let what = format!("{kind} of user {owner}");
            for command in [
                &["status"][..],
                &["status", &pid],
                &["snapshot", &pid, "-o", "/dev/null"],
            ] {
                let looked = Run::ipath(command).run();
                assert!(
                    looked.code() <= 1 && looked.cost.max_rss_kib < 200 << 10,
                    "{what}: {}",
                    looked.report()
                );
                assert!(
                    fs::symlink_metadata(&name).is_ok(),
                    "{what}: looking has removed it"
                );
            }
            let detached = Run::ipath(["detach", &pid]).run();
            one_line(&detached, &what);
            let made = Run::ipath(attach(&pid, "mix")).run();
            if made.code() != 0 {
                // Only a file that root created can prevent the attach, and the error names it.
                let can_be = owner == 0 && kind != "hard link";
                assert!(can_be, "{what}: {}", made.report());
                one_line(&made, &what);
            } else {
                let status = Run::ipath(["status", &pid]).run().expect(0);
                assert!(status.stdout.contains("mix"), "{what}: {}", status.report());
                Session::of(target.pid()).detach();
            }
            assert_eq!(
                fs::read_to_string(&aside).expect("still there"),
                "somebody's"
            );
            remove(&name);
            remove(&name.with_extension("link"));
            remove(&aside.with_extension("link"));
            assert!(
                segment_names(target.pid()).is_empty(),
                "{what}: {:?}",
                segment_names(target.pid())
            );
            clean.assert_unchanged(target.pid());
        }
    }
    target.finish("ok calls ");
}

/// Checks that a command succeeds, or fails with status 1 and one line.
fn one_line(finished: &Finished, what: &str) {
    let lines: Vec<&str> = finished
        .stderr
        .lines()
        .filter(|l| !l.starts_with("hint:"))
        .collect();
    let is_one = finished.code() == 0 || lines.len() == 1 && lines[0].starts_with("ipath: ");
    assert!(
        is_one && finished.code() <= 1,
        "{what}: {}",
        finished.report()
    );
}

fn copy_sparse(from: &Path, to: &Path) {
    let copied = Run::new("cp")
        .args(["--sparse=always", "--preserve=mode"])
        .arg(from)
        .arg(to);
    copied.run().expect(0);
}

/// The segment is truncated while commands read it. They end with status 0 or 1, and do not crash.
#[test]
fn truncated_while_read() {
    let target = busy();
    let pid = target.pid().to_string();
    let session = Session::attach(target.pid(), &["busy*!step"]);
    let name = segment_names(target.pid()).remove(0);
    let scratch = Scratch::new("truncated");
    let saved = scratch.file("profile").to_string_lossy().into_owned();
    let whole = scratch.file("whole");
    copy_sparse(&name, &whole);
    session.detach();
    // The process has ended, so truncation affects only the commands.
    drop(target);
    for len in [0, 4096, 8192, 1 << 20, 200 << 20] {
        for round in 0..4 {
            remove(&name);
            copy_sparse(&whole, &name);
            let file = File::options().write(true).open(&name).expect("there");
            let look = Running::start(&["snapshot", &pid, "-o", &saved]);
            sleep(Duration::from_micros(900 * round));
            file.set_len(len).expect("cut");
            let (code, said) = look.finish();
            assert!(code == 0 || code == 1, "cut to {len}: {code} {said}");
        }
    }
    remove(&name);
}

/// Of two concurrent attaches whose segments have no names one succeeds. The second command can
/// detect the first only by the target's maps.
#[test]
fn two_attaches_without_names() {
    let target = busy();
    let pid = target.pid().to_string();
    let clean = ProcessState::of(target.pid());
    for round in 0..rounds(8) {
        let attach = |function: &str| {
            let ipath = ipath().display().to_string();
            format!("{ipath} attach {pid} --keep --no-tui --duration 1ms -f {function}")
        };
        let script = format!(
            "mount -t tmpfs -o size=16k tmpfs /dev/shm\n{} >/dev/null 2>&1 & first=$!\nsleep 0.0{}\n{} >/dev/null; \
             second=$?; wait $first; echo $? $second",
            attach("busy*!step"),
            round % 7,
            attach("mix"),
        );
        let both = Run::new("unshare")
            .args(["--mount", "sh", "-c", &script])
            .run();
        let codes = both.stdout.trim();
        assert!(
            codes == "0 1" || codes == "1 0",
            "round {round}: {}",
            both.report()
        );
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("runs");
        let segments = maps.lines().filter(|l| l.contains("/memfd:ipath")).count();
        assert_eq!(segments, 1, "{maps}");
        assert!(listed(target.pid()).is_some());
        Session::of(target.pid()).detach();
        clean.assert_unchanged(target.pid());
    }
    target.finish("ok calls ");
}
