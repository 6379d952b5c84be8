//! What a program may do around, in and with the functions that are probed: every register and flag in
//! use, all of a stack, ways out of a function other than by returning once, its own look at the stack.

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
fn vector_args() {
    all_kept(&compiled("vector_args.c", &[]));
}

#[test]
fn red_zone() {
    all_kept(&compiled("stacks.c", &["red_zone"]));
}

#[test]
fn stack_alignment() {
    all_kept(&compiled("stacks.c", &["alignment"]));
}

#[test]
fn tiny_stack() {
    all_kept(&compiled("stacks.c", &["tiny"]));
}

#[test]
fn minimal_signal_stack() {
    let program = compiled("stacks.c", &["signal"]);
    all_kept(&program);
}

#[test]
fn large_frame() {
    all_kept(&compiled("large_frame.c", &[]));
}

#[test]
fn own_backtrace() {
    all_kept(&compiled("own_backtrace.c", &[]));
}

/// Calls of `unreturned.c` that are left open, and that are closed as unwound, where exits are seen.
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
fn setjmp_twice() {
    unreturned("setjmp", 0, 0, 750);
}

#[test]
fn vfork_child() {
    unreturned("vfork", 0, 0, 0);
}

const MUSL: &str = "-specs=/usr/lib/x86_64-linux-musl/musl-gcc.specs";

/// What children call that run in the parent's memory, by vfork or in posix_spawn, is not the parent's.
#[test]
fn child_in_memory() {
    for flags in [&[][..], &["-static"], &["-static", MUSL]] {
        let path = program_with("children.c", flags);
        all_kept(&Program::new(&path, [""; 0]));
    }
}

/// Nor what Go's children do before they exec, which the parent never does at that place.
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

/// The same where nothing has a name.
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
fn never_returns() {
    // One function has an end, before which the program ends; the other one has none at all.
    unreturned("exit", 5, 1, 0);
    unreturned("quick", 6, 1, 0);
    unreturned("loop", 0, 0, 2);
    unreturned("killed", 128 + 14, 1, 0);
}

/// The verified way of the other tests does find remembered walks, and ends the program where one differs.
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
