//! Functions that are hard to patch: each is either counted exactly or refused by name, and the
//! program notices nothing.

use crate::command::Finished;
use crate::exact::assert_output_kept;
use crate::place::Scratch;
use crate::profile::Profile;
use crate::program::{Program, ipath_arguments};
use crate::session::own_counts;
use std::collections::{BTreeMap, BTreeSet};

/// The reasons for which functions may be refused, by linkage name.
pub type Refusable<'a> = BTreeMap<&'a str, &'a str>;

/// The reasons to refuse a function that a punned jump could instrument: no reachable target, or
/// the bytes that it depends on belong to another function.
const UNPUNNED: [&str; 2] = ["pun-out-of-reach", "overlaps-function"];

/// The number of attempts for a function that a punned jump instrumented before.
const TRIES: usize = 8;

/// Runs a program that prints `calls NAME N` for each of its functions, plainly and under ipath:
/// with all of them instrumented, with and without exits and breakpoints, and with each one alone.
///
/// # Panics
/// If the program notices, or a function is neither counted exactly nor refused for an allowed
/// reason. A lack of room for a punned jump is always allowed.
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
            let reason = refused.get(*name);
            let alone = || {
                let profile = if_within_reach(program, &plain, name, metrics)?;
                let refused = compare(&profile, &own, &[name], &Refusable::new());
                assert!(refused.is_empty(), "{name}");
                Some(())
            };
            if reason.is_some_and(|reason| *reason != refusable[name]) {
                alone();
            } else if let Some(reason) = reason {
                is_refused(program, name, metrics, reason);
            } else if metrics == "count,wall" {
                // The program's load address differs in each run. An earlier one left room for this
                // function.
                let is_had = alone().is_some()
                    || refusable.contains_key(name) && (1..TRIES).any(|_| alone().is_some());
                assert!(is_had, "{name} is out of reach");
            }
        }
    }
    let profile = run(program, &plain, &names, "count,wall", Some("--allow-trap"));
    let refused = compare(&profile, &own, &names, &refusable);
    println!("with breakpoints, refused: {refused:?}");
}

/// Runs a program under ipath and checks that it behaves as in the plain run. Returns the profile.
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

/// Checks that every function is refused, or in the profile with as many calls as the program made.
/// Returns the reasons of the refused functions by name.
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
        let is_allowed = |allowed: &&str| *allowed == reason || UNPUNNED.contains(&reason.as_str());
        assert!(
            allowed.is_some_and(is_allowed),
            "{name} is refused: {reason}, expected {allowed:?}"
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

/// Checks a function alone: instrumented by a punned jump if this process has room, else refused.
/// Returns the profile, `None` if it is refused.
fn if_within_reach(
    program: &Program,
    plain: &Finished,
    name: &str,
    metrics: &str,
) -> Option<Profile> {
    let scratch = Scratch::new("punned");
    let file = scratch.file("p.json");
    let ours = program.under_ipath(&[name], metrics, &file);
    if !file.exists() {
        let line = ours.expect_error();
        let named = format!("{name} ({})", UNPUNNED[0]);
        assert!(line.contains(&named), "{named}: {line}");
        return None;
    }
    assert_output_kept(plain, &ours);
    Some(Profile::read(&file))
}

/// Checks that a function alone gives an error with its name and the reason, before the program
/// runs.
fn is_refused(program: &Program, name: &str, metrics: &str, reason: &str) {
    let scratch = Scratch::new("refused");
    let file = scratch.file("p.json");
    let ours = program.under_ipath(&[name], metrics, &file);
    let line = ours.expect_error();
    assert!(
        line.contains(&format!("{name} ({reason})")),
        "{name}, {reason}: {line}"
    );
    assert_eq!(ours.stdout, "", "{}", ours.report());
    assert!(!file.exists(), "a profile of nothing");
}
