//! Calls that leave no frame, very deep recursion, and calls that exceed the available memory: each
//! is counted, and the program continues.

use ipath_tests::command::{Finished, Run};
use ipath_tests::compile::{program, program_with};
use ipath_tests::each_way::{all_kept, counts_kept};
use ipath_tests::exact::{assert_output_kept, check};
use ipath_tests::fold::{assert_folded, paths};
use ipath_tests::place::{Scratch, ipath};
use ipath_tests::profile::{Profile, count};
use ipath_tests::program::{Program, ipath_arguments};
use ipath_tests::session::{Session, counts_of, own_counts};
use ipath_tests::symbols::sites;
use ipath_tests::target::Target;
use nix::sys::signal::Signal;
use std::ffi::OsStr;
use std::process::Command;
use std::time::Duration;

fn recursion(mode: &str, n: u32) -> Program {
    Program::new(&program("recursion.c"), [mode.to_owned(), n.to_string()])
}

/// Runs it plainly and under ipath with additional options. Checks that the output is the same.
/// Returns the plain run, and the profile.
fn with_options(program: &Program, names: &[&str], options: &[&str]) -> (Finished, Profile) {
    let scratch = Scratch::new("recursion");
    let file = scratch.file("p.json");
    let plain = program.plain().expect(0);
    let mut arguments = ipath_arguments(names, "count,wall", &file);
    let end = arguments.len() - 1;
    arguments.splice(end..end, options.iter().map(|&o| o.to_owned()));
    let ours = program.under_ipath_as(arguments);
    assert_output_kept(&plain, &ours);
    (plain, Profile::read(&file))
}

/// The greatest number of frames of a path.
fn longest(profile: &Profile) -> usize {
    let lengths = profile.paths.iter().map(|path| path.stack.len());
    lengths.max().unwrap_or(0)
}

#[test]
fn tail_call_leaves_no_frame_on_the_path() {
    let program = recursion("tail", 60);
    all_kept(&program);
    for function in ["landed", "hop", "ping", "pong"] {
        let profile = check(&program, function, &sites(&program.path, function));
        assert!(longest(&profile) <= 4, "what has left has no frame");
    }
}

#[test]
fn mutual_recursion_paths_equal_those_of_gdb() {
    let program = recursion("mutual", 60);
    all_kept(&program);
    for function in ["even", "odd", "seen"] {
        let profile = check(&program, function, &sites(&program.path, function));
        assert!(longest(&profile) > 60, "{}", longest(&profile));
    }
}

#[test]
fn deep_recursion_is_walked_to_the_root() {
    const FRAMES: u32 = 100_000;
    for (mode, function) in [("deep", "bottom"), ("self", "descend")] {
        let program = recursion(mode, 300);
        check(&program, function, &sites(&program.path, function));
    }
    // Called at the bottom, and halfway on the way down and up.
    counts_kept(&recursion("deep", FRAMES), 0, |profile| {
        profile.assert_complete("every frame is walked");
        assert_eq!(profile.losses.open.unwrap_or(0), 0);
        let long = |path: &&_| -> bool {
            let path: &ipath_tests::profile::CallPath = path;
            path.stack.len() > FRAMES as usize
        };
        assert_eq!(profile.paths.iter().filter(long).count(), 4);
        assert_eq!(profile.paths.len(), 8);
    });
    // As many concurrent activations.
    let program = recursion("self", FRAMES);
    let (_, profile) = with_options(&program, &["descend"], &["--depth", "50"]);
    assert_eq!(profile.calls("descend"), u64::from(FRAMES));
    profile.assert_lossless();
    let ended = (profile.losses.open, profile.losses.unwound);
    assert_eq!(ended, (Some(0), Some(0)));
    assert_eq!(longest(&profile), 50);
}

/// Every path has a different depth. Together the paths have too many frames for the profile.
#[test]
fn deep_paths_beyond_the_profile_are_counted_as_overflow() {
    const CALLS: u32 = 12_000;
    let program = recursion("self", CALLS);
    let (_, profile) = with_options(&program, &["descend"], &[]);
    assert_eq!(profile.calls("descend"), u64::from(CALLS));
    let losses = &profile.losses;
    assert_eq!((losses.missed, losses.incomplete), (0, 0), "{losses:?}");
    assert!(losses.overflow > 1000, "{losses:?}");
    assert_eq!(losses.overflow_by, ["profile-frames"]);
    assert_eq!(
        losses.overflow + profile.paths.len() as u64 - 1,
        u64::from(CALLS)
    );
    assert!(longest(&profile) > 3000, "{}", longest(&profile));
}

#[test]
fn path_explosion_shares_one_path_beyond_the_limit() {
    let program = recursion("fib", 27);
    let own = own_counts(&program.plain().stdout)["fib"];
    for (options, limit) in [(&[][..], 65536), (&["--max-paths", "100"][..], 100)] {
        let (_, profile) = with_options(&program, &["fib"], options);
        assert_eq!(profile.calls("fib"), own, "as many paths as calls");
        let losses = &profile.losses;
        assert_eq!((losses.missed, losses.incomplete), (0, 0), "{losses:?}");
        assert_eq!((losses.open, losses.unwound), (Some(0), Some(0)));
        assert_eq!(losses.overflow, own - limit);
        assert_eq!(losses.overflow_by, ["max-paths"]);
        let shared: Vec<_> = profile.paths.iter().filter(|path| !path.complete).collect();
        let [shared] = shared[..] else {
            panic!("{} paths for what has no room", shared.len());
        };
        assert_eq!(count(&shared.metrics), losses.overflow);
        assert_eq!(profile.paths.len() as u64, limit + 1);
    }
}

/// Folded paths equal those of a run without folding, folded afterwards, with the sums of their
/// calls.
#[test]
fn collapse_recursion_equals_folding_afterwards() {
    let own = program("paths.c");
    for (program, function) in [
        (recursion("mutual", 60), "seen"),
        (recursion("mutual", 60), "odd"),
        (recursion("self", 1000), "descend"),
        (recursion("fib", 15), "fib"),
        (recursion("tail", 30), "landed"),
        (Program::new(&own, [""; 0]), "work"),
        (
            Program::new(&program("paths.cc"), [""; 0]),
            "geometry::area",
        ),
    ] {
        assert_folded(&program, function);
    }
    let program = recursion("fib", 27);
    let own = own_counts(&program.plain().stdout)["fib"];
    let (_, profile) = with_options(&program, &["fib"], &["--collapse-recursion"]);
    assert_eq!(profile.calls("fib"), own);
    profile.assert_lossless();
    // No recursive call site on the path, one of the two, or both in either order.
    assert_eq!(paths(&profile).len(), 5);
    let program = recursion("self", 20_000);
    let (_, profile) = with_options(&program, &["descend"], &["--collapse-recursion"]);
    assert_eq!(profile.calls("descend"), 20_000);
    profile.assert_lossless();
    assert_eq!(paths(&profile).len(), 2);
}

/// A target in its own mount namespace, with a /dev/shm of limited size. ipath runs in that
/// namespace.
struct Confined(Target);

impl Confined {
    fn start(program: &Program, size: &str) -> Self {
        let mut command = Command::new("unshare");
        let script = format!("mount -t tmpfs -o size={size} tmpfs /dev/shm && exec \"$0\" \"$@\"");
        command.args(["-m", "sh", "-c", &script]).arg(&program.path);
        command.args(&program.args);
        Self(Target::spawn(command).await_output("ready"))
    }

    fn run(&self, name: &str, arguments: &[&str]) -> Finished {
        Run::new("nsenter")
            .args(["-m", "-t", &self.0.pid().to_string(), name])
            .args(arguments)
            .run()
    }

    fn ipath(&self, command: &str, arguments: &[&str]) -> Finished {
        let pid = self.0.pid().to_string();
        let name = ipath().display().to_string();
        self.run(&name, &[&[command, &pid], arguments].concat())
    }
}

/// Lets a waiting program continue until it has printed a line that starts with `start`.
fn go_on(target: &mut Target, start: &str) {
    target.signal(Signal::SIGUSR1);
    target.until(Duration::from_secs(60), "gone on", |target| {
        target.stdout().lines().any(|line| line.starts_with(start))
    });
}

/// A program that does a little work first, and waits before and after that; its output without
/// waiting; and its own number of calls.
fn in_two_steps(mode: &str, n: u32) -> (Program, String, u64) {
    let mut program = recursion(mode, n);
    program.args.push("twice".to_owned());
    let plain = program.plain().expect(0);
    program.args.push("wait".to_owned());
    let own = own_counts(&plain.stdout);
    (program, plain.stdout, own.into_values().sum())
}

const ATTACH: [&str; 6] = [
    "--keep",
    "--no-tui",
    "--duration",
    "1ms",
    "-m",
    "count,wall",
];

const FILLING: [&str; 3] = ["if=/dev/zero", "of=/dev/shm/filling", "bs=4k"];

/// /dev/shm runs full by the session's own growth, or by another file. All calls are counted, and
/// those without room for their path share one.
#[test]
fn dev_shm_full() {
    let (program, plain, own) = in_two_steps("fib", 20);
    let scratch = Scratch::new("shm");
    let file = scratch.file("p.json").display().to_string();
    for is_filled in [false, true] {
        let mut target = Confined::start(&program, "6m");
        let options = [&ATTACH[..], &["-f", "fib"]].concat();
        target.ipath("attach", &options).expect(0);
        go_on(&mut target.0, "begun");
        if is_filled {
            target.run("dd", &FILLING).expect(1)
        } else {
            // Leaves only a part of the needed memory.
            let part = [&FILLING[..], &["count=1280"]].concat();
            target.run("dd", &part).expect(0)
        };
        go_on(&mut target.0, "sum ");
        target.ipath("snapshot", &["-o", &file]).expect(0);
        if is_filled {
            // An addition of many functions fails completely. Measured functions are unaffected.
            let added = target.ipath("add", &["-f", "libc.so.6!*", "--yes"]);
            let cause = added.expect_error();
            assert!(
                cause.contains("no memory in /dev/shm"),
                "{}",
                added.report()
            );
        }
        target.ipath("detach", &["-o", &file]).expect(0);
        let profile = Profile::read(file.as_ref());
        let losses = &profile.losses;
        assert_eq!(profile.calls("fib"), own);
        assert!(losses.overflow > own / 4, "{losses:?}");
        assert_eq!(losses.overflow_by, ["shared-memory"]);
        assert_eq!((losses.missed, losses.incomplete), (0, 0), "{losses:?}");
        assert_eq!((losses.open, losses.unwound), (Some(0), Some(0)));
        let printed = target.0.stdout();
        assert!(printed.ends_with(&plain), "{printed}");
        target.0.finish("sum ");
    }
}

/// If /dev/shm has too little room for a session, its segment is elsewhere, and no call is missed.
#[test]
fn dev_shm_full_at_first() {
    let (program, plain, own) = in_two_steps("fib", 10);
    let scratch = Scratch::new("shm");
    let file = scratch.file("p.json").display().to_string();
    for room in ["4k", "64k", "200k", "2m"] {
        let mut target = Confined::start(&program, room);
        let options = [&ATTACH[..], &["-f", "fib"]].concat();
        target.ipath("attach", &options).expect(0);
        let left = target.run("ls", &["/dev/shm"]).expect(0).stdout;
        assert_eq!(left, "", "{room}");
        go_on(&mut target.0, "begun");
        go_on(&mut target.0, "sum ");
        target.ipath("detach", &["-o", &file]).expect(0);
        let profile = Profile::read(file.as_ref());
        assert_eq!(profile.calls("fib"), own, "{room}");
        assert_eq!(profile.losses.missed, 0, "{room}: {:?}", profile.losses);
        let printed = target.0.stdout();
        assert!(printed.ends_with(&plain), "{printed}");
        target.0.finish("sum ");
    }
}

/// Takes all further memory from a program. Returns its own number of calls, and the profile.
fn starved(mode: &str, n: u32, metrics: &str) -> (u64, Profile) {
    let (program, plain, own) = in_two_steps(mode, n);
    let scratch = Scratch::new("starved");
    let file = scratch.file("p.json").display().to_string();
    let mut target = Target::start(&program.path, &program.args).await_output("ready");
    let pid = target.pid().to_string();
    let function = own_counts(&plain).into_keys().next().expect("one");
    let (_, attached) = Session::try_attach(target.pid(), &[&function], metrics);
    attached.expect(0);
    go_on(&mut target, "begun");
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let size = size.and_then(|size| size.trim().strip_suffix(" kB"));
    let size: u64 = size.and_then(|size| size.parse().ok()).expect("KiB");
    let limit = format!("--as={}", size << 10);
    let limited = Run::new("prlimit").args(["--pid", &pid, &limit]);
    limited.run().expect(0);
    go_on(&mut target, "sum ");
    Run::ipath(["detach", &pid, "-o", &file]).run().expect(0);
    let printed = target.stdout();
    assert!(printed.ends_with(&plain), "{printed}");
    target.finish("sum ");
    (own, Profile::read(file.as_ref()))
}

#[test]
fn rlimit_as_counts_calls_without_room_as_lost() {
    // No more paths than fit into the table.
    let (own, profile) = starved("fib", 18, "count,wall");
    assert_eq!(profile.calls("fib"), own);
    let losses = &profile.losses;
    assert_eq!((losses.missed, losses.incomplete), (0, 0), "{losses:?}");
    assert!(losses.overflow > own / 2, "{losses:?}");
    assert_eq!(losses.overflow_by, ["no-mapping"]);
    assert!(profile.paths.len() > 90, "{}", profile.paths.len());
    // No walk that is longer than the buffer.
    let (own, profile) = starved("self", 3000, "count");
    assert_eq!(profile.calls("descend"), own);
    let losses = &profile.losses;
    assert_eq!((losses.missed, losses.incomplete), (0, 0), "{losses:?}");
    assert!(losses.overflow > own / 2, "{losses:?}");
    assert_eq!(losses.overflow_by, ["no-mapping"]);
    // No more concurrent activations.
    let (own, profile) = starved("self", 3000, "count,wall");
    let losses = &profile.losses;
    assert_eq!(profile.calls("descend") + losses.missed, own, "{losses:?}");
    assert!(losses.missed > own / 2, "{losses:?}");
    let notes = profile.session.notes.join("\n");
    assert!(notes.contains("not recorded: no memory could be mapped"));
    assert!(!notes.contains("signal handler"), "{notes}");
    assert_eq!((losses.open, losses.unwound), (Some(0), Some(0)));
}

/// Runs a program that counts its own tail calls that end the time of a call. Checks that they are
/// distinguished from returns by function and by path, and that the report does not claim that
/// nothing was lost.
///
/// Functions in `whole` are timed up to the return. Their times equal the program's own, whether
/// `callees` are measured or not.
fn tails_are_told(program: &Program, whole: &[&str], callees: &[&str]) {
    let scratch = Scratch::new("tails");
    let file = scratch.file("p.json");
    let plain = program.plain().expect(0);
    let tails = counts_of(&plain.stdout, "tails");
    let names = tails
        .keys()
        .map(String::as_str)
        .chain(whole.iter().copied());
    let names: Vec<&str> = names.collect();
    let all = [&names, callees].concat();
    for functions in [&names[..], callees, whole, &all] {
        let ours = program.under_ipath(functions, "count,wall", &file);
        assert_eq!(counts_of(&ours.stdout, "tails"), tails);
        let (slept, took) = (
            counts_of(&ours.stdout, "slept"),
            counts_of(&ours.stdout, "took"),
        );
        let profile = Profile::read(&file);
        profile.assert_lossless();
        assert_eq!(
            profile.functions.len(),
            functions.len(),
            "{:?}",
            profile.refused
        );
        for (index, function) in profile.functions.iter().enumerate() {
            let own = tails.get(&function.name).copied().unwrap_or(0);
            assert_eq!(function.tail, own, "{}", function.name);
            let paths = profile.paths.iter().filter(|p| p.function == index);
            assert_eq!(paths.map(|p| p.tail).sum::<u64>(), own, "{}", function.name);
            let wall = function.totals["wall"]["sum"].as_u64().expect("ns");
            if let Some(took) = took.get(&function.name) {
                // The two clocks differ slightly.
                assert!(
                    wall <= took + took / 50,
                    "{}: {wall} of {took} ns",
                    function.name
                );
                assert!(
                    wall >= slept[&function.name],
                    "{}: {wall} ns",
                    function.name
                );
            }
        }
        let report = Run::ipath([OsStr::new("report"), file.as_os_str()]);
        let report = report.run().expect(0).stdout;
        let all: u64 = profile.functions.iter().map(|f| f.tail).sum();
        let says = report.contains(&format!("{all} calls left by a tail call, timed without"));
        assert_eq!(says, all != 0, "{report}");
        assert_eq!(report.contains("Nothing was lost"), all == 0, "{report}");
    }
}

#[test]
fn tail_exits_are_timed_up_to_the_return() {
    let program = Program::new(&program("tail_exits.c"), [""; 0]);
    let whole = ["taken", "twice", "counted", "falls"];
    tails_are_told(&program, &whole, &["slow", "into"]);
}

/// `tail_call_time`: tail calls to a function of the program, and a chain, are timed up to the
/// return. Calls through a pointer and into another library end the time. `list` marks such exits.
#[test]
fn tail_call_time() {
    let program = Program::new(&program("tail_call_time.c"), [""; 0]);
    tails_are_told(&program, &["direct", "chain"], &["slow"]);
    // A thunk is not the callee of an indirect call: it returns through an address that it pushed
    // itself.
    let thunk = program_with("tail_call_time.c", &["-O2", "-mindirect-branch=thunk"]);
    tails_are_told(
        &Program::new(&thunk, [""; 0]),
        &["direct", "chain"],
        &["slow"],
    );
    let path = program.path.as_os_str();
    let listed = Run::ipath([OsStr::new("list"), OsStr::new("--json"), path]);
    let listed = listed.run().expect(0).stdout;
    let listed: serde_json::Value = serde_json::from_str(&listed).expect("JSON");
    for (name, tail_exits) in [
        ("slow", 0),
        ("direct", 1),
        ("chain", 1),
        ("by_pointer", 1),
        ("library", 1),
    ] {
        let functions = listed["functions"].as_array().expect("a list");
        let function = functions
            .iter()
            .find(|f| f["name"] == name)
            .expect("listed");
        let exits = function["exits"].as_array().expect("a list").len();
        assert_eq!(function["tail_exits"], tail_exits, "{function}");
        assert_eq!(exits, 1 + tail_exits, "{function}");
    }
}
