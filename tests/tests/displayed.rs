//! Patterns take names as reports display them.

use std::path::PathBuf;

use ipath_tests::command::Run;
use ipath_tests::compile::program_with;
use ipath_tests::session::Session;
use ipath_tests::target::Target;

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

#[test]
fn an_invalid_expression_is_one_clear_line() {
    let run = Run::ipath(["run", "--no-tui", "-f", "/[/", "--"]).arg(overloads());
    let line = run.run().expect_usage();
    assert_eq!(
        line,
        "ipath: run -f '/[/': the regular expression is invalid: unclosed character class"
    );
}

#[test]
fn a_status_without_a_session_leads_to_the_sessions() {
    let pid = std::process::id().to_string();
    let hints = Run::ipath(["status", &pid]).run().expect(1).hints();
    assert_eq!(hints, "`ipath status` lists the sessions on this machine");
}

/// `remove` takes displayed names. No command prints a line that is much longer than a few names.
#[test]
fn lists_of_long_names_are_short() {
    let target = Target::start(overloads(), [""; 0]).await_output("ready");
    let session = Session::attach(target.pid(), &["company::detail::*"]);
    let pid = target.pid().to_string();
    let run = |args: &[&str]| Run::ipath(args).run();
    let status = run(&["status"]).expect(0).stdout;
    let line = status.lines().find(|line| line.starts_with(&pid));
    assert!(line.is_some_and(|line| line.len() < 300), "{status}");
    let added = run(&["add", &pid, "-f", "company::detail::*"]).expect(0);
    assert!(added.stdout.starts_with("already in: ") && added.stdout.len() < 300);
    let refused = run(&["remove", &pid, "-f", "nothing"]).expect(1).hints();
    assert!(refused.starts_with("instrumented functions: ") && refused.len() < 300);
    let removed = run(&["remove", &pid, "-f", "Circle<...>::area"]).expect(0);
    assert!(removed.stdout.starts_with("removed ") && removed.stdout.len() < 100);
    run(&["remove", &pid, "-f", "*catcher(int)"]).expect(0);
    session.detach();
}
