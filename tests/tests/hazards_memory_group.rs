//! Memory cgroups near their limit: the kernel kills a process of a group that exceeds it. Each
//! headroom is tested with its own program. `IPATH_TEST_ROUNDS` sets the number of headrooms
//! between 0 and 64 MiB.

use ipath_tests::command::{Finished, Run};
use ipath_tests::compile::program;
use ipath_tests::memory_group::MemoryGroup;
use ipath_tests::place::{Scratch, ipath};
use ipath_tests::profile::Profile;
use ipath_tests::racing::rounds;
use ipath_tests::session::own_counts;
use ipath_tests::target::Target;
use nix::sys::signal::Signal;
use std::time::Duration;

const MIB: u64 = 1 << 20;
const FUNCTIONS: [&str; 6] = ["-f", "leaf", "-f", "spread", "-f", "deep"];
/// 4096 paths, in a program that allocates nothing further.
const ALONE: [&str; 2] = ["alone", "12"];
/// As many paths as in [`ALONE`], some of them on six threads, and three children.
const THREADS: [&str; 2] = ["levels", "12"];
/// The bytes that the threads and children of [`THREADS`] allocate without ipath.
const OWN: u64 = 8 * MIB;

/// Headrooms in bytes, from 0 to 64 MiB; small ones are closer together. Their number is `usual`,
/// or what `IPATH_TEST_ROUNDS` says.
fn headrooms(usual: usize) -> Vec<u64> {
    let last = (rounds(usual).max(2) - 1) as u64;
    (0..=last)
        .map(|n| n * n * 64 * MIB / (last * last))
        .collect()
}

/// Starts the program and moves it into the group, which then has 1 GiB left.
fn start(group: &MemoryGroup, args: &[&str]) -> Target {
    let target = Target::start(program("areas.c"), args).await_output("ready");
    group.leave(1024 * MIB);
    group.take(target.pid());
    target
}

fn go_on(target: &mut Target, until: &str) {
    target.signal(Signal::SIGUSR1);
    target.until(Duration::from_secs(60), until, |t| {
        t.stdout().contains(until)
    });
}

fn attach(target: &Target, options: &[&str]) -> Finished {
    let pid = target.pid().to_string();
    let arguments = ["attach", &pid, "--keep", "--no-tui", "--duration", "1ms"];
    Run::ipath(arguments).args(options).run()
}

/// True if a command succeeded; false if it refused in one line with the figures of the group.
///
/// # Panics
/// If it failed in another way.
fn is_done(finished: &Finished, what: &str) -> bool {
    if finished.code() == 0 {
        return true;
    }
    let cause = finished.expect_error();
    let has_figures =
        cause.contains("its memory cgroup /") && cause.contains("MiB left; the session may take");
    assert!(has_figures, "{what}: {}", finished.report());
    false
}

/// Checks that the program runs to its end and, if it has a session (`is_in`), that the counts
/// equal its own, apart from calls reported as missed. Returns the number of calls without their
/// own path, whose reason must be the group.
fn assert_unharmed(group: &MemoryGroup, mut target: Target, is_in: bool, what: &str) -> u64 {
    let mut overflow = 0;
    let scratch = Scratch::new("group");
    let file = scratch.file("p.json");
    let pid = target.pid().to_string();
    go_on(&mut target, "step 3");
    if is_in {
        let path = file.display().to_string();
        Run::ipath(["detach", &pid, "-o", &path]).run().expect(0);
        let profile = Profile::read(&file);
        let own: u64 = own_counts(&target.stdout()).into_values().sum();
        let calls: u64 = ["leaf", "spread", "deep"]
            .map(|f| profile.calls(f))
            .iter()
            .sum();
        assert_eq!(
            calls + profile.losses.missed,
            own,
            "{what}: {:?}",
            profile.losses
        );
        overflow = profile.losses.overflow;
        if overflow > 0 {
            assert_eq!(profile.losses.overflow_by, ["memory-cgroup"], "{what}");
            let report = Run::ipath(["report", &path]).run();
            let is_said = report
                .stdout
                .contains("the memory cgroup of the process is nearly full)");
            assert!(is_said && !report.stdout.contains("--max-paths"), "{what}");
        }
    }
    assert_finished(group, target, what);
    overflow
}

/// Checks that the program has found no error, ends when asked, and that the kernel has killed none
/// of the group.
fn assert_finished(group: &MemoryGroup, mut target: Target, what: &str) {
    let report = target.report();
    assert!(target.stdout().contains("\nbad 0\n"), "{what}: {report}");
    target.finish("ended");
    assert_eq!(group.killed(), 0, "{what}");
}

/// A session is created or refused, and calls without room for their path share one. The program is
/// unharmed.
#[test]
fn attach_first_call_and_growth_near_the_limit() {
    let Some(group) = MemoryGroup::new("growth") else {
        return;
    };
    let mut done = 0;
    let mut shared = 0;
    for (round, headroom) in headrooms(12).into_iter().enumerate() {
        let metrics = ["count", "count,wall,cpu"][round % 2];
        let what = format!("{headroom} bytes, {metrics}");
        let (args, own) = match round % 3 {
            0 => (THREADS, OWN),
            _ => (ALONE, 0),
        };
        let mut target = start(&group, &args);
        group.leave(headroom + own);
        let attached = attach(&target, &[&FUNCTIONS[..], &["-m", metrics]].concat());
        let is_in = is_done(&attached, &what);
        done += u64::from(is_in);
        for step in ["step 1", "step 2"] {
            go_on(&mut target, step);
        }
        shared += assert_unharmed(&group, target, is_in, &what);
    }
    assert!(done > 0, "64 MiB are enough");
    assert!(shared > 0, "some have room for a part of the paths alone");
}

/// The headroom shrinks after the session was created: by additions, and by the program's own
/// growth. An addition is made or refused, and the program is unharmed.
#[test]
fn add_near_the_limit() {
    let Some(group) = MemoryGroup::new("add") else {
        return;
    };
    // Less than the kernel charges for a file that the runtime opens.
    let small = (0..8).map(|n| n * 4096);
    for headroom in small.chain(headrooms(8)) {
        let what = format!("{headroom} bytes");
        let mut target = start(&group, &ALONE);
        attach(&target, &FUNCTIONS).expect(0);
        go_on(&mut target, "step 1");
        group.leave(headroom);
        let pid = target.pid().to_string();
        let added = Run::ipath(["add", &pid, "-f", "libc.so.6!*", "--yes"]).run();
        is_done(&added, &what);
        go_on(&mut target, "step 2");
        go_on(&mut target, "step 3");
        Run::ipath(["detach", &pid]).run().expect(0);
        assert_finished(&group, target, &what);
    }
}

/// Children are measured, or detached with the reason.
#[test]
fn followed_children_near_the_limit() {
    let Some(group) = MemoryGroup::new("follow") else {
        return;
    };
    for headroom in headrooms(5) {
        let what = format!("{headroom} bytes");
        let mut target = start(&group, &["children", "24"]);
        let pid = target.pid().to_string();
        let scratch = Scratch::new("group");
        let file = scratch.file("p.json").display().to_string();
        group.leave(64 * MIB);
        let arguments = ["attach", &pid, "--follow", "--no-tui", "-o", &file];
        let arguments = [&arguments[..], &FUNCTIONS].concat();
        let mut watching = Target::start(ipath(), &arguments);
        watching.until(Duration::from_secs(60), "attached", |_| {
            let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"));
            maps.is_ok_and(|maps| maps.contains("/dev/shm/ipath-"))
        });
        // Functions are installed once the document is written, which only ipath can report.
        watching.until(Duration::from_secs(60), "attached", |_| {
            Run::ipath(["status", &pid]).run().stdout.contains("leaf")
        });
        group.leave(headroom + 2 * OWN);
        go_on(&mut target, "forked");
        go_on(&mut target, "step 3");
        assert!(
            target.stdout().contains("\nbad 0\n"),
            "{what}: {}",
            target.report()
        );
        target.finish("ended");
        let status = watching.wait(Duration::from_secs(60));
        assert!(status.success(), "{what}: {}", watching.report());
        assert_eq!(group.killed(), 0, "{what}");
    }
}

/// ipath in the same group as the program, as in a container: the memory of the analysis is charged
/// to the group, too. The kernel may kill ipath because of it, but not the program.
#[test]
fn ipath_in_the_same_group() {
    let Some(group) = MemoryGroup::new("same") else {
        return;
    };
    for headroom in headrooms(6) {
        let what = format!("{headroom} bytes");
        let mut target = start(&group, &ALONE);
        // Enough to start ipath: with less, any other command would be killed, too.
        group.leave(headroom + OWN);
        let pid = target.pid().to_string();
        let script = format!(
            "echo $$ > {} && exec \"$0\" \"$@\"",
            group.processes().display()
        );
        let attached = Run::new("sh")
            .args(["-c", &script])
            .arg(ipath())
            .args(["attach", &pid, "--keep", "--no-tui", "--duration", "1ms"])
            .args(FUNCTIONS)
            .run();
        let _ = attached;
        for step in ["step 1", "step 2", "step 3"] {
            go_on(&mut target, step);
        }
        assert!(target.poll().is_none(), "{what}: {}", target.report());
        let _ = Run::ipath(["detach", &pid]).run();
        target.finish("ended");
    }
}
