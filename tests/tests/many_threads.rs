//! `many_threads_patch`: a function that 200 threads call without a pause is instrumented and
//! removed, a thousand times.

use ipath_tests::command::Run;
use ipath_tests::compile::program;
use ipath_tests::place::Scratch;
use ipath_tests::profile::Profile;
use ipath_tests::snapshot::ProcessState;
use ipath_tests::target::Target;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::thread::sleep;
use std::time::{Duration, Instant};

const THREADS: &str = "200";
const ROUNDS: u32 = 1000;

/// Gives this thread and its later children priority over all others. Beside 200 busy threads each
/// step would wait a second for a processor.
fn run_first() {
    let priority = libc::sched_param { sched_priority: 1 };
    // SAFETY: sets the scheduling of the calling thread; the argument is live.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority) };
    assert_eq!(
        result,
        0,
        "real-time scheduling: {}",
        std::io::Error::last_os_error()
    );
}

fn ipath(arguments: &[&str]) -> Run {
    Run::ipath(arguments).limit(Duration::from_secs(120))
}

/// The epoch in the target's counter file.
struct Epoch(File, u64);

impl Epoch {
    /// Runs a command between an odd epoch and an even one.
    fn change(&mut self, run: Run) {
        self.next();
        run.run().expect(0);
        self.next();
    }

    fn next(&mut self) {
        self.1 += 1;
        self.0
            .write_all_at(&self.1.to_le_bytes(), 0)
            .expect("write the counter file");
    }
}

#[test]
fn many_threads_patch() {
    let scratch = Scratch::new("hammer");
    let counter = scratch.file("counter").display().to_string();
    let target = Target::start(program("hammer.c"), [THREADS, &counter]).await_output("ready");
    let pid = target.pid().to_string();
    let before = ProcessState::of(target.pid());
    let file = File::options().write(true).open(&counter);
    let mut epoch = Epoch(file.expect("the target's file"), 0);
    run_first();
    let start = Instant::now();
    let session = [
        "attach",
        &pid,
        "-f",
        "work",
        "--keep",
        "--no-tui",
        "--duration",
        "1ms",
    ];
    epoch.change(ipath(&session));
    for _ in 0..ROUNDS {
        epoch.change(ipath(&["remove", &pid, "-f", "work"]));
        epoch.change(ipath(&["add", &pid, "-f", "work"]));
        // Time for calls that must be counted.
        sleep(Duration::from_millis(10));
    }
    let took = start.elapsed();
    let profile = scratch.file("p.json");
    let profile_name = profile.display().to_string();
    epoch.change(ipath(&["detach", &pid, "-o", &profile_name]));
    before.assert_unchanged(target.pid());
    let line = target.finish("ok sure ");
    let numbers: Vec<u64> = line.split(' ').filter_map(|w| w.parse().ok()).collect();
    let [sure, unsure, all] = numbers[..] else {
        panic!("{line}");
    };
    let profile = Profile::read(&profile);
    let calls = profile.calls("work");
    let mut stops: Vec<u64> = profile.session.stops.iter().map(|s| s.ns).collect();
    stops.sort_unstable();
    let at = |part: usize| stops[(stops.len() - 1) * part / 1000] / 1000;
    println!(
        "{ROUNDS} rounds in {took:?}; {} stops, us: median {}, 99 % {}, longest {}",
        stops.len(),
        at(500),
        at(990),
        at(1000)
    );
    println!("{line}; {calls} counted");
    assert!(
        sure <= calls && calls <= sure + unsure && sure > all / 100,
        "{calls} calls counted; {line}"
    );
    profile.assert_lossless();
}
