//! Metrics of a function that behaves differently on each path. The program itself measures every
//! call, around it and within it. ipath's figure must be between the two, however busy the machine
//! is.

use ipath_tests::command::Run;
use ipath_tests::compile::program;
use ipath_tests::place::Scratch;
use ipath_tests::profile::{CallPath, Profile, count};
use ipath_tests::program::{Program, ipath_arguments};
use ipath_tests::session::counts_of;
use ipath_tests::target::Target;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

const METRICS: &[&str] = &[
    "wall",
    "cpu",
    "blocked",
    "run-delay",
    "page-faults",
    "major-faults",
    "context-switches",
];
/// The file that contains 1 if the kernel accounts for the disk waits of threads created from then
/// on.
const DELAY_ACCOUNTING: &str = "/proc/sys/kernel/task_delayacct";
const CALLERS: [&str; 7] = [
    "path_busy",
    "path_sleep",
    "path_pipe",
    "path_mutex",
    "path_disk",
    "path_touch",
    "path_mixed",
];
/// A tick, the unit of disk waits in /proc.
const TICK_NS: u64 = 10_000_000;

/// A file of 16 MiB that has been written to disk.
fn file_on_disk(path: &Path) {
    fs::write(path, vec![0x5a; 16 << 20]).expect("write in an own folder");
    let file = File::open(path).expect("just written");
    file.sync_all().expect("fsync of an own file");
}

/// The only path of `probed` from this caller.
fn path_from<'a>(profile: &'a Profile, caller: &str) -> &'a CallPath {
    let is_from = |path: &&CallPath| {
        let frame = path.stack.first().map(|&frame| &profile.frames[frame]);
        frame.and_then(|frame| frame.function.as_deref()) == Some(caller)
    };
    let found: Vec<_> = profile.paths.iter().filter(is_from).collect();
    assert_eq!(found.len(), 1, "paths from {caller}");
    found[0]
}

/// The allowed distance of a sum from the program's two sums, in the metric's unit. `around`
/// returns those measured around the calls.
fn slack(metric: &str, around: impl Fn(&str) -> u64, calls: u64) -> u64 {
    let of_clocks = |metric: &str| around(metric) / 100 * 3 + calls * 10_000;
    match metric {
        "page-faults" | "major-faults" | "context-switches" => 0,
        // Two clocks with the same time, which differ in rate and are read one after the other.
        "wall" => around("wall") / 1000 + calls * 2000,
        // A file in ticks rounds down, once and not for each call.
        "block-io" => around("block-io") / 100 * 3 + TICK_NS,
        // The time that the thread did not run has the same error as the time that it ran.
        "blocked" => of_clocks("blocked") + of_clocks("cpu"),
        // The kernel has several accounts of a thread's time. One omits some microseconds of each
        // switch, another one omits interrupts and the time that a hypervisor took.
        _ => of_clocks(metric),
    }
}

/// A description of the difference in one metric on one path, if there is one.
fn difference(
    path: &CallPath,
    metric: &str,
    within: impl Fn(&str) -> u64,
    around: impl Fn(&str) -> u64,
) -> Option<String> {
    let found = &path.metrics[metric];
    let number = |field: &str| {
        let value = found[field].as_u64();
        value.unwrap_or_else(|| panic!("no {field} of {metric} in {}", path.metrics))
    };
    let (sum, calls) = (number("sum"), count(&path.metrics));
    // There is no recursion here, and no other function is measured.
    assert_eq!(sum, number("outermost"), "{metric}: {found}");
    assert_eq!(sum, number("exclusive"), "{metric}: {found}");
    let mean = sum / calls;
    assert!(
        number("min") <= mean && mean <= number("max"),
        "{metric}: {found}"
    );
    let buckets = found["hist"].as_array().expect("a histogram");
    let in_buckets: u64 = buckets.iter().filter_map(|b| b[1].as_u64()).sum();
    assert_eq!(in_buckets, calls, "{metric}: {found}");
    let (within, most) = (within(metric), around(metric));
    let slack = slack(metric, around, calls);
    let is_between = within <= sum + slack && sum <= most + slack;
    (!is_between).then(|| format!("{metric} {sum}, not between {within} and {most}"))
}

/// Delay accounting, enabled while this value exists.
struct DelayAccounting {
    was: String,
}

impl DelayAccounting {
    /// Enables it; None if it is not available.
    fn switched_on() -> Option<Self> {
        let was = fs::read_to_string(DELAY_ACCOUNTING).ok()?;
        fs::write(DELAY_ACCOUNTING, "1").ok()?;
        Some(Self { was })
    }
}

impl Drop for DelayAccounting {
    fn drop(&mut self) {
        let _ = fs::write(DELAY_ACCOUNTING, &self.was);
    }
}

/// Measures a program with so many threads, each of which makes so many calls from each caller.
/// Checks that each sum is between the program's own sums.
fn check(threads: u32, calls: u32, metrics: &[&str]) {
    let scratch = Scratch::new("metrics");
    let (file, disk) = (scratch.file("p.json"), scratch.file("disk"));
    file_on_disk(&disk);
    let mut arguments = vec![
        threads.to_string(),
        calls.to_string(),
        disk.display().to_string(),
    ];
    let has_faults = metrics.contains(&"major-faults");
    arguments.extend(has_faults.then(|| "faults".to_owned()));
    let program = Program::new(&program("metrics.c"), arguments);
    let ours = program.under_ipath(&["probed"], &metrics.join(","), &file);
    let ours = ours.expect(0);
    let [around, within]: [BTreeMap<String, u64>; 2] =
        ["around", "within"].map(|bracket| counts_of(&ours.stdout, bracket));
    let profile = Profile::read(&file);
    profile.assert_lossless();
    profile.assert_complete("stacks of threads");
    let mut wrong = Vec::new();
    for caller in CALLERS {
        let path = path_from(&profile, caller);
        let expected = u64::from(threads * calls);
        assert_eq!(around[&format!("{caller}.count")], expected, "{caller}");
        assert_eq!(count(&path.metrics), expected, "{caller}");
        if caller == "path_touch" && has_faults {
            assert!(within["path_touch.major-faults"] > 0, "none from the disk");
        }
        for metric in metrics {
            let [within, around] = [&within, &around]
                .map(|bracket| |metric: &str| bracket[&format!("{caller}.{metric}")]);
            let (least, most) = (within(metric), around(metric));
            println!("{threads} threads, {caller}: {metric} from {least} to {most}");
            let found = difference(path, metric, within, around);
            wrong.extend(found.map(|text| format!("{threads} threads, {caller}: {text}")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn metrics_of_one_thread() {
    check(1, 32, METRICS);
}

#[test]
fn metrics_of_four_threads() {
    check(4, 8, METRICS);
}

#[test]
fn metrics_of_32_threads() {
    check(32, 4, METRICS);
}

/// The metrics that the assembly paths handle if the thread is not switched out during the call.
const CLOCKS: &[&str] = &["wall", "cpu", "blocked"];

#[test]
fn clocks_of_one_thread() {
    check(1, 32, CLOCKS);
}

#[test]
fn clocks_of_four_threads() {
    check(4, 8, CLOCKS);
}

/// Only one thread: with several waiting threads the kernel adds times that no thread waited, even
/// the time since boot (Linux 6.18, with threads that it takes off the run queue later than they
/// sleep).
#[test]
fn block_io_of_one_thread() {
    let Some(_accounting) = DelayAccounting::switched_on() else {
        println!("{DELAY_ACCOUNTING} cannot be set: nothing to compare with");
        return;
    };
    check(1, 32, &["wall", "block-io"]);
}

/// Each call has CPU time, however short it is and wherever in the recording its thread is switched
/// out. CPU time and blocked time add up to the elapsed time.
#[test]
fn each_call_has_its_cpu_time() {
    const THREADS: u64 = 4;
    const CALLS: u64 = 2_000_000;
    let scratch = Scratch::new("tiny_calls");
    let file = scratch.file("profile.json");
    let program = program("tiny_calls.c");
    let name = file.display().to_string();
    Run::ipath(["run", "-f", "tiny", "-m", "wall,cpu,blocked", "-o", &name])
        .args(["--", &program.display().to_string()])
        .args([THREADS.to_string(), CALLS.to_string()])
        .run()
        .expect(0);
    let profile = Profile::read(&file);
    profile.check_sums();
    for path in &profile.paths {
        let calls = count(&path.metrics);
        let values = |metric: &str| -> u64 {
            let hist = path.metrics[metric]["hist"].as_array().expect("kept");
            hist.iter().filter_map(|bucket| bucket[1].as_u64()).sum()
        };
        for metric in ["wall", "cpu", "blocked"] {
            assert_eq!(values(metric), calls, "{metric}");
        }
        let sum = |metric: &str| path.metrics[metric]["sum"].as_u64().expect("a number");
        let parts = sum("cpu") + sum("blocked");
        // Each is rounded down to a nanosecond.
        let rounding = 2;
        assert!(
            sum("wall").abs_diff(parts) <= rounding,
            "{:?}",
            path.metrics
        );
    }
    assert_eq!(profile.calls("tiny"), THREADS * CALLS);
}

/// A program on the first processor only.
fn pinned(program: &Path) -> Target {
    let mut command = Command::new("taskset");
    command.args(["-c", "0"]).arg(program);
    Target::spawn(command)
}

/// If a thread is preempted while ipath measures, the overhead does not include that time. The CPU
/// time of a function around the measured calls stays its own.
#[test]
fn preempted_while_measuring() {
    let measured = program("preempted_measuring.c");
    let mut hog = Command::new("taskset");
    hog.args(["-c", "0", "sh", "-c", "while :; do :; done"]);
    let hog = Target::spawn(hog);
    let alone = pinned(&measured).await_output("ready");
    sleep(Duration::from_secs(1));
    let line = alone.finish("own ");
    let own: f64 = line
        .rsplit(' ')
        .next()
        .and_then(|n| n.trim().parse().ok())
        .expect("a number");
    let target = pinned(&measured).await_output("ready");
    let scratch = Scratch::new("preempted_while_measuring");
    let file = scratch.file("p.json").display().to_string();
    let pid = target.pid().to_string();
    Run::ipath([
        "attach",
        &pid,
        "-f",
        "mid",
        "-f",
        "leaf",
        "-m",
        "cpu,page-faults",
        "--no-tui",
    ])
    .args(["--duration", "3s", "-o", &file])
    .run()
    .expect(0);
    let profile = Profile::read(Path::new(&file));
    let from = |path: &&CallPath| profile.functions[path.function].name == "mid";
    let mid = profile.paths.iter().filter(from);
    let mid: Vec<&Value> = mid.map(|path| &path.metrics["cpu"]["hist"]).collect();
    // Paths that were open at the attach have no finished call.
    let buckets: Vec<&Value> = mid.iter().filter_map(|h| h.as_array()).flatten().collect();
    let count = |bucket: &Value| bucket[1].as_u64().expect("calls");
    let is_too_short = |bucket: &&Value| {
        let power = bucket[0].as_u64().expect("a power of two");
        (1_u64 << (power + 1)) as f64 <= own / 2.0
    };
    let all: u64 = buckets.iter().copied().map(count).sum();
    let too_short = buckets.iter().copied().filter(is_too_short);
    let too_short: u64 = too_short.map(count).sum();
    assert!(
        all > 2 && too_short <= 1 + all / 20,
        "{too_short} of {all} calls of {own} ns: {mid:?}"
    );
    drop(hog);
    target.finish("own ");
}

/// A call counts all of its thread's CPU time, even if it is the thread's first one and others
/// begin at the same time.
#[test]
fn first_call_has_its_cpu_time() {
    const ROUNDS: u64 = 16;
    const THREADS: u64 = 4;
    let target =
        Target::start(program("first_calls.c"), [THREADS.to_string()]).await_output("ready");
    let scratch = Scratch::new("first_call");
    let file = scratch.file("p.json").display().to_string();
    let pid = target.pid().to_string();
    // One system call and two switches.
    const SHORTEST_NS: u64 = 512;
    let (mut calls, mut without) = (0, 0);
    for round in 0..ROUNDS {
        Run::ipath(["attach", &pid, "-f", "nap", "-m", "cpu", "--no-tui"])
            .args(["--duration", "20ms", "-o", &file])
            .run()
            .expect(0);
        let profile = Profile::read(Path::new(&file));
        for path in &profile.paths {
            let hist = path.metrics["cpu"]["hist"].as_array();
            for bucket in hist.into_iter().flatten() {
                let [power, count] = [0, 1].map(|at| bucket[at].as_u64().expect("a number"));
                calls += count;
                if (1 << power) < SHORTEST_NS {
                    println!("round {round}: {count} of 2^{power} ns");
                    without += count;
                }
            }
        }
    }
    println!("{without} of {calls} calls");
    assert!(calls >= THREADS * ROUNDS, "{calls} calls");
    // If every first call lacked its time, there would be this many. Time that a hypervisor took
    // before a call affects the call's value, and may be larger than it.
    assert!(without < THREADS * ROUNDS / 2, "{without} short calls");
    target.finish("ok");
}

/// Threads that only compute and share one processor wait for nothing else. A delay after the end
/// of a call does not belong to it.
#[test]
fn run_delay_is_all_the_time_off_a_shared_processor() {
    const CALLS: u64 = 2_000;
    let scratch = Scratch::new("delayed");
    let file = scratch.file("p.json");
    let program = Program::new(
        &program("delayed.c"),
        [CALLS, 40_000].map(|n| n.to_string()),
    );
    let metrics = "wall,blocked,run-delay,context-switches";
    let ours = program.under_ipath_as(ipath_arguments(&["work"], metrics, &file));
    ours.expect(0);
    let profile = Profile::read(&file);
    profile.assert_lossless();
    let totals = &profile.functions[0].totals;
    assert_eq!(count(totals), 4 * CALLS);
    let sum = |metric: &str| totals[metric]["sum"].as_u64().expect("a sum");
    let (blocked, delay) = (sum("blocked"), sum("run-delay"));
    assert!(delay <= blocked + blocked / 50, "{delay} of {blocked}");
    assert!(
        delay + blocked / 10 + 5_000_000 >= blocked,
        "{delay} of {blocked}"
    );
}

/// Threads share one processor, and do little else than call a function. Nearly all of their time
/// is time of its calls, whatever the kernel is asked for meanwhile: a thread that is switched out
/// because of such a question waits in its call.
#[test]
fn waits_at_questions_belong_to_calls() {
    const CALLS: u64 = 30_000;
    const STEPS: u64 = 6_000;
    let scratch = Scratch::new("delayed");
    let file = scratch.file("p.json");
    let program = Program::new(&program("delayed.c"), [CALLS, STEPS].map(|n| n.to_string()));
    // The percentage of the time that measuring itself may take. Page faults are asked for twice in
    // each call, of some microseconds.
    for (metrics, percent) in [
        ("wall", 5),
        ("wall,cpu", 5),
        ("wall,blocked", 5),
        ("wall,run-delay,context-switches", 5),
        ("wall,page-faults", 20),
    ] {
        let ours = program.under_ipath_as(ipath_arguments(&["work"], metrics, &file));
        let ours = ours.expect(0);
        let elapsed: u64 = ours.stdout.trim().parse().expect("ns");
        let profile = Profile::read(&file);
        profile.assert_lossless();
        let totals = &profile.functions[0].totals;
        assert_eq!(count(totals), 4 * CALLS);
        let wall = totals["wall"]["sum"].as_u64().expect("a sum");
        println!("{metrics}: {wall} of {elapsed} ns");
        let within = elapsed - elapsed / 100 * percent..=elapsed + elapsed / 100;
        assert!(within.contains(&wall), "{metrics}: {wall} of {elapsed}");
    }
}
