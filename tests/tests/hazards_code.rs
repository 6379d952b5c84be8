//! Code that is hard to move or to name: operands that depend on an instruction's address, compiler
//! output at a function's start, several functions with one name, several names of one function.

use ipath_tests::command::Run;
use ipath_tests::compile::{program, program_with, source};
use ipath_tests::place::Scratch;
use ipath_tests::profile::{Function, Profile, count};
use ipath_tests::program::Program;
use ipath_tests::session::{Session, own_counts};
use ipath_tests::snapshot::ProcessState;
use ipath_tests::symbols::sites;
use ipath_tests::target::Target;
use nix::sys::signal::Signal;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A program that did its work with functions instrumented, with the same output as without.
struct Survived {
    /// Everything that it printed.
    printed: String,
    profile: Profile,
    /// The functions that were refused, with the reasons.
    refused: BTreeMap<String, String>,
}

/// Starts a program that waits for SIGUSR1 once it is ready, and instruments functions while it
/// waits. Compares its later output with that of a plain run, and its own counts with the profile.
fn survives(program: &Path, functions: &[&str]) -> Survived {
    let start = || Target::start(program, [""; 0]).await_output("ready");
    let mut alone = start();
    go_on(&mut alone);
    let alone = end(alone);
    let mut target = start();
    let session = Session::attach(target.pid(), functions);
    go_on(&mut target);
    let mut profile = session.detach();
    assert_eq!(end(target), alone);
    let refused = std::mem::take(&mut profile.refused);
    let refused = refused
        .iter()
        .map(|r| (text(&r["name"]), text(&r["reason"])));
    let refused: BTreeMap<String, String> = refused.collect();
    profile.assert_lossless();
    for (name, calls) in own_counts(&alone) {
        assert_ne!(
            profile.function(&name).is_some(),
            refused.contains_key(&name),
            "{name} is neither in nor refused"
        );
        if !refused.contains_key(&name) {
            assert_eq!(profile.calls(&name), calls, "{name}");
        }
    }
    Survived {
        printed: alone,
        profile,
        refused,
    }
}

/// Ends the program, and returns everything that it printed.
fn end(mut target: Target) -> String {
    target.signal(Signal::SIGTERM);
    let status = target.wait(Duration::from_secs(20));
    assert!(status.success(), "{}", target.report());
    target.stdout()
}

/// Lets the program do its work, and returns everything that it has printed by then.
fn go_on(target: &mut Target) -> String {
    target.signal(Signal::SIGUSR1);
    let limit = Duration::from_secs(20);
    target.until(limit, "done its work", |t| t.stdout().contains("\nok"));
    target.stdout()
}

/// A hexadecimal number with or without 0x.
fn hexadecimal(text: &str) -> u64 {
    let digits = text.trim_start_matches("0x");
    u64::from_str_radix(digits, 16).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Functions with operands relative to an instruction's address are counted exactly. They are
/// refused only if a moved instruction could not reach the operand.
#[test]
fn rip_relative_far() {
    let patterns = ["far_*", "own_*", "short_*", "loop*", "jrcxz_*", "jecxz_*"];
    let refused = survives(&program("rip_far.c"), &patterns).refused;
    // No form through a register exists for instructions that also use the stack pointer, and for
    // jumps.
    let expected = [
        ("far_call", "out-of-reach"),
        ("far_pop", "out-of-reach"),
        ("far_push", "out-of-reach"),
        ("far_tail", "out-of-reach"),
        ("own_jump", "indirect-jump"),
    ];
    let expected = expected.map(|(name, reason)| (name.to_owned(), reason.to_owned()));
    assert_eq!(refused, BTreeMap::from(expected));
}

const STARTS: [&str; 9] = [
    "empty", "constant", "plain", "looping", "chooses", "tail", "through", "nested", "many",
];

/// The disassembly of a function by objdump.
fn disassembly(program: &Path, function: &str) -> String {
    let wanted = format!("--disassemble={function}");
    let run = Run::new("objdump").args(["--no-show-raw-insn", &wanted]);
    run.arg(program).run().expect(0).stdout
}

#[test]
fn endbr64_start_is_patched_in_a_waiting_program() {
    let program = program_with("starts.c", &["-fcf-protection=full"]);
    assert!(disassembly(&program, "empty").contains("endbr64"));
    assert_eq!(survives(&program, &STARTS).refused, BTreeMap::new());
}

#[test]
fn patchable_entry_is_patched_in_a_waiting_program() {
    for (flag, no_ops) in [
        ("-fpatchable-function-entry=5", 5),
        ("-fpatchable-function-entry=5,2", 3),
    ] {
        // With endbr64 the no-ops follow it.
        for protection in ["-fcf-protection=none", "-fcf-protection=full"] {
            let program = program_with("starts.c", &[flag, protection]);
            let code = disassembly(&program, "empty");
            let found = code.lines().filter(|l| l.ends_with("\tnop")).count();
            assert!(found >= no_ops, "{code}");
            assert_eq!(
                survives(&program, &STARTS).refused,
                BTreeMap::new(),
                "{flag}"
            );
        }
    }
}

#[test]
fn pg_entry_is_patched_in_a_waiting_program() {
    // Linked without -pg, which would add its own start code and write a file at the end.
    let flags = ["-c", "-fno-omit-frame-pointer", "-pg", "-mfentry"];
    let object = program_with("starts.c", &flags).display().to_string();
    let program = program_with("fentry.c", &[&object]);
    let code = disassembly(&program, "empty");
    assert!(code.contains("<__fentry__>"), "{code}");
    let mut functions = STARTS.to_vec();
    functions.push("__fentry__");
    let survived = survives(&program, &functions);
    assert_eq!(survived.refused, BTreeMap::new());
    // The program began to count before ipath.
    let fentries = survived.printed.split_once("fentries ");
    let all: u64 = fentries
        .and_then(|f| f.1.trim().parse().ok())
        .expect("a count");
    let calls = survived.profile.calls("__fentry__");
    let least = own_counts(&survived.printed).values().sum::<u64>();
    assert!(least <= calls && calls <= all, "{calls} of {all}");
}

/// Without free memory near the code `attach` refuses the function and leaves the process
/// unchanged.
#[test]
fn no_near_memory() {
    let program = program("no_near.c");
    let mut target = Target::start(&program, [""; 0]).await_output("ready");
    let before = ProcessState::of(target.pid());
    let (_, refused) = Session::try_attach(target.pid(), &["work"], "count,wall");
    let line = refused.expect_error();
    assert!(line.contains("work (no-near-memory)"), "{line}");
    before.assert_unchanged(target.pid());
    go_on(&mut target);
    target.finish("ok ");
}

/// With a single hole near the code the runtime is mapped there.
#[test]
fn no_near_memory_but_in_one_hole() {
    let mut target = Target::start(program("no_near.c"), ["256"]).await_output("ready");
    let hole = target.stderr();
    let numbers = hole.split_whitespace().skip(1).map(hexadecimal);
    let numbers: Vec<u64> = numbers.collect();
    let [start, end] = numbers[..] else {
        panic!("{hole}");
    };
    let before = ProcessState::of(target.pid());
    Session::attach(target.pid(), &["work"]).detach();
    before.assert_unchanged(target.pid());
    let session = Session::attach(target.pid(), &["work"]);
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", target.pid())).expect("maps");
    let in_hole = |line: &&str| {
        let range = line.split(' ').next().and_then(|r| r.split_once('-'));
        let (from, until) = range.expect("a range");
        start <= hexadecimal(from) && hexadecimal(until) <= end && line.contains(" r-xp ")
    };
    assert!(
        maps.lines().any(|l| in_hole(&l)),
        "{start:x}-{end:x}\n{maps}"
    );
    let printed = go_on(&mut target);
    let profile = session.detach();
    profile.assert_lossless();
    assert_eq!(profile.calls("work"), own_counts(&printed)["work"]);
    target.finish("ok ");
}

fn names() -> PathBuf {
    let more = source("names_more.c").display().to_string();
    program_with("names.c", &["-g", &more])
}

/// The functions of `ipath list FILE PATTERN… --json`.
fn listed(file: &Path, patterns: &[&str]) -> Vec<Value> {
    let run = Run::ipath(["list"]).arg(file).args(patterns).arg("--json");
    let listing = run.run().expect(0).json();
    listing["functions"].as_array().expect("functions").clone()
}

#[test]
fn alias_selects_the_function_by_each_of_its_names() {
    let program = names();
    let all = ["first_name", "second_name", "weak_name"];
    for given in [&all[..], &all[1..2]] {
        let functions = listed(&program, given);
        let [function] = &functions[..] else {
            panic!("{functions:?}");
        };
        let mut found: Vec<String> = function["aliases"]
            .as_array()
            .expect("aliases")
            .iter()
            .chain([&function["linkage"]])
            .map(text)
            .collect();
        found.sort();
        assert_eq!(found, all);
    }
    // By all names at once, and by one that is not the first.
    let survived = survives(&program, &[&all[..], &["sometimes*", "one"]].concat());
    assert_eq!(survived.profile.functions.len(), 4);
    let mut target = Target::start(&program, [""; 0]).await_output("ready");
    let session = Session::attach(target.pid(), &["second_name"]);
    let printed = go_on(&mut target);
    let calls = session.detach().calls("second_name");
    assert_eq!(calls, own_counts(&printed)["first_name"]);
    target.finish("ok ");
}

#[test]
fn duplicate_names_are_counted_separately() {
    let program = names();
    let mut wanted: Vec<u64> = sites(&program, "helper")
        .iter()
        .map(|s| s.address)
        .collect();
    let mut target = Target::start(&program, [""; 0]).await_output("ready");
    let session = Session::attach(target.pid(), &["helper"]);
    let printed = go_on(&mut target);
    let profile = session.detach();
    profile.assert_lossless();
    let of = |function: &Function| (function.address, count(&function.totals));
    let mut found: Vec<(u64, u64)> = profile.functions.iter().map(of).collect();
    found.sort_unstable();
    wanted.sort_unstable();
    // One is called once per round. The other is called through `other`, twice in every second
    // round.
    let rounds = numbered(&printed, "helpers ");
    assert_eq!(wanted.len(), 2);
    assert_eq!(found, [(wanted[0], rounds), (wanted[1], rounds)]);
    // Each has its own callers, and an address selects just one of them.
    let callers = |index: usize| {
        let paths = profile.paths.iter().filter(|p| p.function == index);
        let frames = paths.map(|p| profile.frames[p.stack[0]].function.clone());
        frames.flatten().collect::<BTreeSet<_>>()
    };
    let mut callers = [callers(0), callers(1)];
    callers.sort();
    assert_eq!(
        callers,
        [["main".to_owned()].into(), ["other".to_owned()].into()]
    );
    target.finish("ok ");
    let module = program.file_name().expect("a name").to_string_lossy();
    let one = format!("{module}+{:#x}", wanted[1]);
    let mut target = Target::start(&program, [""; 0]).await_output("ready");
    let session = Session::attach(target.pid(), &[&one]);
    go_on(&mut target);
    let profile = session.detach();
    assert_eq!(profile.functions.len(), 1);
    assert_eq!(of(&profile.functions[0]), (wanted[1], rounds));
    target.finish("ok ");
}

/// The number after `start` in the first line that begins with it.
///
/// # Panics
/// If there is no such line.
fn numbered(printed: &str, start: &str) -> u64 {
    let line = printed.lines().find_map(|l| l.strip_prefix(start));
    line.and_then(|n| n.parse().ok())
        .unwrap_or_else(|| panic!("no line {start:?} in:\n{printed}"))
}

#[test]
fn partial_inline_is_noted_unless_all_parts_are_measured() {
    let program = names();
    // The head is still a function, and is also inlined into main. Both copies call the rest.
    let main = disassembly(&program, "main");
    assert!(main.contains("<sometimes.part.0>"), "{main}");
    let survived = survives(
        &program,
        &["first_name", "sometimes", "sometimes.part.0", "one"],
    );
    assert_eq!(survived.refused, BTreeMap::new());
    let profile = &survived.profile;
    let head = profile.function("sometimes").expect("in");
    let rest = profile.function("sometimes.part.0").expect("in");
    assert!(head.address != rest.address && count(&rest.totals) > 0);
    // A pattern that names only the head gives a note that calls are missing.
    let functions = listed(&program, &["sometimes"]);
    assert_eq!(functions[0]["inlined"], 2, "{functions:?}");
    assert_eq!(functions[0]["clones"][0], "sometimes.part.0");
    let said = |what: &str| format!("not every call is counted: some go to {what}");
    let whole = said("2 inlined copies, sometimes.part.0");
    let target = Target::start(&program, [""; 0]).await_output("ready");
    let (session, attached) = Session::try_attach(target.pid(), &["first_name"], "count");
    let also = "also called as second_name, weak_name: calls by any of its names count";
    let attached = attached.expect(0).stderr;
    assert_eq!(attached, format!("ipath: first_name: {also}\n"));
    let added = session.add(&["sometimes"]).expect(0);
    assert_eq!(added.stderr, format!("ipath: sometimes: {whole}\n"));
    let scratch = Scratch::new("partial");
    let file = scratch.file("p.json");
    let snapshot = Run::ipath(["snapshot", &target.pid().to_string(), "-o"]);
    snapshot.arg(&file).run().expect(0);
    let report = Run::ipath(["report"]).arg(&file).run().expect(0).stdout;
    assert_eq!(
        report.matches(&format!("  {whole}\n")).count(),
        1,
        "{report}"
    );
    let text = std::fs::read_to_string(&file).expect("a profile");
    let profile: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(profile["functions"][1]["inlined"], 2);
    assert_eq!(profile["functions"][1]["clones"][0], "sometimes.part.0");
    // Functions that are measured too are not reported as missing.
    let added = session.add(&["sometimes.part.0", "sometimes"]).expect(0);
    assert_eq!(added.stderr, "", "{}", added.report());
    session.detach();
    let (session, attached) =
        Session::try_attach(target.pid(), &["sometimes", "sometimes.part.0"], "count");
    let copies = said("2 inlined copies");
    assert_eq!(
        attached.expect(0).stderr,
        format!("ipath: sometimes: {copies}\n")
    );
    session.detach();
}

/// GCC's DWARF gives these no linkage name, or a different one than the symbol's. A copy counts
/// once.
#[test]
fn inlined_copies_of_cpp_functions() {
    for flags in [&["-O2", "-g"][..], &["-O2", "-gdwarf-4"]] {
        let program = program_with("inlined_copies.cc", flags);
        for name in [
            "internal(long)",
            "(anonymous namespace)::Hidden::member(long)",
            "Guard::Guard()",
            "Guard::~Guard()",
            "shared",
        ] {
            let functions = listed(&program, &[name]);
            assert_eq!(functions[0]["inlined"], 1, "{flags:?} {functions:?}");
        }
    }
}

#[test]
fn fully_inlined_function_is_an_error_with_the_reason() {
    let program = names();
    let target = Target::start(&program, [""; 0]).await_output("ready");
    let pid = target.pid().to_string();
    let file = program.display().to_string();
    let commands: [&[&str]; 4] = [
        &["attach", &pid, "--no-tui", "-f", "always"],
        &["run", "--no-tui", "-f", "always", "--", &file],
        &["list", &pid, "always"],
        &["list", &file, "always"],
    ];
    for command in commands {
        let line = Run::ipath(command).run().expect_error();
        assert!(
            line.ends_with(": it exists only as 3 inlined copies"),
            "{line}"
        );
    }
    // A misspelled name is not reported as inlined.
    let line = Run::ipath(["list", &file, "alway"]).run().expect_error();
    assert!(line.ends_with("no function matches 'alway'"), "{line}");
}

/// Two mappings of one file have their own functions, which one pattern or an address selects.
#[test]
fn same_file_twice() {
    let library = program_with("small_lib.c", &["-shared", "-fPIC"]);
    let start = || Target::start(program("same_file.c"), [&library]).await_output("ready");
    let mut target = start();
    let name = library.file_name().expect("a name").to_string_lossy();
    let pattern = format!("{name}!small_work");
    let session = Session::attach(target.pid(), &[&pattern]);
    // Both are removed and added at once.
    for change in [Session::remove, Session::add] {
        let changed = change(&session, &[&pattern]).expect(0);
        assert!(changed.stdout.contains("small_work, small_work"));
    }
    let printed = go_on(&mut target);
    let profile = session.detach();
    profile.assert_lossless();
    let stderr = target.stderr();
    let addresses = stderr.split_whitespace().map(hexadecimal);
    let expected: BTreeMap<u64, u64> = addresses
        .clone()
        .zip(["first ", "second "].map(|line| numbered(&printed, line)))
        .collect();
    // The address of each in the process, as the program prints it.
    let of = |f: &Function| {
        let base = profile.modules[f.module].base.expect("a base");
        (base + f.address, count(&f.totals))
    };
    let found: Vec<_> = profile.functions.iter().map(of).collect();
    assert_eq!(found.len(), 2);
    assert_eq!(BTreeMap::from_iter(found), expected);
    target.finish("ok ");
    // Only one of them, by its address.
    let mut target = start();
    let second = target.stderr().split_whitespace().nth(1).map(str::to_owned);
    let session = Session::attach(target.pid(), &[&second.expect("an address")]);
    let printed = go_on(&mut target);
    let profile = session.detach();
    assert_eq!(profile.functions.len(), 1);
    let calls = profile.calls("small_work");
    assert_eq!(calls, numbered(&printed, "second "));
    target.finish("ok ");
}

/// The report names functions of two mappings of one file by the addresses of the mappings.
#[test]
fn same_file_twice_is_told_apart_by_people() {
    let library = program_with("small_lib.c", &["-shared", "-fPIC"]);
    let scratch = Scratch::new("same-file");
    let mut target = Target::start(program("same_file.c"), [&library]).await_output("ready");
    let session = Session::attach(target.pid(), &["small_work"]);
    go_on(&mut target);
    let file = scratch.file("p.json");
    let pid = target.pid().to_string();
    let detach = Run::ipath(["detach", &pid, "-o"]).arg(&file);
    detach.run().expect(0);
    drop(session);
    let profile = Profile::read(&file);
    let report = Run::ipath(["report"]).arg(&file).run().expect(0).stdout;
    let library = library.file_name().expect("a name").to_string_lossy();
    for function in &profile.functions {
        let base = profile.modules[function.module].base.expect("a base");
        let place = format!("at {library}@{base:#x}+{:#x}", function.address);
        assert!(report.contains(&place), "{place} in\n{report}");
    }
    target.finish("ok ");
}

const SEQUENCES: [&str; 3] = ["count_within", "count_first", "count_last"];

#[test]
fn rseq_section_in_a_window_is_refused() {
    const ROUNDS: &str = "200000";
    let program = Program::new(&program("rseq.c"), [ROUNDS]);
    let plain = program.plain().expect(0);
    let scratch = Scratch::new("rseq");
    let file = scratch.file("p.json");
    let ours = program.under_ipath(&SEQUENCES, "count,wall", &file);
    assert!(ours.stdout.starts_with(&plain.stdout), "{}", ours.report());
    let profile = Profile::read(&file);
    assert_eq!(
        profile.calls("count_within"),
        own_counts(&plain.stdout)["count_within"]
    );
    let refused: BTreeMap<String, String> = profile
        .refused
        .iter()
        .map(|r| (text(&r["name"]), text(&r["reason"])))
        .collect();
    let expected = ["count_first", "count_last"]
        .map(|name| (name.to_owned(), "restartable-sequence".to_owned()));
    assert_eq!(refused, BTreeMap::from(expected));
}

/// A thread that makes a system call for ipath may have been stopped inside an rseq critical
/// section.
#[test]
fn rseq_section_of_a_running_program() {
    const ROUNDS: usize = 40;
    let mut target = Target::start(program("rseq.c"), [""; 0]).await_output("ready");
    for _ in 0..ROUNDS {
        let session = Session::attach(target.pid(), &SEQUENCES);
        let calls = session.detach().calls("count_within");
        assert!(calls > 0);
    }
    let printed = go_on(&mut target);
    assert!(printed.ends_with("\nok\n"), "{printed}");
    target.finish("ok");
}
