//! What `doctor` says of a process, and what is said where code is not run natively.

use ipath_tests::command::{Finished, Run};
use ipath_tests::compile::{program, program_with};
use ipath_tests::place::Scratch;
use ipath_tests::profile::Profile;
use ipath_tests::target::Target;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

fn doctor(target: &Target) -> Finished {
    Run::ipath(["doctor", &target.pid().to_string()])
        .run()
        .expect(0)
}

fn says(finished: &Finished, words: &str) {
    assert!(
        finished.stdout.contains(words),
        "no {words}: {}",
        finished.report()
    );
}

fn plain() -> Target {
    Target::start(program("undumpable.c"), [""; 0]).await_output("ready")
}

/// The lines on a process, each with the advice below it.
fn lines(finished: &Finished, pid: u32) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in finished.stdout.lines() {
        match lines.last_mut() {
            Some(last) if line.starts_with("      ") => {
                last.push('\n');
                last.push_str(line.trim_start());
            }
            _ => lines.push(line.to_owned()),
        }
    }
    lines.retain(|line| line.contains(&format!("process {pid}: ")));
    lines
}

/// `doctor` prints one line for an ordinary process with debug information, and one line for its libraries.
#[test]
fn doctor_of_an_ordinary_process() {
    let target = Target::start(program_with("undumpable.c", &["-g"]), [""; 0]);
    let target = target.await_output("ready");
    let finished = doctor(&target);
    let mut lines = lines(&finished, target.pid());
    lines.retain(|line| !(line.contains("librar") && line.contains("stripped")));
    assert_eq!(lines.len(), 1, "{}", finished.report());
    assert!(lines[0].starts_with("pass"), "{}", finished.report());
    target.finish("ok calls ");
}

/// Checks that one line on a process has these words, in it or in the advice below it.
fn assert_said(finished: &Finished, pid: u32, words: &[&str]) {
    let lines = lines(finished, pid);
    let has = |line: &&String| words.iter().all(|words| line.contains(words));
    let found = lines.iter().filter(has).count();
    assert_eq!(found, 1, "{words:?}: {}", finished.report());
}

/// Missing debug files, and how to get them.
#[test]
fn doctor_of_stripped_programs() {
    let start = |flags: &[&str]| {
        let target = Target::start(program_with("undumpable.c", flags), [""; 0]);
        target.await_output("ready")
    };
    let said = |pid: u32, words: &[&str]| {
        let run = Run::ipath(["doctor", &pid.to_string()]);
        let finished = run.without_env("DEBUGINFOD_").run().expect(0);
        assert_said(&finished, pid, words);
    };
    let target = start(&["-s", "-Wl,--build-id"]);
    let names = [
        "is stripped (build id ",
        "build it with -g",
        "DEBUGINFOD_URLS=https://",
    ];
    said(target.pid(), &names);
    let run = Run::ipath(["doctor", &target.pid().to_string()]);
    let known = run
        .env("DEBUGINFOD_URLS", "http://127.0.0.1:1")
        .run()
        .expect(0);
    assert_said(
        &known,
        target.pid(),
        &["is stripped", "DEBUGINFOD_URLS is set"],
    );
    target.finish("ok calls ");
    let target = start(&["-s", "-Wl,--build-id=none"]);
    said(
        target.pid(),
        &["is stripped: ", "build it with -g and do not strip it"],
    );
    target.finish("ok calls ");
    let target = start(&["-g0"]);
    said(
        target.pid(),
        &["has no debug information", "no source lines"],
    );
    target.finish("ok calls ");
    let sleep = Target::start("sleep", ["600"]);
    said(
        sleep.pid(),
        &["sleep is stripped", "install coreutils-dbgsym"],
    );
}

/// The language of a program, and the tool that shows its own functions.
#[test]
fn doctor_of_interpreters() {
    let scratch = Scratch::new("interpreters");
    let source = scratch.file("Sleeper.java");
    let java = "class Sleeper { public static void main(String[] a) throws Exception { \
        System.out.println(\"ready\"); Thread.sleep(600000); } }";
    fs::write(&source, java).expect("an own folder");
    let source = source.display().to_string();
    let python = "import time; print('ready', flush=True); time.sleep(600)";
    let node = "console.log('ready'); setInterval(() => {}, 1000)";
    for (words, said) in [
        (
            &["/usr/bin/python3.11", "-c", python][..],
            &[
                "Python runs in it",
                "have no names",
                "-X perf",
                "`py-spy record --pid ",
            ][..],
        ),
        (
            &["node", "-e", node],
            &[
                "JavaScript (V8) runs in it",
                "have no names",
                "--perf-basic-prof",
                "--cpu-prof",
            ],
        ),
        (
            &["node", "--perf-basic-prof", "-e", node],
            &[
                "JavaScript (V8) runs in it",
                "have names in paths",
                "--cpu-prof",
            ],
        ),
        (
            &["java", &source],
            &[
                "Java runs in it",
                "virtual machine",
                "PreserveFramePointer",
                "`asprof -d 10 ",
            ],
        ),
    ] {
        let mut command = Command::new(words[0]);
        // V8 writes a log into the folder that it is started in.
        command.args(&words[1..]).current_dir(scratch.file(""));
        let target = Target::spawn(command).await_output("ready");
        assert_said(&doctor(&target), target.pid(), said);
        let map = format!("/tmp/perf-{}.map", target.pid());
        drop(target);
        let _ = fs::remove_file(map);
    }
}

/// Child processes are not measured with it.
#[test]
fn doctor_of_a_process_with_children() {
    let script = "sleep 600 & sleep 600 & echo ready; wait";
    let mut target = Target::start("bash", ["-c", script]).await_output("ready");
    let pid = target.pid();
    let attach = format!("`ipath attach {pid} --children -f FUNC`");
    let said = [
        "2 processes that it has started are not measured with it: 2 of sleep",
        &attach,
    ];
    // Each is another program only a moment later.
    target.until(Duration::from_secs(20), "started its programs", |target| {
        doctor(target).stdout.contains("2 of sleep")
    });
    assert_said(&doctor(&target), pid, &said);
}

/// The filter of a single thread is found, too.
#[test]
fn doctor_of_filters() {
    let target = Target::start(program("filtered.c"), ["313"]).await_output("ready");
    let metrics = "metrics that need";
    assert_said(
        &doctor(&target),
        target.pid(),
        &["runs under a seccomp filter", metrics],
    );
    target.finish("ok calls ");
    let target = Target::start(program("filtered_thread.c"), [""; 0]).await_output("ready");
    let of_two = "runs under a seccomp filter in 1 of 2 threads";
    assert_said(&doctor(&target), target.pid(), &[of_two, metrics]);
    target.finish("ok");
}

/// A guest of valgrind: its functions are there and never called natively. Zero calls are not shown
/// as if that were all.
#[test]
fn valgrind_guest() {
    let scratch = Scratch::new("valgrind");
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args(["--tool=none", "-q"])
        .arg(program("undumpable.c"));
    let target = Target::spawn(valgrind).await_output("ready");
    says(
        &doctor(&target),
        "valgrind runs this program's code in translation",
    );
    let file = scratch.file("p.json");
    let pid = target.pid().to_string();
    let attach = [
        "attach",
        &pid,
        "-f",
        "undumpable*!step",
        "--no-tui",
        "--duration",
        "300ms",
        "-o",
    ];
    let attach = Run::ipath(attach).arg(&file).run();
    assert!(
        attach
            .stderr
            .contains("valgrind runs this program's code in translation"),
        "{}",
        attach.report()
    );
    if attach.code() == 0 {
        assert!(
            attach.stdout.contains("note: valgrind"),
            "{}",
            attach.report()
        );
        let notes = Profile::read(&file).session.notes;
        assert!(
            notes.iter().any(|note| note.contains("valgrind")),
            "{notes:?}"
        );
    }
    target.finish("ok calls ");
}

/// Another root, without /proc and without /dev/shm.
#[test]
fn doctor_of_another_root() {
    let scratch = Scratch::new("root");
    let root = scratch.file("root");
    let file = program("undumpable.c");
    let mut words = vec![file.clone()];
    let ldd = Run::new("ldd").arg(&file).run().expect(0).stdout;
    let is_path = |word: &&str| word.starts_with('/');
    words.extend(ldd.split_whitespace().filter(is_path).map(PathBuf::from));
    for word in &words {
        let inner = root.join(word.strip_prefix("/").expect("an absolute path"));
        fs::create_dir_all(inner.parent().expect("a folder")).expect("an own folder");
        fs::copy(word, inner).expect("room for a copy");
    }
    let mut chroot = Command::new("chroot");
    chroot.arg(&root).arg(&file);
    let target = Target::spawn(chroot).await_output("ready");
    let finished = doctor(&target);
    says(&finished, &format!("its root is {}", root.display()));
    says(&finished, "there is no /proc in its root");
    says(&finished, "it does not share /dev/shm");
    target.finish("ok calls ");
}

#[test]
fn doctor_of_a_policy() {
    let mut command = Command::new("chrt");
    command.args(["--idle", "0"]).arg(program("undumpable.c"));
    let target = Target::spawn(command).await_output("ready");
    says(&doctor(&target), "runs under SCHED_IDLE");
    target.finish("ok calls ");
}

#[test]
fn doctor_of_a_limit_on_addresses() {
    let mut command = Command::new("prlimit");
    command.arg("--as=536870912").arg(program("undumpable.c"));
    let target = Target::spawn(command).await_output("ready");
    says(
        &doctor(&target),
        "its limit on addresses (RLIMIT_AS) leaves 5",
    );
    target.finish("ok calls ");
    let target = plain();
    assert!(!doctor(&target).stdout.contains("RLIMIT_AS"));
    target.finish("ok calls ");
}

/// `memory_limit`: a control group of the process is nearly full.
#[test]
fn doctor_of_a_memory_limit() {
    let target = plain();
    let pid = target.pid().to_string();
    let name = format!("ipath-tests-{pid}");
    let version_2 = PathBuf::from("/sys/fs/cgroup").join(&name);
    let version_1 = PathBuf::from("/sys/fs/cgroup/memory").join(&name);
    let at = |folder: &PathBuf, limit: &str| {
        let made = fs::create_dir(folder).is_ok();
        let limited = made && fs::write(folder.join(limit), "33554432").is_ok();
        if made && !limited {
            let _ = fs::remove_dir(folder);
        }
        limited
    };
    let folder = match (at(&version_1, "memory.limit_in_bytes"), || {
        at(&version_2, "memory.max")
    }) {
        (true, _) => version_1,
        (false, second) if second() => version_2,
        // Control groups are not this user's to make: what is left is pure logic, which has its tests.
        _ => {
            assert!(!doctor(&target).stdout.contains("memory cgroup"));
            return drop(target.finish("ok calls "));
        }
    };
    fs::write(folder.join("cgroup.procs"), &pid).expect("a process that runs");
    let finished = doctor(&target);
    target.finish("ok calls ");
    fs::remove_dir(&folder).expect("an empty group");
    says(&finished, "its memory cgroup");
    says(&finished, "MiB left");
}
