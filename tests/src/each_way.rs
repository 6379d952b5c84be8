//! Runs programs that are hard to measure in several ways. Each run must have the same output and
//! status, and gives a profile for the test to judge.

use crate::command::Finished;
use crate::exact::assert_output_kept;
use crate::place::Scratch;
use crate::profile::Profile;
use crate::program::Program;
use crate::session::own_counts;
use std::collections::BTreeMap;

/// The ways: the metrics, and true if the runtime repeats every remembered walk. A difference ends
/// the program.
pub const WAYS: [(&str, bool); 3] = [
    ("count,wall", false),
    ("count", false),
    ("count,wall", true),
];

/// Runs a program under ipath in each of [`WAYS`]. `judge` gets the ended command and its profile.
/// The names may be patterns.
///
/// # Panics
/// If a run writes no profile, or the profile breaks an invariant.
pub fn each_way(program: &Program, names: &[&str], mut judge: impl FnMut(&Finished, &Profile)) {
    for (metrics, is_verified) in WAYS {
        let scratch = Scratch::new("each-way");
        let file = scratch.file("p.json");
        let program = if is_verified {
            program.verified()
        } else {
            program.clone()
        };
        let ours = program.under_ipath(names, metrics, &file);
        println!("{metrics}, verified: {is_verified}");
        assert!(file.exists(), "no profile\n{}", ours.report());
        judge(&ours, &Profile::read(&file));
    }
}

/// Runs a program plainly and in each of [`WAYS`]. Checks output, status and the counts that it
/// prints as `calls NAME N`, with no call missed. `judge` checks the rest of the profile.
///
/// # Panics
/// With the difference.
pub fn counts_kept(program: &Program, code: i32, mut judge: impl FnMut(&Profile)) {
    let plain = program.plain().expect(code);
    let own = own_counts(&plain.stdout);
    let names: Vec<&str> = own.keys().map(String::as_str).collect();
    each_way(program, &names, |ours, profile| {
        assert_output_kept(&plain, ours);
        assert_eq!(calls(profile), own, "{}", ours.report());
        assert!(profile.refused.is_empty(), "{:?}", profile.refused);
        let losses = &profile.losses;
        assert_eq!((losses.missed, losses.overflow), (0, 0), "{losses:?}");
        judge(profile);
    });
}

/// Like [`counts_kept`] for a program that ends with status 0. Every call must also have returned
/// and have a path that is complete to its root.
pub fn all_kept(program: &Program) {
    counts_kept(program, 0, |profile| {
        let losses = &profile.losses;
        let ended = (losses.open.unwrap_or(0), losses.unwound.unwrap_or(0));
        assert_eq!((ended, losses.incomplete), ((0, 0), 0), "{losses:?}");
    });
}

/// The number of calls by linkage name, summed over functions with the same name.
fn calls(profile: &Profile) -> BTreeMap<String, u64> {
    let mut calls = BTreeMap::new();
    for function in &profile.functions {
        *calls.entry(function.linkage.clone()).or_insert(0) +=
            crate::profile::count(&function.totals);
    }
    calls
}
