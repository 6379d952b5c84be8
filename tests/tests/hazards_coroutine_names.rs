//! C++20 coroutines: the body is a different function from the one named in the source.

use ipath_tests::command::Run;
use ipath_tests::compile::source;
use ipath_tests::place::Scratch;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const BODY: &str = "ns::f(long) [coroutine body]";
const SAID: &str =
    "a coroutine: its creations are counted; it runs in ns::f(long) [coroutine body]";

fn built(scratch: &Scratch, compiler: &str, optimization: &str) -> PathBuf {
    let program = scratch.file("coroutines");
    let status = Command::new(compiler)
        .args(["-std=c++20", "-g", optimization, "-o"])
        .arg(&program)
        .arg(source("coroutine20.cc"))
        .status();
    assert!(status.expect("starts").success(), "{compiler}");
    program
}

fn listed(program: &Path, pattern: &str) -> Vec<Value> {
    let run = Run::ipath(["list", "--json"]).arg(program).arg(pattern);
    let listing = run.run().expect(0).json();
    listing["functions"].as_array().expect("functions").clone()
}

fn names(functions: &[Value]) -> Vec<&str> {
    functions
        .iter()
        .filter_map(|f| f["name"].as_str())
        .collect()
}

/// The profile of a run, its standard error, and the report.
fn measured(scratch: &Scratch, program: &Path, patterns: &[&str]) -> (Value, String, String) {
    let file = scratch.file("p.json");
    let finished = Run::ipath(["run", "--no-tui", "-o"])
        .arg(&file)
        .args(patterns.iter().flat_map(|p| ["-f", p]))
        .arg("--")
        .arg(program)
        .run()
        .expect(0);
    let text = fs::read_to_string(&file).expect("a profile");
    let report = Run::ipath(["report"]).arg(&file).run().expect(0).stdout;
    (
        serde_json::from_str(&text).expect("JSON"),
        finished.stderr,
        report,
    )
}

/// The number of calls of the function with this name.
///
/// # Panics
/// If the profile has none.
fn calls(profile: &Value, name: &str) -> u64 {
    let functions = profile["functions"].as_array().expect("functions");
    let found = functions.iter().find(|f| f["name"] == name);
    let found = found.unwrap_or_else(|| panic!("no {name}: {functions:?}"));
    found["totals"]["count"].as_u64().expect("a count")
}

#[test]
fn the_body_of_a_coroutine_is_named_and_said_to_be_another_function() {
    for compiler in ["g++", "clang++"] {
        for optimization in ["-O0", "-O2"] {
            let how = format!("{compiler} {optimization}");
            let scratch = Scratch::new("coroutines");
            let program = built(&scratch, compiler, optimization);
            let ramp = listed(&program, "ns::f");
            assert_eq!(names(&ramp), ["ns::f(long)"], "{how}");
            let clones = ramp[0]["clones"].as_array().expect("clones");
            assert!(clones.len() >= 2, "{how}: {clones:?}");
            // A printed name works as a pattern, unchanged and as a glob.
            for pattern in [
                BODY,
                "ns::f [coroutine body]",
                "ns::f(long) [coroutine b*",
                "*[coroutine body]",
            ] {
                assert_eq!(
                    names(&listed(&program, pattern)),
                    [BODY],
                    "{how}: {pattern}"
                );
            }
            let all = listed(&program, "ns::f(long)*");
            assert!(names(&all).contains(&BODY), "{how}: {:?}", names(&all));
            assert!(
                names(&all).contains(&"ns::f(long) [coroutine destroy]"),
                "{how}"
            );

            let (profile, said, report) = measured(&scratch, &program, &["ns::f"]);
            assert_eq!(calls(&profile, "ns::f(long)"), 10, "{how}");
            assert!(
                said.contains(SAID) && report.contains(SAID),
                "{how}: {said}{report}"
            );

            // If both are requested, no hint is needed, and the name is the same everywhere.
            let (profile, said, report) = measured(&scratch, &program, &["ns::f", BODY, "work"]);
            assert!(calls(&profile, BODY) >= 30, "{how}");
            assert_eq!(calls(&profile, "work"), 20, "{how}");
            assert!(!said.contains("a coroutine:"), "{how}: {said}");
            assert!(report.contains(&format!("{BODY}+0x")), "{how}: {report}");
        }
    }
}
