//! Patterns take names as reports display them.

use std::path::PathBuf;

use ipath_tests::command::Run;
use ipath_tests::compile::program_with;

fn overloads() -> PathBuf {
    program_with("overloads.cc", &["-O2"])
}

/// The name in the source of the functions that `ipath list` finds, each with a digit that tells
/// overloads apart: `catcher1` has an `int`. Sorted.
fn listed(pattern: &str) -> Vec<&'static str> {
    let run = Run::ipath(["list", "--json"]).arg(overloads()).arg(pattern);
    let listing = run.run().expect(0).json();
    let functions = listing["functions"].as_array().expect("functions").iter();
    let word = |function: &serde_json::Value| {
        let linkage = function["linkage"].as_str().expect("a name");
        let words = [
            ("catcherEi", "catcher1"),
            ("catcherERK", "catcher2"),
            ("recursive", "recursive"),
            ("area", "area"),
        ];
        let word = words.iter().find(|(part, _)| linkage.contains(part));
        word.expect("a function of the test").1
    };
    let mut found: Vec<&str> = functions.map(word).collect();
    found.sort_unstable();
    found
}

#[test]
fn displayed_names_are_patterns() {
    for (pattern, expected) in [
        ("company::detail::catcher(int)", &["catcher1"][..]),
        (
            "company::detail::catcher(std::string const&)",
            &["catcher2"],
        ),
        ("detail::catcher(int)", &["catcher1"]),
        ("*catcher(int)", &["catcher1"]),
        ("*catcher(std::string const&)", &["catcher2"]),
        ("*::catcher(*)", &["catcher1", "catcher2"]),
        (r"/catcher\(int\)$/", &["catcher1"]),
        (r"/catcher\(std::string const&\)$/", &["catcher2"]),
        ("Circle<...>::area", &["area"]),
        ("company::detail::recursive<...>", &["recursive"]),
        ("recursive<...>", &["recursive"]),
        ("company::…::recursive<...>", &["recursive"]),
        ("Cir…>::area", &["area"]),
    ] {
        assert_eq!(listed(pattern), expected, "{pattern}");
    }
}

#[test]
fn names_without_template_arguments_are_completed() {
    for (pattern, meant) in [
        ("company::detail::recursive", "'detail::recursive<...>'"),
        ("recursive<int>", "'detail::recursive<...>'"),
        ("company::detail::Circle::area", "'Circle<...>::area'"),
    ] {
        let run = Run::ipath(["list"]).arg(overloads()).arg(pattern).run();
        let hints = run.expect(1).hints();
        assert_eq!(hints, format!("did you mean {meant}?"), "{pattern}");
    }
}
