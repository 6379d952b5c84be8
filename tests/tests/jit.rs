//! Code generated at run time has the names that its compiler wrote down, in profiles and in
//! samples. None of it is patched.

use ipath_tests::command::Run;
use ipath_tests::compile::program_with;
use ipath_tests::place::Scratch;
use ipath_tests::profile::{Profile, count};
use ipath_tests::session::Session;
use ipath_tests::target::Target;
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::path::PathBuf;

fn jit_named() -> PathBuf {
    program_with("jit_named.c", &["-fno-omit-frame-pointer"])
}

/// Removes the map file of an earlier program with this id.
fn remove_map(pid: u32) {
    // Most programs write none.
    let _ = std::fs::remove_file(format!("/tmp/perf-{pid}.map"));
}

/// The numbers of calls of `work` by the caller's name (`None` for a caller without one): in the
/// profile, and by the program's own count.
fn calls_by_piece(
    arguments: &[&str],
) -> (BTreeMap<Option<String>, u64>, BTreeMap<Option<String>, u64>) {
    let scratch = Scratch::new("jit");
    let file = scratch.file("p.json");
    let folder = scratch.path().display().to_string();
    let profile = file.display().to_string();
    let program = jit_named().display().to_string();
    let mut run = vec![
        "run",
        "-f",
        "work",
        "-o",
        &profile,
        "--interval",
        "10ms",
        "--",
        &program,
    ];
    run.extend(arguments);
    if arguments == ["dump"] || arguments == ["thread"] {
        run.push(&folder);
    }
    let finished = Run::ipath(run).run().expect(0);
    let lines = finished.stdout.lines();
    let counted = lines.filter_map(|line| {
        let (times, name) = line.split_once(' ')?;
        name.starts_with("piece ").then_some(())?;
        Some((Some(name.to_owned()), times.parse().ok()?))
    });
    let counted = counted.collect();
    let profile = Profile::read(&file);
    remove_map(profile.target.pid);
    let mut found = BTreeMap::new();
    for path in &profile.paths {
        let caller = &profile.frames[path.stack[0]];
        assert_eq!(caller.module, None, "it is in no file");
        assert!(caller.offset.is_none_or(|offset| offset < 64), "{caller:?}");
        *found.entry(caller.function.clone()).or_default() += count(&path.metrics);
    }
    (found, counted)
}

#[test]
fn frames_have_the_names_of_the_map() {
    let (found, counted) = calls_by_piece(&["map"]);
    assert!(!counted.is_empty());
    assert_eq!(found, counted);
}

#[test]
fn frames_have_the_names_of_the_records() {
    let (found, counted) = calls_by_piece(&["dump"]);
    assert!(!counted.is_empty());
    assert_eq!(found, counted);
}

#[test]
fn frames_have_the_names_of_the_records_of_a_thread() {
    let (found, counted) = calls_by_piece(&["thread"]);
    assert!(!counted.is_empty());
    assert_eq!(found, counted);
}

/// Names in memory, where debuggers find them. The latest name applies.
#[test]
fn frames_have_the_names_that_are_registered_with_debuggers() {
    let target = Target::start(jit_named(), ["gdb"]).await_output("ready");
    let session = Session::attach(target.pid(), &["work"]);
    target.signal(Signal::SIGUSR1);
    let target = target.await_output("done");
    let profile = session.snapshot();
    let mut found = BTreeMap::new();
    for path in &profile.paths {
        let caller = &profile.frames[path.stack[0]];
        let name = caller.function.clone().expect("a name");
        *found.entry(name).or_default() += count(&path.metrics);
    }
    let stdout = target.stdout();
    let counted = stdout.lines().filter_map(|line| {
        let (times, name) = line.split_once(' ')?;
        Some((name.to_owned(), times.parse().ok()?))
    });
    let counted: BTreeMap<String, u64> = counted.collect();
    assert_eq!(counted.len(), 30, "{stdout}");
    assert_eq!(found, counted);
    session.detach();
    remove_map(target.pid());
    target.signal(Signal::SIGTERM);
    target.finish("ok");
}

/// A map that any user could have written is ignored.
#[test]
fn maps_that_all_can_write_are_not_read() {
    let (found, counted) = calls_by_piece(&["open"]);
    let calls = counted.values().sum();
    assert_eq!(found, BTreeMap::from([(None, calls)]));
}

#[test]
fn sampling_names_it_and_says_that_it_is_not_patched() {
    let target = Target::start(jit_named(), ["spin"]).await_output("ready");
    let number = target.pid();
    let pid = number.to_string();
    let suggested = Run::ipath(["suggest", &pid, "--json"])
        .run()
        .expect(0)
        .json();
    let first = &suggested["candidates"][0];
    assert_eq!(first["name"], "spin of x.js:1");
    assert_eq!(first["patchable"], false);
    assert_eq!(first["reason"], "JIT code");
    let refused = Run::ipath(["attach", &pid, "-f", "spin"]).run().expect(1);
    let error = refused.expect_error();
    assert!(error.contains("JIT code"), "{error}");
    let first = costliest(number);
    let is_named = first.contains("spin of x.js:1") && first.contains("cannot be instrumented");
    assert!(is_named, "{first}");
    target.finish("ok");
    remove_map(number);
}

/// The search first names the generated function that calls costly functions of a file.
#[test]
fn a_search_names_generated_code_that_calls_costly_functions() {
    let target = Target::start(jit_named(), ["native"]).await_output("ready");
    let number = target.pid();
    let first = costliest(number);
    assert!(first.contains("report of x.js:2"), "{first}");
    target.finish("ok");
    remove_map(number);
}

/// A search's line about the costliest function that it cannot measure.
fn costliest(pid: u32) -> String {
    let search = Run::ipath(["attach", &pid.to_string(), "--search"]);
    let search = search.run().expect(0);
    let mut lines = search.stdout.lines();
    let first = lines.find(|line| line.starts_with("costliest: "));
    first
        .unwrap_or_else(|| panic!("{}", search.report()))
        .to_owned()
}
