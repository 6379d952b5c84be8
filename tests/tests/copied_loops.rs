//! Loops and functions that run from copies while their edges or paths are counted: threads enter
//! and leave the copies at any time, and compute what they would.

use ipath_tests::command::Run;
use ipath_tests::compile::program_with;
use ipath_tests::inside::{insides, list, number};
use ipath_tests::place::{Scratch, ipath};
use ipath_tests::profile::{CallPath, Profile};
use ipath_tests::snapshot::ProcessState;
use ipath_tests::target::Target;
use nix::sys::signal::Signal;
use std::process::Command;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(120);
const LOOPS: [&str; 6] = ["few", "red_zone", "frame", "many", "flags", "reals"];
/// What is counted.
const COUNTED: [&str; 2] = ["--edges", "--paths"];
const OPTIMIZED: [&str; 3] = ["-O1", "-O2", "-O3"];

fn variants() -> impl Iterator<Item = (&'static str, &'static str)> {
    OPTIMIZED
        .into_iter()
        .flat_map(|optimized| COUNTED.map(|counted| (optimized, counted)))
}

fn start(optimized: &str) -> Target {
    let flags = [optimized, "-pthread", "-D_GNU_SOURCE"];
    let program = program_with("copied_loops.c", &flags);
    Target::start(&program, [""; 0]).await_output("ready")
}

/// Counters come in and go out while all threads are in their loops and signals arrive. Each time,
/// the threads run in the copies, and leave them although the loops do not end.
#[test]
fn threads_enter_and_leave_copies() {
    for (optimized, counted) in variants() {
        let target = start(optimized);
        let before = ProcessState::between(target.pid(), Signal::SIGUSR2);
        let pid = target.pid().to_string();
        let all = LOOPS.join(",");
        for _ in 0..3 {
            let attach = ["attach", &pid, counted, &all, "-f", "tick"];
            let keep = ["--keep", "--no-tui", "--duration", "50ms"];
            Run::ipath(attach).args(keep).run().expect(0);
            for name in LOOPS {
                Run::ipath(["remove", &pid, counted, name]).run().expect(0);
                Run::ipath(["add", &pid, counted, name]).run().expect(0);
            }
            let since = Instant::now();
            Run::ipath(["detach", &pid]).run().expect(0);
            assert!(
                since.elapsed() < LIMIT,
                "threads left {:?}",
                since.elapsed()
            );
        }
        before.assert_unchanged(target.pid());
        target.finish("ok");
    }
}

/// A signal handler that interrupts a copy has a complete path, on which the loop's function is at
/// its original address.
#[test]
fn handlers_see_the_original_code() {
    for (optimized, counted) in variants() {
        let target = start(optimized);
        let pid = target.pid().to_string();
        let scratch = Scratch::new("copied-loops");
        let file = scratch.file("p.json");
        let places = [counted, &LOOPS.join(","), "-f", "tick"];
        Run::ipath(["attach", &pid, "--no-tui", "--duration", "500ms", "-o"])
            .arg(&file)
            .args(places)
            .run()
            .expect(0);
        let profile = Profile::read(&file);
        assert!(profile.calls("tick") > 300, "{}", profile.calls("tick"));
        let is_tick = |path: &&CallPath| profile.functions[path.function].name == "tick";
        let ticks: Vec<&CallPath> = profile.paths.iter().filter(is_tick).collect();
        let calls = |paths: &mut dyn Iterator<Item = &&CallPath>| -> u64 {
            paths.map(|path| number(&path.metrics["count"])).sum()
        };
        // In a way into a copy, a thread has no counterpart in the original code.
        let complete = calls(&mut ticks.iter().filter(|path| path.complete));
        let all = profile.calls("tick");
        let others = ticks.iter().filter(|path| !path.complete).map(|path| {
            let stack = path.stack.iter().map(|&frame| &profile.frames[frame]);
            stack.collect::<Vec<_>>()
        });
        let others: Vec<_> = others.collect();
        assert!(
            complete * 100 >= all * 97,
            "{complete} of {all} are complete, not {others:?}"
        );
        for name in LOOPS {
            let is_on = |path: &&&CallPath| {
                let mut stack = path.stack.iter().map(|&frame| &profile.frames[frame]);
                stack.any(|frame| frame.function.as_deref() == Some(name))
            };
            let interrupted = calls(&mut ticks.iter().filter(is_on));
            assert!(
                interrupted > 0,
                "{optimized}, {counted}: {name} was interrupted"
            );
        }
        target.finish("ok");
    }
}

/// The command is killed at any time. The next one takes the counters out.
#[test]
fn threads_leave_copies_after_a_kill() {
    for counted in COUNTED {
        let target = start("-O2");
        let before = ProcessState::between(target.pid(), Signal::SIGUSR2);
        let pid = target.pid().to_string();
        let all = LOOPS.join(",");
        for late in 0..12 {
            let mut command = Command::new(ipath());
            command.args(["attach", &pid, "--no-tui", counted, &all]);
            let mut attaching = Target::spawn(command);
            std::thread::sleep(Duration::from_millis(40 * late));
            attaching.signal(Signal::SIGKILL);
            attaching.wait(LIMIT);
            let left = ProcessState::session_in(target.pid());
            if !left.is_empty() {
                Run::ipath(["detach", &pid]).run().expect(0);
            }
        }
        before.assert_unchanged(target.pid());
        target.finish("ok");
    }
}

/// Signal handlers run the functions that they interrupt. All their calls and paths are counted.
#[test]
fn interrupted_functions_are_entered_again() {
    for optimized in ["-O1", "-O2", "-O3"] {
        let program = program_with("reentered.c", &[optimized, "-pthread"]);
        for option in ["--edges", "--paths"] {
            let scratch = Scratch::new("reentered");
            let file = scratch.file("p.json");
            let run = Run::ipath(["run", "--no-tui", option, "mixes,chooses", "-o"]).arg(&file);
            let finished = run.arg("--").arg(&program).run().expect(0);
            let words: Vec<&str> = finished.stdout.split_whitespace().collect();
            let (own, _) = words.as_chunks::<2>();
            assert_eq!(own.len(), 2, "{}", finished.report());
            let found = insides(&file);
            for [name, calls] in own {
                let entry = &found[*name];
                let calls: u64 = calls.parse().expect("a number");
                let sum = |kind: &str| -> u64 {
                    let edges = list(entry, "edges").iter();
                    let edges = edges.filter(|edge| edge["kind"] == kind);
                    edges.map(|edge| number(&edge["count"])).sum()
                };
                let what = format!("{name} {option} {optimized}: {entry:#}");
                assert_eq!((sum("entry"), sum("exit")), (calls, calls), "{what}");
                assert_eq!(entry["uncertain"], 0, "{what}");
                if option == "--paths" {
                    assert_eq!(entry["path_totals"]["begun"], calls, "{what}");
                }
            }
        }
    }
}
