//! Instructions counted by path, compared with the program's own counts and with gdb's breakpoints
//! and stacks.

use ipath_tests::command::{Finished, Run};
use ipath_tests::compile::program_with;
use ipath_tests::exact::assert_output_kept;
use ipath_tests::place::Scratch;
use ipath_tests::pointed::{at, check_with_gdb, instructions, place, run_with};
use ipath_tests::profile::{Profile, count};
use ipath_tests::program::Program;
use ipath_tests::session::{Session, counts_of, listed};
use ipath_tests::snapshot::ProcessState;
use ipath_tests::target::Target;
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

/// The builds of `points`: frames relative to rsp and to rbp, values in memory, no unwind tables,
/// and unrolled loops with landing markers.
const BUILDS: [&[&str]; 6] = [
    &[],
    &["-fno-omit-frame-pointer"],
    &["-O0"],
    &["-fno-asynchronous-unwind-tables", "-fno-unwind-tables"],
    &["-O3", "-funroll-loops", "-fcf-protection=full"],
    &["-no-pie", "-O1"],
];

const NAMES: [&str; 11] = [
    "head", "odd", "even", "out", "deep", "frame", "large", "flags", "carry", "zone", "last",
];

/// The program's marks: addresses in its file, each with the name of the point.
fn marks(program: &Path) -> BTreeMap<u64, &'static str> {
    let scratch = Scratch::new("marks");
    let section = scratch.file("points");
    let flags = [
        "--only-section=points",
        "--set-section-flags",
        "points=alloc",
    ];
    let mut copy = Command::new("objcopy");
    let copied = copy
        .args(["-O", "binary"])
        .args(flags)
        .arg(program)
        .arg(&section);
    assert!(copied.status().expect("objcopy").success());
    let bytes = std::fs::read(&section).expect("the section");
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("a word"));
    let marks = bytes.chunks_exact(16);
    marks
        .map(|mark| (word(&mark[..8]), NAMES[word(&mark[8..]) as usize]))
        .collect()
}

/// `--at` for each mark.
fn at_marks(program: &Path, marks: &BTreeMap<u64, &str>) -> Vec<String> {
    at(program, marks.keys().copied())
}

/// The numbers of passes by point and by the caller of the point's function, where there were any.
fn passes(profile: &Profile, marks: &BTreeMap<u64, &str>) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    for path in &profile.paths {
        let function = &profile.functions[path.function];
        let Some(point) = marks.get(&function.address).filter(|_| function.point) else {
            continue;
        };
        let caller = path.stack.first().map(|&at| &profile.frames[at]);
        let caller = caller.and_then(|frame| frame.function.as_deref());
        let key = format!("{point}:{}", caller.unwrap_or("?"));
        *found.entry(key).or_default() += count(&path.metrics);
    }
    found.retain(|_, passes| *passes != 0);
    found
}

/// Checks points alone, and points with their functions, against the program's own counts.
fn check_build(flags: &[&str]) {
    let path = program_with("points.c", flags);
    let marks = marks(&path);
    assert!(
        NAMES.iter().all(|name| marks.values().any(|m| m == name)),
        "{marks:?}"
    );
    let program = Program::new(&path, ["3", "400"]);
    let plain = program.plain();
    let at = at_marks(&path, &marks);
    let functions = ["branches", "recurse", "dynamic", "large", "leaf"];
    let with_functions: Vec<String> = functions
        .iter()
        .flat_map(|name| ["-f".to_owned(), (*name).to_owned()])
        .chain(at.iter().cloned())
        .collect();
    for (program, arguments) in [
        (&program, &at),
        (&program.verified(), &at),
        (&program, &with_functions),
        (&program.verified(), &with_functions),
    ] {
        let (ours, profile) = run_with(program, arguments);
        assert_output_kept(&plain, &ours);
        let said = counts_of(&ours.stdout, "passes");
        assert_eq!(passes(&profile, &marks), said, "{flags:?}");
        profile.assert_lossless();
        if arguments == &with_functions {
            let calls = |point: &str| {
                let of_point = said.iter().filter(|(key, _)| key.starts_with(point));
                of_point.map(|(_, n)| n).sum::<u64>()
            };
            for (name, point) in [("branches", "out"), ("recurse", "deep"), ("leaf", "last")] {
                assert_eq!(profile.calls(name), calls(point), "{name} {flags:?}");
            }
        }
    }
}

#[test]
fn passes_are_what_the_program_counts() {
    check_build(BUILDS[0]);
}

#[test]
fn passes_are_what_the_program_counts_with_frame_pointers() {
    check_build(BUILDS[1]);
}

#[test]
fn passes_are_what_the_program_counts_unoptimized() {
    check_build(BUILDS[2]);
}

#[test]
fn passes_are_what_the_program_counts_without_unwind_tables() {
    check_build(BUILDS[3]);
}

#[test]
fn passes_are_what_the_program_counts_unrolled() {
    check_build(BUILDS[4]);
}

#[test]
fn passes_are_what_the_program_counts_at_a_fixed_address() {
    check_build(BUILDS[5]);
}

/// Checks all instructions of these functions.
fn check_functions(flags: &[&str], functions: &[&str]) {
    let program = Program::new(&program_with("points.c", flags), ["2", "6"]);
    for function in functions {
        check_with_gdb(&program, function);
    }
}

#[test]
fn each_instruction_is_on_the_paths_that_gdb_finds() {
    let functions = ["branches", "recurse", "dynamic", "large", "leaf", "first"];
    check_functions(&[], &functions);
}

#[test]
fn each_instruction_is_on_the_paths_that_gdb_finds_with_frame_pointers() {
    check_functions(
        &["-fno-omit-frame-pointer"],
        &["recurse", "dynamic", "second"],
    );
}

#[test]
fn each_instruction_is_on_the_paths_that_gdb_finds_unoptimized() {
    check_functions(&["-O0"], &["branches", "dynamic"]);
}

/// A function and points at its entry and its return, measured together, have the same number of
/// calls and passes.
#[test]
fn a_function_and_points_at_its_entry_and_its_return() {
    let path = program_with("points.c", &[]);
    let program = Program::new(&path, ["2", "200"]);
    let plain = program.plain();
    let start = instructions(&path, "leaf");
    let (entry, ret) = (start[0], start[start.len() - 1]);
    let offset = ret - entry;
    let places = ["leaf+0x0".to_owned(), format!("leaf+{offset:#x}")];
    let arguments = ["-f", "leaf", "--at", &places[0], "--at", &places[1]].map(str::to_owned);
    let (ours, profile) = run_with(&program, &arguments);
    assert_output_kept(&plain, &ours);
    let said = counts_of(&ours.stdout, "passes")["last:third"];
    for name in ["leaf", &places[0], &places[1]] {
        let function = profile
            .functions
            .iter()
            .find(|f| f.name == name)
            .expect(name);
        assert_eq!(
            (count(&function.totals), function.linkage.as_str()),
            (said, "leaf"),
            "{name}"
        );
    }
    assert_eq!(profile.ends("leaf"), (said, 0));
    let notes = profile.session.notes.join("; ");
    assert!(notes.contains("points"), "{notes}");
}

/// A program that waits after a thousand of its rounds.
fn waiting(path: &Path, rounds: &str) -> Target {
    Target::start(path, ["2", rounds, "1000"]).await_output("waiting")
}

/// Runs a command that begins or changes a session of the target.
fn change(command: &str, target: &Target, arguments: &[String]) -> Finished {
    let pid = target.pid().to_string();
    let run = Run::ipath([command, &pid]).args(arguments);
    match command {
        "attach" => run.args(["--keep", "--no-tui", "--duration", "1ms"]).run(),
        _ => run.run(),
    }
}

/// Points that share windows and code are added, removed and added again. Those that are left count
/// all later passes.
#[test]
fn points_come_and_go_by_themselves() {
    let path = program_with("points.c", &[]);
    let marks = marks(&path);
    let all = at_marks(&path, &marks);
    let mut target = waiting(&path, "2000");
    let (head, rest) = all.split_at(2);
    change("attach", &target, head).expect(0);
    change("add", &target, rest).expect(0);
    let again = change("add", &target, &all[2..6]).expect(0);
    assert!(again.stdout.contains("already in"), "{}", again.report());
    let said = listed(target.pid()).expect("a session");
    assert!(said.contains("leaf+0x"), "{said}");
    // One of several points in one function, and all points in another one.
    let named = |names: &[&str]| {
        let marks = marks.iter().filter(|(_, name)| names.contains(name));
        let marks = marks.map(|(&address, &name)| (address, name));
        marks.collect::<BTreeMap<u64, &str>>()
    };
    let gone = named(&["zone", "deep"]);
    change("remove", &target, &at_marks(&path, &gone)).expect(0);
    change("remove", &target, &at_marks(&path, &named(&["frame"]))).expect(0);
    change("add", &target, &at_marks(&path, &named(&["frame"]))).expect(0);
    target.signal(Signal::SIGUSR1);
    let session = Session::of(target.pid());
    target.until(PATIENCE, "its end", |t| t.stdout().contains("ok"));
    let profile = session.detach();
    let said = target.stdout();
    let mut later = counts_of(&said, "later");
    later.retain(|key, n| *n != 0 && !["zone:", "deep:"].iter().any(|p| key.starts_with(p)));
    assert_eq!(passes(&profile, &marks), later);
}

/// Points are added and removed while threads run through them. At the end the program is
/// unchanged.
#[test]
fn points_come_and_go_under_way() {
    let path = program_with("points.c", &[]);
    let marks = marks(&path);
    let all = at_marks(&path, &marks);
    let mut target = waiting(&path, "4000000000");
    let clean = ProcessState::of(target.pid());
    change("attach", &target, &all).expect(0);
    target.signal(Signal::SIGUSR1);
    let some: Vec<Vec<String>> = all.chunks(2).map(<[String]>::to_vec).collect();
    for round in 0..6 {
        for place in some.iter().skip(round % 2).step_by(2) {
            change("remove", &target, place).expect(0);
        }
        for place in some.iter().skip(round % 2).step_by(2) {
            change("add", &target, place).expect(0);
        }
        assert!(target.poll().is_none(), "{}", target.report());
    }
    let profile = Session::of(target.pid()).detach();
    clean.assert_unchanged(target.pid());
    assert!(passes(&profile, &marks).len() > 10);
    profile.assert_complete("all the way");
    target.signal(Signal::SIGKILL);
}

/// An impossible point is refused in one line, and nothing is changed.
#[test]
fn what_can_be_no_point_is_refused() {
    let path = program_with("points.c", &[]);
    let mut target = waiting(&path, "1001");
    let clean = ProcessState::of(target.pid());
    let inside = instructions(&path, "branches")[1] + 1;
    let inside = place(&path, inside);
    let far = format!("branches+{:#x}", 1 << 20);
    for (place, why) in [
        (inside.as_str(), "not-an-instruction"),
        (&far, "not-an-instruction"),
        ("nosuch+0x10", "no function matches 'nosuch+0x10'"),
        ("brances+0x0", "no function matches 'brances+0x0'"),
        ("0x10", "no function matches '0x10'"),
        ("branches", "not an instruction"),
        ("branches+12", "not an instruction"),
        ("all_passes+0x0", "no function matches"),
    ] {
        let refused = change("attach", &target, &["--at".to_owned(), place.to_owned()]);
        let said = match why {
            "not an instruction" => refused.expect_usage(),
            _ => refused.expect_error(),
        };
        assert!(said.contains(why), "{place}: {said}");
        clean.assert_unchanged(target.pid());
    }
    // A possible point is counted beside an impossible one.
    let both = ["--at", "leaf+0x0", "--at", &far].map(str::to_owned);
    let told = change("attach", &target, &both).expect(0);
    assert!(
        told.stderr.contains("not-an-instruction"),
        "{}",
        told.report()
    );
    let condition = ["--at", "leaf+0x5", "--when", "arg1 > 1"].map(str::to_owned);
    let refused = change("attach", &target, &condition);
    assert!(
        refused.expect_usage().contains("--when"),
        "{}",
        refused.report()
    );
    let unknown = change(
        "remove",
        &target,
        &["--at".to_owned(), "leaf+0x5".to_owned()],
    );
    assert!(
        unknown.expect_error().contains("leaf+0x5"),
        "{}",
        unknown.report()
    );
    Session::of(target.pid()).detach();
    clean.assert_unchanged(target.pid());
    target.signal(Signal::SIGUSR1);
    target.until(PATIENCE, "its end", |t| t.stdout().contains("ok"));
}
