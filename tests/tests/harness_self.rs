//! The harness itself: time limits end hanging commands, and errors differ from other failures.
//! Needs no ipath.

use ipath_tests::command::{Finished, Run};
use ipath_tests::dump::family;
use ipath_tests::elf32;
use ipath_tests::place::Scratch;
use ipath_tests::target::Target;
use std::panic::catch_unwind;
use std::path::Path;
use std::time::{Duration, Instant};

/// The message of the panic in `f`.
fn message(f: impl FnOnce() + std::panic::UnwindSafe) -> String {
    let payload = catch_unwind(f).expect_err("it panics");
    payload
        .downcast_ref::<String>()
        .cloned()
        .unwrap_or_default()
}

#[test]
fn a_command_that_hangs_is_ended_and_described() {
    let start = Instant::now();
    let text = message(|| {
        let shell = "echo spoken; sleep 987 & wait";
        Run::new("sh")
            .args(["-c", shell])
            .limit(Duration::from_millis(300))
            .run();
    });
    assert!(
        start.elapsed() < Duration::from_secs(30),
        "{:?}",
        start.elapsed()
    );
    assert!(
        text.contains("sh -c echo spoken") && text.contains("\nspoken\n"),
        "{text}"
    );
    let reports = text
        .lines()
        .find_map(|l| l.split_once("processes: "))
        .expect("a folder")
        .1;
    let files: Vec<_> = std::fs::read_dir(Path::new(reports))
        .expect("the folder")
        .flatten()
        .collect();
    let backtrace = |file: &std::fs::DirEntry| {
        let text = std::fs::read_to_string(file.path()).unwrap_or_default();
        file.path().extension().is_some_and(|e| e == "gdb") && text.contains("#0 ")
    };
    assert!(
        files.iter().filter(|f| backtrace(f)).count() >= 2,
        "sh and sleep: {files:?}"
    );
    let left = Run::new("pgrep").args(["-f", "^sleep 987$"]).run();
    assert_eq!(left.stdout, "", "the child is ended, too");
}

#[test]
fn a_dropped_target_is_gone() {
    let target = Target::start("sh", ["-c", "echo ready; sleep 986; true"]).await_output("ready");
    let mut pids = family(target.pid());
    while pids.len() < 2 {
        pids = family(target.pid());
    }
    drop(target);
    let end = Instant::now() + Duration::from_secs(5);
    let alive = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.contains("(sh) ") || stat.contains("(sleep) S")
    };
    while pids.iter().any(alive) {
        assert!(Instant::now() < end, "{pids:?} are still there");
    }
}

fn shell(script: &str) -> Finished {
    Run::new("sh").args(["-c", script]).run()
}

#[test]
fn errors_are_told_from_other_failures() {
    let good = shell("echo 'ipath: attach 5: no such process' >&2; echo 'hint: look' >&2; exit 1");
    assert_eq!(good.expect_error(), "ipath: attach 5: no such process");
    assert_eq!(good.hints(), "look");
    for bad in [
        "echo 'ipath: attach 5: no such process' >&2",
        "echo 'ipath: attach 5: no such process' >&2; exit 101",
        "echo 'ipath: attach 5: cause' >&2; echo more >&2; exit 1",
        "echo 'ipath: failed' >&2; exit 1",
        "exit 1",
        "kill -9 $$",
    ] {
        assert!(
            message(|| drop(shell(bad).expect_error())).contains("expected")
                || bad.contains("failed")
        );
    }
    assert_eq!(shell("kill -9 $$").code(), 137);
}

#[test]
fn resident_memory_is_measured() {
    let script = "x = bytearray(300 << 20); print(len(x))";
    let large = Run::new("/usr/bin/python3.11")
        .args(["-I", "-c", script])
        .run()
        .expect(0);
    let small = Run::new("true").run().expect(0);
    assert!(large.cost.max_rss_kib > 300 << 10 && small.cost.max_rss_kib < 100 << 10);
}

#[test]
fn the_32_bit_program_runs() {
    let scratch = Scratch::new("elf32");
    let file = scratch.file("sleeper");
    elf32::write(&file);
    let mut target = Target::start(&file, [""; 0]);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(target.poll(), None, "{}", target.report());
    let kind = Run::new("readelf").arg("-h").arg(&file).run().expect(0);
    assert!(
        kind.stdout.contains("ELF32") && kind.stdout.contains("Intel 80386"),
        "{}",
        kind.report()
    );
}
