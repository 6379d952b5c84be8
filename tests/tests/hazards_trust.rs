//! Interference with a session by the system, other tools and the program itself: trapping filters,
//! refused forced writes, foreign breakpoints, locked memory, little shared memory, and process
//! ends at any moment.

use ipath_tests::command::{NOBODY, Run};
use ipath_tests::compile::program;
use ipath_tests::epoch::state_of;
use ipath_tests::faulty::faulty;
use ipath_tests::place::{Scratch, ipath};
use ipath_tests::profile::Profile;
use ipath_tests::session::{Session, assert_attach_refused};
use ipath_tests::snapshot::ProcessState;
use ipath_tests::symbols::{address_in, file_offset};
use ipath_tests::target::Target;
use nix::sys::signal::Signal;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// System calls that ipath or its runtime makes in a target. Each is trapped alone.
const MADE: [i64; 19] = [
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_munmap,
    libc::SYS_madvise,
    libc::SYS_openat,
    libc::SYS_close,
    libc::SYS_memfd_create,
    libc::SYS_munlock,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_tgkill,
    libc::SYS_rt_sigprocmask,
    libc::SYS_sigaltstack,
    libc::SYS_open,
    libc::SYS_read,
    libc::SYS_fcntl,
    libc::SYS_futex,
    libc::SYS_process_vm_readv,
    libc::SYS_msync,
];

/// `seccomp_trap`: filters that trap one system call each do not prevent root from measuring. The
/// program's own user may be refused. The program continues in both cases.
#[test]
fn seccomp_trap_leaves_the_program_unharmed() {
    for number in MADE {
        let mut command = Command::new(program("filtered.c"));
        command.arg(number.to_string()).uid(NOBODY).gid(NOBODY);
        let mut target = Target::spawn(command).await_output("ready");
        let pid = target.pid().to_string();
        let filtered = |_: &Target| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            status.contains("Seccomp:\t2")
        };
        target.until(Duration::from_secs(20), "put its filter on", filtered);
        for user in [NOBODY, 0] {
            let clean = ProcessState::between(target.pid(), Signal::SIGSYS);
            let given = [
                "attach",
                &pid,
                "--no-tui",
                "--duration",
                "50ms",
                "-f",
                "work",
            ];
            let attached = match user {
                NOBODY => Run::ipath(given).arg("--allow-seccomp").as_nobody().run(),
                _ => Run::ipath(given).arg("--keep").run(),
            };
            assert!(
                target.poll().is_none(),
                "call {number}: {}",
                target.report()
            );
            if user == 0 {
                // Root may suspend the filter, and the runtime makes no system call.
                assert_eq!(attached.code(), 0, "call {number}: {}", attached.report());
                let session = Session::of(target.pid());
                let limit = Duration::from_secs(20);
                target.until(limit, "called work", |_| {
                    session.snapshot().calls("work") > 0
                });
                let profile = session.detach();
                assert_eq!(profile.losses.missed, 0, "call {number}");
                profile.assert_complete("its maps are published");
            } else if attached.code() != 0 {
                let said = attached.stderr.contains("seccomp filter forbids it");
                assert!(said, "call {number}: {}", attached.report());
            }
            clean.assert_unchanged(target.pid());
        }
        target.finish("ok calls ");
    }
}

/// `seccomp_later`: the program installs a filter during a session whose runtime makes no system
/// calls. Threads created afterwards are measured, too.
#[test]
fn seccomp_later_loses_no_call_of_new_threads() {
    for number in [libc::SYS_open, libc::SYS_process_vm_readv, libc::SYS_tgkill] {
        let mut command = Command::new(program("filtered.c"));
        command.arg("late").arg(number.to_string());
        let mut target = Target::spawn(command).await_output("ready");
        let pid = target.pid().to_string();
        Run::ipath(["attach", &pid, "--keep", "--no-tui", "--duration", "1ms"])
            .args(["--no-system-calls", "-f", "work"])
            .run()
            .expect(0);
        target.signal(Signal::SIGUSR1);
        // The threads make this many calls first, before the loop starts.
        let session = Session::of(target.pid());
        let limit = Duration::from_secs(20);
        target.until(limit, "called work under its filter", |_| {
            session.snapshot().calls("work") > 2000
        });
        let profile = session.detach();
        assert_eq!(profile.losses.missed, 0, "call {number}");
        profile.assert_complete("its maps are published");
        target.finish("ok calls ");
    }
}

/// `dispatched`: system calls arrive as signals, so ipath can make none. It detects that before it
/// tries one.
#[test]
fn dispatched_system_calls_are_refused() {
    let mut target = Target::start(program("dispatched.c"), [] as [&str; 0]).await_output("ready");
    assert_attach_refused(&mut target, "work", "PR_SET_SYSCALL_USER_DISPATCH");
    target.finish("ok calls ");
}

/// A user who can create no further thread or process: a session is removed nevertheless.
#[test]
fn out_of_threads() {
    let mut command = Command::new(program("busy.c"));
    command.args(["1", "600"]).uid(NOBODY).gid(NOBODY);
    let target = Target::spawn(command).await_output("ready");
    let pid = target.pid().to_string();
    let clean = ProcessState::of(target.pid());
    let ipath = ipath().display().to_string();
    let limited = |command: &str| {
        let script = format!("ulimit -u 1; exec {ipath} {command}");
        Run::new("sh")
            .args(["-c", &script])
            .as_nobody()
            .run()
            .expect(0)
    };
    limited(&format!(
        "attach {pid} --keep --no-tui --duration 1ms -f step"
    ));
    limited(&format!("add {pid} -f mix"));
    limited(&format!("detach {pid}"));
    clean.assert_unchanged(target.pid());
    target.finish("ok calls ");
}

/// The kernel refuses forced writes through /proc/PID/mem (proc_mem.force_override), so all writes
/// use ptrace.
#[test]
fn forced_writes_refused() {
    let target = Target::start(program("busy.c"), ["2", "600"]).await_output("ready");
    let pid = target.pid().to_string();
    let clean = ProcessState::of(target.pid());
    let scratch = Scratch::new("forced");
    let file = scratch.file("p.json");
    Run::new(faulty())
        .args([
            "attach",
            &pid,
            "--no-tui",
            "--duration",
            "2s",
            "-f",
            "busy*!step",
            "-o",
        ])
        .arg(&file)
        .env("IPATH_REFUSE_WRITES", "1")
        .run()
        .expect(0);
    clean.assert_unchanged(target.pid());
    assert!(Profile::read(&file).calls("step") > 0);
    target.finish("ok calls ");
    // `run` stops the program that it starts in a different way.
    let refused = Run::new(faulty())
        .args(["run", "--no-tui", "-f", "busy*!step", "--"])
        .arg(program("busy.c"))
        .args(["1", "1"])
        .env("IPATH_REFUSE_WRITES", "1")
        .run();
    assert_eq!(refused.code(), 1, "{}", refused.report());
    assert!(
        refused.stderr.contains("proc_mem.force_override"),
        "{}",
        refused.report()
    );
}

/// Stops a target by a signal, and waits until it has stopped.
fn stop(target: &Target) {
    target.signal(Signal::SIGSTOP);
    let end = Instant::now() + Duration::from_secs(20);
    while state_of(target.pid()) != 'T' {
        assert!(Instant::now() < end, "does not stop");
        sleep(Duration::from_millis(1));
    }
}

/// A foreign breakpoint in one function: that function is refused by name, and the others are
/// measured.
#[test]
fn breakpoint_before_refuses_only_its_function() {
    let target = Target::start(program("busy.c"), ["2", "600"]).await_output("ready");
    let pid = target.pid().to_string();
    let at = address_in(target.pid(), &program("busy.c"), "jump");
    let memory = File::options()
        .read(true)
        .write(true)
        .open(format!("/proc/{pid}/mem"));
    let memory = memory.expect("root");
    let mut original = [0];
    // After the first instruction. The program is stopped, so no call hits the breakpoint.
    stop(&target);
    memory.read_exact_at(&mut original, at).expect("mapped");
    memory.write_all_at(&[0xcc], at).expect("written");
    let arguments = [
        "attach",
        &pid,
        "--keep",
        "--no-tui",
        "--duration",
        "1ms",
        "-f",
        "busy*!step",
        "-f",
        "busy*!jump",
    ];
    let made = Run::ipath(arguments).run().expect(0);
    assert!(
        made.stderr.contains("jump: not instrumented: text-changed"),
        "{}",
        made.report()
    );
    let alone = Run::ipath(["add", &pid, "-f", "busy*!jump"]).run();
    assert_eq!(alone.code(), 1, "{}", alone.report());
    assert!(
        alone.stderr.contains("something else has patched it"),
        "{}",
        alone.report()
    );
    let mut now = [0];
    memory.read_exact_at(&mut now, at).expect("mapped");
    assert_eq!(now, [0xcc], "the breakpoint is somebody's still");
    memory.write_all_at(&original, at).expect("written");
    target.signal(Signal::SIGCONT);
    let added = Run::ipath(["add", &pid, "-f", "busy*!jump"]).run();
    assert_eq!(added.code(), 0, "{}", added.report());
    Session::of(target.pid()).detach();
    target.finish("ok calls ");
}

/// An existing uprobe: the function is refused, and the other tool keeps it.
#[test]
fn uprobe_before_refuses_its_function_and_stays() {
    let target = Target::start(program("busy.c"), ["1", "600"]).await_output("ready");
    let pid = target.pid().to_string();
    let clean = ProcessState::of(target.pid());
    let path = program("busy.c");
    let offset = file_offset(&path, "step");
    let arguments = [&pid, &*path.to_string_lossy(), &offset.to_string()];
    let other = Target::start(program("uprobe.c"), arguments);
    let other = other.await_output("ready");
    let alone = Run::ipath([
        "attach",
        &pid,
        "--no-tui",
        "--duration",
        "1ms",
        "-f",
        "busy*!step",
    ])
    .run();
    assert_eq!(alone.code(), 1, "{}", alone.report());
    assert!(
        alone.stderr.contains("something else has patched it"),
        "{}",
        alone.report()
    );
    let with = [
        "attach",
        &pid,
        "--no-tui",
        "--duration",
        "1ms",
        "-f",
        "busy*!step",
        "-f",
        "mix",
    ];
    let with = Run::ipath(with).run().expect(0);
    assert!(
        with.stderr.contains("step: not instrumented: text-changed"),
        "{}",
        with.report()
    );
    other.finish("ok");
    clean.assert_unchanged(target.pid());
    let after = [
        "attach",
        &pid,
        "--no-tui",
        "--duration",
        "1ms",
        "-f",
        "busy*!step",
    ];
    Run::ipath(after).run().expect(0);
    target.finish("ok calls ");
}

/// Another tool sets a uprobe on an instrumented function, and in one case removes it again. The
/// next command notices it and removes the probe, before a call could go astray.
#[test]
fn uprobe_after_is_noticed_by_the_next_command() {
    let path = program("busy.c");
    for goes in [false, true] {
        let target = Target::start(&path, ["1", "600"]).await_output("ready");
        let pid = target.pid().to_string();
        let clean = ProcessState::of(target.pid());
        let session = Session::attach(target.pid(), &["busy*!step", "mix"]);
        stop(&target);
        let offset = file_offset(&path, "step").to_string();
        let other = Target::start(
            program("uprobe.c"),
            [&pid, &*path.to_string_lossy(), &offset],
        );
        let mut other = Some(other.await_output("ready"));
        if goes {
            other.take().into_iter().for_each(|o| drop(o.finish("ok")));
        }
        let removed = session.remove(&["mix"]);
        assert_eq!(removed.code(), 0, "{}", removed.report());
        let status = Run::ipath(["status", &pid]).run().expect(0);
        assert!(
            status.stdout.contains("step  refused: text-changed"),
            "{}",
            status.report()
        );
        other.take().into_iter().for_each(|o| drop(o.finish("ok")));
        target.signal(Signal::SIGCONT);
        let profile = session.detach();
        let notes = profile.session.notes.join(", ");
        assert!(notes.contains("something else has patched it"), "{notes}");
        clean.assert_unchanged(target.pid());
        target.finish("ok calls ");
    }
}

/// The program locks all its mappings. The segment is not locked, and does not prolong any stop.
#[test]
fn mcl_future_does_not_lock_the_segment() {
    locked_memory(&[]);
}

/// `locked_without_new_code`: in addition, new mappings may not become executable later
/// (PR_SET_MDWE).
#[test]
fn locked_without_new_code() {
    locked_memory(&["mdwe"]);
}

/// Measures a program that locks its memory. Checks that no call is missed, and that less than 64
/// MiB more are locked.
fn locked_memory(arguments: &[&str]) {
    let program = program("locked_memory.c");
    let mut target = Target::start(program, arguments).await_output("ready");
    let pid = target.pid();
    let field = |name: &str| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("runs");
        let line = status
            .lines()
            .find_map(|l| l.strip_prefix(name))
            .expect("a field")
            .to_owned();
        line.trim()
            .trim_end_matches(" kB")
            .trim()
            .parse::<u64>()
            .expect("a number")
    };
    let before = field("VmLck:");
    let session = Session::attach(target.pid(), &["work"]);
    let limit = Duration::from_secs(20);
    target.until(limit, "called work", |_| {
        session.snapshot().calls("work") > 0
    });
    let grown = field("VmLck:").saturating_sub(before);
    let profile = session.detach();
    assert!(profile.calls("work") > 0);
    assert_eq!(profile.losses.missed, 0);
    assert!(grown < 64 << 10, "{grown} KiB more are locked");
    assert_eq!(ProcessState::session_in(pid), [""; 0]);
    target.finish("ok calls ");
}

/// A shared memory file system too small for a session: the segment is private to the target.
#[test]
fn dev_shm_too_small() {
    for size in ["16k", "200k", "1000k"] {
        let scratch = Scratch::new("small");
        let file = scratch.file("p.json");
        let script = format!(
            "mount -t tmpfs -o size={size} tmpfs /dev/shm && exec {} run --no-tui -o {} -f work -- {} {}",
            ipath().display(),
            file.display(),
            program("exec_loop.c").display(),
            0
        );
        Run::new("unshare")
            .args(["--mount", "sh", "-c", &script])
            .run()
            .expect(0);
        let profile = Profile::read(&file);
        assert_eq!(profile.losses.missed, 0, "/dev/shm of {size}");
        assert!(profile.calls("work") > 0, "/dev/shm of {size}");
    }
}

/// A resolver that faults if it is called at an unexpected time: the program never receives the
/// signal.
#[test]
fn faulting_resolver_signals_never_reach_the_program() {
    let target = Target::start(program("bad_resolver.c"), [] as [&str; 0]).await_output("ready");
    let pid = target.pid().to_string();
    let asked = Run::ipath([
        "attach",
        &pid,
        "--no-tui",
        "--duration",
        "1ms",
        "-f",
        "never_called",
    ])
    .run();
    assert_eq!(asked.code(), 1, "{}", asked.report());
    assert!(asked.stderr.contains("ifunc"), "{}", asked.report());
    target.finish("ok");
}
