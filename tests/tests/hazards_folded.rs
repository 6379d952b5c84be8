//! Functions whose code has several names: ipath reports that the counts cover all of them.

use ipath_tests::command::Run;
use ipath_tests::compile::{program_with, source};
use ipath_tests::place::Scratch;
use ipath_tests::profile::Profile;
use ipath_tests::session::Session;
use ipath_tests::target::Target;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// The standard error of `run`, the profile, and the report.
fn measured(program: &Path, functions: &[&str]) -> (String, Value, String) {
    let scratch = Scratch::new("folded");
    let file = scratch.file("p.json");
    let finished = Run::ipath(["run", "--no-tui", "-o"])
        .arg(&file)
        .args(functions.iter().flat_map(|f| ["-f", f]))
        .arg("--")
        .arg(program)
        .run()
        .expect(0);
    Profile::read(&file).check_sums();
    let text = fs::read_to_string(&file).expect("a profile");
    let report = Run::ipath(["report"]).arg(&file).run().expect(0).stdout;
    (
        finished.stderr,
        serde_json::from_str(&text).expect("JSON"),
        report,
    )
}

fn strings(value: &Value) -> Vec<&str> {
    let all = value.as_array().expect("an array").iter();
    all.map(|v| v.as_str().expect("a string")).collect()
}

#[test]
fn folded_functions_are_said_to_have_other_names() {
    const FLAGS: [&str; 3] = ["-g", "-ffunction-sections", "-Wl,--icf=all"];
    for linker in ["-fuse-ld=gold", "-fuse-ld=lld"] {
        let program = program_with("folded.cc", &[&FLAGS[..], &[linker]].concat());
        for asked in [
            &["Third::gamma"][..],
            &["beta(long)"],
            &["alpha", "beta", "Third::gamma"],
        ] {
            let (said, profile, report) = measured(&program, asked);
            let functions = profile["functions"].as_array().expect("functions");
            let [function] = &functions[..] else {
                panic!("{linker} {asked:?}: {functions:?}");
            };
            assert_eq!(function["totals"]["count"], 170, "{linker} {asked:?}");
            let mut names = strings(&function["aliases"]);
            names.push(function["linkage"].as_str().expect("a name"));
            names.sort_unstable();
            assert_eq!(names, ["_Z4betal", "_Z5alphal", "_ZN5Third5gammaEl"]);
            for text in [&said, &report] {
                let line = text.lines().find(|l| l.contains("also called as "));
                let line = line.unwrap_or_else(|| panic!("{linker} {asked:?}: {text}"));
                let own = function["name"].as_str().expect("a name");
                for name in ["alpha(long)", "beta(long)", "Third::gamma(long)"] {
                    let (_, others) = line.split_once("also called as ").expect("others");
                    assert_eq!(others.contains(name), name != own, "{line}");
                }
            }
        }
    }
}

#[test]
fn aliases_are_said_and_other_spellings_are_not() {
    let program = program_with("folded.cc", &["-g"]);
    let (said, profile, report) = measured(&program, &["give_back"]);
    assert_eq!(profile["functions"][0]["totals"]["count"], 200);
    assert_eq!(strings(&profile["functions"][0]["aliases"]), ["release"]);
    let also = "also called as release: calls by any of its names count";
    assert!(
        said.contains(also) && report.contains(also),
        "{said}{report}"
    );
    // A constructor has two symbols that look the same in the source.
    let (said, profile, report) = measured(&program, &["Third::Third"]);
    assert_eq!(profile["functions"][0]["totals"]["count"], 100);
    assert!(
        !said.contains("also") && !report.contains("also"),
        "{said}{report}"
    );
    // A function that is not folded has no other name.
    let (said, profile, _) = measured(&program, &["alpha"]);
    assert_eq!(profile["functions"][0]["totals"]["count"], 100);
    assert!(profile["functions"][0]["aliases"].is_null(), "{profile}");
    assert!(!said.contains("also"), "{said}");
}

/// `add` prints the other names of a function.
#[test]
fn add_says_so_too() {
    let more = source("names_more.c").display().to_string();
    let names = program_with("names.c", &["-g", &more]);
    let target = Target::start(names, [""; 0]).await_output("ready");
    let (session, attached) = Session::try_attach(target.pid(), &["one"], "count");
    assert_eq!(attached.expect(0).stderr, "");
    let added = session.add(&["weak_name"]).expect(0);
    for name in ["also called as ", "first_name", "second_name"] {
        assert!(added.stderr.contains(name), "{}", added.report());
    }
    session.detach();
}
