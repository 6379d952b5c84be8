//! Unusual programs in probed functions. They use every register and flag, and a stack to its end.
//! They leave a function in other ways than by one return, and inspect their own stack.

use std::collections::BTreeMap;

use ipath_tests::command::Run;
use ipath_tests::compile::{program, program_with};
use ipath_tests::each_way::{all_kept, counts_kept};
use ipath_tests::place::Scratch;
use ipath_tests::profile::{Profile, count};
use ipath_tests::program::Program;
use ipath_tests::session::own_counts;
use nix::sys::signal::Signal;

fn compiled(name: &str, args: &[&str]) -> Program {
    Program::new(&program(name), args.iter().copied())
}

#[test]
fn vector_args_are_preserved() {
    all_kept(&compiled("vector_args.c", &[]));
}

#[test]
fn red_zone_is_preserved() {
    all_kept(&compiled("stacks.c", &["red_zone"]));
}

#[test]
fn stack_alignment_is_preserved() {
    all_kept(&compiled("stacks.c", &["alignment"]));
}

#[test]
fn tiny_stack_is_enough_for_probes() {
    all_kept(&compiled("stacks.c", &["tiny"]));
}

/// A signal stack of the smallest size is large enough for probes.
#[test]
fn minimal_signal_stack() {
    let program = compiled("stacks.c", &["signal"]);
    all_kept(&program);
}

#[test]
fn large_frame_on_the_path_is_walked() {
    all_kept(&compiled("large_frame.c", &[]));
}

#[test]
fn own_backtrace_is_unchanged() {
    all_kept(&compiled("own_backtrace.c", &[]));
}

/// Checks the calls of `unreturned.c` that are left open, and those closed as unwound, if exits are
/// measured.
fn unreturned(what: &str, code: i32, open: u64, unwound: u64) {
    counts_kept(&compiled("unreturned.c", &[what]), code, |profile| {
        let losses = &profile.losses;
        let has_exits = profile.metrics.iter().any(|m| m.name == "wall");
        let expected = has_exits.then_some((open, unwound));
        assert_eq!(losses.open.zip(losses.unwound), expected, "{losses:?}");
        assert_eq!(losses.incomplete, 0);
    });
}

#[test]
fn setjmp_twice_counts_one_call_and_one_return() {
    unreturned("setjmp", 0, 0, 750);
}

#[test]
fn vfork_child_is_not_counted_as_its_parent() {
    unreturned("vfork", 0, 0, 0);
}

const MUSL: &str = "-specs=/usr/lib/x86_64-linux-musl/musl-gcc.specs";

/// Calls of a child that runs in the parent's memory (vfork, posix_spawn) are not counted as the
/// parent's.
#[test]
fn child_in_memory() {
    for flags in [&[][..], &["-static"], &["-static", MUSL]] {
        let path = program_with("children.c", flags);
        all_kept(&Program::new(&path, [""; 0]));
    }
}

/// Calls of Go's children before they exec are not counted either. The parent never makes these.
#[test]
fn child_in_memory_of_go() {
    const CALLS: &str = "syscall.RawSyscall";
    let program = Program::new(&program("children.go"), [""; 0]);
    let scratch = Scratch::new("children");
    let file = scratch.file("p.json");
    let ours = program.under_ipath(&["main.tick", CALLS], "count,wall", &file);
    let own = own_counts(&ours.expect(0).stdout)["main.tick"];
    let profile = Profile::read(&file);
    assert_eq!(profile.calls("main.tick"), own);
    assert!(profile.calls(CALLS) >= own, "the parent's");
    let in_child = |frame: &usize| {
        let function = profile.frames[*frame].function.as_deref();
        function.is_some_and(|name| name.starts_with("syscall.forkAndExecInChild"))
    };
    let of_children = profile
        .paths
        .iter()
        .filter(|p| p.stack.iter().any(in_child));
    let of_children: u64 = of_children.map(|p| count(&p.metrics)).sum();
    assert_eq!(of_children, 0);
}

/// Like [`child_in_memory`], without symbols.
#[test]
fn child_in_memory_without_names() {
    for flags in [&["-static"][..], &["-static", MUSL]] {
        let named = program_with("children.c", flags);
        let stripped = program_with("children.c", &[flags, &["-s"]].concat());
        let symbols = Run::new("nm").arg(&named).run().expect(0).stdout;
        let own = own_counts(&Program::new(&named, [""; 0]).plain().stdout);
        let address = |name: &str| {
            let of_name = |line: &str| {
                let mut words = line.split_whitespace();
                let (address, _, symbol) = (words.next()?, words.next()?, words.next()?);
                (symbol == name).then(|| u64::from_str_radix(address, 16).expect("hexadecimal"))
            };
            symbols.lines().find_map(of_name).expect("a symbol")
        };
        let counts: BTreeMap<u64, u64> = own.iter().map(|(n, &c)| (address(n), c)).collect();
        let module = stripped.file_name().expect("a name").to_string_lossy();
        let patterns = counts.keys().map(|at| format!("{module}+{at:#x}"));
        let patterns: Vec<String> = patterns.collect();
        let patterns: Vec<&str> = patterns.iter().map(String::as_str).collect();
        let scratch = Scratch::new("children");
        let file = scratch.file("p.json");
        let program = Program::new(&stripped, [""; 0]);
        program.under_ipath(&patterns, "count,wall", &file);
        let profile = Profile::read(&file);
        profile.assert_lossless();
        let found = profile
            .functions
            .iter()
            .map(|f| (f.address, count(&f.totals)));
        assert_eq!(found.collect::<BTreeMap<_, _>>(), counts);
        let losses = &profile.losses;
        assert_eq!((losses.open, losses.unwound), (Some(0), Some(0)));
    }
}

#[test]
fn never_returns_leaves_calls_open_or_unwound() {
    // One function could return, but the program ends first. The other one has no return.
    unreturned("exit", 5, 1, 0);
    unreturned("quick", 6, 1, 0);
    unreturned("loop", 0, 0, 2);
    unreturned("killed", 128 + 14, 1, 0);
}

/// Verification in the other tests really uses remembered walks, and a difference ends the program.
#[test]
fn verifying_remembered_walks_can_fail() {
    let program = compiled("own_backtrace.c", &[]).env("IPATH_VERIFY_WALKS", "distrust");
    let plain = program.plain().expect(0);
    let own = own_counts(&plain.stdout);
    let names: Vec<&str> = own.keys().map(String::as_str).collect();
    let scratch = Scratch::new("distrust");
    let file = scratch.file("p.json");
    let killed = 128 + Signal::SIGILL as i32;
    program
        .under_ipath(&names, "count,wall", &file)
        .expect(killed);
}
