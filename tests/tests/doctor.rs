//! The findings of `doctor` about a process, and the messages for code that does not run natively.

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

/// Checks that the command printed these words.
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

/// The lines about a process, each with the advice below it.
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

/// `doctor` prints one line for an ordinary process with debug information, and one line for its
/// libraries.
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

/// Checks that exactly one line about a process, with the advice below it, has these words.
fn assert_said(finished: &Finished, pid: u32, words: &[&str]) {
    let lines = lines(finished, pid);
    let has = |line: &&String| words.iter().all(|words| line.contains(words));
    let found = lines.iter().filter(has).count();
    assert_eq!(found, 1, "{words:?}: {}", finished.report());
}

/// `doctor` names missing debug files, and says how to get them.
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

/// `doctor` names the language of an interpreted program, and the tool that shows functions of that
/// language.
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
        // V8 writes a log into its working directory.
        command.args(&words[1..]).current_dir(scratch.file(""));
        let target = Target::spawn(command).await_output("ready");
        assert_said(&doctor(&target), target.pid(), said);
        let map = format!("/tmp/perf-{}.map", target.pid());
        drop(target);
        let _ = fs::remove_file(map);
    }
}

/// `doctor` lists the children of a process, which are not measured by default, and the command
/// that measures them.
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
    // Each child executes its program only a moment later.
    target.until(Duration::from_secs(20), "started its programs", |target| {
        doctor(target).stdout.contains("2 of sleep")
    });
    assert_said(&doctor(&target), pid, &said);
}

/// `doctor` finds a seccomp filter, also one of a single thread.
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

/// A guest of valgrind: its functions are mapped but never called natively. The report must not
/// present zero calls as the result.
#[test]
fn valgrind_guest_is_reported() {
    let scratch = Scratch::new("valgrind");
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args(["--tool=none", "-q"])
        .arg(program("undumpable.c"));
    let target = Target::spawn(valgrind).await_output("ready");
    says(&doctor(&target), "valgrind translates this program's code");
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
            .contains("valgrind translates this program's code"),
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

/// `doctor` names another root of a process, and says that it lacks /proc and /dev/shm.
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

/// `doctor` names the scheduling policy SCHED_IDLE of a process.
#[test]
fn doctor_of_a_policy() {
    let mut command = Command::new("chrt");
    command.args(["--idle", "0"]).arg(program("undumpable.c"));
    let target = Target::spawn(command).await_output("ready");
    says(&doctor(&target), "runs under SCHED_IDLE");
    target.finish("ok calls ");
}

/// `doctor` names RLIMIT_AS of a process that has such a limit.
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

/// `memory_limit`: `doctor` warns of a control group of the process that is nearly full.
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
        // This user cannot create control groups. The remaining logic is pure and has unit tests.
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
