//! Code that is awkward to move or to name: operands that depend on where an instruction stands,
//! what compilers put at a function's start, several functions of one name, several names of one
//! function.

use ipath_tests::command::Run;
use ipath_tests::compile::{program, program_with};
use ipath_tests::profile::Profile;
use ipath_tests::session::{Session, own_counts};
use ipath_tests::snapshot::ProcessState;
use ipath_tests::target::Target;
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// A program that has done its work with functions instrumented, as it does it alone.
struct Survived {
    /// All it has printed.
    printed: String,
    profile: Profile,
    /// The functions that were refused, with the reasons.
    refused: BTreeMap<String, String>,
}

/// Starts a program that waits for SIGUSR1 once it is ready, instruments functions while it waits,
/// and compares what it then prints with what it prints alone, and its own counts with ours.
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

/// Ends it; all it has printed.
fn end(mut target: Target) -> String {
    target.signal(Signal::SIGTERM);
    let status = target.wait(Duration::from_secs(20));
    assert!(status.success(), "{}", target.report());
    target.stdout()
}

/// Lets it do its work; everything it has printed then.
fn go_on(target: &mut Target) -> String {
    target.signal(Signal::SIGUSR1);
    let limit = Duration::from_secs(20);
    target.until(limit, "done its work", |t| t.stdout().contains("\nok "));
    target.stdout()
}

fn text(value: &serde_json::Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[test]
fn rip_relative_far() {
    let patterns = ["far_*", "own_*", "short_*", "loop*", "jrcxz_*", "jecxz_*"];
    let refused = survives(&program("rip_far.c"), &patterns).refused;
    // Without a form through a register: what uses the stack pointer too, and what jumps.
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

/// The disassembly of a function as binutils give it.
fn disassembly(program: &Path, function: &str) -> String {
    let wanted = format!("--disassemble={function}");
    let run = Run::new("objdump").args(["--no-show-raw-insn", &wanted]);
    run.arg(program).run().expect(0).stdout
}

#[test]
fn endbr64() {
    let program = program_with("starts.c", &["-fcf-protection=full"]);
    assert!(disassembly(&program, "empty").contains("endbr64"));
    assert_eq!(survives(&program, &STARTS).refused, BTreeMap::new());
}

#[test]
fn patchable_entry() {
    for (flag, no_ops) in [
        ("-fpatchable-function-entry=5", 5),
        ("-fpatchable-function-entry=5,2", 3),
    ] {
        // With endbr64 the no-ops stand behind it.
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
fn pg() {
    // Linked without -pg, which would bring its own start code and write a file at the end.
    let flags = ["-c", "-fno-omit-frame-pointer", "-pg", "-mfentry"];
    let object = program_with("starts.c", &flags).display().to_string();
    let program = program_with("fentry.c", &[&object]);
    let code = disassembly(&program, "empty");
    assert!(code.contains("<__fentry__>"), "{code}");
    let mut functions = STARTS.to_vec();
    functions.push("__fentry__");
    let survived = survives(&program, &functions);
    assert_eq!(survived.refused, BTreeMap::new());
    // Its own count began before ours.
    let fentries = survived.printed.split_once("fentries ");
    let all: u64 = fentries
        .and_then(|f| f.1.trim().parse().ok())
        .expect("a count");
    let calls = survived.profile.calls("__fentry__");
    let least = own_counts(&survived.printed).values().sum::<u64>();
    assert!(least <= calls && calls <= all, "{calls} of {all}");
}

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

#[test]
fn no_near_memory_but_in_one_hole() {
    let mut target = Target::start(program("no_near.c"), ["256"]).await_output("ready");
    let hole = target.stderr();
    let numbers = hole.trim().split(' ').filter_map(|w| w.strip_prefix("0x"));
    let numbers: Vec<u64> = numbers
        .map(|w| u64::from_str_radix(w, 16).expect("hex"))
        .collect();
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
        let number = |text| u64::from_str_radix(text, 16).expect("hex");
        start <= number(from) && number(until) <= end && line.contains(" r-xp ")
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
