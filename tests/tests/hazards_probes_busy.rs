//! Functions with many concurrent calls: those of libc that every program calls, those that signal
//! handlers call at any point, and those of threads that live for microseconds.

use ipath_tests::compile::program;
use ipath_tests::each_way::{all_kept, each_way};
use ipath_tests::exact::assert_output_kept;
use ipath_tests::profile::{Profile, count};
use ipath_tests::program::Program;
use ipath_tests::session::own_counts;

fn compiled(name: &str, args: &[&str]) -> Program {
    Program::new(&program(name), args.iter().copied())
}

/// The number of calls of a function with this direct caller.
fn calls_from(profile: &Profile, function: &str, caller: &str) -> u64 {
    let is_from = |path: &&ipath_tests::profile::CallPath| {
        let first = path.stack.first().map(|&frame| &profile.frames[frame]);
        profile.functions[path.function].linkage == function
            && first.is_some_and(|f| f.function.as_deref() == Some(caller))
    };
    let paths = profile.paths.iter().filter(is_from);
    paths.map(|path| count(&path.metrics)).sum()
}

/// Probes functions of libc. The counts of calls from `libc_calls.c` must be exact.
fn profile_libc(functions: &[(&str, &str)]) {
    let program = compiled("libc_calls.c", &[]);
    let plain = program.plain().expect(0);
    let own = own_counts(&plain.stdout);
    let patterns = functions.iter().map(|f| format!("libc.so*!{}", f.0));
    let patterns: Vec<String> = patterns.collect();
    let patterns: Vec<&str> = patterns.iter().map(String::as_str).collect();
    each_way(&program, &patterns, |ours, profile| {
        assert_output_kept(&plain, ours);
        profile.assert_lossless();
        for (function, caller) in functions {
            let calls = calls_from(profile, function, caller);
            assert_eq!(calls, own[*function], "{function}");
        }
    });
}

#[test]
fn profile_malloc_counts_every_call() {
    profile_libc(&[("malloc", "allocates"), ("free", "frees")]);
}

#[test]
fn profile_memcpy_counts_every_call() {
    profile_libc(&[("memcpy", "copies")]);
}

/// Every call of `pthread_mutex_lock` is counted.
#[test]
fn profile_pthread_mutex_lock() {
    profile_libc(&[("pthread_mutex_lock", "locks")]);
}

/// Checks the calls and misses of `signal_storm.c`, whose output differs from run to run.
/// `doubtful` calls may have been left between the probe and the program's own count.
fn storm(stack: &str, doubtful: impl Fn(u64) -> u64) {
    let program = compiled("signal_storm.c", &[stack]);
    program.plain().expect(0);
    each_way(&program, &["tick"], |ours, profile| {
        assert_eq!(ours.code(), 0, "{}", ours.report());
        assert!(ours.stdout.contains("\nok\n"), "{}", ours.report());
        let own = own_counts(&ours.stdout)["tick"];
        let line = |name: &str| {
            let line = ours.stdout.lines().find_map(|l| l.strip_prefix(name));
            line.and_then(|n| n.trim().parse::<u64>().ok())
                .unwrap_or_else(|| panic!("no {name}\n{}", ours.report()))
        };
        let (in_handler, jumps) = (line("in_handler "), line("jumps "));
        let (calls, losses) = (profile.calls("tick"), &profile.losses);
        println!("{stack}: {own} calls, {in_handler} by the handler, {jumps} jumps: {losses:?}");
        assert!(in_handler > 1000, "{in_handler} calls by the handler");
        let seen = calls + losses.missed;
        assert!((own..=own + doubtful(jumps)).contains(&seen), "{seen}");
        // The handler interrupted the recording of a call.
        assert!(losses.missed <= in_handler + doubtful(jumps), "{losses:?}");
        // A jump out of the recording of an entry leaves that call open. Later calls are closed.
        let unreturned = losses.open.unwrap_or(0) + losses.unwound.unwrap_or(0);
        assert!(unreturned <= doubtful(jumps), "{losses:?}");
    });
}

#[test]
fn signal_storm_counts_or_misses_each_call() {
    storm("same", |_| 0);
    storm("alternate", |_| 0);
}

/// Handlers whose stack lies between frames of the interrupted one: each call is counted or missed.
#[test]
fn signal_storm_amid_frames() {
    storm("inner", |_| 0);
}

/// Handlers that leave by a jump: each call is counted, missed, or one of those that the jumps
/// left.
#[test]
fn signal_storm_of_jumps() {
    storm("jump", |jumps| jumps);
    // Each jump leaves two handlers, which may both be inside their calls.
    storm("nested", |jumps| 3 * jumps);
}

#[test]
fn thread_churn_counts_calls_of_every_thread() {
    all_kept(&compiled("thread_churn.c", &["100000"]));
}
