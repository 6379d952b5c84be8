//! Threads that are, or will be, inside the bytes that a patch overwrites.

use ipath_tests::compile::{program, program_with};
use ipath_tests::place::{Scratch, ipath};
use ipath_tests::profile::Profile;
use ipath_tests::program::Program;
use ipath_tests::session::{Session, own_counts};
use ipath_tests::snapshot::ProcessState;
use ipath_tests::stands::stands;
use ipath_tests::target::Target;
use nix::sys::signal::Signal;
use std::process::Command;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(20);

/// Lets the target continue until it has printed `line`.
fn go_on(target: &mut Target, line: &str) {
    target.signal(Signal::SIGUSR1);
    let lines = |t: &Target| t.stdout().lines().any(|l| l == line);
    target.until(LIMIT, &format!("said {line:?}"), lines);
}

/// Ends the target, and checks that it found no error.
fn ends_well(mut target: Target) {
    target.signal(Signal::SIGUSR1);
    let status = target.wait(LIMIT);
    let ok = target.stdout().ends_with("ok\n");
    assert!(status.success() && ok, "{}", target.report());
}

/// Checks that a thread is at each of these places.
fn stand_at(target: &Target, places: &[&str]) {
    let now = stands(target.pid());
    for place in places {
        assert!(now.iter().any(|p| p == place), "no {place} in {now:?}");
    }
}

/// Threads inside the bytes of a patch continue in trampolines, and are in their places again after
/// the session.
#[test]
fn pc_in_window() {
    let places = ["at_entry", "in_entry + 2", "in_exit + 22"];
    let mut target = Target::start(program("pc_in_window.c"), [""; 0]).await_output("ready");
    stand_at(&target, &places);
    let before = ProcessState::of(target.pid());
    let session = Session::attach(target.pid(), &["in_entry", "in_exit", "at_entry"]);
    assert_eq!(
        stands(target.pid()).iter().filter(|p| p.is_empty()).count(),
        3,
        "all of them are in trampolines now"
    );
    go_on(&mut target, "again");

    let profile = session.snapshot();
    let own = own_counts(&target.stdout());
    // Calls under way at the attach are not counted, but the one at its entry is. One more call of
    // each function has begun since.
    for (name, before) in [("in_entry", 1), ("in_exit", 1), ("at_entry", 0)] {
        assert_eq!(profile.calls(name), own[name] - before + 1, "{name}");
    }
    assert_eq!(profile.losses.open, Some(3));
    profile.assert_lossless();
    let profile = session.detach();
    assert_eq!(profile.losses.open, Some(3));
    before.assert_unchanged(target.pid());
    stand_at(&target, &places);
    ends_well(target);
}

fn signal_frames() -> Target {
    let program = program("signal_frame_in_window.c");
    Target::start(program, [""; 0]).await_output("ready")
}

const IN_WINDOW: [&str; 3] = ["in_entry", "in_exit", "at_entry"];

/// Starts `ipath` in the background, and waits until it has mapped its memory and is about to
/// patch.
fn background(target: &mut Target, arguments: &[&str]) -> Target {
    let mut command = Command::new(ipath());
    command.args(arguments);
    let running = Target::spawn(command);
    let maps = format!("/proc/{}/maps", target.pid());
    let mapped = |_: &Target| std::fs::read_to_string(&maps).is_ok_and(|m| m.contains("ipath-"));
    target.until(LIMIT, "been given the segment", mapped);
    std::thread::sleep(Duration::from_millis(200));
    running
}

#[test]
fn signal_frame_in_window_delays_the_attach() {
    let mut target = signal_frames();
    let before = ProcessState::of(target.pid());
    go_on(&mut target, "handling");
    let pid = target.pid().to_string();
    let mut attach = vec!["attach", &pid, "--keep", "--no-tui", "--duration", "1ms"];
    attach.extend(IN_WINDOW.iter().flat_map(|f| ["-f", f]));
    let mut attaching = background(&mut target, &attach);
    assert_eq!(attaching.poll(), None, "{}", attaching.report());
    go_on(&mut target, "returned");
    let attached = attaching.wait(LIMIT).success();
    assert!(attached, "{}", attaching.report());

    go_on(&mut target, "done");
    let session = Session::of(target.pid());
    let profile = session.detach();
    let own = own_counts(&target.stdout());
    for (name, before) in [("in_entry", 1), ("in_exit", 1), ("at_entry", 0)] {
        assert_eq!(profile.calls(name), own[name] - before, "{name}");
    }
    profile.assert_lossless();
    let tries = profile.session.stops.iter().filter(|s| s.why == "attach");
    // One to map its memory, one to find the frames in its way, and one to patch.
    assert!(tries.count() >= 3, "{}", profile.stops().1);
    before.assert_unchanged(target.pid());
    ends_well(target);
}

/// `stale_signal_frame`: an apparent signal frame on the stack of a thread is a remnant of another
/// thread's handler. It does not prevent removal.
#[test]
fn stale_signal_frame() {
    let mut target = Target::start(program("stale_signal_frame.c"), [""; 0]).await_output("ready");
    let before = ProcessState::of(target.pid());
    let session = Session::attach(target.pid(), &["work"]);
    // To plant the frame, the target reads /proc/self/maps.
    target.signal(Signal::SIGUSR2);
    let planted = |t: &Target| t.stdout().lines().any(|l| l == "planted");
    target.until(LIMIT, "planted its frame", planted);
    // If the frame were taken for one in use, this would wait half a minute and then fail.
    let profile = session.detach();
    assert!(profile.calls("work") > 0);
    before.assert_unchanged(target.pid());
    target.signal(Signal::SIGTERM);
    let status = target.wait(LIMIT);
    assert!(status.success(), "{}", target.report());
}

/// A handler that does not return prevents the patch of the function that it interrupts, and of no
/// other. The function can be added once the handler has returned.
#[test]
fn signal_frame_in_window_for_good() {
    let mut target = signal_frames();
    let at_first = ProcessState::of(target.pid());
    go_on(&mut target, "handling");
    let before = ProcessState::of(target.pid());
    let (_, refused) = Session::try_attach(target.pid(), &["in_entry", "in_exit"], "count,wall");
    let line = refused.expect_error();
    assert!(line.contains("in_e"), "names the function: {line}");
    before.assert_unchanged(target.pid());
    // Functions without a thread in the window can be instrumented in the meantime.
    let session = Session::attach(target.pid(), &["in_entry", "call"]);
    let profile = session.snapshot();
    assert!(
        profile.function("call").is_some(),
        "{:?}",
        profile.functions
    );
    let reason = profile.refused[0]["reason"].as_str();
    assert_eq!(profile.refused[0]["name"], "in_entry");
    assert_eq!(reason, Some("occupied"));
    go_on(&mut target, "returned");
    // The refused function can be added later.
    session.add(&["in_entry"]).expect(0);
    go_on(&mut target, "done");
    let profile = session.detach();
    let own = own_counts(&target.stdout());
    assert_eq!(profile.calls("in_entry"), own["in_entry"] - 1);
    assert!(profile.refused.is_empty(), "{:?}", profile.refused);
    at_first.assert_unchanged(target.pid());
    ends_well(target);
}

/// The handlers wait on top of trampolines, which stay until the handlers have returned.
#[test]
fn signal_frame_in_trampoline() {
    let mut target = signal_frames();
    let before = ProcessState::of(target.pid());
    let session = Session::attach(target.pid(), &IN_WINDOW);
    go_on(&mut target, "handling");
    let pid = target.pid().to_string();
    let mut detaching = background(&mut target, &["detach", &pid]);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(detaching.poll(), None, "{}", detaching.report());
    go_on(&mut target, "returned");
    let detached = detaching.wait(LIMIT).success();
    assert!(detached, "{}", detaching.report());
    drop(session);
    before.assert_unchanged(target.pid());
    go_on(&mut target, "done");
    ends_well(target);
}

/// `on_landing`: a signal handler interrupts a thread between the two jumps of a patch. The second
/// jump stays until the handler has returned.
#[test]
fn signal_frame_on_landing() {
    for (place, at_last) in [("same", "hosted"), ("alternate", "last")] {
        let program = program("on_landing.c");
        let arguments = [place, "first", "hosted", "last", "last", at_last];
        let mut target = Target::start(program, arguments).await_output("ready");
        let before = ProcessState::of(target.pid());
        let session = Session::attach(target.pid(), &["first", "hosted", "last"]);
        let mut said = 1;
        let mut next = |target: &mut Target, line: &str| {
            target.signal(Signal::SIGUSR1);
            let is_said = |t: &Target| t.stdout().lines().nth(said).is_some();
            target.until(LIMIT, &format!("said {line:?}"), is_said);
            assert_eq!(target.stdout().lines().nth(said), Some(line));
            said += 1;
        };
        for name in ["first", "hosted", "last"] {
            next(&mut target, &format!("on {name}"));
            session.remove(&[name]).expect(0);
            // A jump that is left in padding obstructs nothing.
            if name != "hosted" {
                session.add(&[name]).expect(0);
                session.remove(&[name]).expect(0);
            }
            next(&mut target, &format!("off {name}"));
            session.add(&[name]).expect(0);
        }
        // Removes the exits, and keeps the entry.
        next(&mut target, "on last");
        session.remove_metrics(&["last"], "wall").expect(0);
        next(&mut target, "off last");
        session.add_metrics(&["last"], "wall").expect(0);

        next(&mut target, &format!("on {at_last}"));
        let pid = target.pid().to_string();
        let mut detaching = background(&mut target, &["detach", &pid]);
        assert_eq!(detaching.poll(), None, "{}", detaching.report());
        next(&mut target, &format!("off {at_last}"));
        let detached = detaching.wait(LIMIT).success();
        assert!(detached, "{}", detaching.report());
        before.assert_unchanged(target.pid());
        ends_well(target);
    }
}

#[test]
fn return_into_window_is_counted_exactly_or_refused() {
    let mut target = Target::start(program("return_into_window.c"), [""; 0]).await_output("ready");
    let before = ProcessState::of(target.pid());
    let instrumented = ["call_first", "call_second", "call_before_pop"];
    // The second could use a pun with bytes of the next function, but these become a jump of their
    // own.
    let refused = [
        ("call_short", "call-in-window"),
        ("call_last", "overlaps-function"),
    ];
    let mut functions = instrumented.to_vec();
    functions.extend(refused.map(|(name, _)| name));
    functions.push("sleeper");
    let session = Session::attach(target.pid(), &functions);
    go_on(&mut target, "again");

    // Of each, one call had begun before and one has begun since.
    let profile = session.snapshot();
    let own = own_counts(&target.stdout());
    for name in instrumented {
        assert_eq!(profile.calls(name), own[name], "{name}");
    }
    let of_all: u64 = own.values().sum();
    assert_eq!(profile.calls("sleeper"), of_all);
    let reasons: Vec<_> = profile
        .refused
        .iter()
        .map(|r| (r["name"].as_str(), r["reason"].as_str()))
        .collect();
    let expected = refused.map(|(name, reason)| (Some(name), Some(reason)));
    assert_eq!(reasons, expected);
    assert_eq!(profile.losses.open, Some(3 + 5));
    assert!(profile.paths.iter().all(|path| path.complete));
    session.detach();
    before.assert_unchanged(target.pid());
    go_on(&mut target, "once more");
    ends_well(target);
}

/// Attaches and detaches a few times while the target calls `functions` in a loop. Checks that the
/// target found no error.
fn survives_rounds(file: &str, argument: &str, functions: &[&str], rounds: u32) {
    let target = Target::start(program(file), [argument]).await_output("ready");
    let before = ProcessState::between(target.pid(), Signal::SIGALRM);
    for _ in 0..rounds {
        for metrics in ["count,wall", "count"] {
            let (session, attached) = Session::try_attach(target.pid(), functions, metrics);
            attached.expect(0);
            std::thread::sleep(Duration::from_millis(100));
            let end = Instant::now() + LIMIT;
            while functions.iter().any(|f| session.snapshot().calls(f) == 0) {
                assert!(Instant::now() < end, "no calls of one of {functions:?}");
            }
            session.detach();
            before.assert_unchanged(target.pid());
        }
    }
    target.finish("ok ");
}

/// `preempted`: signal handlers leave contexts in trampolines, which continue after the session.
#[test]
fn preempted_contexts_continue_after_the_session() {
    survives_rounds("preempted.c", "1000", &["outer", "work"], 5);
}

/// Preemption so frequent that many contexts are left while they record a call, on stacks in one
/// mapping. Other threads must not take those calls for abandoned.
#[test]
fn preempted_amid_recording() {
    for _ in 0..4 {
        survives_rounds("preempted.c", "50", &["outer", "work"], 1);
    }
}

/// `preempted_at_other_depths`: each stack is deeper during the signals than afterwards. Remnants
/// of frames of returned handlers are not taken for frames in use.
#[test]
fn preempted_at_other_depths() {
    for more in ["0", "128", "512", "960"] {
        let program = program("preempted_at_other_depths.c");
        let mut target = Target::start(program, [more]).await_output("ready");
        let before = ProcessState::between(target.pid(), Signal::SIGALRM);
        for round in 1..=3 {
            let session = Session::attach(target.pid(), &["outer", "work"]);
            std::thread::sleep(Duration::from_millis(100));
            target.signal(Signal::SIGUSR1);
            let rounds = |t: &Target| t.stdout().lines().filter(|l| *l == "shallow").count();
            target.until(LIMIT, "left the depths", |t| rounds(t) == round);
            // If a frame were taken for one in use, this would wait half a minute and then fail.
            let profile = session.detach();
            assert!(profile.calls("work") > 0);
            before.assert_unchanged(target.pid());
            target.signal(Signal::SIGUSR1);
        }
        target.finish("ok ");
    }
}

/// `preempted_small`: stacks so small that the stack pointers of different calls are close
/// together. No result is wrong, and every call is recorded or counted as missed.
#[test]
fn preempted_small_stacks_account_for_every_call() {
    const THREADS: u64 = 16;
    for stack in ["-DSTACK=896", "-DSTACK=4096"] {
        let program = program_with("preempted_small.c", &[stack]);
        let program = Program::new(&program, [""; 0]);
        let scratch = Scratch::new("preempted-small");
        let file = scratch.file("p.json");
        for metrics in ["count,wall", "count"] {
            let ours = program.under_ipath(&["outer", "work"], metrics, &file);
            let own = own_counts(&ours.expect(0).stdout)["outer"];
            let profile = Profile::read(&file);
            let recorded = profile.calls("outer") + profile.calls("work") + profile.losses.missed;
            // Each `outer` makes two calls of `work`. Calls under way at the end have made some of
            // them.
            let all = 3 * own..=3 * (own + THREADS);
            assert!(all.contains(&recorded), "{recorded} of {all:?}");
        }
    }
}

/// `stacks_in_a_frame`: the memory below a stack pointer may be another stack.
#[test]
fn stacks_in_a_frame() {
    survives_rounds("stacks_in_a_frame.c", "", &["work"], 5);
}
