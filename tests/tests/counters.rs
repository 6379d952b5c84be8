//! Processor counters by perf's names for them, on machines with and without such counters.

use ipath_tests::command::{Finished, Run};
use ipath_tests::compile::{program, program_with};
use ipath_tests::place::Scratch;
use ipath_tests::profile::{Profile, count};
use ipath_tests::program::{Program, ipath_arguments};
use ipath_tests::target::Target;
use std::fs;
use std::path::Path;

/// True if the kernel found hardware counters.
fn has_counters() -> bool {
    ["cpu", "cpu_core"].iter().any(|name| {
        Path::new("/sys/bus/event_source/devices")
            .join(name)
            .exists()
    })
}

/// The error of `run` for an unavailable metric.
fn refusal(metric: &str) -> String {
    refused(metric).expect_error()
}

/// Runs a program with an unavailable metric, and checks that the program does not run.
fn refused(metric: &str) -> Finished {
    let scratch = Scratch::new("counters");
    let program = Program::new(&program("tiny_calls.c"), ["1", "10"]);
    let finished = program.under_ipath(&["tiny"], metric, &scratch.file("p.json"));
    assert!(!finished.stdout.contains("ok"), "{}", finished.report());
    finished
}

#[test]
fn a_counter_that_is_not_there_is_refused_in_one_line() {
    if has_counters() {
        println!("there are counters here");
        return;
    }
    for name in [
        "instructions",
        "cache-misses",
        "branch-misses",
        "stalled-cycles",
        "L1-dcache-load-misses",
        "r01c2",
        "ref-cycles:u",
        "wall,instructions",
    ] {
        let line = refusal(name);
        let name = name.rsplit(',').next().expect("a name");
        assert!(
            line.starts_with(&format!("ipath: run -m {name}: ")),
            "{line}"
        );
        assert!(line.contains("no such file or directory"), "{line}");
        let here = "available here: count, wall, cpu, blocked, run-delay, block-io, cycles, page-faults, major-faults,";
        assert!(line.contains(here), "{line}");
        // Unavailable counters are not offered.
        assert!(!line.contains(", instructions"), "{line}");
    }
}

/// Attaching refuses a counter that the machine lacks, and the program continues.
#[test]
fn a_program_is_not_attached_to_for_a_counter_that_is_not_there() {
    let target = Target::start(program("busy.c"), ["1", "60"]).await_output("ready");
    let pid = target.pid().to_string();
    let attach = Run::ipath([
        "attach",
        &pid,
        "-f",
        "step",
        "-m",
        "rffffffffffffffff,sched:none",
    ]);
    let line = attach.run().expect_error();
    assert!(line.starts_with("ipath: attach -m "), "{line}");
    target.finish("ok calls ");
}

#[test]
fn names_of_what_no_counter_counts_are_refused() {
    for (name, why) in [
        ("cpu-clock", "the kernel"),
        ("minor-faults", "the kernel"),
        ("sched:sched_switch", "the kernel"),
        ("instructions:k", "no modifier `k`"),
        ("cpu/event=0x3c,umask=z/", "`"),
        (
            "gpu/event=1,umask=2/",
            "`gpu` is not a device with counters on this machine",
        ),
    ] {
        let line = refused(name).expect_usage();
        assert!(
            line.starts_with(&format!("ipath: run -m {name}: ")),
            "{line}"
        );
        assert!(line.contains(why), "{line}");
        assert!(line.contains("available here: count, wall"), "{line}");
    }
    for name in [
        "r",
        "rxyz",
        "r12345678901234567",
        "cycle",
        "L1-dcache",
        "cpu/event=1",
    ] {
        let line = refused(name).expect_usage();
        assert_eq!(
            line,
            format!("ipath: run -m {name}: there is no such metric")
        );
    }
}

#[test]
fn without_system_calls_no_counter_is_read() {
    let scratch = Scratch::new("counters_quiet");
    let path = program("tiny_calls.c").display().to_string();
    let name = scratch.file("p.json").display().to_string();
    let run = Run::ipath([
        "run",
        "-f",
        "tiny",
        "-m",
        "cycles",
        "--no-system-calls",
        "-o",
        &name,
    ]);
    let finished = run.args(["--", &path, "1", "10"]).run();
    assert_eq!(finished.code(), 1, "{}", finished.report());
    let is_said = |line: &str| line.contains("cycles") && line.contains("system calls");
    assert!(
        finished.stderr.lines().any(is_said),
        "{}",
        finished.report()
    );
}

/// perf's names for metrics that ipath measures itself select these metrics.
#[test]
fn metrics_have_the_names_of_perf_too() {
    let scratch = Scratch::new("counters_names");
    let file = scratch.file("p.json");
    let program = Program::new(&program("tiny_calls.c"), ["1", "1000"]);
    program.under_ipath(&["tiny"], "faults,cs", &file).expect(0);
    let profile = Profile::read(&file);
    let names: Vec<&str> = profile.metrics.iter().map(|m| m.name.as_str()).collect();
    assert_eq!(names, ["count", "page-faults", "context-switches"]);
}

/// Without a hardware counter of cycles, `cycles` is the thread's CPU time in ticks of the clock.
/// Each call has a value of `cycles` and of `cpu`.
#[test]
fn cycles_are_reference_cycles_where_there_is_no_counter() {
    const THREADS: u64 = 4;
    const CALLS: u64 = 100_000;
    let scratch = Scratch::new("reference_cycles");
    let file = scratch.file("p.json");
    let arguments = [THREADS.to_string(), CALLS.to_string()];
    let program = Program::new(&program("tiny_calls.c"), arguments);
    let run = program
        .under_ipath(&["tiny"], "wall,cpu,cpu-cycles", &file)
        .expect(0);
    let profile = Profile::read(&file);
    profile.check_sums();
    if has_counters() {
        println!("there is a counter of cycles here");
        return;
    }
    let told = run.stderr.contains("-m cpu-cycles: ") && run.stderr.contains("reference cycles");
    assert!(told, "{}", run.report());
    let noted = |note: &String| note.starts_with("cycles are reference cycles (TSC)");
    assert!(
        profile.session.notes.iter().any(noted),
        "{:?}",
        profile.session.notes
    );
    let [path] = &profile.paths[..] else {
        panic!("one path, not {:?}", profile.paths);
    };
    assert_eq!(count(&path.metrics), THREADS * CALLS);
    for field in ["sum", "outermost", "exclusive", "min", "max"] {
        let number = |metric: &str| path.metrics[metric][field].as_u64().expect("a number");
        let ns =
            u128::from(number("cycles")) * 1_000_000_000 / u128::from(profile.session.clock_hz);
        let cpu = u128::from(number("cpu"));
        // The clock's rate is a whole number of ticks per second.
        assert!(
            ns.abs_diff(cpu) <= 2 + cpu / 1_000_000,
            "{field}: {ns} and {cpu} ns"
        );
        assert!(number("cpu") <= number("wall"), "{:?}", path.metrics);
    }
    let values: u64 = path.metrics["cycles"]["hist"]
        .as_array()
        .expect("kept")
        .iter()
        .filter_map(|bucket| bucket[1].as_u64())
        .sum();
    assert_eq!(values, THREADS * CALLS);
}

/// A counter is reported if ipath can open it but the program's threads cannot.
#[test]
fn threads_that_cannot_have_a_counter_are_told_of() {
    const CALLS: u64 = 1000;
    if has_counters() {
        println!("each thread can have one here");
        return;
    }
    let scratch = Scratch::new("counters_refused");
    let (file, event) = (scratch.file("p.json"), scratch.file("event"));
    fs::write(&event, page_of_counter()).expect("write in an own folder");
    let preload = program_with("simulated_event.c", &["-shared", "-fPIC", "-ldl"]);
    let path = program("tiny_calls.c").display().to_string();
    let calls = CALLS.to_string();
    Run::ipath(ipath_arguments(&["tiny"], "wall,instructions", &file))
        .args([&path, "3", &calls])
        .env("LD_PRELOAD", &preload)
        .env("EVENT", &event)
        .run()
        .expect(0);
    let profile = Profile::read(&file);
    let note = "instructions could not be counted on 3 threads, whose calls have no value for it";
    let notes = &profile.session.notes;
    assert!(notes.iter().any(|said| said == note), "{notes:?}");
    let [path] = &profile.paths[..] else {
        panic!("one path, not {:?}", profile.paths);
    };
    assert_eq!(count(&path.metrics), 3 * CALLS);
    assert_eq!(path.metrics["instructions"]["sum"], 0);
    assert!(path.metrics["instructions"]["hist"].is_null());
    assert!(path.metrics["wall"]["sum"].as_u64() > Some(0));
}

/// The page of a perf event with a counter that programs may read (`capabilities` in
/// include/uapi/linux/perf_event.h).
fn page_of_counter() -> Vec<u8> {
    const CAPABILITIES: usize = 40;
    const CAP_USER_RDPMC: u8 = 1 << 2;
    let mut page = vec![0; 4096];
    page[CAPABILITIES] = CAP_USER_RDPMC;
    page
}

/// A loop with a known number of instructions: a call counts at least that many, and few more.
#[test]
fn instructions_are_those_of_the_function() {
    const CALLS: u64 = 1000;
    let scratch = Scratch::new("instructions");
    let file = scratch.file("p.json");
    if !has_counters() {
        println!("there are no counters here");
        return;
    }
    let program = Program::new(&program("counted_loop.c"), ["2", "1000"]);
    program
        .under_ipath(&["rounds"], "instructions,cycles", &file)
        .expect(0);
    let profile = Profile::read(&file);
    for path in &profile.paths {
        let number = |field: &str| path.metrics["instructions"][field].as_u64();
        let (least, sum) = (
            number("min").expect("counted"),
            number("sum").expect("counted"),
        );
        // Two instructions in each of a million rounds, plus the recording of a call.
        assert!(
            (2_000_000..2_100_000).contains(&least),
            "{:?}",
            path.metrics
        );
        assert!(
            sum >= count(&path.metrics) * 2_000_000,
            "{:?}",
            path.metrics
        );
    }
    assert_eq!(profile.calls("rounds"), 2 * CALLS);
}
