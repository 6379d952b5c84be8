//! Comparisons of two profiles of one program, each changed in one place.

mod inside;

use super::*;
use crate::profile::{Counts, Profile, Throttled, Throttling};
use crate::sample::{sample, with_inside};

fn scaled(profile: &Profile, path: usize, by: i128) -> Profile {
    let mut new = profile.clone();
    let stats = new.paths[path].metrics.timers.stats_mut();
    stats.for_each(|stats| stats.sum = stats.sum * by / 100);
    new
}

fn shown(diff: &Diff<'_>) -> String {
    let mut out = Vec::new();
    text(diff, Some(30), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn p_of(diff: &Diff<'_>, function: &str, calls: u64) -> Option<f64> {
    let value = serde_json::to_value(json(diff)).unwrap();
    let paths = value["paths"].as_array().unwrap();
    let is_it = |p: &&serde_json::Value| p["function"] == function && p["new"]["count"] == calls;
    paths.iter().find(is_it).unwrap()["p_value"].as_f64()
}

#[test]
fn equal_profiles_do_not_differ() {
    let old = sample();
    let diff = Diff::of(&old, &old, "wall");
    assert_eq!(diff.paths.len(), old.paths.len());
    assert!(
        diff.paths
            .iter()
            .all(|p| p.old.is_some() && p.new.is_some())
    );
    assert_eq!(p_of(&diff, "work", 900), Some(1.0));
    assert_eq!(diff.worse(0.0), 0);
    let by_calls = Diff::of(&old, &old, "count");
    assert_eq!(by_calls.worse(0.0), 0);
}

#[test]
fn a_slower_path_is_found_and_no_other() {
    let old = sample();
    let new = scaled(&old, 0, 110);
    let diff = Diff::of(&old, &new, "wall");
    assert!(p_of(&diff, "work", 900).unwrap() < 1e-6);
    assert_eq!(p_of(&diff, "work", 100), Some(1.0));
    assert_eq!((diff.worse(0.05), diff.worse(0.2)), (1, 0));
    // In the other direction, it is faster.
    assert_eq!(Diff::of(&new, &old, "wall").worse(0.05), 0);
    let text = shown(&diff);
    assert!(
        text.starts_with("4 paths in both, 0 new, 0 vanished; by wall\n1 significant"),
        "{text}"
    );
    assert!(text.contains("+10.0 %  <0.0001"), "{text}");
    assert!(text.contains("[callers unknown]"), "{text}");
}

#[test]
fn new_and_vanished_paths_are_said() {
    let old = sample();
    let mut new = old.clone();
    new.paths.remove(0);
    let diff = Diff::of(&old, &new, "wall");
    let text = shown(&diff);
    assert!(
        text.contains("3 paths in both, 0 new, 1 vanished"),
        "{text}"
    );
    let value = serde_json::to_value(json(&Diff::of(&new, &old, "wall"))).unwrap();
    let added = value["paths"]
        .as_array()
        .unwrap()
        .iter()
        .find(|p| p["old"].is_null())
        .unwrap();
    assert_eq!(added["new"]["count"], 900);
    assert!(added["p_value"].is_null());
}

/// Another build has other addresses, and its call sites are elsewhere in their functions.
#[test]
fn other_builds_are_matched_by_name() {
    let old = sample();
    let mut new = old.clone();
    for module in &mut new.modules {
        module.build_id = module.build_id.as_ref().map(|id| format!("{id}00"));
    }
    for function in &mut new.functions {
        function.address += 0x100;
    }
    for frame in &mut new.frames {
        if frame.function.is_some() {
            frame.address += 0x130;
            frame.offset = frame.offset.map(|offset| offset + 0x30);
        }
    }
    let diff = Diff::of(&old, &new, "wall");
    assert_eq!(diff.paths.len(), old.paths.len());
    assert!(
        diff.paths
            .iter()
            .all(|p| p.old.is_some() && p.new.is_some())
    );
    // With equal build ids, they are different call sites.
    for (module, was) in new.modules.iter_mut().zip(&old.modules) {
        module.build_id.clone_from(&was.build_id);
    }
    let diff = Diff::of(&old, &new, "wall");
    assert!(diff.paths.len() > old.paths.len());
}

#[test]
fn calls_that_are_not_timed_are_counted() {
    let old = sample();
    let mut new = old.clone();
    new.paths[0].metrics = Counts {
        count: 2000,
        ..new.paths[0].metrics.clone()
    };
    let diff = Diff::of(&old, &new, "count");
    assert_eq!(diff.worse(0.5), 1);
    let text = shown(&Diff::of(&old, &new, "wall"));
    assert!(
        text.contains("1100 not measured by every metric (were 0)"),
        "{text}"
    );
    assert!(text.contains("not exact in new: "), "{text}");
}

/// Runs that differ from each other by a few percent. The second runs are slower by `by` percent.
fn runs(by: i128) -> (Vec<Profile>, Vec<Profile>) {
    let of = |percent: [i128; 5], more: i128| {
        let scale = |p: i128| {
            let mut profile = sample();
            let stats = profile.paths[0].metrics.timers.stats_mut();
            stats.for_each(|stats| stats.sum = stats.sum * (100 + p) * (100 + more) / 10_000);
            profile
        };
        percent.map(scale).to_vec()
    };
    (of([0, 2, -2, 1, -1], 0), of([1, -1, 0, -2, 2], by))
}

fn of_runs<'p>(runs: &'p (Vec<Profile>, Vec<Profile>)) -> Diff<'p> {
    Diff::of_runs(runs.0.iter().collect(), runs.1.iter().collect(), "wall")
}

/// Judged by all calls together, each run would look like another program.
#[test]
fn what_runs_differ_by_is_chance() {
    let (same, slower) = (runs(0), runs(10));
    let one = Diff::of(&same.0[1], &same.0[2], "wall");
    assert!(p_of(&one, "work", 900).unwrap() < 0.01);
    let diff = of_runs(&same);
    assert_eq!(diff.worse(0.0), 0, "{}", shown(&diff));
    let diff = of_runs(&slower);
    assert_eq!(diff.worse(0.05), 1, "{}", shown(&diff));
    let text = shown(&diff);
    assert!(text.contains("of 5 runs before and 5 runs after"), "{text}");
    assert!(
        text.contains("runs differ: by wall, a change of the costliest path below "),
        "{text}"
    );
    assert!(text.contains("    900   900  99.0 ms  90.0 ms  "), "{text}");
    let value = serde_json::to_value(json(&diff)).unwrap();
    assert_eq!(value["runs"], serde_json::json!([5, 5]));
    let path = &value["paths"][0];
    assert_eq!(path["new"]["count"], 4500, "{path:#}");
    assert_eq!(
        path["means"][0].as_array().map(Vec::len),
        Some(5),
        "{path:#}"
    );
    // One run on the new side is weaker evidence than five.
    let p = p_of(&diff, "work", 4500).unwrap();
    let mut one_after = runs(10);
    one_after.1.truncate(1);
    assert!(p_of(&of_runs(&one_after), "work", 900).unwrap() > p);
}

/// The sample without one of its functions.
fn without(function: usize) -> Profile {
    let mut profile = sample();
    profile.paths.retain(|path| path.function != function);
    profile.functions[function].name = "another".to_owned();
    profile.functions[function].linkage = "another".to_owned();
    profile.functions[function].address = 0x7777;
    profile
}

/// A function that is not measured in a profile is neither new nor vanished.
#[test]
fn functions_that_one_side_lacks_are_neither_new_nor_vanished() {
    let (measured, lacking) = (sample(), without(0));
    let of_first = measured.paths.iter().filter(|path| path.function == 0);
    let paths = of_first.count();
    let name = &measured.functions[0].name;
    for (old, new, side) in [(&lacking, &measured, "old"), (&measured, &lacking, "new")] {
        let diff = Diff::of(old, new, "count");
        let text = shown(&diff);
        let head = format!("0 new, 0 vanished, {paths} measured on one side only; by");
        assert!(text.contains(&head), "{text}");
        let said = format!("not measured in {side}");
        assert_eq!(text.matches(&said).count(), paths, "{text}");
        let first = diff.paths.first().expect("a path");
        assert!(first.old.is_some() && first.new.is_some(), "{text}");
    }
    let compared = Diff::of(&lacking, &measured, "count").by_path();
    let of_first = measured.paths.iter().zip(compared);
    let mut of_first = of_first.filter(|(path, _)| path.function == 0);
    assert!(of_first.all(|(_, c)| c == Comparison::Unmeasured), "{name}");
}

/// A run in which a function is not measured is not a run with 0 calls.
#[test]
fn runs_that_lack_a_function_are_no_samples_of_it() {
    let (mut old, new) = runs(0);
    let all = p_of(
        &Diff::of_runs(old.iter().collect(), new.iter().collect(), "count"),
        "work",
        4500,
    );
    assert_eq!(all, Some(1.0));
    old[1] = without(0);
    let diff = Diff::of_runs(old.iter().collect(), new.iter().collect(), "count");
    assert_eq!(p_of(&diff, "work", 4500), Some(1.0));
    let text = shown(&diff);
    assert!(text.contains("not measured in old 2"), "{text}");
    let value = serde_json::to_value(json(&diff)).unwrap();
    let paths = value["paths"].as_array().unwrap();
    let path = paths.iter().find(|p| p["new"]["count"] == 4500).unwrap();
    assert_eq!(path["unmeasured_in"], serde_json::json!([[2], []]));
    assert_eq!(path["change"], 0.0);
    assert!(text.contains("    900   900  "), "{text}");
}

/// Exits that read the clock in another way change the times of short calls.
#[test]
fn profiles_of_different_clocks_are_compared_with_a_note() {
    let of = |clock| {
        let mut profile = sample();
        profile.session.clock = clock;
        profile
    };
    let (ordered, loose) = (of(Some(ExitClock::Ordered)), of(Some(ExitClock::Loose)));
    for (old, new, notes) in [
        (&ordered, &loose, 1),
        (&loose, &ordered, 1),
        (&loose, &loose, 0),
        (&of(None), &loose, 0),
    ] {
        let diff = Diff::of(old, new, "wall");
        assert_eq!(shown(&diff).matches("--clock").count(), notes);
        let value = serde_json::to_value(json(&diff)).unwrap();
        assert_eq!(value["notes"].as_array().map(Vec::len), Some(notes));
    }
}

#[test]
fn throttled_functions_are_not_compared_in_silence() {
    let full = sample();
    let mut throttled = sample();
    throttled.functions[0].name = "costly\x1b".to_owned();
    throttled.functions[0].throttled = Some(Throttled {
        calls_not_timed: Some(1),
        since_ns: 1,
        how: Throttling::Counted,
    });
    for (old, new) in [(&full, &throttled), (&throttled, &full)] {
        let text = shown(&Diff::of(old, new, "wall"));
        let said = "--max-overhead has throttled functions, so their calls and times are not \
            comparable: costly";
        assert!(text.contains(said) && !text.contains('\x1b'), "{text}");
    }
    assert!(!shown(&Diff::of(&full, &full, "wall")).contains("--max-overhead"));
}
