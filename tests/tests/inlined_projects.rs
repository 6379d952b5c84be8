//! The executions of inlined functions in programs of other projects, compared with gcov.

use ipath_tests::command::Run;
use ipath_tests::gcov::Project;
use ipath_tests::inside::{list, number};
use ipath_tests::place::Scratch;
use ipath_tests::projects;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(300);

/// The executions of each function whose name is unique, by gcov.
fn executed(project: &Project, folder: &Path) -> BTreeMap<String, u64> {
    let program = project.build(folder, &["-O0", "-g", "--coverage"]);
    let run = Run::new(&program).args(&project.arguments).limit(LIMIT);
    run.run().expect(0);
    let script = "cd \"$1\" && gcov --json-format --stdout *.gcda";
    let gcov = Run::new("bash").args(["-c", script, "gcov"]).arg(folder);
    let text = gcov.limit(LIMIT).run().expect(0).stdout;
    let mut found: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with('{')) {
        let of_file: Value = serde_json::from_str(line).expect("JSON");
        let files = list(&of_file, "files").iter();
        for function in files.flat_map(|file| list(file, "functions")) {
            let name = function["name"].as_str().expect("a name").to_owned();
            let count = number(&function["execution_count"]);
            found.entry(name).or_default().push(count);
        }
    }
    let unique = found.into_iter().filter(|(_, counts)| counts.len() == 1);
    unique.map(|(name, counts)| (name, counts[0])).collect()
}

/// The name of the function from which the compiler has made a clone or a part.
fn base(name: &str) -> &str {
    name.split('.').next().unwrap_or_default()
}

/// Measures all functions with all their copies. Compares those that have copies, none of which is
/// refused, and that the program executes. Returns how many have the executions of gcov, and how
/// many have fewer. None has more.
fn compare(mut project: Project, compiler: &'static str) -> (usize, usize) {
    let scratch = Scratch::new("inlined-projects");
    let executed = executed(&project, &scratch.file("covered"));
    project.compiler = compiler;
    let program = project.build(&scratch.file("optimized"), &["-O2", "-g"]);
    let file = scratch.file("p.json");
    let run = Run::ipath(["run", "--no-tui", "--yes", "-m", "count", "--inlined", "-o"]).arg(&file);
    let run = run.args(["-f", "program!*", "--"]).arg(&program);
    run.args(&project.arguments).limit(LIMIT).run().expect(0);
    let text = std::fs::read_to_string(&file).expect("a profile");
    let json: Value = serde_json::from_str(&text).expect("JSON");
    let name_of = |row: &Value| row["name"].as_str().expect("a name").to_owned();
    let mut left_out: BTreeSet<String> = BTreeSet::new();
    for refused in list(&json, "refused") {
        let name = name_of(refused);
        let name = name.split(" inlined in ").next().unwrap_or_default();
        left_out.insert(base(name).to_owned());
    }
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    let mut copied: BTreeSet<String> = BTreeSet::new();
    for row in list(&json, "functions") {
        let name = name_of(row);
        if name.contains(".part.") {
            left_out.insert(base(&name).to_owned());
        }
        if !row["inlined_copy"].is_null() {
            copied.insert(base(&name).to_owned());
        }
        *counts.entry(base(&name).to_owned()).or_default() += number(&row["totals"]["count"]);
    }
    let (mut equal, mut fewer): (usize, Vec<String>) = (0, Vec::new());
    for name in copied.difference(&left_out) {
        let (Some(&expected), found) = (executed.get(name), counts[name]) else {
            continue;
        };
        assert!(found <= expected, "{name}: {found}, by gcov {expected}");
        if found < expected {
            fewer.push(format!("{name}: {found} of {expected}"));
        } else if expected > 0 {
            equal += 1;
        }
    }
    println!("{compiler}: {equal} equal, fewer: {fewer:?}");
    (equal, fewer.len())
}

/// Clang leaves no code for an execution.
#[test]
fn executions_in_bzip2_are_those_of_gcov() {
    let packs = ["-1", "-c", "{folder}/sample2.ref"];
    for compiler in ["gcc", "clang"] {
        let (equal, fewer) = compare(projects::bzip2(&packs), compiler);
        assert!(equal >= 8 && fewer <= 1, "{compiler}: {equal}, {fewer}");
    }
}

#[test]
fn executions_in_zlib_are_those_of_gcov() {
    for compiler in ["gcc", "clang"] {
        let (equal, fewer) = compare(projects::zlib(), compiler);
        assert!(equal >= 10 && fewer == 0, "{compiler}: {equal}, {fewer}");
    }
}

/// The compiler leaves no code for some executions, or merges it with that of others.
#[test]
fn executions_in_lua_are_those_of_gcov() {
    for compiler in ["gcc", "clang"] {
        let (equal, fewer) = compare(projects::lua(), compiler);
        assert!(equal >= 120, "{compiler}: {equal}, {fewer}");
        assert!(fewer * 10 <= equal, "{compiler}: {equal}, {fewer}");
    }
}
