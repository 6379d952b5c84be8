//! Confined programs: namespaces, seccomp filters, resource limits, another user's processes, a
//! missing /dev/shm. Each is measured exactly from outside and left unchanged, or refused in one
//! line that says what to do.

use ipath_tests::command::{Finished, NOBODY, Run};
use ipath_tests::compile::program;
use ipath_tests::place::{Scratch, ipath};
use ipath_tests::profile::{Profile, count};
use ipath_tests::session::own_counts;
use ipath_tests::snapshot::ProcessState;
use ipath_tests::target::Target;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(30);

/// A program that is confined in some way.
struct Confined {
    /// The process that was started: the program, or a process that waits for it.
    started: Target,
    /// The pid of the program.
    pid: u32,
}

impl Confined {
    /// Starts it by a command, which either waits for it in another process or executes it.
    fn spawn(command: Command) -> Self {
        let mut started = Target::spawn(command).await_output("ready");
        let outer = started.pid();
        let mut pid = outer;
        started.until(LIMIT, "begun the program", |_| {
            let children = format!("/proc/{outer}/task/{outer}/children");
            let children = fs::read_to_string(children).unwrap_or_default();
            let child = children.split_whitespace().next();
            pid = child.map_or(outer, |child| child.parse().expect("a number"));
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            name.starts_with("allowed")
        });
        Self { started, pid }
    }

    /// Starts it from a shell in a new mount namespace, after a script.
    fn after(script: &str) -> Self {
        let mut command = Command::new("unshare");
        let script = format!("{script} && exec \"$0\"");
        command.args(["--mount", "sh", "-c", &script]);
        command.arg(program("allowed.c"));
        Self::spawn(command)
    }

    /// Starts it as this user, with these arguments.
    fn of_user(user: u32, answer: &[&str]) -> Self {
        let mut command = Command::new(program("allowed.c"));
        command.args(answer).uid(user).gid(user);
        Self::spawn(command)
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid as i32), signal).expect("it runs");
    }

    /// Measures all its calls. `run` runs ipath with the given arguments.
    fn measure(mut self, run: impl Fn(&[&str]) -> Finished) {
        let (profile, own) = self.profile_after(|_| (), run);
        assert_eq!(profile.calls("work"), own);
        profile.assert_lossless();
        profile.assert_complete("all of it has tables");
        let counts: Vec<u64> = profile.paths.iter().map(|p| count(&p.metrics)).collect();
        assert_eq!(counts, [own / 2, own / 2], "one path through each caller");
        self.end();
    }

    /// Does `then` with its pid, and returns the profile of all calls that it makes afterwards,
    /// with its own count.
    fn profile_after(
        &mut self,
        then: impl Fn(&str),
        run: impl Fn(&[&str]) -> Finished,
    ) -> (Profile, u64) {
        let clean = ProcessState::of(self.pid);
        let scratch = Scratch::public("confined");
        // ipath may run as any user.
        let all = Permissions::from_mode(0o777);
        fs::set_permissions(scratch.path(), all).expect("an own folder");
        let file = scratch.file("p.json").display().to_string();
        let pid = self.pid.to_string();
        let attach = ["attach", &pid, "--keep", "--no-tui", "--duration", "1ms"];
        run(&[&attach[..], &["-f", "work"]].concat()).expect(0);
        then(&pid);
        self.signal(Signal::SIGUSR1);
        self.started.until(LIMIT, "called work", |started| {
            started.stdout().contains("calls work")
        });
        run(&["detach", &pid, "-o", &file]).expect(0);
        clean.assert_unchanged(self.pid);
        let own = own_counts(&self.started.stdout())["work"];
        (Profile::read(file.as_ref()), own)
    }

    /// Checks that attaching by `run` is refused and that the program does not notice. Returns the
    /// message.
    fn refused(&mut self, run: impl Fn(&[&str]) -> Finished) -> String {
        let clean = ProcessState::of(self.pid);
        let pid = self.pid.to_string();
        let attach = ["attach", &pid, "--no-tui", "--duration", "1ms"];
        let refused = run(&[&attach[..], &["-f", "work"]].concat());
        let said = format!("{}\n{}", refused.expect_error(), refused.hints());
        assert!(self.started.poll().is_none(), "{}", self.started.report());
        clean.assert_unchanged(self.pid);
        said
    }

    /// Ends the program, which must print `ok` and succeed.
    fn end(mut self) {
        self.signal(Signal::SIGTERM);
        let status = self.started.wait(LIMIT);
        let printed = self.started.stdout();
        assert!(status.success(), "{}", self.started.report());
        assert!(printed.ends_with("ok\n"), "{printed}");
    }
}

fn as_root(arguments: &[&str]) -> Finished {
    Run::ipath(arguments).run()
}

fn as_nobody(arguments: &[&str]) -> Finished {
    Run::ipath(arguments).as_nobody().run()
}

/// `container`: a program in its own namespaces, one at a time and together, is measured, also if
/// its user is root only inside.
#[test]
fn container_namespaces_do_not_prevent_measuring() {
    let user = ["--user", "--map-root-user"];
    let pid = ["--pid", "--fork", "--mount-proc"];
    let others = ["--mount", "--cgroup", "--ipc", "--uts", "--net"];
    let all = [&pid[..], &others, &user].concat();
    for options in [&["--mount"][..], &["--cgroup"], &user, &pid, &all] {
        for owner in [0, NOBODY] {
            // An unprivileged user can create other namespaces only together with a user namespace.
            if owner != 0 && !options.contains(&"--user") {
                continue;
            }
            let mut command = Command::new("unshare");
            command.args(options).arg(program("allowed.c"));
            command.uid(owner).gid(owner);
            println!("{options:?} of user {owner}");
            Confined::spawn(command).measure(as_root);
        }
    }
    // An unprivileged ipath of that user may measure it, too.
    let mut command = Command::new("unshare");
    command.args(&all).arg(program("allowed.c"));
    command.uid(NOBODY).gid(NOBODY);
    Confined::spawn(command).measure(as_nobody);
}

/// `seccomp`: a program whose filter allows only its own system calls is measured by root. Other
/// users are refused, and the filter never ends the program.
#[test]
fn seccomp_is_measured_by_root_and_refused_otherwise() {
    for answer in ["errno", "trap", "kill"] {
        for owner in [0, NOBODY] {
            println!("{answer}, of user {owner}");
            Confined::of_user(owner, &[answer]).measure(as_root);
        }
        // Without the right to suspend the filter, ipath makes no call that could end the program.
        let mut target = Confined::of_user(NOBODY, &[answer]);
        let said = target.refused(as_nobody);
        assert!(said.contains("under a seccomp filter"), "{said}");
        assert!(said.contains("--allow-seccomp"), "{said}");
        // With `--allow-seccomp` the error is the filter's answer.
        if answer != "kill" {
            let said = target.refused(|given| {
                let run = Run::ipath(given).arg("--allow-seccomp");
                run.as_nobody().run()
            });
            assert!(said.contains("seccomp filter forbids it"), "{said}");
        }
        target.end();
    }
}

/// `no_dev_shm`: a program is measured if /dev/shm is missing for it, for ipath, or for both.
#[test]
fn no_dev_shm() {
    const WITHOUT: &str = "mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3";
    let without = |given: &[&str]| {
        let script = format!("{WITHOUT} && exec \"$0\" \"$@\"");
        let run = Run::new("unshare").args(["--mount", "sh", "-c", &script]);
        run.arg(ipath()).args(given).run()
    };
    Confined::after(WITHOUT).measure(as_root);
    Confined::of_user(0, &[]).measure(without);
    Confined::after(WITHOUT).measure(without);
    // A read-only /dev/shm is the same as none.
    Confined::after("mount -t tmpfs -o ro none /dev/shm").measure(as_root);
}

/// A program that changes its root to a folder without /proc is measured completely, and so are its
/// children.
#[test]
fn chrooted_later_is_measured_completely() {
    let scratch = Scratch::new("chrooted");
    let (file, root) = (scratch.file("p.json"), scratch.file("root"));
    fs::create_dir(&root).expect("an own folder");
    let run = Run::ipath(["run", "--follow", "--quiet", "-f", "work", "-o"]).arg(&file);
    let run = run.arg("--").arg(program("chrooted.c")).arg(&root);
    let run = run.run().expect(0);
    let profile = Profile::read(&file);
    assert_eq!(profile.calls("work"), own_counts(&run.stdout)["work"]);
    profile.assert_lossless();
    profile.assert_complete("all of it has tables");
}

/// `rlimits`: a limit that is already reached does not matter, or the error names it and says how
/// to raise it.
#[test]
fn rlimits_that_prevent_measuring_are_named() {
    let limit_to = |pid: &str, limit: &str| {
        let run = Run::new("prlimit").args(["--pid", pid, limit]).run();
        run.expect(0);
    };
    let limited = |limit: &str| {
        let target = Confined::of_user(0, &[]);
        limit_to(&target.pid.to_string(), limit);
        target
    };
    for limit in ["--memlock=0", "--fsize=4096", "--stack=8192"] {
        println!("{limit}");
        limited(limit).measure(as_root);
    }
    for (limit, name) in [
        ("--as=1:", "RLIMIT_AS"),
        ("--data=4096:", "RLIMIT_DATA"),
        ("--nofile=3:", "RLIMIT_NOFILE"),
    ] {
        println!("{limit}");
        let mut target = limited(limit);
        let said = target.refused(as_root);
        assert!(said.contains(name), "{said}");
        // The advice in the message works.
        let pid = target.pid.to_string();
        let (option, _) = limit.split_once('=').expect("it has one");
        assert!(said.contains(&format!("--pid {pid} {option}=")), "{said}");
        let raised = format!("{option}=2000000000:");
        let raised = match option {
            "--nofile" => "--nofile=64:".to_owned(),
            _ => raised,
        };
        limit_to(&pid, &raised);
        target.measure(as_root);
    }
    // Reached during the session, before the first call.
    let profile_later = |limit: &str| {
        println!("{limit} later");
        let mut target = Confined::of_user(0, &[]);
        let (profile, own) = target.profile_after(|pid| limit_to(pid, limit), as_root);
        target.end();
        (profile, own)
    };
    let (profile, own) = profile_later("--nofile=0");
    assert_eq!(profile.calls("work"), own);
    profile.assert_lossless();
    for limit in ["--as=1", "--data=4096"] {
        let (profile, own) = profile_later(limit);
        // The thread's memory cannot be allocated.
        assert_eq!(profile.calls("work") + profile.losses.missed, own);
        let mut said = profile.session.notes.iter();
        assert!(
            said.any(|note| note.contains("RLIMIT_AS")),
            "{:?}",
            profile.session.notes
        );
    }
}

/// Limits in a program that a followed process executes: it runs normally, and the obstacle is
/// reported.
#[test]
fn rlimits_of_what_is_followed() {
    let run = Run::ipath(["run", "--follow", "-f", "malloc", "-m", "count", "--quiet"])
        .args(["--", "sh", "-c", "ulimit -v 100000; exec echo done"])
        .run()
        .expect(0);
    assert_eq!(run.stdout.lines().next(), Some("done"), "{}", run.report());
    let mut said = run.stderr.lines();
    let said = said.find(|line| line.contains("echo is not measured"));
    let said = said.unwrap_or_else(|| panic!("{}", run.report()));
    assert!(said.contains("RLIMIT_AS"), "{said}");
    assert!(said.contains("raise it"), "{said}");
}

/// `other_user`: root can attach to any user's process, other users only to their own.
#[test]
fn other_user_is_refused_unless_root() {
    Confined::of_user(NOBODY, &[]).measure(as_root);
    Confined::of_user(NOBODY, &[]).measure(as_nobody);
    let mut target = Confined::of_user(0, &[]);
    let said = target.refused(as_nobody);
    assert!(said.contains("it belongs to user 0"), "{said}");
    assert!(said.contains("as that user or as root"), "{said}");
    target.end();
}
