//! Folds recursion in the profile of a run without folding, as an oracle for runs with it.

use crate::place::Scratch;
use crate::profile::{Profile, count};
use crate::program::{Program, ipath_arguments};
use std::collections::BTreeMap;

/// A call site: the path of its module (`None` without a module), and the address in the module's
/// file.
type Site = (Option<String>, u64);

/// The number of calls by the function's linkage name and its call sites from the root on.
pub type Paths = BTreeMap<(String, Vec<Site>), u64>;

/// The paths of a profile, summed over threads.
pub fn paths(profile: &Profile) -> Paths {
    let mut paths = Paths::new();
    for path in &profile.paths {
        let site = |&frame: &usize| {
            let frame = &profile.frames[frame];
            let module = frame
                .module
                .map(|module| profile.modules[module].path.clone());
            (module, frame.address)
        };
        let name = profile.functions[path.function].linkage.clone();
        let sites = path.stack.iter().rev().map(site).collect();
        *paths.entry((name, sites)).or_default() += count(&path.metrics);
    }
    paths
}

/// Folds a path, from the root on: a call site that is already on the path cuts the path back to
/// it.
fn folded(path: Vec<Site>) -> Vec<Site> {
    let mut kept: Vec<Site> = Vec::new();
    for site in path {
        match kept.iter().position(|known| *known == site) {
            Some(at) => kept.truncate(at + 1),
            None => kept.push(site),
        }
    }
    kept
}

/// Runs a deterministic program with and without folding, the former also with every remembered
/// walk repeated, and compares the paths. `function` is a pattern.
///
/// # Panics
/// With the differences.
pub fn assert_folded(program: &Program, function: &str) {
    let scratch = Scratch::new("fold");
    let file = scratch.file("p.json");
    let profile = |program: &Program, folds: bool| {
        let mut arguments = ipath_arguments(&[function], "count,wall", &file);
        if folds {
            arguments.insert(1, "--collapse-recursion".to_owned());
        }
        let ours = program.under_ipath_as(arguments);
        assert_eq!(ours.code(), program.plain().code(), "{}", ours.report());
        let profile = Profile::read(&file);
        assert_eq!(profile.session.collapsed, folds);
        profile.assert_lossless();
        paths(&profile)
    };
    let whole = profile(program, false);
    let mut expected = Paths::new();
    for ((name, path), calls) in whole.clone() {
        *expected.entry((name, folded(path))).or_default() += calls;
    }
    println!(
        "{function}: {} paths, {} folded",
        whole.len(),
        expected.len()
    );
    for program in [program, &program.verified()] {
        assert_eq!(profile(program, true), expected, "{function}");
    }
}
