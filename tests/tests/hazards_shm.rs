//! A /dev/shm that is full or almost full: access to a session page without memory would end the
//! program by SIGBUS. Each limit is tested with its own program. With `IPATH_TEST_ROUNDS=201` every
//! number of free pages from 0 to 200 is tested.

use ipath_tests::compile::program;
use ipath_tests::dump::family;
use ipath_tests::place::{Scratch, ipath};
use ipath_tests::profile::Profile;
use ipath_tests::racing::rounds;
use ipath_tests::session::own_counts;
use ipath_tests::shm::OwnShm;
use ipath_tests::target::Target;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::time::Duration;

/// The metrics in turn: one column, two, and a value.
const METRICS: [&str; 4] = [
    "count",
    "count,wall,cpu",
    "count,arg1",
    "count,wall,arg1,ret",
];
const FUNCTIONS: [&str; 3] = ["leaf", "spread", "deep"];

/// Numbers of free pages from 0 to 200; small ones are closer together unless all are tested.
fn limits(usual: usize) -> Vec<u64> {
    let last = rounds(usual).clamp(2, 201) - 1;
    let spread = |n: usize| match last {
        200 => n,
        _ => (n * n * 200).div_ceil(last * last),
    };
    (0..=last).map(|n| spread(n) as u64).collect()
}

fn go_on(target: &mut Target, until: &str) {
    target.signal(Signal::SIGUSR1);
    target.until(Duration::from_secs(60), until, |t| {
        t.stdout().contains(until)
    });
}

fn signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid as i32), signal).expect("it runs");
}

fn attach(shm: &OwnShm, target: &Target, options: &[&str], functions: &[&str]) {
    let pid = target.pid().to_string();
    let mut arguments = vec!["attach", &pid, "--keep", "--no-tui", "--duration", "1ms"];
    arguments.extend(options);
    arguments.extend(functions.iter().flat_map(|&f| ["-f", f]));
    shm.ipath(arguments).expect(0);
}

/// Detaches, and checks that the counted and the missed calls are those of the program, which has
/// found no error.
fn assert_counted(shm: &OwnShm, mut target: Target, what: &str) {
    let scratch = Scratch::new("shm");
    let file = scratch.file("p.json");
    let pid = target.pid().to_string();
    go_on(&mut target, "step 3");
    let path = file.display().to_string();
    shm.ipath(["detach", &pid, "-o", &path]).expect(0);
    let profile = Profile::read(&file);
    let own: u64 = own_counts(&target.stdout()).into_values().sum();
    let calls: u64 = FUNCTIONS.iter().map(|f| profile.calls(f)).sum();
    let losses = &profile.losses;
    assert_eq!(calls + losses.missed, own, "{what}: {losses:?}");
    assert!(
        target.stdout().contains("\nbad 0\n"),
        "{what}: {}",
        target.stdout()
    );
    target.finish("ended");
    assert_eq!(shm.names(), ["filling"], "{what}");
    shm.empty();
}

/// The memory runs out before the first call. Each call is counted or missed.
#[test]
fn first_call_with_every_number_of_free_pages() {
    let shm = OwnShm::of("64m");
    let program = program("areas.c");
    for (round, pages) in limits(18).into_iter().enumerate() {
        let metrics = METRICS[round % METRICS.len()];
        let mut target = shm.start(&program, [""; 0]).await_output("ready");
        attach(&shm, &target, &["-m", metrics], &FUNCTIONS);
        shm.leave(pages);
        for step in ["step 1", "step 2"] {
            go_on(&mut target, step);
        }
        assert_counted(&shm, target, &format!("{pages} pages, {metrics}"));
    }
}

/// The memory runs out after some calls, before others that need more. Functions and columns are
/// added, or refused. The program is unharmed.
#[test]
fn growth_and_add_with_every_number_of_free_pages() {
    let shm = OwnShm::of("64m");
    let program = program("areas.c");
    for (round, pages) in limits(10).into_iter().enumerate() {
        let metrics = METRICS[round % METRICS.len()];
        let mut target = shm.start(&program, [""; 0]).await_output("ready");
        attach(&shm, &target, &["-m", "count"], &FUNCTIONS[..1]);
        go_on(&mut target, "step 1");
        shm.leave(pages);
        let pid = target.pid().to_string();
        let added = shm.ipath(["add", &pid, "-f", "deep", "-m", metrics]);
        assert!([0, 1].contains(&added.code()), "{}", added.report());
        go_on(&mut target, "step 2");
        go_on(&mut target, "step 3");
        let what = format!("{pages} pages, {metrics}");
        shm.ipath(["detach", &pid]).expect(0);
        assert!(
            target.stdout().contains("\nbad 0\n"),
            "{what}: {}",
            target.stdout()
        );
        target.finish("ended");
        shm.empty();
    }
}

/// The number of calls of a waiting child: `few` and `many` of areas.c.
const CALLS_OF_A_CHILD: u64 = (3 + 1 + 5 + 1) + (60 * 61 / 2 + 60 + 62 * 2 + 40);

/// Children with their own sessions: the memory runs out when all of them exist and none has made a
/// call. Each call is counted or missed.
#[test]
fn followed_children_with_few_free_pages() {
    let shm = OwnShm::of("8m");
    let program = program("areas.c").display().to_string();
    for pages in limits(5) {
        let scratch = Scratch::new("shm");
        let file = scratch.file("p.json").display().to_string();
        let mut arguments = vec![
            "run",
            "--follow",
            "--no-tui",
            "-m",
            "count,wall",
            "-o",
            &file,
        ];
        arguments.extend(FUNCTIONS.iter().flat_map(|&f| ["-f", f]));
        arguments.extend(["--", &program, "children", "24"]);
        let mut run = shm.start(ipath(), &arguments).await_output("ready");
        let begun = family(run.pid())[1];
        signal(begun, Signal::SIGUSR1);
        let forked = |t: &Target| t.stdout().contains("forked");
        run.until(Duration::from_secs(60), "forked", forked);
        shm.leave(pages);
        signal(begun, Signal::SIGUSR1);
        let done = |t: &Target| t.stdout().contains("step 3");
        run.until(Duration::from_secs(60), "step 3", done);
        assert!(
            run.stdout().contains("\nbad 0\n"),
            "{pages} pages: {}",
            run.report()
        );
        shm.empty();
        signal(begun, Signal::SIGTERM);
        let status = run.wait(Duration::from_secs(60));
        assert!(status.success(), "{pages} pages: {}", run.report());
        // The program prints the parent's calls only.
        let own: u64 = 24 * CALLS_OF_A_CHILD;
        let profile = Profile::read(file.as_ref());
        let calls: u64 = FUNCTIONS.iter().map(|f| profile.calls(f)).sum();
        let losses = &profile.losses;
        assert_eq!(calls + losses.missed, own, "{pages} pages: {losses:?}");
    }
}
