//! `--max-overhead`: functions whose measurement costs too much are only counted or taken out.
//!
//! No verdict here depends on the speed of the machine: the tests check the decisions and the
//! counts, not times.

use ipath_tests::command::Run;
use ipath_tests::compile::program;
use ipath_tests::place::{Scratch, ipath};
use ipath_tests::profile::{CallPath, Function, Profile, count};
use ipath_tests::racing::rounds;
use ipath_tests::session::{Session, listed, own_counts};
use ipath_tests::snapshot::ProcessState;
use ipath_tests::target::Target;
use nix::sys::signal::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

/// The program, with a session from before its first call.
struct Program {
    target: Target,
    session: Session,
}

impl Program {
    /// `tiny` and `medium` are the numbers of their calls for each call of `costly`.
    fn begin(threads: u32, tiny: u32, medium: u32, functions: &[&str]) -> Self {
        let arguments = [threads, tiny, medium].map(|n| n.to_string());
        let target = Target::start_nice(program("throttled.c"), arguments).await_output("ready");
        let (session, attached) = Session::try_attach(target.pid(), functions, "count,wall");
        attached.expect(0);
        target.signal(Signal::SIGUSR1);
        Self {
            target: target.await_output("begun"),
            session,
        }
    }

    /// Watches the session for a second, under a limit in percent if one is given.
    fn watch(&self, limit: Option<f64>) {
        let limit = limit.map(|percent| format!("{percent:.3}%"));
        Run::ipath(["top", &self.target.pid().to_string(), "--no-tui", "-q"])
            .args(["--duration", "1s"])
            .args(limit.iter().flat_map(|limit| ["--max-overhead", limit]))
            .run()
            .expect(0);
    }

    /// Watches the session under a limit until a function is throttled. Returns the profile.
    fn until_throttled(&self, limit: f64, name: &str) -> Profile {
        let begin = Instant::now();
        loop {
            self.watch(Some(limit));
            let profile = self.session.snapshot();
            if function(&profile, name).throttled.is_some() {
                return profile;
            }
            assert!(begin.elapsed() < LIMIT, "{name} is never throttled");
        }
    }

    /// Ends the program and the session. Returns the profile, and the program's own counts.
    fn end(self) -> (Profile, BTreeMap<String, u64>) {
        self.target.signal(Signal::SIGUSR1);
        let target = self.target.await_output("idle");
        let calls = own_counts(&target.stdout());
        let profile = self.session.detach();
        target.finish("ok");
        (profile, calls)
    }
}

fn function<'p>(profile: &'p Profile, name: &str) -> &'p Function {
    let found = profile.function(name);
    found.unwrap_or_else(|| panic!("{name} in {:?}", profile.functions))
}

/// The state of a function: `counted`, `out`, or empty if it is measured in full.
fn how(profile: &Profile, name: &str) -> String {
    let throttled = function(profile, name).throttled.as_ref();
    throttled.map(|t| t.how.clone()).unwrap_or_default()
}

/// The number of calls of a function that have a wall time.
fn timed(profile: &Profile, name: &str) -> u64 {
    let buckets = |path: &CallPath| -> u64 {
        let hist = path.metrics["wall"]["hist"].as_array();
        let n = |bucket: &Value| bucket[1].as_u64();
        hist.into_iter().flatten().filter_map(n).sum()
    };
    let own = |path: &&CallPath| profile.functions[path.function].name == name;
    profile.paths.iter().filter(own).map(buckets).sum()
}

/// The number of calls of a function that did not return while they were timed.
fn unended(profile: &Profile, name: &str) -> u64 {
    let own = |path: &&CallPath| profile.functions[path.function].name == name;
    let ends = |path: &CallPath| path.unwound.unwrap_or(0) + path.open.unwrap_or(0);
    profile.paths.iter().filter(own).map(ends).sum()
}

/// Checks that a function is measured in full, and exactly.
fn assert_exact(profile: &Profile, calls: &BTreeMap<String, u64>, name: &str) {
    assert_eq!(how(profile, name), "", "{name}");
    let totals = &function(profile, name).totals;
    assert_eq!(count(totals), calls[name], "{name}");
    assert_eq!(timed(profile, name), calls[name], "{name}");
}

/// A tiny function goes, and the expensive one beside it stays timed, in several threads too.
#[test]
fn a_tiny_function_is_taken_out_and_the_expensive_one_stays() {
    for threads in [1, 4] {
        let program = Program::begin(threads, 200_000, 0, &["tiny", "costly"]);
        program.until_throttled(5.0, "tiny");
        let status = listed(program.target.pid()).expect("listed");
        assert!(status.contains("throttled"), "{status}");
        program.watch(Some(5.0));
        let (profile, calls) = program.end();
        assert_exact(&profile, &calls, "costly");
        let tiny = function(&profile, "tiny");
        let throttled = tiny.throttled.as_ref().expect("throttled");
        assert_eq!(how(&profile, "tiny"), "out");
        assert_eq!(throttled.calls_not_timed, None);
        assert!(throttled.since_ns < profile.session.elapsed_ns);
        assert!(0 < count(&tiny.totals) && count(&tiny.totals) < calls["tiny"]);
        assert!(profile.session.stops.iter().any(|s| s.why == "throttle"));
    }
}

/// A function is only counted if that is enough. Its count stays exact, and the calls without a
/// time are stated.
#[test]
fn the_count_of_a_function_that_is_only_counted_stays_exact() {
    // Counting costs some two fifths of timing. How much that is depends on the machine, so the
    // limit is derived from what measuring takes here. Each of the two probes of a timed call is
    // taken to cost `UNSEEN` ns more than the runtime sees.
    const UNSEEN: f64 = 3.0;
    let mut tried = Vec::new();
    for part in [0.93, 0.9, 0.96, 0.85, 0.98, 0.8, 0.95, 0.92] {
        let program = Program::begin(2, 0, 500, &["medium", "costly"]);
        program.watch(None);
        let before = program.session.snapshot();
        assert_eq!(how(&before, "medium"), "");
        let overhead = before.session.overhead.as_ref().expect("known");
        let share = overhead.share * (overhead.call_ns + 2.0 * UNSEEN) / overhead.call_ns;
        let profile = program.until_throttled(100.0 * share * part, "medium");
        if how(&profile, "medium") != "counted" {
            tried.push((share, part, how(&profile, "medium")));
            program.end();
            continue;
        }
        let status = listed(program.target.pid()).expect("listed");
        assert!(status.contains("only counted since"), "{status}");
        let (profile, calls) = program.end();
        assert_exact(&profile, &calls, "costly");
        let medium = function(&profile, "medium");
        assert_eq!(count(&medium.totals), calls["medium"]);
        assert_eq!(medium.measured.as_deref(), Some(&["count".to_owned()][..]));
        let throttled = medium.throttled.as_ref().expect("throttled");
        let timed = timed(&profile, "medium");
        let not_timed = throttled.calls_not_timed.expect("known");
        assert!(timed > 0 && not_timed > 0, "{timed} {not_timed}");
        let unended = unended(&profile, "medium");
        assert_eq!(timed + not_timed + unended, calls["medium"]);
        let wall = &medium.totals["wall"];
        let [sum, min, max] = ["sum", "min", "max"].map(|of| wall[of].as_u64().expect(of));
        assert!(min * timed <= sum && sum <= max * timed, "{wall} {timed}");
        return;
    }
    panic!("never only counted: {tried:?}");
}

/// The metrics come back at the user's request, and the function is no longer throttled.
#[test]
fn a_function_that_is_added_again_is_measured_in_full() {
    let program = Program::begin(1, 200_000, 0, &["tiny", "costly"]);
    program.until_throttled(5.0, "tiny");
    let was = count(&function(&program.session.snapshot(), "tiny").totals);
    program.session.add(&["tiny"]).expect(0);
    program.watch(None);
    let (profile, calls) = program.end();
    assert_exact(&profile, &calls, "costly");
    assert_eq!(how(&profile, "tiny"), "");
    assert!(count(&function(&profile, "tiny").totals) > was);
}

/// A program below its limit is measured in full.
#[test]
fn what_is_below_the_limit_is_not_touched() {
    let program = Program::begin(2, 0, 20, &["medium", "costly"]);
    let limit = 60.0;
    program.watch(Some(limit));
    program.watch(Some(limit));
    let (profile, calls) = program.end();
    for name in ["medium", "costly"] {
        assert_exact(&profile, &calls, name);
    }
    profile.assert_lossless();
    let why = profile.session.stops.iter().map(|s| s.why.as_str());
    assert!(!why.collect::<Vec<_>>().contains(&"throttle"));
}

/// Every function of the C library is measured in a program that lasts some 50 ms: it prints what
/// it does without.
#[test]
fn all_of_libc_in_a_short_program() {
    let scratch = Scratch::new("throttled");
    let (words, file) = (scratch.file("words"), scratch.file("p.json"));
    let line = |n: u64| format!("{:x}\n", n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20);
    let text: String = (0..100_000).map(line).collect();
    std::fs::write(&words, text).expect("written");
    let bare = Run::new("sort").arg(&words).run().expect(0);
    for more in [&[][..], &["--follow"]] {
        let sorted = Run::ipath(["run", "-f", "libc.so*!*", "--yes", "--max-overhead", "5%"])
            .args(more)
            .args(["-o".as_ref(), file.as_os_str()])
            .args(["--", "sort"])
            .arg(&words)
            .run()
            .expect(0);
        assert!(sorted.stdout == bare.stdout, "{}", sorted.stderr);
        let profile = Profile::read(&file);
        let throttled = profile.functions.iter().filter(|f| f.throttled.is_some());
        assert!(throttled.count() > 0, "{more:?}: nothing is throttled");
        let report = Run::ipath(["report"]).arg(&file).run().expect(0);
        for said in [
            "throttled to keep the overhead low: ",
            "later calls of throttled functions are not counted: ",
        ] {
            assert!(report.stdout.contains(said), "{said}\n{}", report.report());
        }
    }
}

/// Wrong limits are refused before anything is touched.
#[test]
fn wrong_limits_are_refused() {
    let pid = std::process::id().to_string();
    for limit in ["0%", "abc", "200%", "-5%", ""] {
        let limit = format!("--max-overhead={limit}");
        for command in [&["attach", &pid, "-f", "x"][..], &["top", &pid]] {
            let refused = Run::ipath(command).arg(&limit).run();
            assert_eq!(refused.code(), 2, "{}", refused.report());
            let said = "a share is a number above 0 and up to 100, with %";
            assert!(refused.stderr.contains(said), "{}", refused.report());
        }
        let refused = Run::ipath(["run", "-f", "x", &limit, "--", "true"]).run();
        assert_eq!(refused.code(), 2, "{}", refused.report());
    }
}

/// The command says that nothing keeps the limit after it.
#[test]
fn a_session_that_stays_has_no_limit() {
    let arguments = ["1", "0", "1"];
    let target = Target::start(program("throttled.c"), arguments).await_output("ready");
    let pid = target.pid().to_string();
    let kept = Run::ipath(["attach", &pid, "-f", "costly", "--keep", "--no-tui"])
        .args(["--max-overhead", "5%", "--duration", "1ms"])
        .run()
        .expect(0);
    let said = "--max-overhead holds only while a command watches";
    assert!(kept.stderr.contains(said), "{}", kept.report());
    let top = format!("ipath top {pid} --max-overhead 5%");
    assert!(kept.stderr.contains(&top), "{}", kept.report());
    Session::of(target.pid()).detach();
    target.signal(Signal::SIGUSR1);
    let target = target.await_output("begun");
    target.signal(Signal::SIGUSR1);
    target.await_output("idle").finish("ok");
}

/// SIGKILL ends the command while it throttles. A later command takes the session out, and nothing
/// is left of it.
#[test]
fn a_killed_command_leaves_nothing() {
    let arguments = ["3", "50000", "500"];
    let target = Target::start_nice(program("throttled.c"), arguments).await_output("ready");
    target.signal(Signal::SIGUSR1);
    let target = target.await_output("begun");
    let pid = target.pid().to_string();
    let before = ProcessState::of(target.pid());
    for round in 0..rounds(8) as u64 {
        let mut command = Command::new(ipath());
        command.args(["attach", &pid, "-f", "tiny,medium,costly", "--no-tui", "-q"]);
        command.args(["--max-overhead", "2%", "--duration", "1m"]);
        let mut watching = Target::spawn(command);
        watching.until(LIMIT, "a session", |_| {
            !ProcessState::session_in(target.pid()).is_empty()
        });
        sleep(Duration::from_millis(17 * round));
        watching.signal(Signal::SIGKILL);
        watching.wait(LIMIT);
        let detached = Run::ipath(["detach", &pid]).run();
        // It may have been killed before the session was complete.
        let is_none = detached.stderr.contains("no session");
        assert!(detached.code() == 0 || is_none, "{}", detached.report());
        let after = ProcessState::of(target.pid());
        let left = before.differences(&after);
        assert!(left.is_empty(), "round {round}: {left:?}");
    }
    target.signal(Signal::SIGUSR1);
    target.await_output("idle").finish("ok");
}
