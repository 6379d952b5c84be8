//! Functions that are hard to patch: each is counted exactly or refused by name, and the program
//! notices nothing.

use crate::command::Finished;
use crate::exact::assert_output_kept;
use crate::place::Scratch;
use crate::profile::Profile;
use crate::program::{Program, ipath_arguments};
use crate::session::own_counts;
use std::collections::{BTreeMap, BTreeSet};

/// Functions that may be refused, each with the reason.
pub type Refusable<'a> = BTreeMap<&'a str, &'a str>;

/// What any of them may be refused for as well: where a function has too little room, its neighbours
/// and the process decide whether a punned jump leads anywhere.
const NO_PUN: [&str; 2] = ["overlaps-function", "pun-out-of-reach"];

/// Runs a program that says `calls NAME N` for each of its functions plainly and under ipath: with
/// all of them, with and without exits and breakpoints, and with each alone.
///
/// # Panics
/// When the program notices, or a function is neither counted exactly nor one of those that may be
/// refused, for that reason.
pub fn survives(program: &Program, refusable: &[(&str, &str)]) {
    let refusable: Refusable<'_> = refusable.iter().copied().collect();
    let plain = program.plain().expect(0);
    let own = own_counts(&plain.stdout);
    let names: Vec<&str> = own.keys().map(String::as_str).collect();
    for name in refusable.keys() {
        assert!(own.contains_key(*name), "{name} is not in the program");
    }
    for metrics in ["count,wall", "count"] {
        let profile = run(program, &plain, &names, metrics, None);
        let refused = compare(&profile, &own, &names, &refusable);
        for name in &names {
            if refused.contains_key(*name) {
                alone(program, &plain, name, metrics, &refusable);
            } else if metrics == "count,wall" {
                let profile = run(program, &plain, &[name], metrics, None);
                let refused = compare(&profile, &own, &[name], &Refusable::new());
                assert!(refused.is_empty(), "{name}");
            }
        }
    }
    let profile = run(program, &plain, &names, "count,wall", Some("--allow-trap"));
    let refused = compare(&profile, &own, &names, &refusable);
    println!("with breakpoints, refused: {refused:?}");
}

fn run(
    program: &Program,
    plain: &Finished,
    names: &[&str],
    metrics: &str,
    option: Option<&str>,
) -> Profile {
    let scratch = Scratch::new("survive");
    let file = scratch.file("p.json");
    let mut arguments = ipath_arguments(names, metrics, &file);
    arguments.splice(1..1, option.map(str::to_owned));
    let ours = program.under_ipath_as(arguments);
    assert_output_kept(plain, &ours);
    Profile::read(&file)
}

/// Every function is in the profile with the calls the program made, or refused. Gives back the
/// latter.
fn compare(
    profile: &Profile,
    own: &BTreeMap<String, u64>,
    names: &[&str],
    refusable: &Refusable<'_>,
) -> BTreeMap<String, String> {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let reasons = profile
        .refused
        .iter()
        .map(|r| (text(&r["name"]), text(&r["reason"])));
    let reasons: BTreeMap<String, String> = reasons.collect();
    for (name, reason) in &reasons {
        let allowed = refusable.get(name.as_str());
        let allowed = allowed.expect("only what may be refused is refused");
        assert!(
            reason == allowed || NO_PUN.contains(&reason.as_str()),
            "{name} is refused: {reason}, not {allowed}"
        );
    }
    let counted: BTreeMap<&str, u64> = profile
        .functions
        .iter()
        .map(|f| (f.linkage.as_str(), profile.calls(&f.linkage)))
        .collect();
    let wanted: BTreeMap<&str, u64> = names
        .iter()
        .filter(|name| !reasons.contains_key(**name))
        .map(|name| (*name, own[*name]))
        .collect();
    assert_eq!(counted, wanted, "calls");
    let losses = &profile.losses;
    assert_eq!(
        (
            losses.missed,
            losses.overflow,
            losses.open.unwrap_or(0),
            losses.unwound.unwrap_or(0),
        ),
        (0, 0, 0, 0),
        "{losses:?}"
    );
    let incomplete: BTreeSet<usize> = profile
        .paths
        .iter()
        .filter(|path| !path.complete)
        .map(|path| path.function)
        .collect();
    assert!(incomplete.is_empty(), "incomplete paths: {incomplete:?}");
    reasons
}

/// Without its neighbours a function is counted exactly, or it is an error that names it and says
/// why, before the program has run.
fn alone(
    program: &Program,
    plain: &Finished,
    name: &str,
    metrics: &str,
    refusable: &Refusable<'_>,
) {
    let scratch = Scratch::new("alone");
    let file = scratch.file("p.json");
    let ours = program.under_ipath(&[name], metrics, &file);
    if file.exists() {
        assert_output_kept(plain, &ours);
        let own = own_counts(&plain.stdout);
        let refused = compare(&Profile::read(&file), &own, &[name], &Refusable::new());
        assert!(refused.is_empty(), "{name}");
        return;
    }
    let line = ours.expect_error();
    let reasons = NO_PUN.into_iter().chain(refusable.get(name).copied());
    let named = |reason| line.contains(&format!("{name} ({reason})"));
    assert!(reasons.into_iter().any(named), "{name}: {line}");
    assert_eq!(ours.stdout, "", "{}", ours.report());
}
