//! The main check: `ipath run` reports exactly what gdb finds, and the program notices neither.

use crate::command::Finished;
use crate::compare::assert_equal;
use crate::oracle::{self, Oracle};
use crate::place::Scratch;
use crate::profile::{Profile, count};
use crate::program::Program;
use crate::symbols::Site;

/// Runs a program plainly, under gdb and under ipath, and checks that calls, call paths, output and
/// status agree. Returns the profile for further checks.
///
/// # Panics
/// With the differences.
pub fn check(program: &Program, pattern: &str, sites: &[Site]) -> Profile {
    check_all(program, &[pattern], sites)
}

/// Like [`check`], for several functions at once.
///
/// # Panics
/// With the differences.
pub fn check_all(program: &Program, patterns: &[&str], sites: &[Site]) -> Profile {
    let scratch = Scratch::new("exact");
    let plain = program.plain();
    let found = oracle::run(program, sites);
    found.assert_like(&plain);
    println!("{}: {}", patterns.join(", "), found.summary());
    let file = scratch.file("p.json");
    let ours = program.under_ipath(patterns, "count,wall", &file);
    assert_output_kept(&plain, &ours);
    let profile = Profile::read(&file);
    assert_equal(&profile, &found);
    profile.assert_lossless();
    assert_eq!(profile.losses.open.unwrap_or(0), 0, "every call has ended");
    for function in &profile.functions {
        let (returned, unwound) = profile.ends(&function.linkage);
        if !function.exits.is_empty() {
            let ended = returned + unwound;
            assert_eq!(count(&function.totals), ended, "{}", function.name);
        }
    }
    let metrics: Vec<_> = profile
        .metrics
        .iter()
        .map(|m| (m.name.as_str(), m.unit.as_str()))
        .collect();
    assert_eq!(metrics, [("count", "calls"), ("wall", "ns")]);
    check_walks(program, &plain, &profile, patterns);
    profile
}

/// Runs a program under ipath, and once more with every remembered walk repeated. Checks that its
/// output is that of `plain`, and that `function` has exactly the paths found by gdb, with no call
/// lost.
///
/// # Panics
/// With the differences.
pub fn assert_paths_are(program: &Program, plain: &Finished, function: &str, found: &Oracle) {
    let scratch = Scratch::new("paths");
    let file = scratch.file("p.json");
    for program in [program.clone(), program.verified()] {
        let ours = program.under_ipath(&[function], "count,wall", &file);
        assert_output_kept(plain, &ours);
        let profile = Profile::read(&file);
        assert_equal(&profile, found);
        profile.assert_lossless();
    }
}

/// Runs it again with every remembered walk repeated; a difference ends the program.
fn check_walks(program: &Program, plain: &Finished, profile: &Profile, patterns: &[&str]) {
    let scratch = Scratch::new("verified");
    let file = scratch.file("p.json");
    let ours = program
        .verified()
        .under_ipath(patterns, "count,wall", &file);
    assert_output_kept(plain, &ours);
    let again = Profile::read(&file);
    let calls = |profile: &Profile| {
        profile
            .functions
            .iter()
            .map(|f| count(&f.totals))
            .sum::<u64>()
    };
    assert_eq!(calls(&again), calls(profile), "{}", ours.report());
}

/// Checks that the exit status of `ipath run` (`ours`) is that of the plain run, and that its
/// output and standard error contain the program's once and unbroken. The summary of ipath may come
/// before or after it.
pub fn assert_output_kept(plain: &Finished, ours: &Finished) {
    assert_eq!(ours.code(), plain.code(), "exit status\n{}", ours.report());
    for (name, plain, mixed) in [
        ("output", &plain.stdout, &ours.stdout),
        ("standard error", &plain.stderr, &ours.stderr),
    ] {
        let times = mixed.matches(plain.as_str()).count();
        assert!(
            plain.is_empty() || times == 1,
            "the program's {name} was\n{plain}\n{}",
            ours.report()
        );
    }
}
