//! The metrics of functions change while calls are under way: no call is missed, and the measured
//! values are those of the program.

use ipath_tests::command::{Finished, Run};
use ipath_tests::compile::{program, program_with};
use ipath_tests::place::ipath;
use ipath_tests::profile::{CallPath, Function, Profile, count};
use ipath_tests::pty::Pty;
use ipath_tests::racing::rounds;
use ipath_tests::session::{Session, listed, own_counts};
use ipath_tests::target::Target;
use nix::sys::signal::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// The program with a session, before its threads have started to work.
struct Measured {
    target: Target,
    session: Session,
}

impl Measured {
    /// Starts a session with these functions and metrics. A name with an offset is a point.
    fn begin(names: &[&str], metrics: &str, more: &[&str]) -> Self {
        let target =
            Target::start(program_with("remeasured.c", &["-g"]), ["4"]).await_output("ready");
        let pid = target.pid().to_string();
        let option = |name: &str| if name.contains("+0x") { "--at" } else { "-f" };
        Run::ipath(["attach", &pid, "--keep", "--no-tui", "--duration", "1ms"])
            .args(["-m", metrics])
            .args(more)
            .args(names.iter().flat_map(|name| [option(name), name]))
            .run()
            .expect(0);
        target.signal(Signal::SIGUSR1);
        let session = Session::of(target.pid());
        Self {
            target: target.await_output("begun"),
            session,
        }
    }

    /// Waits until the program has called a function more than 20 further times.
    fn go_on(&mut self, name: &str) {
        let was = self.session.snapshot().calls(name);
        let session = &self.session;
        self.target.until(LIMIT, "gone on", |_| {
            session.snapshot().calls(name) > was + 20
        });
    }

    /// Stops the threads and ends the session. Returns the profile, and the program's own counts.
    fn end(self) -> (Profile, BTreeMap<String, u64>) {
        self.target.signal(Signal::SIGUSR1);
        let target = self.target.await_output("idle");
        let calls = own_counts(&target.stdout());
        let profile = self.session.detach();
        target.finish("ok");
        profile.assert_lossless();
        for function in &profile.functions {
            let name = function.name.split('+').next().unwrap_or_default();
            assert_eq!(count(&function.totals), calls[name], "{}", function.name);
        }
        (profile, calls)
    }
}

fn function<'p>(profile: &'p Profile, name: &str) -> &'p Function {
    let found = profile.function(name);
    found.unwrap_or_else(|| panic!("{name} in {:?}", profile.functions))
}

fn paths<'p>(profile: &'p Profile, name: &'p str) -> impl Iterator<Item = &'p CallPath> {
    let own = move |path: &&CallPath| profile.functions[path.function].name == name;
    profile.paths.iter().filter(own)
}

/// The number of calls with a value of a metric, by its histograms.
fn values(metrics: &Value, metric: &str) -> u64 {
    let of = |hist: &str| {
        let buckets = metrics[metric][hist].as_array();
        let buckets = buckets.into_iter().flatten();
        buckets.filter_map(|bucket| bucket[1].as_u64()).sum::<u64>()
    };
    of("hist") + of("hist_negative")
}

/// The number of calls of a function with a value of a metric.
fn values_of(profile: &Profile, name: &str, metric: &str) -> u64 {
    paths(profile, name)
        .map(|path| values(&path.metrics, metric))
        .sum()
}

/// The sum of a metric over a function's paths.
fn sum_of(profile: &Profile, name: &str, metric: &str) -> i64 {
    let paths = paths(profile, name);
    paths
        .map(|path| path.metrics[metric]["sum"].as_i64().expect("a sum"))
        .sum()
}

/// The numbers of unwound and of open calls of a function.
fn ends(profile: &Profile, name: &str) -> (u64, u64) {
    let sum = |of: fn(&CallPath) -> Option<u64>| paths(profile, name).filter_map(of).sum();
    (sum(|path| path.unwound), sum(|path| path.open))
}

/// The metrics of a function, separated by commas; empty if they are those of the session.
fn measured(profile: &Profile, name: &str) -> String {
    let measured = function(profile, name).measured.as_ref();
    measured.map(|names| names.join(",")).unwrap_or_default()
}

/// Metrics of every kind are added to functions that were only counted, and removed. Calls in
/// between have values, and other calls have none.
#[test]
fn metrics_come_and_go_under_load() {
    let mut program = Measured::begin(&["work", "deep", "touch"], "count", &[]);
    for round in 0..rounds(6) {
        let session = &program.session;
        let added = session.add_metrics(&["work", "deep", "touch"], "cpu,page-faults,arg1,ret");
        added.expect(0);
        program.go_on("touch");
        let profile = program.session.snapshot();
        let all = "count,cpu,page-faults,arg1,ret";
        assert_eq!(measured(&profile, "work"), all, "round {round}");
        assert!(!function(&profile, "work").exits.is_empty());
        let session = &program.session;
        session
            .remove_metrics(&["work", "touch"], "cpu,arg1")
            .expect(0);
        program.go_on("touch");
        let session = &program.session;
        session
            .remove_metrics(&["work", "deep", "touch"], "ret,page-faults")
            .expect(0);
        session.remove_metrics(&["deep"], "cpu,arg1").expect(0);
        program.go_on("touch");
        let profile = program.session.snapshot();
        assert_eq!(measured(&profile, "work"), "count", "round {round}");
        assert!(function(&profile, "work").exits.is_empty());
    }
    let (profile, calls) = program.end();
    for name in ["work", "deep", "touch"] {
        for metric in ["cpu", "page-faults", "arg1", "ret"] {
            let values = values_of(&profile, name, metric);
            assert!(
                0 < values && values < calls[name],
                "{name} {metric}: {values}"
            );
        }
        let (unwound, _) = ends(&profile, name);
        assert_eq!(unwound, 0, "{name}");
    }
    // Each call has the same effect: equal values, and one page fault.
    let times = |n: u64| i64::try_from(n).expect("few");
    assert_eq!(
        sum_of(&profile, "work", "arg1"),
        7 * times(values_of(&profile, "work", "arg1"))
    );
    assert_eq!(
        sum_of(&profile, "touch", "page-faults"),
        times(values_of(&profile, "touch", "page-faults"))
    );
    let returned = |path: &CallPath| {
        (
            path.metrics["ret"]["min"].as_i64(),
            path.metrics["ret"]["max"].as_i64(),
        )
    };
    for path in paths(&profile, "work") {
        let (least, most) = returned(path);
        assert!(least >= Some(-23) && most <= Some(28), "{:?}", path.metrics);
    }
}

/// Exits are added and removed a hundred times while four threads run. Each call is counted, and no
/// call has another call's time.
#[test]
fn exits_come_and_go() {
    let program = Measured::begin(&["work", "deep", "slow"], "count", &[]);
    let functions = ["work", "deep", "slow"];
    let rounds = rounds(100) as u64;
    for _ in 0..rounds {
        program.session.add_metrics(&functions, "wall").expect(0);
        program.session.remove_metrics(&functions, "wall").expect(0);
    }
    let (profile, calls) = program.end();
    for name in functions {
        let timed = values_of(&profile, name, "wall");
        let (unwound, open) = ends(&profile, name);
        assert_eq!(unwound, 0, "{name}");
        assert!(timed + open <= calls[name], "{name}: {timed} {open}");
        // When exits are removed, at most one return per frame and thread is missed.
        let most = rounds * 4 * if name == "deep" { 10 } else { 1 };
        assert!(open <= most, "{name}: {open}");
    }
    assert!(values_of(&profile, "work", "wall") > 0);
    // It sleeps for 60 ms, in one thread.
    let elapsed = profile.session.elapsed_ns;
    for path in paths(&profile, "slow").filter(|path| values(&path.metrics, "wall") > 0) {
        let wall = &path.metrics["wall"];
        assert!(wall["min"].as_u64() >= Some(60_000_000), "{wall}");
        assert!(wall["sum"].as_u64() <= Some(elapsed), "{wall} in {elapsed}");
    }
}

/// A call that outlasts its function's exits stays open, even if the exits are added again.
#[test]
fn calls_that_last_longer_stay_open() {
    let mut program = Measured::begin(&["slow"], "count,wall", &[]);
    let times = 5;
    for _ in 0..times {
        program.go_on_slowly();
        program.session.remove_metrics(&["slow"], "wall").expect(0);
        program.go_on_slowly();
        program.session.add_metrics(&["slow"], "wall").expect(0);
    }
    let (profile, calls) = program.end();
    let timed = values_of(&profile, "slow", "wall");
    let (unwound, open) = ends(&profile, "slow");
    assert_eq!(unwound, 0);
    assert!(open <= times && timed > 0, "{open} {timed}");
    assert!(timed + open < calls["slow"], "some were counted alone");
    let wall = &function(&profile, "slow").totals["wall"];
    assert!(wall["min"].as_u64() >= Some(60_000_000), "{wall}");
}

impl Measured {
    /// Waits for one more call of the sleeping function.
    fn go_on_slowly(&mut self) {
        let was = self.session.snapshot().calls("slow");
        let session = &self.session;
        self.target.until(LIMIT, "slept again", |_| {
            session.snapshot().calls("slow") > was + 1
        });
    }
}

/// The target of a tail call is measured, only counted, and measured again, and so is its caller.
/// Each call is counted once, and few are open or unwound.
#[test]
fn tail_calls_to_what_changes() {
    let mut program = Measured::begin(&["tail", "callee"], "count,wall", &[]);
    let session = |program: &Measured| Session::of(program.target.pid());
    for _ in 0..rounds(3) {
        let change = session(&program);
        change.remove_metrics(&["callee"], "wall").expect(0);
        program.go_on("tail");
        change.add_metrics(&["callee"], "wall").expect(0);
        program.go_on("tail");
        change.remove_metrics(&["callee"], "wall").expect(0);
        program.go_on("tail");
        change.remove_metrics(&["tail"], "wall").expect(0);
        change.add_metrics(&["tail"], "wall,arg1").expect(0);
        program.go_on("tail");
        change.remove_metrics(&["tail"], "arg1").expect(0);
        change.add_metrics(&["callee"], "wall").expect(0);
        program.go_on("tail");
    }
    let (profile, calls) = program.end();
    let tail = function(&profile, "tail");
    // Calls that did not end with their tail callee are counted separately.
    assert!(0 < tail.tail && tail.tail < calls["tail"], "{}", tail.tail);
    for name in ["tail", "callee"] {
        let (unwound, open) = ends(&profile, name);
        let timed = values_of(&profile, name, "wall");
        assert!(timed + unwound + open <= calls[name], "{name}");
        // Only calls that were under way during a change.
        assert!(
            unwound + open <= 40 * rounds(3) as u64,
            "{name}: {unwound} {open}"
        );
    }
}

/// Points stay instrumented with exact counts, whatever happens to their function.
#[test]
fn points_stay_in() {
    for metrics in ["count", "count,wall"] {
        let mut program = Measured::begin(&["through", "through+0x0"], metrics, &[]);
        for _ in 0..rounds(3) {
            program
                .session
                .add_metrics(&["through"], "wall,arg1")
                .expect(0);
            program.go_on("through");
            program
                .session
                .remove_metrics(&["through"], "wall,arg1")
                .expect(0);
            program.go_on("through");
        }
        let profile = program.session.snapshot();
        assert_eq!(measured(&profile, "through"), "count");
        program.session.add_metrics(&["through"], "ret").expect(0);
        program.go_on("through");
        let (profile, _) = program.end();
        let timed = values_of(&profile, "through", "wall");
        let returned = values_of(&profile, "through", "ret");
        assert!(timed > 0 && returned > 0, "{metrics}");
        assert_eq!(sum_of(&profile, "through", "ret"), 30 * returned as i64);
        assert!(profile.functions.iter().any(|f| f.point), "{metrics}");
    }
}

/// New functions are measured by the requested metrics only. Without any, they use the session's
/// metrics, or those that they had before.
#[test]
fn functions_come_in_with_metrics_of_their_own() {
    let mut program = Measured::begin(&["work"], "count,wall", &[]);
    let pid = program.target.pid();
    let added = program.session.add_metrics(&["deep"], "arg1").expect(0);
    assert_eq!(added.stdout, "added deep\n");
    program.session.add(&["callee"]).expect(0);
    program.go_on("deep");
    let profile = program.session.snapshot();
    assert_eq!(measured(&profile, "deep"), "count,arg1");
    assert_eq!(measured(&profile, "callee"), "count,wall");
    assert_eq!(values_of(&profile, "deep", "wall"), 0);
    let status = listed(pid).expect("listed");
    assert!(status.contains("count,arg1  in"), "{status}");
    let changed = program.session.add_metrics(&["deep"], "cpu").expect(0);
    assert_eq!(changed.stdout, "measured by count,arg1,cpu: deep\n");
    let already = program
        .session
        .add_metrics(&["deep"], "count,cpu")
        .expect(0);
    assert_eq!(already.stdout, "already in: deep\n");
    program.session.remove(&["deep"]).expect(0);
    program.session.add(&["deep"]).expect(0);
    let profile = program.session.snapshot();
    assert_eq!(measured(&profile, "deep"), "count,arg1,cpu");
    program.session.remove(&["deep", "callee"]).expect(0);
    // Calls made while it was removed are not counted.
    let profile = program.session.detach();
    profile.assert_lossless();
    let since = profile
        .metrics
        .iter()
        .map(|metric| metric.since_ns.is_some());
    assert_eq!(since.collect::<Vec<_>>(), [false, false, true, true]);
    program.target.signal(Signal::SIGUSR1);
    program.target.await_output("idle").finish("ok");
}

/// A function that is added later has been measured for a shorter time, which its shares account
/// for. A function that is added again keeps its time.
#[test]
fn what_is_added_later_has_run_for_less() {
    let target = Target::start_nice(program("busy.c"), ["2", "300"]).await_output("ready");
    let session = Session::attach(target.pid(), &["busy*!step"]);
    let pause = Duration::from_secs(1);
    sleep(pause);
    session.add(&["mix"]).expect(0);
    session.remove(&["step"]).expect(0);
    session.add(&["busy*!step"]).expect(0);
    let profile = session.detach();
    let since = |name: &str| {
        let functions = profile.functions.iter().filter(|f| f.name == name);
        functions.map(|f| f.since_ns).collect::<Vec<_>>()
    };
    assert_eq!(since("step"), [None]);
    let [Some(added)] = since("mix")[..] else {
        panic!("mix since {:?}", since("mix"));
    };
    assert!(added >= pause.as_nanos() as u64, "{added}");
    target.finish("ok calls ");
}

/// If entry and exit are patched with the same bytes, exits cannot be added later. The error says
/// so, and names the alternative.
#[test]
fn functions_without_room_for_exits() {
    let program = Measured::begin(&["small", "work"], "count", &[]);
    let refused = program.session.add_metrics(&["small"], "wall");
    assert_eq!(refused.code(), 1, "{}", refused.report());
    assert!(
        refused.expect_error().contains("exits-overlap-entry"),
        "{}",
        refused.report()
    );
    assert!(
        refused.hints().contains("take it out and add it again"),
        "{}",
        refused.report()
    );
    // The other requested function is added, and the command succeeds.
    let both = program
        .session
        .add_metrics(&["small", "work"], "wall")
        .expect(0);
    assert!(
        both.stdout.contains("measured by count,wall: work"),
        "{}",
        both.report()
    );
    assert!(
        both.stderr
            .contains("small: not changed: exits-overlap-entry"),
        "{}",
        both.report()
    );
    program.session.add_metrics(&["small"], "arg1").expect(0);
    program.session.remove(&["small"]).expect(0);
    program
        .session
        .add_metrics(&["small"], "wall,arg1,ret")
        .expect(0);
    let mut target = program.target;
    let session = program.session;
    let mut profile = session.snapshot();
    target.until(LIMIT, "measured small", |_| {
        profile = session.snapshot();
        values_of(&profile, "small", "ret") > 0
    });
    assert_eq!(profile.functions.len(), 2, "{:?}", profile.functions);
    for metric in ["arg1", "ret"] {
        let values = values_of(&profile, "small", metric) as i64;
        let each = if metric == "arg1" { 41 } else { 42 };
        assert_eq!(sum_of(&profile, "small", metric), each * values, "{metric}");
    }
    session.detach();
    target.signal(Signal::SIGUSR1);
    target.await_output("idle").finish("ok");
}

/// Checks that a command fails with status 1 and one line that contains `why`.
fn assert_refused(finished: &Finished, why: &str) {
    assert_eq!(finished.code(), 1, "{}", finished.report());
    let said = finished.expect_error();
    assert!(said.contains(why), "{said}");
}

/// An impossible change is reported in one line, and changes nothing.
#[test]
fn refusals_change_nothing() {
    let program = Measured::begin(&["work", "through+0x0"], "count,wall", &[]);
    let session = &program.session;
    // The first line contains the time.
    let listed = |program: &Measured| {
        let text = listed(program.target.pid()).expect("listed");
        text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    let was = listed(&program);
    let refusals = [
        (
            session.add_metrics(&["nothing_such"], "cpu"),
            "no function matches",
        ),
        (
            session.add_metrics(&["work"], "arg5"),
            "`work` has 2 arguments",
        ),
        (
            session.remove_metrics(&["work"], "cpu"),
            "work does not measure cpu",
        ),
        (
            session.remove_metrics(&["deep"], "wall"),
            "no instrumented function matches",
        ),
        (
            session.add_metrics(
                &["work"],
                "arg1,ret,arg2,cpu,page-faults,blocked,run-delay,block-io,context-switches",
            ),
            "too many metrics",
        ),
    ];
    for (finished, why) in refusals {
        assert_refused(&finished, why);
        assert_eq!(listed(&program), was, "{why}");
    }
    let pid = program.target.pid().to_string();
    for command in ["add", "remove"] {
        let at_point = Run::ipath([command, &pid, "--at", "through+0x0", "-m", "cpu"]).run();
        let said = at_point.expect_usage();
        assert!(said.contains("points are only counted"), "{said}");
    }
    let slips = [
        (session.add_metrics(&["work"], "nonsense"), "-m nonsense"),
        (session.remove_metrics(&["work"], "count"), "-m count"),
    ];
    for (finished, why) in slips {
        let said = finished.expect_usage();
        assert!(said.contains(why), "{said}");
        assert_eq!(listed(&program), was, "{why}");
    }
    let hint = session.remove_metrics(&["work"], "arg1").hints();
    assert!(hint.contains("work measures count, wall"), "{hint}");
    let profile = session.snapshot();
    assert_eq!(profile.metrics.len(), 2, "{:?}", profile.metrics);
    program.end();
}

/// If the runtime makes no system calls, metrics that need them are refused, as when a session is
/// created.
#[test]
fn without_system_calls() {
    let mut program = Measured::begin(&["work"], "count", &["--no-system-calls"]);
    for metric in ["cpu", "page-faults"] {
        let refused = program.session.add_metrics(&["work"], metric);
        assert_refused(&refused, &format!("{metric} needs system calls"));
    }
    program
        .session
        .add_metrics(&["work"], "wall,arg1")
        .expect(0);
    program.go_on("work");
    program.session.remove_metrics(&["work"], "wall").expect(0);
    let (profile, _) = program.end();
    let arguments = values_of(&profile, "work", "arg1");
    assert!(arguments > 0 && values_of(&profile, "work", "wall") > 0);
    assert_eq!(sum_of(&profile, "work", "arg1"), 7 * arguments as i64);
}

/// The view shows changes by another terminal, and makes changes itself. It writes only changed
/// cells to the terminal, so the test checks the session for the results.
#[test]
fn from_the_view() {
    const CLEAR: &[u8] = b"\x15";
    let program = Measured::begin(&["work"], "count", &[]);
    let pid = program.target.pid().to_string();
    let mut view = Pty::start(ipath(), ["top", &pid, "--interval", "50ms"]);
    view.shows(" help");
    let session = &program.session;
    session.add_metrics(&["work"], "wall").expect(0);
    let until_measured = |view: &mut Pty, metrics: &str| {
        view.until(metrics, |_| {
            measured(&session.snapshot(), "work") == metrics
        });
    };
    // Once the view has read the session, the input contains the function's current metrics.
    let is_there = (0..20).any(|_| {
        view.forget();
        view.send(b"c");
        view.shows("count");
        let is_there = view.seen().contains("count,wall");
        if !is_there {
            view.send(b"\x1b");
            std::thread::sleep(Duration::from_millis(200));
        }
        is_there
    });
    assert!(is_there, "{}", view.report());
    view.send(b",arg1\r");
    until_measured(&mut view, "count,wall,arg1");
    view.forget();
    view.send(b"c");
    view.send(CLEAR);
    view.send(b"arg1,nonsense\r");
    // One of the available metrics.
    view.shows("run-delay");
    view.send(b"c");
    view.send(CLEAR);
    view.send(b"ret\x1b");
    // A pause distinguishes the Escape key from an escape sequence.
    std::thread::sleep(Duration::from_millis(200));
    view.send(b"c");
    view.send(CLEAR);
    view.send(b"arg1\r");
    until_measured(&mut view, "count,arg1");
    view.send(b"q");
    assert_eq!(view.wait(), 0, "{}", view.report());
    let (profile, _) = program.end();
    assert_eq!(values_of(&profile, "work", "ret"), 0);
    assert!(values_of(&profile, "work", "wall") > 0);
}
