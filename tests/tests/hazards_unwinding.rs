//! Calls that end without a return: by an exception, by a jump, or with their thread.
//!
//! The programs count calls and returns of each function themselves. A call that did not return
//! must be `unwound` as soon as it has ended. Therefore each thread's last call ends in that way,
//! and all threads live until the last call has ended.

use ipath_tests::command::Finished;
use ipath_tests::compile::{program, program_with};
use ipath_tests::each_way::{all_kept, counts_kept};
use ipath_tests::exact::assert_output_kept;
use ipath_tests::place::Scratch;
use ipath_tests::profile::Profile;
use ipath_tests::program::Program;
use ipath_tests::session::{Session, counts_of, own_counts};
use ipath_tests::target::Target;
use nix::sys::signal::Signal;
use std::time::Duration;

const STATIC: &[&str] = &["-static"];
const MUSL: &[&str] = &[
    "-static",
    "-specs=/usr/lib/x86_64-linux-musl/musl-gcc.specs",
];
/// The library has no symbol at the start function of threads.
const DYNAMIC_MUSL: &[&str] = &["-specs=/usr/lib/x86_64-linux-musl/musl-gcc.specs"];
/// Makes every longjmp use `__longjmp_chk`.
const FORTIFIED: &[&str] = &["-D_FORTIFY_SOURCE=2"];

/// Runs a program in each way. For each function, every call that the program did not count as
/// returned or report as open must be unwound. `judge` checks the rest of the profile.
fn unwound(program: &Program, code: i32, mut judge: impl FnMut(&Profile)) {
    let plain = program.plain().expect(code);
    let returns = counts_of(&plain.stdout, "returns");
    let open = counts_of(&plain.stdout, "open");
    counts_kept(program, code, |profile| {
        judge(profile);
        if profile.metrics.len() == 1 {
            return;
        }
        for (index, function) in profile.functions.iter().enumerate() {
            let paths = || profile.paths.iter().filter(|path| path.function == index);
            let found = (
                paths().filter_map(|path| path.unwound).sum::<u64>(),
                paths().filter_map(|path| path.open).sum::<u64>(),
            );
            let name = &function.linkage;
            let open = open.get(name).copied().unwrap_or(0);
            let expected = (profile.calls(name) - returns[name] - open, open);
            assert_eq!(found, expected, "{name}: unwound and open");
        }
    });
}

/// Like [`unwound`], and all paths are complete to their roots.
fn all_unwound(source: &str, flags: &[&str], what: &str, code: i32) {
    println!("{source} {flags:?} {what}");
    let program = Program::new(&program_with(source, flags), [what]);
    unwound(&program, code, |profile| {
        profile.assert_complete("every path is known to its root");
    });
}

#[test]
fn exception_through_ends_calls_as_unwound() {
    all_unwound("exceptions.cc", &[], "through", 0);
    all_unwound("exceptions.cc", STATIC, "through", 0);
}

#[test]
fn exception_rethrow_ends_calls_as_unwound() {
    all_unwound("exceptions.cc", &[], "rethrow", 0);
}

/// Calls that exceptions leave are unwound, even if destructors throw or handle exceptions
/// meanwhile.
#[test]
fn exception_in_dtor() {
    all_unwound("exceptions.cc", &[], "dtor", 0);
}

#[test]
fn noexcept_terminate_accounts_for_every_call() {
    all_unwound("exceptions.cc", &[], "noexcept", 128 + 6);
}

#[test]
fn longjmp_through_ends_calls_as_unwound() {
    for flags in [&[], FORTIFIED, STATIC, MUSL] {
        all_unwound("jumps.c", flags, "calls", 0);
    }
    all_unwound("jumps.c", &[], "stacks", 0);
}

/// Calls that a jump out of a signal handler leaves are unwound.
#[test]
fn siglongjmp_from_handler() {
    for flags in [&[], FORTIFIED, MUSL, DYNAMIC_MUSL] {
        all_unwound("jumps.c", flags, "handler", 0);
    }
    for flags in [&[], STATIC, MUSL] {
        all_unwound("jumps.c", flags, "alternate", 0);
    }
}

/// Calls that pthread_exit(3) leaves are unwound.
#[test]
fn pthread_exit_through() {
    for flags in [&[], STATIC, MUSL] {
        all_unwound("thread_ends.c", flags, "exit", 0);
    }
    all_unwound("thread_ends_cpp.cc", &[], "exit", 0);
    for flags in [&[], STATIC, MUSL] {
        all_unwound("thread_ends.c", flags, "main_exit", 0);
    }
}

/// Calls that a cancellation of their thread leaves are unwound.
#[test]
fn pthread_cancel_through() {
    for flags in [&[], STATIC, MUSL] {
        all_unwound("thread_ends.c", flags, "cancel", 0);
    }
    for flags in [&[], STATIC] {
        all_unwound("thread_ends.c", flags, "asynchronous", 0);
    }
    // musl's signal handler resumes the thread in `__cancel`, as if the interrupted code had called
    // it, with a word from the stack as return address. No unwinder finds the caller.
    let program = Program::new(&program_with("thread_ends.c", MUSL), ["asynchronous"]);
    unwound(&program, 0, |profile| {
        assert_eq!(profile.losses.incomplete, 10, "two cleanups a thread");
    });
    all_unwound("thread_ends_cpp.cc", &[], "cancel", 0);
    for flags in [STATIC, MUSL] {
        all_unwound("thread_ends.c", flags, "main_cancel", 0);
    }
}

/// A fiber keeps its calls on whichever thread it continues. A new thread with the control block of
/// an ended one does not end any of them.
#[test]
fn fibers_of_short_threads() {
    all_kept(&Program::new(&program("fibers_elsewhere.c"), ["threads"]));
}

/// A thread that waits for another thread's lock lets that one run, whatever its priority.
#[test]
fn realtime_fibers_let_the_owner_of_a_lock_run() {
    counts_kept(
        &Program::new(&program("fibers_elsewhere.c"), ["realtime"]),
        0,
        |profile| {
            let losses = &profile.losses;
            let waiting = if profile.metrics.len() == 1 { 0 } else { 2 };
            assert_eq!(losses.open.unwrap_or(0), waiting, "{losses:?}");
            assert_eq!((losses.unwound.unwrap_or(0), losses.incomplete), (0, 0));
        },
    );
}

/// Calls on a stack that spans two mappings are counted, end and have complete paths.
#[test]
fn stack_of_two_mappings() {
    all_kept(&Program::new(&program("fibers_elsewhere.c"), ["mappings"]));
}

/// Checks that no call is open, unwound or on an incomplete path.
fn assert_all_returned(profile: &Profile) {
    let losses = &profile.losses;
    let left = (losses.open.unwrap_or(0), losses.unwound.unwrap_or(0));
    assert_eq!((left, losses.incomplete), ((0, 0), 0), "{losses:?}");
}

/// More goroutines wait in a probed call than there are slots for stack owners. Returning to one
/// must not take time for each of the others.
#[test]
fn parked_goroutines_beyond_the_slots_all_return() {
    let program = Program::new(&program("moving.go"), ["20000", "2", "20"]);
    counts_kept(&program, 0, assert_all_returned);
}

/// Checks the times in `moving.go`: each is one call with its own time.
fn assert_own_times(profile: &Profile) {
    /// The program sleeps for this long in each call of `main.wide`, in ns.
    const NAP: u64 = 2_000_000;
    let wall = |name: &str, part: &str| {
        let function = profile.function(name).expect("it has been called");
        function.totals["wall"][part].as_u64().expect(part)
    };
    let shortest = wall("main.wide", "min");
    assert!(shortest >= NAP, "{shortest} ns");
    // `main.wide` contains everything that runs in `main.deep`. Each path's times are rounded to
    // ns.
    let parts = wall("main.wide", "exclusive") + wall("main.deep", "outermost");
    let difference = wall("main.wide", "sum").abs_diff(parts);
    assert!(
        difference <= 2 * profile.paths.len() as u64,
        "{difference} ns"
    );
    assert_eq!(wall("main.wide", "sum"), wall("main.wide", "outermost"));
}

/// Calls that are open while their goroutine's stack is copied to other memory, by itself or by the
/// collector on another thread. Each is one call with its own time.
#[test]
fn goroutine_stacks_move() {
    let program = Program::new(&program("moving.go"), ["16", "20", "300"]);
    counts_kept(&program, 0, |profile| {
        assert_all_returned(profile);
        if profile.metrics.len() > 1 {
            assert_own_times(profile);
        }
    });
}

const COPYSTACK: &str = "runtime.copystack";
const USED: &str = "used-by-ipath";
/// The warning if ipath cannot follow moving goroutine stacks.
const UNFOLLOWED: &str = "goroutine stacks that move cannot be followed";

fn assert_refused(profile: &Profile) {
    let refused = &profile.refused;
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert_eq!(
        (&refused[0]["name"], &refused[0]["reason"]),
        (&COPYSTACK.into(), &USED.into())
    );
}

/// The function through which ipath follows moving stacks cannot have another probe, because all
/// other times would be wrong. If only calls are counted, it is an ordinary function.
#[test]
fn goroutine_stacks_are_followed_first() {
    let program = Program::new(&program("moving.go"), ["16", "20", "300"]);
    let plain = program.plain().expect(0);
    let scratch = Scratch::new("copystack");
    let file = scratch.file("p.json");
    let all = ["main.deep", "main.wide", COPYSTACK];
    for names in [all, ["runtime.copystac?", "main.wide", "main.deep"]] {
        let ours = program.under_ipath(&names, "count,wall", &file);
        assert_output_kept(&plain, &ours);
        let line = format!("ipath: {COPYSTACK}: not instrumented: {USED}\n");
        assert_eq!(ours.stderr, line, "{}", ours.report());
        let profile = Profile::read(&file);
        assert_refused(&profile);
        assert_all_returned(&profile);
        assert_own_times(&profile);
        std::fs::remove_file(&file).expect("a profile");
    }
    let alone = program.under_ipath(&[COPYSTACK], "count,wall", &file);
    let line = alone.expect_error();
    assert!(line.contains(&format!("{COPYSTACK} ({USED})")), "{line}");
    assert!(alone.hints().contains("-m count"), "{}", alone.report());
    assert!(
        !file.exists() && alone.stdout.is_empty(),
        "{}",
        alone.report()
    );
    let counted = program.under_ipath(&all, "count", &file);
    assert_output_kept(&plain, &counted);
    let profile = Profile::read(&file);
    assert!(profile.refused.is_empty(), "{:?}", profile.refused);
    assert!(profile.calls(COPYSTACK) > 0, "{}", counted.report());
}

/// The function through which ipath follows moving stacks is refused also in an existing session,
/// and if it is requested before any other.
#[test]
fn goroutine_stacks_are_followed_later() {
    let target = Target::start(program("moving.go"), ["16", "20", "300", "wait"]);
    let mut target = target.await_output("ready");
    let refused = |finished: Finished| {
        let line = finished.expect_error();
        assert!(line.contains(&format!("{COPYSTACK} ({USED})")), "{line}");
    };
    let (_, finished) = Session::try_attach(target.pid(), &[COPYSTACK], "count,wall");
    refused(finished);
    let session = Session::attach(target.pid(), &["main.deep"]);
    refused(session.add(&[COPYSTACK]));
    let added = session.add(&["main.wide", COPYSTACK]).expect(0);
    assert!(
        added.stdout.contains("added main.wide\n"),
        "{}",
        added.report()
    );
    refused(session.add(&[COPYSTACK]));
    target.signal(Signal::SIGUSR1);
    let status = target.wait(Duration::from_secs(60));
    assert!(status.success(), "{}", target.report());
    let profile = session.detach();
    for (name, calls) in own_counts(&target.stdout()) {
        assert_eq!(profile.calls(&name), calls, "{name}");
    }
    assert_refused(&profile);
    assert_all_returned(&profile);
    assert_own_times(&profile);
}

/// A program that looks like one of Go before 1.17 is measured with a warning.
#[test]
fn goroutine_stacks_unfollowed() {
    let program = Program::new(&program("copystack.c"), [""; 0]);
    let plain = program.plain().expect(0);
    let scratch = Scratch::new("unfollowed");
    for (metrics, lines) in [("count,wall", 1), ("count", 0)] {
        let file = scratch.file("p.json");
        let ours = program.under_ipath(&["work"], metrics, &file);
        assert_output_kept(&plain, &ours);
        let warnings = ours.stderr.matches(UNFOLLOWED).count();
        assert_eq!(
            (warnings, ours.stderr.lines().count()),
            (lines, lines),
            "{}",
            ours.report()
        );
        assert_eq!(
            Profile::read(&file).calls("work"),
            counts_of(&plain.stdout, "calls")["work"]
        );
    }
    let target = Target::start(program.path.clone(), ["wait"]).await_output("ready");
    let (session, attached) = Session::try_attach(target.pid(), &["work"], "count,wall");
    assert!(attached.expect(0).stderr.contains(UNFOLLOWED));
    let added = session.add(&["more"]).expect(0);
    assert!(added.stderr.contains(UNFOLLOWED), "{}", added.report());
    session.detach();
}

/// A Go function that recovers from a panic returns, in its own way. Functions that the panic
/// passes through do not.
#[test]
fn go_recover_is_a_return_and_its_panic_unwinds() {
    const STRIPPED: &[&str] = &["-ldflags=-s -w"];
    for (flags, numbers) in [
        (&[][..], ["1", "7", "3"]),
        (&[], ["8", "300", "40"]),
        (STRIPPED, ["8", "300", "40"]),
    ] {
        println!("{flags:?} {numbers:?}");
        let program = Program::new(&program_with("recover.go", flags), numbers);
        unwound(&program, 0, |profile| {
            profile.assert_complete("every path is known to its root");
            if profile.metrics.len() > 1 {
                for name in ["main.recovers", "main.nests", "main.loops"] {
                    assert_eq!(profile.ends(name), (profile.calls(name), 0), "{name}");
                }
            }
        });
    }
}

/// Calls that continue on another stack, and return on another thread, have complete paths and end.
#[test]
fn ucontext_switch_follows_calls_to_other_stacks() {
    for threads in ["1", "2", "5"] {
        all_unwound("coroutines.c", &[], threads, 0);
    }
    all_unwound("coroutines.c", STATIC, "3", 0);
    // lld gives static programs no sorted table of unwind entries.
    all_unwound("coroutines.c", &["-static", "-fuse-ld=lld"], "3", 0);
}

/// Fibers of Boost.Context, whose outermost functions return to an address that follows no call.
/// They also continue on threads that are new to the fiber.
#[test]
fn boost_fibers_have_complete_paths() {
    for flags in [&["-lboost_context"][..], &["-lboost_context", "-static"]] {
        println!("{flags:?}");
        all_kept(&Program::new(
            &program_with("boost_fibers.cc", flags),
            [""; 0],
        ));
    }
}
