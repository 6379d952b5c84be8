//! Functions too small for a jump: punned if the process has room, else refused by name.

use ipath_tests::command::Run;
use ipath_tests::compile::{build, program_with, source};
use ipath_tests::exact::assert_output_kept;
use ipath_tests::place::{Scratch, ipath};
use ipath_tests::profile::Profile;
use ipath_tests::program::{Program, ipath_arguments};
use ipath_tests::session::{Session, own_counts};
use ipath_tests::snapshot::ProcessState;
use ipath_tests::survive::survives;
use ipath_tests::target::Target;
use nix::sys::signal::Signal;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

const TINY: [&str; 10] = [
    "one",
    "two",
    "rep",
    "three",
    "four",
    "one_nops",
    "one_stops",
    "two_stops",
    "three_nop",
    "across",
];
const TWO: [&str; 2] = ["first_of_two", "second_of_two"];
const OUT_OF_REACH: &str = "pun-out-of-reach";
const OVERLAPS: &str = "overlaps-function";
const TOO_SHORT: &str = "too-short";
const LIMIT: Duration = Duration::from_secs(20);

/// The names of the tiny functions with a suffix.
fn names(way: &str) -> Vec<String> {
    TINY.iter().map(|name| format!("{name}_{way}")).collect()
}

/// A program with the tiny functions, in itself or in a library.
struct Built {
    path: PathBuf,
    /// The functions that are punned at any load address.
    punned: Vec<String>,
    /// The refused functions, with the reasons.
    refused: BTreeMap<String, String>,
}

fn linked(flags: &[&str]) -> PathBuf {
    let script = format!("-Wl,-T,{}", source("tiny_function.ld").display());
    program_with("tiny_function.c", &[flags, &[&script]].concat())
}

impl Built {
    fn new(path: PathBuf, punned: Vec<String>, too_short: Vec<String>) -> Self {
        let too_short = too_short.into_iter().chain(["at_end".to_owned()]);
        Self {
            path,
            punned,
            refused: too_short.map(|n| (n, TOO_SHORT.to_owned())).collect(),
        }
    }

    fn pie() -> Self {
        let all = [names("up"), names("down")].concat();
        Self::new(linked(&["-pie", "-fPIE"]), all, Vec::new())
    }

    /// The program at a fixed address. Below it there is no room for the targets of puns.
    fn at_fixed_address(flags: &[&str]) -> Self {
        let path = linked(&[&["-no-pie"], flags].concat());
        Self::new(path, names("up"), names("down"))
    }

    fn library() -> Self {
        let library = linked(&["-DLIBRARY", "-shared", "-fPIC"]);
        let library = library.display().to_string();
        let path = build(&source("tiny_function_main.c"), &[&library]);
        Self {
            path,
            ..Self::pie()
        }
    }

    fn all() -> [Self; 4] {
        [
            Self::pie(),
            Self::at_fixed_address(&[]),
            Self::at_fixed_address(&["-static", "-Wl,--eh-frame-hdr"]),
            Self::library(),
        ]
    }

    fn start(&self, mode: &[&str]) -> Target {
        // In sigwait(3) its signal mask is constant.
        let target = Target::start(&self.path, mode).await_output("ready\n");
        target.await_syscall(libc::SYS_rt_sigtimedwait)
    }

    fn names(&self) -> Vec<&str> {
        let refused = self.refused.keys();
        self.punned
            .iter()
            .chain(refused)
            .map(String::as_str)
            .collect()
    }

    fn punned(&self) -> Vec<&str> {
        self.punned.iter().map(String::as_str).collect()
    }

    /// Checks that every function that can be punned is, and that all others are refused.
    fn assert_puns(&self, profile: &Profile) {
        let program = self.path.display();
        let refused = refused(profile);
        assert_eq!(refused, self.refused, "{program}");
        for name in &self.punned {
            let function = profile.function(name);
            let function = function.unwrap_or_else(|| panic!("{name} is not in, {program}"));
            let tactics = function.exits.iter().chain([&function.entry]);
            let tactics: BTreeSet<&str> = tactics.filter_map(Value::as_str).collect();
            assert_eq!(tactics, BTreeSet::from(["pun"]), "{name}, {program}");
        }
    }
}

fn refused(profile: &Profile) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let refused = profile.refused.iter();
    refused
        .map(|r| (text(&r["name"]), text(&r["reason"])))
        .collect()
}

fn go_on(target: &mut Target, until: &str) -> String {
    target.signal(Signal::SIGUSR1);
    let printed = |t: &Target| t.stdout().lines().any(|line| line == until);
    target.until(LIMIT, &format!("printed {until:?}"), printed);
    target.stdout()
}

/// Checks that text is unchanged, whatever the program has mapped in the meantime.
fn assert_same_text(before: &ProcessState, pid: u32) {
    let found = before.differences(&ProcessState::of(pid));
    let changed: Vec<_> = found.iter().filter(|d| d.starts_with("text")).collect();
    assert!(changed.is_empty(), "{changed:#?}");
}

/// Checks that the calls of `names` are those that the program printed, and that none is lost.
fn assert_counts(profile: &Profile, printed: &str, names: &[&str]) {
    let own = own_counts(printed);
    for name in names {
        assert_eq!(profile.calls(name), own[*name], "calls of {name}");
    }
    let losses = &profile.losses;
    let lost = [losses.missed, losses.overflow, losses.incomplete];
    assert_eq!(lost, [0; 3], "{losses:?}");
}

#[test]
fn tiny_function_is_counted_exactly_or_refused() {
    for built in Built::all() {
        println!("{}", built.path.display());
        let refused = built.refused.iter();
        let refusable: Vec<_> = refused.map(|(n, r)| (n.as_str(), r.as_str())).collect();
        survives(&Program::new(&built.path, [""; 0]), &refusable);
    }
}

/// The linker script makes `at_end` the last byte of the executable segment and of a page. By
/// default the linker puts code after it, from which a jump would be possible.
#[test]
fn at_end_ends_a_page_and_what_is_executable() {
    for path in [linked(&["-pie", "-fPIE"]), linked(&["-no-pie"])] {
        let sites = ipath_tests::symbols::sites(&path, "at_end");
        let [site] = &sites[..] else {
            panic!("{sites:?}");
        };
        let headers = Run::new("readelf").arg("-lW").arg(&path).run().expect(0);
        let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16);
        let end = headers.stdout.lines().find_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let (start, len) = (fields.get(2)?, fields.get(5)?);
            let code = line.contains(" R E ") && fields[0] == "LOAD";
            code.then(|| Some(number(start).ok()? + number(len).ok()?))?
        });
        let end = end.unwrap_or_else(|| panic!("no text in\n{}", headers.stdout));
        assert_eq!((site.address + 1, end % 4096), (end, 0));
    }
}

/// In a waiting program each function is punned or refused as expected. Calls are exact.
#[test]
fn tiny_function_of_running_program() {
    for built in Built::all() {
        let mut target = built.start(&["wait"]);
        let before = ProcessState::of(target.pid());
        let idle = Session::attach(target.pid(), &built.names());
        built.assert_puns(&idle.detach());
        before.assert_unchanged(target.pid());
        let session = Session::attach(target.pid(), &built.names());
        let printed = go_on(&mut target, "ok");
        let profile = session.detach();
        built.assert_puns(&profile);
        assert_counts(&profile, &printed, &built.punned());
        assert_same_text(&before, target.pid());
        target.finish("ok");
    }
}

/// Functions that threads call all the time are added and removed. After the last addition, each
/// counts as many calls as the others.
#[test]
fn tiny_function_of_busy_program() {
    /// Each thread calls all functions in turn, and can be anywhere when they are removed and
    /// added.
    const THREADS: u64 = 4;
    for built in Built::all() {
        let mut target = built.start(&["busy"]);
        let before = ProcessState::of(target.pid());
        let names = built.punned();
        let (some, others) = names.split_at(names.len() / 2);
        for round in 0..12 {
            let session = Session::attach(target.pid(), some);
            session.add(others).expect(0);
            let [first, second] = match round % 2 {
                0 => [some, others],
                _ => [others, some],
            };
            session.remove(first).expect(0);
            session.add(first).expect(0);
            session.remove(second).expect(0);
            session.detach();
            before.assert_unchanged(target.pid());
        }
        // All are added at the same moment, then each thread finishes a round.
        let session = Session::attach(target.pid(), &names);
        // On a busy machine some threads may not have run yet.
        target.until(Duration::from_secs(60), "called all functions", |_| {
            let profile = session.snapshot();
            names.iter().all(|name| profile.calls(name) > 0)
        });
        go_on(&mut target, "ok");
        let profile = session.detach();
        let calls: Vec<u64> = names.iter().map(|name| profile.calls(name)).collect();
        let most = calls.iter().max().expect("some");
        let least = calls.iter().min().expect("some");
        assert!(
            *least > 0 && most - least <= THREADS,
            "{names:?}: {calls:?}"
        );
        target.finish("ok");
    }
}

/// Checks that with `--allow-trap` each of these functions is instrumented by breakpoints, at least
/// in part.
fn all_by_breakpoints(target: &Target, names: &[&str]) {
    let scratch = Scratch::new("tiny-trap");
    let file = scratch.file("p.json");
    let pid = target.pid().to_string();
    let attach = Run::ipath(["attach", &pid, "--no-tui", "--allow-trap"]);
    let attach = attach.args(["--duration", "1ms", "-o"]).arg(&file);
    let attach = attach.args(names.iter().flat_map(|n| ["-f", n]));
    attach.run().expect(0);
    let profile = Profile::read(&file);
    assert_eq!(refused(&profile), BTreeMap::new());
    for name in names {
        let function = profile.function(name);
        let function = function.unwrap_or_else(|| panic!("{name} is not in"));
        let mut tactics = function.exits.iter().chain([&function.entry]);
        assert!(tactics.any(|t| t == "trap"), "{name}: {function:?}");
    }
}

/// Without free memory in reach all functions are refused, and breakpoints can serve them. Once
/// memory is free they are punned.
#[test]
fn tiny_function_where_nothing_is_free() {
    for built in Built::all() {
        let mut target = built.start(&["full"]);
        let before = ProcessState::of(target.pid());
        let (_, tried) = Session::try_attach(target.pid(), &built.punned(), "count,wall");
        let line = tried.expect_error();
        assert!(line.contains(OUT_OF_REACH), "{line}");
        before.assert_unchanged(target.pid());
        let session = Session::attach(target.pid(), &["through"]);
        session.add(&built.names()).expect_error();
        let mut expected = built.refused.clone();
        let punned = built.punned.iter();
        expected.extend(punned.map(|n| (n.clone(), OUT_OF_REACH.to_owned())));
        assert_eq!(refused(&session.detach()), expected);
        before.assert_unchanged(target.pid());
        all_by_breakpoints(&target, &built.names());
        before.assert_unchanged(target.pid());
        go_on(&mut target, "released");
        let session = Session::attach(target.pid(), &built.names());
        let printed = go_on(&mut target, "ok");
        let profile = session.detach();
        built.assert_puns(&profile);
        assert_counts(&profile, &printed, &built.punned());
        target.finish("ok");
    }
}

/// Calls of a forked child are not counted.
#[test]
fn tiny_function_in_a_child() {
    for built in Built::all() {
        let mut target = built.start(&["fork"]);
        let before = ProcessState::of(target.pid());
        let session = Session::attach(target.pid(), &built.punned());
        go_on(&mut target, "ok");
        let profile = session.detach();
        for name in &built.punned {
            assert_eq!(profile.calls(name), 0, "{name}, called by a child alone");
        }
        assert_same_text(&before, target.pid());
        target.finish("ok");
    }
}

/// The linkage names of the functions in a session.
fn is_in(session: &Session) -> BTreeSet<String> {
    let profile = session.snapshot();
    let functions = profile.functions.iter();
    functions.map(|f| f.linkage.clone()).collect()
}

/// Instrumented functions, added functions, and of all of them those instrumented then and those
/// refused.
type Depending<'a> = (&'a [&'a str], &'a [&'a str], &'a [&'a str], &'a [&'a str]);

/// Of two functions whose jumps use each other's bytes only one is instrumented, and the other one
/// is refused.
#[test]
fn tiny_function_whose_jump_depends_on_another() {
    let built = Built::pie();
    let both: &[&str] = &TWO;
    let (first, second) = (&both[..1], &both[1..]);
    let third = &["beside_two_of_up"][..];
    let all = [both, third].concat();
    let cases: [Depending; 6] = [
        (&["through"], both, first, second),
        (first, second, first, second),
        (second, first, second, first),
        (second, third, second, third),
        (third, second, third, second),
        (&["through"], &all, &[TWO[0], third[0]], second),
    ];
    for (there, added, inside, outside) in cases {
        let mut target = built.start(&["wait", "two"]);
        let before = ProcessState::of(target.pid());
        let session = Session::attach(target.pid(), there);
        let finished = session.add(added);
        for name in outside {
            let what = format!("{name} ({OVERLAPS})");
            let alone = format!("{name}: not instrumented: {OVERLAPS}");
            let said = finished.stderr.contains(&what) || finished.stderr.contains(&alone);
            assert!(said, "{there:?} {added:?}: {}", finished.report());
        }
        let mut expected: BTreeSet<&str> = inside.iter().copied().collect();
        expected.extend(there);
        let found = is_in(&session);
        let found: BTreeSet<&str> = found.iter().map(String::as_str).collect();
        assert_eq!(found, expected, "{there:?} {added:?}");
        let printed = go_on(&mut target, "ok");
        let counts = session.snapshot();
        let own = own_counts(&printed);
        for name in inside.iter().filter(|name| own.contains_key(**name)) {
            assert_eq!(counts.calls(name), own[*name], "calls of {name}");
        }
        for name in expected {
            session.remove(&[name]).expect(0);
        }
        assert_same_text(&before, target.pid());
        session.detach();
        assert_same_text(&before, target.pid());
        target.finish("ok");
    }
}

/// The text is restored, whatever the order of removals.
#[test]
fn tiny_functions_removed_in_any_order() {
    let built = Built::pie();
    let mut target = built.start(&["busy"]);
    let before = ProcessState::of(target.pid());
    let names = built.punned();
    let odd_first = (0..names.len()).map(|i| i * 7 % names.len());
    let orders: [Vec<&str>; 3] = [
        names.clone(),
        names.iter().rev().copied().collect(),
        odd_first.map(|i| names[i]).collect(),
    ];
    for order in orders {
        let session = Session::attach(target.pid(), &names);
        for name in order {
            session.remove(&[name]).expect(0);
        }
        assert_same_text(&before, target.pid());
        session.detach();
        before.assert_unchanged(target.pid());
    }
    go_on(&mut target, "ok");
    target.finish("ok");
}

/// A program that has just started has no heap yet. No jump needs memory where the heap will be,
/// and the function is refused.
#[test]
fn tiny_function_where_the_heap_will_be() {
    for flag in ["-pie", "-no-pie"] {
        let mode = if flag == "-pie" { "-fPIE" } else { "-fno-pie" };
        let program = program_with("heap_after.c", &[flag, mode]);
        let plain = Run::new("setarch").arg("-R").arg(&program).run().expect(0);
        let scratch = Scratch::new("heap");
        let file = scratch.file("p.json");
        let ours = Run::new("setarch").arg("-R").arg(ipath());
        let ours = ours.args(ipath_arguments(&["small", "large"], "count,wall", &file));
        assert_output_kept(&plain, &ours.arg(&program).run());
        let profile = Profile::read(&file);
        let expected = [("small".to_owned(), OUT_OF_REACH.to_owned())];
        assert_eq!(refused(&profile), BTreeMap::from(expected), "{flag}");
        assert_counts(&profile, &plain.stdout, &["large"]);
    }
}
