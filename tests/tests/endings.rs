//! Targets that end, execute another program, or change in other ways during a session.

use ipath_tests::command::Run;
use ipath_tests::compile::program;
use ipath_tests::faulty::faulty;
use ipath_tests::place::{Scratch, ipath};
use ipath_tests::profile::Profile;
use ipath_tests::racing::{remove_segments, segment_names};
use ipath_tests::session::listed;
use ipath_tests::snapshot::ProcessState;
use ipath_tests::target::Target;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

#[test]
fn target_killed_leaves_a_consistent_profile() {
    let scratch = Scratch::new("killed");
    let file = scratch.file("p.json");
    let mut target = Target::start(program("busy.c"), ["2", "300"]).await_output("ready");
    let pid = target.pid().to_string();
    let mut command = Command::new(ipath());
    command.args(["attach", &pid, "-f", "step", "--no-tui"]);
    command.args(["--interval", "100ms", "-o"]).arg(&file);
    let mut watching = Target::spawn(command);
    let limit = Duration::from_secs(15);
    watching.until(limit, "shown step", |w| w.stdout().contains("step"));
    target.signal(Signal::SIGKILL);
    target.wait(limit);
    assert!(watching.wait(limit).success(), "{}", watching.report());
    let profile = Profile::read(&file);
    profile.check_sums();
    assert!(profile.calls("step") > 1000);
    Run::ipath(["detach", &pid]).run().expect(1);
}

/// The measured time ends with the program, not with ipath's next poll.
#[test]
fn a_short_program_is_measured_for_as_long_as_it_runs() {
    /// The interval between two polls. The program runs for a few milliseconds.
    const A_LOOK_NS: u64 = 50_000_000;
    let scratch = Scratch::new("short");
    let file = scratch.file("p.json");
    let program = program("endings.c");
    let elapsed = |_| {
        let run = Run::ipath(["run", "--no-tui", "-q", "-f", "step", "-o"]).arg(&file);
        let run = run.arg("--").arg(&program).args(["exit", "0"]);
        run.run().expect(0);
        Profile::read(&file).session.elapsed_ns
    };
    // On a busy machine most runs take longer. If the time ended with the next poll, all of them
    // would.
    let long: Vec<u64> = (0..100)
        .map(elapsed)
        .take_while(|&elapsed| elapsed >= A_LOOK_NS / 2)
        .collect();
    assert!(long.len() < 100, "{long:?} ns");
}

/// Two processes used the same id one after the other, and each left a session. `detach` takes the
/// later one.
#[test]
fn ended_with_one_id() {
    const START_TIME: u64 = 16;
    let scratch = Scratch::new("one_id");
    let counter = scratch.file("calls");
    let arguments = ["1", "300", &counter.display().to_string()];
    let mut target = Target::start(program("busy.c"), arguments).await_output("ready");
    let pid = target.pid();
    let attach = ["attach", &pid.to_string(), "-f", "step", "--keep"];
    let attach = Run::ipath(attach).args(["--no-tui", "--duration", "1ms"]);
    attach.run().expect(0);
    let calls = || fs::read(&counter).expect("the program has made it");
    let before = calls();
    target.until(Duration::from_secs(20), "a call", |_| calls() != before);
    target.signal(Signal::SIGKILL);
    target.wait(Duration::from_secs(20));
    let [later] = &ProcessState::shared_of(pid)[..] else {
        panic!("one session");
    };
    let start: u64 = later
        .rsplit('-')
        .next()
        .and_then(|s| s.parse().ok())
        .expect("as named");
    let earlier = format!("ipath-{pid}-{}", start - 1);
    let [from, to] = [later, &earlier].map(|name| format!("/dev/shm/{name}"));
    // Most of the segment has never been written.
    Run::new("cp")
        .args(["-p", "--sparse=always", &from, &to])
        .run()
        .expect(0);
    let file = fs::OpenOptions::new()
        .write(true)
        .open(&to)
        .expect("made above");
    let header = file.write_all_at(&(start - 1).to_le_bytes(), START_TIME);
    header.expect("write");
    let profile = scratch.file("p.json");
    for left in [&[earlier][..], &[]] {
        let detach = Run::ipath(["detach", &pid.to_string(), "-o"]).args([&profile]);
        detach.run().expect(0);
        assert_eq!(ProcessState::shared_of(pid), left);
        assert!(Profile::read(&profile).calls("step") > 0);
    }
}

/// A program runs or has ended if ipath is killed while starting it. It never stays stopped for a
/// tracer that is gone.
#[test]
fn killed_as_it_starts_a_program() {
    /// The processes that sleep for this unique time.
    fn left(seconds: &str) -> Vec<i32> {
        let found = Run::new("pgrep")
            .args(["-fx", &format!("sleep {seconds}")])
            .run();
        found
            .stdout
            .lines()
            .filter_map(|l| l.parse().ok())
            .collect()
    }
    let seconds = format!("600.{}", std::process::id());
    let is_traced = |&pid: &i32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status
            .lines()
            .any(|l| l.starts_with("TracerPid:") && !l.ends_with("\t0"))
    };
    let mut standing = 0;
    for round in 0..300 {
        let mut command = Command::new(ipath());
        command.args(["run", "-f", "malloc", "-m", "count", "--quiet", "--"]);
        command.args(["sleep", &seconds]);
        let mut starting = Target::spawn(command);
        std::thread::sleep(Duration::from_micros(100 * (round % 250)));
        starting.signal(Signal::SIGKILL);
        starting.wait(Duration::from_secs(20));
        let mut pids = left(&seconds);
        let settled = std::time::Instant::now();
        while pids.iter().any(is_traced) && settled.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(10));
            pids = left(&seconds);
        }
        standing += pids.iter().filter(|pid| is_traced(pid)).count();
        for pid in pids {
            // The unique sleep time identifies it as this test's process.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            remove_segments(pid as u32);
        }
    }
    assert_eq!(standing, 0, "programs that are left stopped");
}

/// A program that starts with signals blocked or ignored is measured, and its signals stay so.
#[test]
fn begun_with_signals_blocked() {
    let scratch = Scratch::new("masked");
    let file = scratch.file("p.json");
    let masked = program("masked.c").display().to_string();
    for what in ["block", "ignore", "both"] {
        let outside = [&masked, what];
        let plain = Run::new(&masked).args([what, &masked, "show"]).run();
        let plain = plain.expect(7).stdout;
        let measure = [
            "run", "--follow", "--quiet", "-f", "work", "-m", "count", "-o",
        ];
        let file_name = file.display().to_string();
        let ipath = ipath().display().to_string();
        let own = [&[&ipath[..]], &measure[..], &[&file_name, "--"]].concat();
        let alone: Vec<&str> = own.iter().copied().filter(|a| *a != "--follow").collect();
        let show = [&masked[..], "show"];
        // ipath starts with the signals blocked, or the program blocks them itself.
        for command in [
            [&outside[..], &alone, &show].concat(),
            [&outside[..], &own, &show].concat(),
            [&own[..], &outside, &show].concat(),
        ] {
            let run = Run::new(command[0]).args(&command[1..]).run().expect(7);
            assert_eq!(run.stdout, plain, "{what}: {}", run.report());
            assert_eq!(Profile::read(&file).calls("work"), 3, "{}", run.report());
        }
    }
}

/// The session ends with the program, however long the interval is.
#[test]
fn end_amid_an_interval() {
    for more in [&["--no-tui"][..], &["--format", "jsonl"]] {
        let mut target = Target::start(program("busy.c"), ["1", "600"]).await_output("ready");
        let pid = target.pid().to_string();
        let mut command = Command::new(ipath());
        command.args(["attach", &pid, "-f", "step", "--interval", "10m"]);
        command.args(more);
        let mut watching = Target::spawn(command);
        let limit = Duration::from_secs(30);
        let is_in = |_: &Target| Run::ipath(["status", &pid]).run().stdout.contains("  in\n");
        watching.until(limit, "attached", is_in);
        target.signal(Signal::SIGTERM);
        target.wait(limit);
        assert!(watching.wait(limit).success(), "{}", watching.report());
    }
}

#[test]
fn exec_ends_the_session() {
    let target = Target::start("/bin/sh", ["-c", "echo ready; sleep 1; exec sleep 60"]);
    let target = target.await_output("ready");
    let pid = target.pid().to_string();
    let pattern = "libc.so*!malloc";
    let attach = [
        "attach",
        &pid,
        "-f",
        pattern,
        "--no-tui",
        "--duration",
        "20s",
    ];
    let finished = Run::ipath(attach)
        .args(["--interval", "100ms"])
        .run()
        .expect(0);
    assert!(finished.stdout.contains("malloc"), "{}", finished.report());
    // Attaching to the process again measures the program that it runs now.
    let again = [
        "attach",
        &pid,
        "-f",
        pattern,
        "--no-tui",
        "--duration",
        "100ms",
    ];
    Run::ipath(again).run().expect(0);
    assert_eq!(listed(target.pid()), None);
}

#[test]
fn storm_of_threads_and_signals_survives_attaching() {
    let scratch = Scratch::new("storm");
    let file = scratch.file("p.json");
    let target = Target::start(program("storm.c"), [""; 0]).await_output("ready");
    let pid = target.pid().to_string();
    for _ in 0..20 {
        let attach = [
            "attach",
            &pid,
            "-f",
            "work",
            "--no-tui",
            "--duration",
            "100ms",
        ];
        Run::ipath(attach).arg("-o").arg(&file).run().expect(0);
        let profile = Profile::read(&file);
        profile.check_sums();
        assert!(profile.calls("work") > 1000);
    }
    assert!(target.finish("ok calls ").contains("handled some"));
}

/// The process id of the first child of a command.
fn started_by(command: &Target) -> u32 {
    // With `--follow`, the thread that traces the process also started it.
    let threads = fs::read_dir(format!("/proc/{}/task", command.pid())).expect("its threads");
    let files = threads
        .flatten()
        .map(|thread| thread.path().join("children"));
    let all: String = files
        .filter_map(|file| fs::read_to_string(file).ok())
        .collect();
    let first = all
        .split_whitespace()
        .next()
        .and_then(|child| child.parse().ok());
    first.unwrap_or_else(|| panic!("no child: {all:?}"))
}

/// A signal to the process group ends a command and its program while the analysis still runs.
#[test]
fn run_interrupted_before_its_program_begins() {
    let limit = Duration::from_secs(60);
    for (follow, signal) in [
        (false, Signal::SIGINT),
        (false, Signal::SIGTERM),
        (true, Signal::SIGINT),
    ] {
        let mut command = Command::new(faulty());
        command.env("IPATH_HANG_AT", "prepared").arg("run");
        command.args(follow.then_some("--follow"));
        command.args(["--no-tui", "-f", "busy*!*", "--"]);
        command.arg(program("busy.c")).args(["2", "300"]);
        let mut running = Target::spawn(command);
        running.until(limit, "come to the moment", |r| {
            r.stderr().contains("hangs at")
        });
        let child = started_by(&running);
        let group = Pid::from_raw(running.pid() as i32);
        killpg(group, signal).expect("signal the group");
        let status = running.wait(limit);
        let report = running.report();
        assert_eq!(status.code(), Some(128 + signal as i32), "{report}");
        assert!(
            running.stderr().contains("before the program began"),
            "{report}"
        );
        assert_eq!(running.stdout(), "", "{report}");
        assert!(!Path::new(&format!("/proc/{child}")).exists(), "{report}");
        assert!(segment_names(child).is_empty(), "{report}");
    }
}
