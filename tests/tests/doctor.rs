//! What `doctor` says of a process, and what is said where code is not run natively.

use ipath_tests::command::{Finished, Run};
use ipath_tests::compile::program;
use ipath_tests::place::Scratch;
use ipath_tests::profile::Profile;
use ipath_tests::target::Target;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

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

/// Of an ordinary process there is one line.
#[test]
fn doctor_of_an_ordinary_process() {
    let target = plain();
    let finished = doctor(&target);
    let line = format!("process {}", target.pid());
    let lines: Vec<_> = finished
        .stdout
        .lines()
        .filter(|l| l.contains(&line))
        .collect();
    assert_eq!(lines.len(), 1, "{}", finished.report());
    assert!(lines[0].starts_with("pass"), "{}", finished.report());
    target.finish("ok calls ");
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
