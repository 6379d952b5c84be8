//! Functions that jump through tables, in code without unwind entries: none is refused for that
//! reason, and every call is on the path that gdb finds.

use ipath_tests::command::Run;
use ipath_tests::compare::assert_equal;
use ipath_tests::compile::{program, program_with, source};
use ipath_tests::each_way::{all_kept, counts_kept};
use ipath_tests::exact::{assert_output_kept, assert_paths_are};
use ipath_tests::oracle;
use ipath_tests::place::Scratch;
use ipath_tests::profile::{Profile, count};
use ipath_tests::program::{Program, ipath_arguments};
use ipath_tests::session::{counts_of, own_counts};
use ipath_tests::symbols::sites;
use std::path::Path;

const BARE: [&str; 4] = [
    "-rdynamic",
    "-fno-asynchronous-unwind-tables",
    "-fno-unwind-tables",
    "-fomit-frame-pointer",
];

/// Compares runs of a C program without unwind entries: under ipath with its symbols and with only
/// its exports, and under gdb with the `.debug_frame` section of `-g`. Functions that leave by a
/// jump to a nameless function are refused.
fn compare(source: &str, position: &[&str], functions: &[&str], to_unnamed: &[&str]) {
    let with = |more: &[&str]| program_with(source, &[&BARE[..], position, more].concat());
    let described = Program::new(&with(&["-g"]), [""; 0]);
    let found = oracle::run(&described, &sites(&described.path, "work"));
    println!("{source} {position:?}: {}", found.summary());
    let named = [functions, to_unnamed].concat();
    for (path, functions) in [(with(&[]), &named[..]), (with(&["-s"]), functions)] {
        let program = Program::new(&path, [""; 0]);
        let plain = program.plain().expect(0);
        assert_paths_are(&program, &plain, "work", &found);
        all_complete(&program, functions);
    }
}

/// Runs it with these functions instrumented. None is refused, each call ends, and each path is
/// complete.
fn all_complete(program: &Program, functions: &[&str]) {
    let plain = program.plain().expect(0);
    let scratch = Scratch::new("complete");
    let file = scratch.file("p.json");
    let ours = program.under_ipath(functions, "count,wall", &file);
    assert_output_kept(&plain, &ours);
    let profile = Profile::read(&file);
    assert_eq!(profile.losses.open.unwrap_or(0), 0, "every call has ended");
    profile.assert_lossless();
    profile.assert_complete("every path ends at a root");
}

/// Paths through jumps by tables of absolute addresses equal those of gdb.
#[test]
fn absolute_jump_table() {
    let position = ["-no-pie", "-fno-pie"];
    let functions = ["work", "step", "both"];
    compare(
        "absolute_jump_table.c",
        &position,
        &functions,
        &["jumps", "leaves"],
    );
}

#[test]
fn computed_goto_paths_equal_those_of_gdb() {
    for position in [["-no-pie", "-fno-pie"], ["-pie", "-fPIE"]] {
        compare("computed_goto.c", &position, &["work", "run"], &[]);
    }
}

/// An interpreter with a table of labels. By addresses taken alone, the table would cut its one
/// large function into pieces. A function without known bounds is refused for that reason, not
/// reported as missing.
#[test]
fn interpreter_has_complete_paths_without_unwind_entries() {
    for position in [["-no-pie", "-fno-pie"], ["-pie", "-fPIE"]] {
        compare("interpreter.c", &position, &["work"], &[]);
        let with =
            |more: &[&str]| program_with("interpreter.c", &[&BARE[..], &position, more].concat());
        let place = &sites(&with(&[]), "raise_error")[0];
        let pattern = format!("{}+{:#x}", place.module, place.address);
        let list = Run::ipath(["list"]).arg(with(&["-s"])).arg(pattern);
        let error = list.run().expect_error();
        let reason = "has neither symbols nor unwind entries";
        assert!(error.contains(reason), "{error}");
    }
}

/// Realigned frames of variable size: the caller's frame is found through the saved registers.
#[test]
fn realigned_frames_are_walked_without_unwind_entries() {
    for position in [["-no-pie", "-fno-pie"], ["-pie", "-fPIE"]] {
        for level in ["-O2", "-O1", "-Os"] {
            compare(
                "realigned.c",
                &[&position[..], &[level]].concat(),
                &["work"],
                &[],
            );
        }
    }
}

const STRIPPED: &str = "-ldflags=-s -w";

/// Switches in Go, with symbols, as gdb needs them, and without.
#[test]
fn go_switch_has_complete_paths_with_and_without_symbols() {
    let described = Program::new(&program("go_switch.go"), [""; 0]);
    // If a signal preempts a goroutine at a breakpoint, gdb hits the breakpoint twice.
    let described = described.env("GODEBUG", "asyncpreemptoff=1");
    let plain = described.plain().expect(0);
    let leaf = "main.leaf";
    let mut found = oracle::run(&described, &sites(&described.path, leaf));
    println!("{}", found.summary());
    found.assert_like(&plain);
    for path in &mut found.paths {
        // Past the return address of a goroutine gdb follows a word that is not an address.
        path.stack.retain(|(module, _)| module != "[unmapped]");
    }
    let scratch = Scratch::new("go-switch");
    let file = scratch.file("p.json");
    let ours = described.under_ipath(&[leaf], "count,wall", &file);
    assert_output_kept(&plain, &ours);
    assert_equal(&Profile::read(&file), &found);
    for mode in ["-buildmode=exe", "-buildmode=pie"] {
        for flags in [&[mode][..], &[mode, STRIPPED]] {
            let program = Program::new(&program_with("go_switch.go", flags), [""; 0]);
            all_kept(&program);
            all_complete(&program, &["main.number", "main.word", "main.round"]);
        }
    }
}

/// A stripped Go program, as shipped.
#[test]
fn stripped_gofmt_has_complete_paths() {
    let sources = ["go_switch.go", "moving.go", "recover.go"];
    let sources = sources.map(|name| source(name).display().to_string());
    let program = Program::new(Path::new("/usr/bin/gofmt"), sources);
    let patterns = ["/^go.(scanner|ast|token|parser)[.]/", "main.*"];
    for metrics in ["count,wall", "count"] {
        let scratch = Scratch::new("gofmt");
        let file = scratch.file("p.json");
        let plain = program.plain().expect(0);
        let mut arguments = ipath_arguments(&patterns, metrics, &file);
        let end = arguments.len() - 1;
        arguments.insert(end, "--yes".to_owned());
        let ours = program.under_ipath_as(arguments);
        assert_output_kept(&plain, &ours);
        let profile = Profile::read(&file);
        profile.assert_complete("every path ends at a root of Go's");
        let calls: u64 = profile.functions.iter().map(|f| count(&f.totals)).sum();
        println!("{metrics}: {calls} calls on {} paths", profile.paths.len());
        assert!(calls > 10_000, "{calls}");
        let for_jumps = profile
            .refused
            .iter()
            .filter(|r| r["reason"] == "indirect-jump");
        assert_eq!(for_jumps.count(), 0, "{:?}", profile.refused);
    }
}

/// Every function of a Go program, including its runtime. Goroutines return into the middle of a
/// function that nothing calls.
#[test]
fn everything_in_go() {
    for flags in [&[][..], &[STRIPPED]] {
        let program = Program::new(&program_with("go_switch.go", flags), [""; 0]);
        let plain = program.plain().expect(0);
        for metrics in ["count", "count,wall"] {
            let scratch = Scratch::new("everything");
            let file = scratch.file("p.json");
            let mut arguments = ipath_arguments(&["*"], metrics, &file);
            let end = arguments.len() - 1;
            arguments.insert(end, "--yes".to_owned());
            let ours = program.under_ipath_as(arguments);
            assert_output_kept(&plain, &ours);
            let profile = Profile::read(&file);
            for (name, calls) in own_counts(&plain.stdout) {
                assert_eq!(profile.calls(&name), calls, "{metrics} {name}");
            }
        }
    }
}

/// `preempted_by_signals`: Go's signal handler makes goroutines enter a function at any
/// instruction. No call leads to it, even if there is one before the interrupted instruction.
#[test]
fn preempted_by_signals() {
    let program = Program::new(&program("preempted_by_signals.go"), [""; 0]);
    let scratch = Scratch::new("preempted");
    let file = scratch.file("p.json");
    let preempted = "runtime.asyncPreempt2";
    program.under_ipath(&[preempted], "count", &file).expect(0);
    let profile = Profile::read(&file);
    assert!(profile.calls(preempted) > 100, "{:?}", profile.functions);
    let is_whole = profile.paths.iter().any(|path| path.complete);
    assert!(is_whole, "{:?}", profile.losses);
}

/// `causes`: every incomplete walk is counted under one cause.
#[test]
fn causes_of_incomplete_walks_are_counted() {
    let program = Program::new(&program("causes.c"), [""; 0]);
    let own = counts_of(&program.plain().expect(0).stdout, "causes");
    counts_kept(&program, 0, |profile| {
        assert_eq!(profile.losses.causes, own);
    });
    // The program's first function has no calling code.
    let scratch = Scratch::new("causes");
    let file = scratch.file("p.json");
    program.under_ipath(&["_start"], "count", &file).expect(0);
    let causes = Profile::read(&file).losses.causes;
    assert_eq!(causes, [("unknown-code".to_owned(), 1)].into());
}
