//! Limits set by neither the program nor ipath: on mappings, on files that root may read, on
//! ipath's own memory. Each is reported in one line.

use ipath_tests::command::{Finished, NOBODY, Run};
use ipath_tests::compile::program;
use ipath_tests::place::{Scratch, ipath};
use ipath_tests::profile::Profile;
use ipath_tests::snapshot::ProcessState;
use ipath_tests::target::Target;
use nix::sys::signal::Signal;
use std::path::{Path, PathBuf};
use std::time::Duration;

fn attach(target: &Target, options: &[&str]) -> Finished {
    let pid = target.pid().to_string();
    let arguments = ["attach", &pid, "--no-tui", "--duration", "200ms"];
    Run::ipath(arguments).args(options).run()
}

/// With almost as many mappings as `vm.max_map_count` allows, `attach` fails and names that limit,
/// and so does `doctor`.
#[test]
fn mappings_before_attach() {
    for leave in ["1", "3"] {
        let target = Target::start(program("mappings.c"), [leave]).await_output("ready");
        let refused = attach(&target, &["-f", "work"]);
        refused.expect_error();
        let has_hint = refused.stderr.contains("vm.max_map_count");
        assert!(has_hint, "{leave}: {}", refused.report());
        let pid = target.pid().to_string();
        let looked = Run::ipath(["doctor", &pid]).run();
        assert!(
            looked.stdout.contains("vm.max_map_count"),
            "{}",
            looked.report()
        );
        target.finish("ok calls ");
    }
    let target = Target::start(program("mappings.c"), ["200"]).await_output("ready");
    attach(&target, &["-f", "work"]).expect(0);
    target.finish("ok calls ");
}

/// The limit is reached during a session: an addition is refused, and the session continues and can
/// be removed.
#[test]
fn mappings_during_a_session() {
    let mut target = Target::start(program("mappings.c"), ["1", "later"]).await_output("ready");
    attach(&target, &["-f", "work", "--keep"]).expect(0);
    target.signal(Signal::SIGUSR1);
    target.until(Duration::from_secs(60), "full", |t| {
        t.stdout().contains("full")
    });
    let pid = target.pid().to_string();
    let added = Run::ipath(["add", &pid, "-f", "libc.so.6!getppid"]).run();
    if added.code() != 0 {
        added.expect_error();
        assert!(
            added.stderr.contains("vm.max_map_count"),
            "{}",
            added.report()
        );
    }
    Run::ipath(["detach", &pid]).run().expect(0);
    target.finish("ok calls ");
}

/// A program on an ordinary user's FUSE mount with files that root may not read, as with AppImages
/// and sshfs. The mount is in a mount namespace in which that user may make one.
struct OnFuse {
    target: Target,
    _scratch: Scratch,
}

impl OnFuse {
    const SCRIPT: &str = r#"set -e
D=$1; U=$2
mkdir $D/files $D/mount; cp $3 $D/files/app; chmod 755 $D/files/app
mksquashfs $D/files $D/image -quiet -no-progress >/dev/null; chmod 644 $D/image
mknod $D/fuse c 10 229; chmod 666 $D/fuse; mount --bind $D/fuse /dev/fuse
chown $U:$U $D/mount
as="setpriv --reuid $U --regid $U --clear-groups"
$as squashfuse $D/image $D/mount
exec $as sh -c "cd $D/mount && exec ./app 0 later""#;

    fn start() -> Self {
        let scratch = Scratch::public("fuse");
        let (folder, user) = (scratch.path().display().to_string(), NOBODY.to_string());
        let app = program("mappings.c").display().to_string();
        let script = ["-m", "sh", "-c", Self::SCRIPT, "sh", &folder, &user, &app];
        Self {
            target: Target::start("unshare", script).await_output("ready"),
            _scratch: scratch,
        }
    }

    fn ipath(&self, command: &str, options: &[&str]) -> Finished {
        let pid = self.target.pid().to_string();
        Run::new("nsenter")
            .args(["-m", "-t", &pid])
            .arg(ipath())
            .args([command, &pid])
            .args(options)
            .run()
    }
}

const UNREAD: &str = "/app could not be read: permission denied";

/// Functions of a program that root may not read are refused with that reason. Those of its
/// libraries are measured, and callers in the program have no names.
#[test]
fn a_program_that_root_may_not_read() {
    let scratch = Scratch::new("fuse");
    let file = scratch.file("p.json");
    let path = file.display().to_string();
    let options = ["--no-tui", "--duration", "300ms", "-o", &path];
    let program = OnFuse::start();
    let libc = [&options[..], &["-f", "libc.so.6!usleep"]].concat();
    program.ipath("attach", &libc).expect(0);
    let profile = Profile::read(&file);
    assert!(profile.calls("usleep") > 0);
    // A caller there is identified by its offset in the file.
    let callers = profile.paths.iter().filter_map(|path| path.stack.first());
    let mut callers = callers.map(|&frame| &profile.frames[frame]);
    assert!(callers.all(|frame| frame.function.is_none()));
    for name in ["work", "app!work"] {
        let own = [&options[..], &["-f", name]].concat();
        let refused = program.ipath("attach", &own);
        refused.expect_error();
        let says = refused.stderr.contains(UNREAD);
        assert!(says, "{}", refused.report());
        assert!(
            !refused.stderr.contains("CAP_SYS_PTRACE"),
            "{}",
            refused.report()
        );
    }
    let listed = program.ipath("list", &["usleep"]);
    assert!(listed.stdout.contains("usleep"), "{}", listed.report());
    let at = program.ipath("attach", &["--at", "app+0x1159", "--no-tui"]);
    at.expect_error();
    let says = at.stderr.contains(UNREAD) && !at.stderr.contains("did you mean");
    assert!(says, "{}", at.report());
    let looked = program.ipath("doctor", &[]);
    let warns = |line: &str| line.contains("warn") && line.contains(UNREAD);
    assert!(looked.stdout.lines().any(warns), "{}", looked.report());
    let suggested = program.ipath("suggest", &["--duration", "500ms"]);
    let own = suggested
        .stdout
        .lines()
        .skip_while(|l| !l.contains("  app+0x"));
    let own: Vec<_> = own.take(2).collect();
    let [row, reason] = own[..] else {
        panic!("{}", suggested.report());
    };
    let offset = row
        .split("app+0x")
        .nth(1)
        .and_then(|at| at.split(' ').next());
    let offset = offset.and_then(|at| u64::from_str_radix(at, 16).ok());
    assert!(offset.is_some_and(|at| at < 1 << 20), "{row}");
    assert!(reason.contains(UNREAD), "{reason}");
    program.target.finish("ok calls ");
}

/// ipath with a small address space: each command succeeds, or reports in one line that there is no
/// memory.
#[test]
fn few_addresses_for_ipath() {
    let target = Target::start(program("mappings.c"), ["0", "later"]).await_output("ready");
    let pid = target.pid().to_string();
    let big = PathBuf::from("/usr/bin/python3");
    let big = if big.exists() { big } else { ipath() };
    let list = ["list", big.to_str().expect("a name"), "--json"];
    let commands = [
        vec![
            "attach",
            &pid,
            "-f",
            "work",
            "--no-tui",
            "--duration",
            "100ms",
        ],
        list.to_vec(),
    ];
    let starts = |kib: u64| {
        limited(kib, ipath().as_path(), &["--version"])
            .status
            .success()
    };
    let least = (1..)
        .map(|n| n * 10_000)
        .find(|&kib| starts(kib))
        .expect("some");
    for command in commands {
        for kib in [0, 3_000, 10_000, 30_000, 70_000, 150_000, 600_000].map(|more| least + more) {
            let finished = limited(kib, ipath().as_path(), &command);
            let is_right = match finished.code() {
                0 => true,
                1 => {
                    finished
                        .stderr
                        .lines()
                        .filter(|l| l.starts_with("ipath: "))
                        .count()
                        == 1
                }
                _ => false,
            };
            assert!(is_right, "{kib} KiB: {}", finished.report());
        }
    }
    target.finish("ok calls ");
}

fn limited(kib: u64, program: &Path, arguments: &[&str]) -> Finished {
    let limit = format!("--as={}", kib << 10);
    Run::new("prlimit")
        .arg(limit)
        .arg(program)
        .args(arguments)
        .run()
}

/// A command with few file descriptors is refused before it changes the process. Otherwise it might
/// not be able to remove its session.
#[test]
fn few_descriptors() {
    let target = Target::start(program("undumpable.c"), [""; 0]).await_output("ready");
    let before = ProcessState::of(target.pid());
    let pid = target.pid().to_string();
    for most in [8, 10, 12, 16, 24, 30] {
        let limit = format!("--nofile={most}");
        let refused = Run::new("prlimit")
            .arg(limit)
            .arg(ipath())
            .args([
                "attach",
                &pid,
                "-f",
                "step",
                "--no-tui",
                "--duration",
                "100ms",
            ])
            .run();
        let error = refused.expect_error();
        assert!(
            error.contains("file descriptors are left"),
            "{most}: {error}"
        );
        before.assert_unchanged(target.pid());
    }
    attach(&target, &["-f", "step"]).expect(0);
    before.assert_unchanged(target.pid());
    target.finish("ok calls ");
}
