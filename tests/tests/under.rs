//! Calls that count only on paths through some functions (`--under`), or only on others
//! (`--not-under`): the runtime decides.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ipath_tests::command::Run;
use ipath_tests::compile::program_with;
use ipath_tests::place::Scratch;
use serde_json::Value;

fn under() -> PathBuf {
    program_with("under.cc", &["-g", "-pthread"])
}

/// The functions of a path, from the caller outwards, and with their inlined ones.
type Names = Vec<String>;

/// The calls of work on each path, and the output of the program.
fn measured(options: &[&str]) -> (BTreeMap<Names, u64>, String) {
    let scratch = Scratch::new("under");
    let file = scratch.file("profile.json");
    let run = Run::ipath(["run", "-f", "work", "-o"]).arg(&file);
    let run = run.args(options.iter().copied()).arg("--").arg(under());
    let finished = run.run().expect(0);
    let text = std::fs::read_to_string(&file).expect("a profile");
    let profile: Value = serde_json::from_str(&text).expect("JSON");
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let frames = list(&profile["frames"]);
    let mut calls = BTreeMap::new();
    let mut sum = 0;
    for path in list(&profile["paths"]) {
        assert_eq!(path["complete"], true, "{path}");
        let mut names = Vec::new();
        for frame in list(&path["stack"]) {
            let frame = &frames[frame.as_u64().expect("an index") as usize];
            let name = |of: &Value| of["function"].as_str().unwrap_or_default().to_owned();
            names.extend(list(&frame["inlined"]).iter().map(name));
            names.push(name(frame));
        }
        let count = path["metrics"]["count"].as_u64().expect("a count");
        *calls.entry(names).or_default() += count;
        sum += count;
    }
    assert_eq!(profile["functions"][0]["totals"]["count"], sum);
    assert_eq!(profile["losses"]["missed"], 0);
    calls.retain(|_, calls| *calls > 0);
    (calls, finished.stdout)
}

/// True if a path passes through these functions, in this order from the root.
fn passes(names: &Names, through: &[&str]) -> bool {
    let mut wanted = through.iter().peekable();
    for name in names.iter().rev() {
        wanted.next_if(|wanted| name.contains(**wanted));
    }
    wanted.peek().is_none()
}

/// The paths are those of a run without a filter that pass through the functions, with as many
/// calls. The times of calls are measured, or only their numbers.
#[test]
fn paths_through_functions_are_those_of_the_full_profile() {
    let (all, output) = measured(&[]);
    for (options, through, not) in [
        (&["--under", "via"][..], &["via"][..], None),
        (&["--under", "via", "-m", "count"], &["via"], None),
        (
            &["--under", "other", "--under", "via"],
            &["other", "via"],
            None,
        ),
        (
            &["--under", "via", "--under", "other"],
            &["via", "other"],
            None,
        ),
        (&["--under", "folded_in"], &["folded_in"], None),
        (
            &["--under", "other", "--under", "folded_in"],
            &["other", "folded_in"],
            None,
        ),
        (&["--not-under", "via"], &[], Some("via")),
        (
            &["--not-under", "folded_in", "-m", "count"],
            &[],
            Some("folded_in"),
        ),
        (
            &["--under", "other", "--not-under", "via"],
            &["other"],
            Some("via"),
        ),
        (&["--under", "other", "-m", "cpu,arg1"], &["other"], None),
        (
            &["--under", "via", "--by", "arg1", "--slower", "1s"],
            &["via"],
            None,
        ),
    ] {
        let (found, printed) = measured(options);
        assert_eq!(printed, output, "the program is as without ipath");
        let is_meant =
            |names: &Names| passes(names, through) && !not.is_some_and(|not| passes(names, &[not]));
        let mut expected = all.clone();
        expected.retain(|names, _| is_meant(names));
        assert_eq!(found, expected, "{options:?}");
    }
    let through: u64 = all
        .iter()
        .filter(|(names, _)| passes(names, &["via"]))
        .map(|(_, n)| n)
        .sum();
    assert!(output.contains(&format!("through {through}\n")), "{output}");
}

#[test]
fn filters_without_a_function_are_refused() {
    for (options, cause) in [
        (&["--under", "no_such"][..], "no function matches 'no_such'"),
        (&["--not-under", "no_such"], "no function matches 'no_such'"),
        (&["--under", "/(/"], "-f '/(/'"),
        (&["--under", "via", "--depth", "3"], "--depth"),
    ] {
        let run = Run::ipath(["run", "-f", "work"]).args(options.iter().copied());
        let finished = run.arg("--").arg(under()).run();
        assert_ne!(finished.code(), 0, "{options:?}");
        assert!(finished.stderr.contains(cause), "{}", finished.stderr);
        assert!(!finished.stdout.contains("all"), "the program did not run");
    }
}
