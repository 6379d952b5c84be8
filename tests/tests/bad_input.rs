//! Impossible requests are refused with one line and status 1, and the target never notices.

use ipath_tests::command::{Finished, Run};
use ipath_tests::compile::{program, program_with};
use ipath_tests::elf32;
use ipath_tests::place::{Scratch, ipath};
use ipath_tests::profile::Profile;
use ipath_tests::snapshot::ProcessState;
use ipath_tests::target::Target;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

fn attach(pid: u32) -> Run {
    Run::ipath([
        "attach",
        &pid.to_string(),
        "-f",
        "step",
        "--no-tui",
        "--duration",
        "200ms",
    ])
}

fn busy() -> Target {
    Target::start(program("busy.c"), ["2", "120"]).await_output("ready")
}

/// Runs a command that must fail on a busy target and leave it unchanged. Returns the line of the
/// error, and the hints.
fn fails_on_busy(run: impl FnOnce(&Target) -> Run) -> (String, String) {
    ends_on_busy(run, Finished::expect_error)
}

/// Like [`fails_on_busy`]; `expect` checks the command and returns the line of the error.
fn ends_on_busy(
    run: impl FnOnce(&Target) -> Run,
    expect: impl Fn(&Finished) -> String,
) -> (String, String) {
    let target = busy();
    let before = ProcessState::of(target.pid());
    let finished = run(&target).run();
    let line = expect(&finished);
    before.assert_unchanged(target.pid());
    let hints = finished.hints();
    target.finish("ok calls ");
    (line, hints)
}

/// Checks that the error's line contains one of the words, in any case.
fn says(finished: &Finished, words: &[&str]) {
    let line = finished.expect_error();
    let lower = line.to_lowercase();
    assert!(
        words.iter().any(|w| lower.contains(w)),
        "none of {words:?} in: {line}"
    );
}

/// The process id of a child that has ended and been reaped.
fn gone_pid() -> u32 {
    let mut child = Command::new("true").spawn().expect("start true");
    let pid = child.id();
    child.wait().expect("wait for true");
    pid
}

/// A copy of ipath that an unprivileged user may run.
fn public_ipath(scratch: &Scratch) -> PathBuf {
    let copy = scratch.file("ipath");
    fs::copy(ipath(), &copy).expect("copy ipath");
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).expect("chmod");
    copy
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

#[test]
fn pid_gone_is_an_error_of_each_command() {
    let pid = gone_pid();
    for command in ["attach", "add", "remove"] {
        let finished = Run::ipath([command, &pid.to_string(), "-f", "step"]).run();
        says(&finished, &["no such process"]);
        assert!(
            finished.stderr.contains(&pid.to_string()),
            "{}",
            finished.report()
        );
    }
    for command in ["top", "detach"] {
        Run::ipath([command, &pid.to_string()]).run().expect_error();
    }
    says(
        &Run::ipath(["list", &pid.to_string(), "step"]).run(),
        &["no such process"],
    );
}

/// Commands that need a session fail with a line that says so.
#[test]
fn a_process_without_a_session() {
    for command in [
        &["detach"][..],
        &["top"],
        &["add", "-f", "step"],
        &["remove", "-f", "step"],
    ] {
        let (line, _) = fails_on_busy(|target| {
            let pid = target.pid().to_string();
            Run::ipath([command[0], &pid]).args(&command[1..])
        });
        assert!(line.contains("session"), "{line}");
    }
}

#[test]
fn wrong_user_is_denied() {
    let scratch = Scratch::public("nobody");
    if is_root() {
        let copy = public_ipath(&scratch);
        let (line, _) = fails_on_busy(|target| {
            let pid = target.pid().to_string();
            Run::new(&copy)
                .args(["attach", &pid, "-f", "step", "--no-tui"])
                .as_nobody()
        });
        assert!(line.to_lowercase().contains("permi"), "{line}");
    } else {
        says(&attach(1).run(), &["permi"]); // init belongs to root
    }
}

#[test]
fn not_elf64_is_refused_and_left_unchanged() {
    let scratch = Scratch::new("elf32");
    let file = scratch.file("sleeper");
    elf32::write(&file);
    let target = Target::start(&file, [""; 0]);
    std::thread::sleep(Duration::from_millis(50));
    let before = ProcessState::of(target.pid());
    says(&attach(target.pid()).run(), &["32-bit", "64-bit", "x86-64"]);
    before.assert_unchanged(target.pid());
    says(
        &Run::ipath(["list"]).arg(&file).run(),
        &["32-bit", "64-bit", "x86-64"],
    );
    says(
        &Run::ipath(["run", "-f", "step", "--"]).arg(&file).run(),
        &["32-bit", "64-bit", "x86-64"],
    );
}

#[test]
fn already_traced_is_an_error_that_names_the_tracer() {
    let target = busy();
    let pid = target.pid().to_string();
    let tracer = Target::start(program("tracer.c"), [&pid]).await_output("ready");
    let before = ProcessState::of(target.pid());
    let finished = attach(target.pid()).run();
    says(&finished, &["traced"]);
    let line = finished.expect_error();
    assert!(
        line.contains(&tracer.pid().to_string()) && line.contains("tracer"),
        "{line}"
    );
    before.assert_unchanged(target.pid());
    drop(tracer);
    attach(target.pid()).run().expect(0);
    target.finish("ok calls ");
}

/// A debugger can attach during a session: ipath traces nothing between its stops.
#[test]
fn traced_during_a_session() {
    let target = busy();
    let pid = target.pid().to_string();
    let before = ProcessState::of(target.pid());
    attach(target.pid()).arg("--keep").run().expect(0);
    let gdb = Run::new("gdb")
        .args([
            "-batch",
            "-nx",
            "-p",
            &pid,
            "-ex",
            "thread apply all backtrace 2",
        ])
        .args(["-ex", "detach"])
        .run()
        .expect(0);
    assert!(gdb.stdout.contains("Thread"), "{}", gdb.report());
    let scratch = Scratch::new("traced");
    let (first, second) = (scratch.file("first.json"), scratch.file("second.json"));
    let calls = |file: &Path| {
        let run = Run::ipath(["snapshot", &pid, "-o"]).arg(file).run();
        run.expect(0);
        Profile::read(file).calls("step")
    };
    let so_far = calls(&first);
    std::thread::sleep(Duration::from_millis(100));
    assert!(calls(&second) > so_far, "recording goes on");
    Run::ipath(["detach", &pid]).run().expect(0);
    before.assert_unchanged(target.pid());
    target.finish("ok calls ");
}

#[test]
fn disk_full_keeps_the_earlier_file() {
    let scratch = Scratch::new("full");
    let folder = scratch.path().display().to_string();
    let mount = ["-t", "tmpfs", "-o", "size=16k", "tmpfs", &folder];
    Run::new("mount").args(mount).run().expect(0);
    let file = scratch.file("p.json");
    std::fs::write(&file, "what was there").expect("room for a few bytes");
    std::fs::write(scratch.file("rest"), [0; 12 << 10]).expect("room for three pages");
    let target = busy();
    let finished = attach(target.pid()).arg("-o").arg(&file).run();
    let kept = std::fs::read_to_string(&file);
    let left = std::fs::read_dir(scratch.path()).expect("readable").count();
    Run::new("umount").arg(&folder).run().expect(0);
    says(&finished, &["no space left"]);
    finished.expect_error();
    assert_eq!(kept.expect("readable"), "what was there");
    assert_eq!(left, 2, "nothing else lies there");
    target.finish("ok calls ");
}

/// A segment of an ended process whose id now belongs to another process is not taken for a session
/// of that process, which can be attached to.
#[test]
fn pid_reused_does_not_mix_up_sessions() {
    let target = busy();
    let pid = target.pid();
    attach(pid).arg("--keep").run().expect(0);
    let named = |pid: u32| {
        let entries = std::fs::read_dir("/dev/shm").expect("readable");
        let names = entries.map(|e| e.expect("readable").path());
        let start = format!("/dev/shm/ipath-{pid}-");
        names
            .filter(|p| p.to_string_lossy().starts_with(&start))
            .collect::<Vec<_>>()
    };
    let segments = named(pid);
    let [segment] = &segments[..] else {
        panic!("{segments:?}");
    };
    let other = busy();
    let forged = format!("/dev/shm/ipath-{}-1", other.pid());
    std::fs::copy(segment, &forged).expect("room for a copy");
    let before = ProcessState::of(other.pid());
    let id = other.pid().to_string();
    let detached = Run::ipath(["detach", &id]).run();
    says(&detached, &["no session"]);
    detached.expect_error();
    attach(other.pid()).run().expect(0);
    assert!(
        before
            .differences(&ProcessState::of(other.pid()))
            .is_empty()
    );
    std::fs::remove_file(&forged).expect("still there");
    Run::ipath(["detach", &pid.to_string()]).run().expect(0);
    assert!(named(pid).is_empty());
    target.finish("ok calls ");
    other.finish("ok calls ");
}

/// A pattern without a match is an error that names it. Hints suggest near names, and `run` does
/// not start the program.
#[test]
fn a_pattern_without_a_match() {
    let (line, hints) = fails_on_busy(|target| {
        Run::ipath([
            "attach",
            &target.pid().to_string(),
            "-f",
            "stepp",
            "--no-tui",
        ])
    });
    assert!(line.contains("stepp"), "{line}");
    assert!(
        hints.contains("step"),
        "near names are suggested: {hints:?}"
    );
    let file = program("busy.c");
    let listed = Run::ipath(["list"]).arg(&file).arg("add_lefd").run();
    says(&listed, &["add_lefd"]);
    assert!(listed.hints().contains("add_left"), "{}", listed.report());
    // refused before the program runs
    let run = Run::ipath(["run", "-f", "stepp", "--"])
        .arg(&file)
        .args(["1", "1"])
        .run();
    says(&run, &["stepp"]);
    assert!(!run.stdout.contains("ready"), "{}", run.report());
}

/// A malformed pattern is wrong usage, and the line names it.
#[test]
fn a_bad_pattern() {
    let attach = |target: &Target| {
        Run::ipath(["attach", &target.pid().to_string(), "-f", "/(/", "--no-tui"])
    };
    let (line, _) = ends_on_busy(attach, Finished::expect_usage);
    assert!(line.contains("/(/"), "{line}");
}

/// An unknown metric is an error that names it.
#[test]
fn an_unknown_metric() {
    let target = busy();
    let pid = target.pid().to_string();
    let finished = Run::ipath(["attach", &pid, "-f", "step", "-m", "beauty", "--no-tui"]).run();
    assert!([1, 2].contains(&finished.code()), "{}", finished.report());
    assert!(finished.stderr.contains("beauty"), "{}", finished.report());
    target.finish("ok calls ");
}

#[test]
fn unreadable_files_are_errors() {
    let scratch = Scratch::public("unreadable");
    let missing = scratch.file("missing");
    for command in [
        &["list"][..],
        &["report"],
        &["export", "--to", "json", "-o", "/dev/null"],
    ] {
        let finished = Run::ipath([command[0]])
            .arg(&missing)
            .args(&command[1..])
            .run();
        says(&finished, &["no such file"]);
        let line = finished.expect_error();
        assert!(line.contains(&missing.display().to_string()), "{line}");
    }
    says(
        &Run::ipath(["run", "-f", "step", "--"]).arg(&missing).run(),
        &["no such file"],
    );
    let text = scratch.file("text");
    fs::write(&text, "neither a program nor a profile\n").expect("write");
    Run::ipath(["list"]).arg(&text).run().expect_error();
    Run::ipath(["report"]).arg(&text).run().expect_error();
    Run::ipath(["list"])
        .arg(scratch.path())
        .run()
        .expect_error();
    let empty = scratch.file("empty");
    fs::write(&empty, "").expect("write");
    Run::ipath(["list"]).arg(&empty).run().expect_error();
    Run::ipath(["report"]).arg(&empty).run().expect_error();

    let locked = scratch.file("locked");
    fs::copy(program("busy.c"), &locked).expect("copy");
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o000)).expect("chmod");
    let list = Run::new(public_ipath(&scratch)).arg("list").arg(&locked);
    let list = if is_root() { list.as_nobody() } else { list };
    says(&list.run(), &["permission denied"]);
}

/// An output in a missing folder is an error that names it.
#[test]
fn an_output_that_cannot_be_written() {
    let (line, _) =
        fails_on_busy(|target| attach(target.pid()).args(["-o", "/nonexistent/p.json"]));
    assert!(line.contains("/nonexistent"), "{line}");
}

/// Functions of a library whose file is deleted are measured, or refused in one line.
#[test]
fn a_library_deleted_on_disk() {
    let scratch = Scratch::new("deleted");
    let library = scratch.file("libgone.so");
    fs::copy(program_with("gone.c", &["-shared", "-fPIC"]), &library).expect("copy");
    let target = Target::start(program("late.c"), [&library]).await_output("ready");
    fs::remove_file(&library).expect("remove");
    let before = ProcessState::of(target.pid());
    let file = scratch.file("p.json");
    let pid = target.pid().to_string();
    let finished = Run::ipath([
        "attach",
        &pid,
        "-f",
        "gone_work",
        "--no-tui",
        "--duration",
        "300ms",
    ])
    .arg("-o")
    .arg(&file)
    .run();
    // The file is either read through /proc/PID/map_files, or refused.
    if finished.code() == 0 {
        assert!(Profile::read(&file).calls("gone_work") > 10);
    } else {
        says(&finished, &["deleted", "no such file", "gone_work"]);
    }
    before.assert_unchanged(target.pid());
    target.finish("ok");
}

/// A program whose file is deleted is measured.
#[test]
fn a_program_deleted_on_disk() {
    let scratch = Scratch::new("deleted-program");
    let copy = scratch.file("busy");
    fs::copy(program("busy.c"), &copy).expect("copy");
    let target = Target::start(&copy, ["2", "120"]).await_output("ready");
    fs::remove_file(&copy).expect("remove");
    let file = scratch.file("p.json");
    attach(target.pid()).arg("-o").arg(&file).run().expect(0); // /proc/PID/exe still leads to it
    assert!(Profile::read(&file).calls("step") > 100);
    target.finish("ok calls ");
}

/// Attaching to a kernel thread is an error.
#[test]
fn a_kernel_thread() {
    let name = fs::read_to_string("/proc/2/comm").unwrap_or_default();
    if name.trim() == "kthreadd" {
        says(&attach(2).run(), &["kernel", "permi"]);
    } else {
        // In a separate pid namespace no kernel thread is visible.
        println!("no kernel thread is visible here: pid 2 is {name:?}");
    }
}

/// Attaching to its own process is an error.
#[test]
fn its_own_pid() {
    let own = format!("exec {} attach $$ -f main --no-tui", ipath().display());
    Run::new("sh").args(["-c", &own]).run().expect_error();
}

#[test]
fn a_zombie_is_an_error() {
    let mut child = Command::new("true")
        .stdin(Stdio::null())
        .spawn()
        .expect("start true");
    let stat = format!("/proc/{}/stat", child.id());
    while !fs::read_to_string(&stat)
        .expect("an unreaped child")
        .contains(") Z ")
    {
        std::thread::sleep(Duration::from_millis(2));
    }
    says(
        &attach(child.id()).run(),
        &["zombie", "ended", "exited", "no such process"],
    );
    child.wait().expect("wait for true");
}

#[test]
fn usage_errors_exit_with_2_and_an_empty_stdout() {
    let usage: &[&[&str]] = &[
        &["attach", "nonsense", "-f", "step"],
        &["attach", "-5", "-f", "step"],
        &["add", "1"],
        &["remove", "1", "-m", "cpu"],
        &["attach", "1", "-f", "step", "--duration", "long"],
        &["run", "-f", "step"],
        &["no-such-command"],
        &["list"],
        &["export", "p.json", "--to", "nonsense", "-o", "x"],
        &["attach", "1", "-f", "step", "--no-such-option"],
        &[],
    ];
    for args in usage {
        let finished = Run::ipath(*args).run().expect(2);
        assert!(!finished.stderr.is_empty(), "{}", finished.report());
        assert!(finished.stdout.is_empty(), "{}", finished.report());
    }
}
