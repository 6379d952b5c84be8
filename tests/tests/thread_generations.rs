//! `thread_generations`: a session's memory depends on the number of threads alive at once, not on
//! the number that ever existed.

use ipath_tests::compile::program;
use ipath_tests::each_way::all_kept;
use ipath_tests::place::Scratch;
use ipath_tests::profile::{Profile, count};
use ipath_tests::program::{Program, ipath_arguments};
use ipath_tests::session::Session;
use ipath_tests::target::Target;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

fn generations(args: &[&str]) -> Program {
    Program::new(&program("thread_generations.c"), args.iter().copied())
}

/// All calls of 30,000 threads, one after the other, are counted and complete.
#[test]
fn thread_generations_one_after_another() {
    all_kept(&generations(&["after", "30000"]));
}

/// All calls of 5,000 threads that live at the same time are counted and complete.
#[test]
fn thread_generations_alive_at_once() {
    all_kept(&generations(&["alive", "5000"]));
}

/// A field of the process's status, in bytes.
fn status(pid: u32, field: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).expect("alive");
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    let number = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    number.unwrap_or_else(|| panic!("no {field} in\n{text}")) * 1024
}

/// The memory of the process's segment, in bytes.
fn segment(pid: u32) -> u64 {
    let start = format!("ipath-{pid}-");
    let mut files = fs::read_dir("/dev/shm").expect("there").flatten();
    let named = files.find(|file| file.file_name().to_string_lossy().starts_with(&start));
    let file = named.expect("a segment").metadata().expect("there");
    file.blocks() * 512
}

/// The number of threads that the program has created.
fn made(target: &Target) -> u64 {
    let text = target.stdout();
    let last = text
        .lines()
        .filter_map(|line| line.strip_prefix("made "))
        .next_back();
    last.and_then(|n| n.parse().ok()).unwrap_or(0)
}

#[test]
fn thread_generations_take_no_more_memory() {
    const THREADS: u64 = 10_000;
    let mut target =
        Target::start(program("thread_generations.c"), ["forever"]).await_output("ready");
    let pid = target.pid();
    let session = Session::attach(pid, &["work", "around"]);
    let wait = |target: &mut Target| {
        let until = made(target) + THREADS;
        let limit = Duration::from_secs(120);
        target.until(limit, "made more threads", |t| made(t) >= until);
    };
    wait(&mut target);
    let before = (segment(pid), status(pid, "VmRSS"), status(pid, "VmSize"));
    wait(&mut target);
    let after = (segment(pid), status(pid, "VmRSS"), status(pid, "VmSize"));
    println!("segment, resident, mapped: {before:?} {after:?}");
    // Memory for a few more threads alive at the same time, far fewer than 2,000.
    const FEW: u64 = 8 << 20;
    assert!(
        after.0 <= before.0 + (256 << 10),
        "segment: {before:?} {after:?}"
    );
    assert!(after.1 <= before.1 + FEW, "resident: {before:?} {after:?}");
    assert!(
        after.2 <= before.2 + 4 * FEW,
        "mapped: {before:?} {after:?}"
    );
    let profile = session.detach();
    assert!(profile.calls("work") > 5 * THREADS);
    assert_eq!(profile.losses.missed, 0);
    target.finish("ok");
}

/// Measures `work` of a program with these options and metrics. Returns the context switches that
/// the program counted in its calls, and the profile.
fn measured<const N: usize>(
    file: &str,
    arguments: [String; N],
    options: &[&str],
    metrics: &str,
) -> (u64, Profile) {
    let scratch = Scratch::new("switches");
    let profile = scratch.file("p.json");
    let program = Program::new(&program(file), arguments);
    let mut ipath = ipath_arguments(&["work"], metrics, &profile);
    ipath.splice(1..1, options.iter().map(|&option| option.to_owned()));
    let ours = program.under_ipath_as(ipath).expect(0);
    let mut lines = ours.stdout.lines();
    let own = lines.find_map(|line| line.strip_prefix("switches "));
    let own = own.and_then(|n| n.parse().ok()).expect("a number");
    let profile = Profile::read(&profile);
    profile.assert_lossless();
    (own, profile)
}

/// A thread has its own metric sources, not those of the ended thread whose slot it uses.
#[test]
fn thread_generations_have_their_own_context_switches() {
    const THREADS: u64 = 100;
    let arguments = [THREADS.to_string()];
    let metrics = "context-switches,run-delay";
    let (own, profile) = measured("switches_by_thread.c", arguments, &[], metrics);
    let totals = &profile.functions[0].totals;
    assert_eq!(count(totals), THREADS);
    let found = totals["context-switches"]["sum"].as_u64().expect("a sum");
    // Every other thread sleeps three times in its call.
    assert!((THREADS / 2 * 3..=own).contains(&found), "{found} of {own}");
}

/// Threads that the C library does not know have their own sources and entries, even if they reuse
/// the control block of an ended thread.
#[test]
fn thread_generations_by_clone() {
    const THREADS: u64 = 30;
    const CALLS: u64 = 20;
    for blocks in ["shared", "own"] {
        let arguments = [THREADS.to_string(), CALLS.to_string(), blocks.to_owned()];
        let metrics = "context-switches,cpu,wall";
        let (own, profile) = measured("raw_threads.c", arguments, &["--per-thread"], metrics);
        let totals = &profile.functions[0].totals;
        let counts: Vec<u64> = profile.paths.iter().map(|p| count(&p.metrics)).collect();
        assert_eq!(counts, vec![CALLS; THREADS as usize], "{blocks}");
        let sum = |metric: &str| totals[metric]["sum"].as_u64().expect("a sum");
        let found = sum("context-switches");
        // Each call waits once, unless its time is over before it sleeps.
        assert!(
            found <= own && found * 2 > own,
            "{blocks}: {found} of {own}"
        );
        // A system call takes more than 100 ns.
        let cpu = sum("cpu");
        assert!(
            cpu > THREADS * CALLS * 100 && cpu < sum("wall"),
            "{blocks}: {cpu}"
        );
    }
}
