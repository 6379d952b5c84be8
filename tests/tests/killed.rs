//! `ipath_killed`: SIGKILL ends ipath at a step of its work on a target. A run tests every third
//! step, so that three days test all of them. `IPATH_TEST_ROUNDS=1` tests all in one run. The
//! target must continue correctly, and the next ipath must finish the session or remove it.

use ipath_tests::command::{Finished, Run};
use ipath_tests::compile::program;
use ipath_tests::faulty::faulty;
use ipath_tests::place::{self, Scratch};
use ipath_tests::racing::{Chance, Running, Sample, remove_segments, rounds};
use ipath_tests::snapshot::ProcessState;
use ipath_tests::target::Target;
use nix::sys::signal::Signal;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A change to the target, during which ipath is killed.
struct Deed<'p> {
    /// The command's arguments; `PID` stands for the target's pid.
    arguments: &'static [&'static str],
    /// The functions of the session before the change; empty without a session.
    before: &'static [&'static str],
    /// The functions that may be instrumented afterwards.
    functions: &'static [&'static str],
    /// The minimum number of steps.
    steps: u64,
    /// The environment in which ipath runs.
    place: &'p StopAt,
}

/// The environment in which ipath runs.
enum StopAt {
    /// The environment of the tests.
    Here,
    /// A mount namespace whose /dev/shm has no room for a session.
    Small(Target),
}

/// The option for a name: `--at` for an instruction (`FUNCTION+0x0`), else `-f`.
fn option(name: &str) -> &'static str {
    if name.contains("+0x") { "--at" } else { "-f" }
}

/// The arguments for a function or an instruction; `name` may also be an option itself.
fn named<'n>(name: &&'n str) -> Vec<&'n str> {
    if name.starts_with("--") {
        vec![*name]
    } else {
        vec![option(name), *name]
    }
}

static HERE: StopAt = StopAt::Here;

impl StopAt {
    fn small() -> Self {
        const SCRIPT: &str =
            "mount -t tmpfs -o size=16k tmpfs /dev/shm && echo ready && exec sleep 3600";
        let holder = Target::start("unshare", ["--mount", "sh", "-c", SCRIPT]);
        Self::Small(holder.await_output("ready"))
    }

    /// A command that runs this program.
    fn command(&self, program: &Path) -> Run {
        match self {
            Self::Here => Run::new(program),
            Self::Small(holder) => Run::new("nsenter")
                .arg(format!("--mount=/proc/{}/ns/mnt", holder.pid()))
                .arg(program),
        }
    }

    fn ipath(&self, arguments: &[&str], pid: u32) -> Finished {
        let pid = pid.to_string();
        let arguments = arguments.iter().map(|&a| if a == "PID" { &pid } else { a });
        self.command(&place::ipath()).args(arguments).run()
    }

    fn attach(&self, functions: &[&str], pid: u32) -> Finished {
        let mut arguments = vec!["attach", "PID", "--keep", "--no-tui", "--duration", "1ms"];
        arguments.extend(functions.iter().flat_map(named));
        self.ipath(&arguments, pid)
    }
}

/// Kills ipath at the steps of a change that today's sample contains, one after the other, on one
/// running target.
fn kill_at_steps(target: &mut Target, deed: &Deed<'_>) {
    let pid = target.pid();
    let clean = ProcessState::of(pid);
    let (mut died, mut last) = (0, 0);
    let sample = Sample::every(3);
    for step in sample.steps() {
        if !deed.before.is_empty() {
            deed.place.attach(deed.before, pid).expect(0);
        }
        let id = pid.to_string();
        let arguments = deed.arguments.iter();
        let arguments = arguments.map(|&a| if a == "PID" { id.as_str() } else { a });
        let killed = deed
            .place
            .command(&faulty())
            .args(arguments)
            .env("IPATH_DIE_AT", step.to_string())
            .run();
        let what = format!("step {step}:\n{}", killed.report());
        assert!(target.poll().is_none(), "{what}\n{}", target.report());
        let through = killed.code() == 0;
        if !through {
            assert_eq!(killed.code(), 128 + libc::SIGKILL, "{what}");
            (died, last) = (died + 1, step);
        }
        next_ipath(sample.way(step, 3), deed, pid, &what);
        assert!(target.poll().is_none(), "{what}\n{}", target.report());
        let differences = clean.lasting_differences(pid);
        assert!(
            differences.is_empty(),
            "{differences:#?}\n{what}\n{}",
            target.report()
        );
        if through {
            break;
        }
    }
    println!(
        "{:?}: killed at {died} steps, the last {last}",
        deed.arguments
    );
    assert!(last + 2 >= deed.steps, "only {last} steps");
}

/// Runs one of the commands that a user may try next, and finally removes the session.
fn next_ipath(way: u64, deed: &Deed<'_>, pid: u32, what: &str) {
    let said = |finished: &Finished, text: &str| finished.stderr.contains(text);
    match way {
        // Remove it at once.
        0 => {}
        // Create a session, or continue with the existing one.
        1 => {
            let made = deed.place.attach(&deed.functions[..1], pid);
            let exists = said(&made, "has a session already");
            assert!(made.code() == 0 || exists, "{}\n{what}", made.report());
            if exists {
                let added = deed
                    .place
                    .ipath(&["add", "PID", "-f", deed.functions[0]], pid);
                assert_eq!(added.code(), 0, "{}\n{what}", added.report());
            }
            let status = deed.place.ipath(&["status", "PID"], pid);
            assert!(
                status.code() == 0 && status.stdout.contains("  in\n"),
                "{}\n{what}",
                status.report()
            );
        }
        // Remove functions from the existing session.
        _ => {
            for function in deed.functions {
                let removed = deed
                    .place
                    .ipath(&["remove", "PID", option(function), function], pid);
                let known = ["no session", "no instrumented function"];
                let excused = known.iter().any(|text| said(&removed, text));
                assert!(
                    removed.code() == 0 || excused,
                    "{}\n{what}",
                    removed.report()
                );
            }
        }
    }
    let detached = deed.place.ipath(&["detach", "PID"], pid);
    let excused = said(&detached, "no session");
    assert!(
        detached.code() == 0 || excused,
        "{}\n{what}",
        detached.report()
    );
}

fn busy() -> Target {
    Target::start_nice(program("busy.c"), ["2", "600"]).await_output("ready")
}

fn sleeper() -> Target {
    Target::start_nice(program("sleeper.c"), ["600"]).await_output("ready")
}

const ATTACH: &[&str] = &[
    "attach",
    "PID",
    "-f",
    "busy*!step",
    "-f",
    "mix",
    "--keep",
    "--no-tui",
    "--duration",
    "1ms",
];

#[test]
fn ipath_killed_in_attach() {
    let mut target = busy();
    let deed = Deed {
        arguments: ATTACH,
        before: &[],
        functions: &["step", "mix"],
        steps: 100,
        place: &HERE,
    };
    kill_at_steps(&mut target, &deed);
    target.finish("ok calls ");
}

#[test]
fn ipath_killed_in_attach_to_sleepers() {
    let mut target = sleeper();
    let deed = Deed {
        arguments: &[
            "attach",
            "PID",
            "-f",
            "tick",
            "--keep",
            "--no-tui",
            "--duration",
            "1ms",
        ],
        before: &[],
        functions: &["tick"],
        steps: 100,
        place: &HERE,
    };
    kill_at_steps(&mut target, &deed);
    target.finish("ok calls ");
}

#[test]
fn ipath_killed_in_add() {
    let mut target = busy();
    let deed = Deed {
        arguments: &["add", "PID", "-f", "mix", "-f", "down"],
        before: &["busy*!step"],
        functions: &["step", "mix", "down"],
        steps: 30,
        place: &HERE,
    };
    kill_at_steps(&mut target, &deed);
    target.finish("ok calls ");
}

#[test]
fn ipath_killed_in_remove() {
    let mut target = busy();
    let deed = Deed {
        arguments: &["remove", "PID", "-f", "step"],
        before: &["busy*!step", "down"],
        functions: &["step", "down"],
        steps: 15,
        place: &HERE,
    };
    kill_at_steps(&mut target, &deed);
    target.finish("ok calls ");
}

#[test]
fn ipath_killed_in_detach() {
    let targets: [(Target, &[&str]); 2] = [(busy(), &["busy*!step"]), (sleeper(), &["tick"])];
    for (mut target, functions) in targets {
        let deed = Deed {
            arguments: &["detach", "PID"],
            before: functions,
            functions,
            steps: 40,
            place: &HERE,
        };
        kill_at_steps(&mut target, &deed);
        target.finish("ok calls ");
    }
}

/// Points are added and removed as functions are, alone and together with the function that
/// contains them.
#[test]
fn ipath_killed_with_points() {
    const TOGETHER: [&str; 4] = ["mix", "mix+0x0", "busy*!step+0x0", "down+0x0"];
    let mut target = busy();
    let deeds: [(&'static [&'static str], &'static [&'static str], u64); 2] = [
        (
            &["add", "PID", "--at", "busy*!step+0x0", "-f", "mix"],
            &["down"],
            30,
        ),
        (
            &["remove", "PID", "--at", "mix+0x0", "--at", "down+0x0"],
            &TOGETHER,
            15,
        ),
    ];
    for (arguments, before, steps) in deeds {
        let deed = Deed {
            arguments,
            before,
            functions: &["mix", "mix+0x0", "busy*!step+0x0"],
            steps,
            place: &HERE,
        };
        kill_at_steps(&mut target, &deed);
    }
    target.finish("ok calls ");
}

/// Adds and removes exits and metrics of an instrumented function.
#[test]
fn ipath_killed_in_changing_metrics() {
    const COUNTED: &[&str] = &["busy*!step", "down", "--metric=count"];
    const TIMED: &[&str] = &["busy*!step", "down"];
    let mut target = busy();
    let deeds: [(&'static [&'static str], &'static [&'static str], u64); 4] = [
        (
            &["add", "PID", "-f", "busy*!step", "-m", "wall,arg1"],
            COUNTED,
            30,
        ),
        (
            &["add", "PID", "-f", "busy*!step", "-f", "mix", "-m", "cpu"],
            TIMED,
            30,
        ),
        (
            &["remove", "PID", "-f", "busy*!step", "-m", "wall"],
            TIMED,
            25,
        ),
        (
            &["add", "PID", "-f", "busy*!step", "-m", "arg1"],
            COUNTED,
            10,
        ),
    ];
    for (arguments, before, steps) in deeds {
        let deed = Deed {
            arguments,
            before,
            functions: &["busy*!step", "mix"],
            steps,
            place: &HERE,
        };
        kill_at_steps(&mut target, &deed);
    }
    target.finish("ok calls ");
}

/// After a kill of ipath, a session without a name is found as well.
#[test]
fn ipath_killed_without_names() {
    let small = StopAt::small();
    let mut target = busy();
    let deeds: [(&'static [&'static str], &'static [&'static str], u64); 2] = [
        (ATTACH, &[], 100),
        (&["detach", "PID"], &["busy*!step", "mix"], 40),
    ];
    for (arguments, before, steps) in deeds {
        let deed = Deed {
            arguments,
            before,
            functions: &["step", "mix"],
            steps,
            place: &small,
        };
        kill_at_steps(&mut target, &deed);
    }
    target.finish("ok calls ");
}

/// A function without room for a jump: its stepping stone is added and removed as well.
#[test]
fn ipath_killed_with_puns() {
    // Build before the target starts.
    faulty();
    let start = || Target::start_nice(program("trap.c"), ["0", "600"]).await_output("ready");
    let function: &[&str] = &["tiny_four"];
    let deeds = [
        (
            &[
                "attach",
                "PID",
                "-f",
                "tiny_four",
                "--keep",
                "--no-tui",
                "--duration",
                "1ms",
            ][..],
            &[][..],
            100,
        ),
        (&["detach", "PID"], function, 40),
    ];
    for (arguments, before, steps) in deeds {
        let mut target = start();
        let deed = Deed {
            arguments,
            before,
            functions: function,
            steps,
            place: &HERE,
        };
        kill_at_steps(&mut target, &deed);
        target.finish("ok calls ");
    }
}

/// Programs that use all processors.
struct Load(Vec<Child>);

impl Load {
    fn of(count: usize) -> Self {
        let spin = || {
            let mut command = Command::new("sh");
            command.args(["-c", "while :; do :; done"]);
            command.stdin(Stdio::null()).spawn().expect("started")
        };
        Self((0..count).map(|_| spin()).collect())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Killed at any moment beside 50 busy processes. A thread that was set up to make a call may reach
/// it much later. The recovery of the next command must not depend on that.
#[test]
fn recovery_beside_load() {
    let trap = || Target::start(program("trap.c"), ["0", "7200"]).await_output("ready");
    let busy = || Target::start(program("busy.c"), ["2", "7200"]).await_output("ready");
    let attach_puns = [&["attach", "PID", "-f", "tiny_four"], &ATTACH[6..]].concat();
    let attach_puns: &[&str] = attach_puns.leak();
    let busy_deeds: [(&[&str], &[&str]); 4] = [
        (ATTACH, &[]),
        (&["add", "PID", "-f", "mix", "-f", "down"], &["busy*!step"]),
        (&["remove", "PID", "-f", "step"], &["busy*!step", "mix"]),
        (&["detach", "PID"], &["busy*!step", "mix"]),
    ];
    let trap_deeds: [(&[&str], &[&str]); 2] =
        [(attach_puns, &[]), (&["detach", "PID"], &["tiny_four"])];
    let mut chance = Chance::new();
    let mut targets = [
        (busy(), &busy_deeds[..], &["step", "mix"][..]),
        (trap(), &trap_deeds[..], &["tiny_four"][..]),
    ];
    let clean: Vec<ProcessState> = targets
        .iter()
        .map(|t| ProcessState::of(t.0.pid()))
        .collect();
    let _load = Load::of(50);
    // The estimated duration of each change: reduced when it completed, increased when it was
    // killed.
    let mut longest = [Duration::from_millis(400); 6];
    let mut killed = 0;
    for round in 0..rounds(20) {
        let which = usize::from(chance.below(4) == 0);
        let (target, deeds, functions) = &mut targets[which];
        let index = chance.below(deeds.len() as u64) as usize;
        let (arguments, before) = deeds[index];
        let pid = target.pid();
        if !before.is_empty() {
            HERE.attach(before, pid).expect(0);
        }
        let id = pid.to_string();
        let given = arguments.iter().map(|&a| if a == "PID" { &id } else { a });
        let given: Vec<&str> = given.collect();
        let took = &mut longest[4 * which + index];
        let moment = Duration::from_micros(chance.below(took.as_micros() as u64));
        let begin = Instant::now();
        let mut running = Running::start(&given);
        while begin.elapsed() < moment && !running.has_ended() {
            sleep(Duration::from_micros(100));
        }
        *took = if running.has_ended() {
            (*took + begin.elapsed()) / 2
        } else {
            (*took * 21 / 20).min(Duration::from_secs(5))
        };
        running.signal(Signal::SIGKILL);
        let (code, said) = running.finish();
        killed += usize::from(code == -1);
        let what = format!("round {round}: {arguments:?} after {moment:?}: {code} {said}");
        assert!(target.poll().is_none(), "{what}\n{}", target.report());
        let deed = Deed {
            arguments,
            before,
            functions,
            steps: 0,
            place: &HERE,
        };
        next_ipath(chance.below(3), &deed, pid, &what);
        assert!(target.poll().is_none(), "{what}\n{}", target.report());
        let differences = clean[which].lasting_differences(pid);
        assert!(differences.is_empty(), "{differences:#?}\n{what}");
    }
    println!("killed {killed} times");
    assert!(killed > 0, "never killed in time");
    for (target, ..) in targets {
        target.finish("ok calls ");
    }
}

/// Killed at each step of the creation of a child's session: the child and its parent end normally.
#[test]
fn ipath_killed_while_a_child_begins() {
    const SESSION: u64 = 3;
    const PATIENCE: Duration = Duration::from_secs(30);
    let scratch = Scratch::new("killed");
    let told = scratch.file("told");
    let run = |children: &str, step: u64| {
        let _ = fs::remove_file(&told);
        Run::new(faulty())
            .args(["run", "--follow", "--quiet", "-f", "work", "--"])
            .arg(program("forked_checked.c"))
            .arg(children)
            .arg(&told)
            .env("IPATH_DIE_AT", step.to_string())
            .run()
    };
    // Steps before the first child also occur without one.
    let (mut before, mut first) = (0, 1 << 12);
    while first - before > 1 {
        let step = (before + first) / 2;
        match run("0", step).code() {
            0 => first = step,
            _ => before = step,
        }
    }
    let mut died = 0;
    for step in first.. {
        let killed = run("1", step);
        // The program continues by itself.
        let until = Instant::now() + PATIENCE;
        let said = || fs::read_to_string(&told).unwrap_or_default();
        while !said().contains("ok ") && Instant::now() < until {
            sleep(Duration::from_millis(5));
        }
        let said = said();
        let (pids, result) = said.split_once('\n').unwrap_or_default();
        assert_eq!(
            result,
            "ok 1 of 1\n",
            "{pids}, step {step}:\n{}",
            killed.report()
        );
        let pids = pids.split(' ').filter_map(|pid| pid.parse().ok());
        pids.for_each(remove_segments);
        if killed.code() == 0 {
            break;
        }
        died += 1;
    }
    assert!(died > SESSION, "only {died} steps");
}
