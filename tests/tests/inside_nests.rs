//! The loops of functions, compared with those of the source by the syntax tree of clang. The
//! programs are compiled by gcc without optimization.

use ipath_tests::command::Run;
use ipath_tests::gcov::Project;
use ipath_tests::inside::{json, list, number};
use ipath_tests::place::{Scratch, workspace};
use ipath_tests::projects;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(100);

/// A loop: the number of loops around it, its first and its last line.
type Nested = (u64, u64, u64);

fn in_order(&(depth, first, last): &Nested) -> (u64, u64, u64) {
    (first, depth, last)
}

/// The loops of each function, as profiles have them.
fn found(project: &Project) -> BTreeMap<String, Vec<Nested>> {
    let scratch = Scratch::new("nests");
    let program = project.build(&scratch.file("plain"), &["-O0", "-g"]);
    let file = scratch.file("p.json");
    let run = Run::ipath(["run", "--no-tui", "--yes", "--edges", "program!*", "-o"]).arg(&file);
    let run = run.arg("--").arg(&program).args(&project.arguments);
    run.limit(LIMIT).run().expect(0);
    let json = json(&file);
    let functions = list(&json, "functions");
    let of = |inside: &Value| {
        let name = &functions[number(&inside["function"]) as usize]["name"];
        let loops = list(inside, "loops");
        let depth = |own: &Value| {
            let around = std::iter::successors(own["parent"].as_u64(), |&parent| {
                loops[parent as usize]["parent"].as_u64()
            });
            around.count() as u64
        };
        let nested = |own: &Value| {
            let [first, last] = ["line", "end_line"].map(|key| number(&own[key]));
            (depth(own), first, last)
        };
        let mut loops: Vec<Nested> = loops.iter().map(nested).collect();
        loops.sort_unstable_by_key(in_order);
        (name.as_str().expect("a name").to_owned(), loops)
    };
    list(&json, "inside").iter().map(of).collect()
}

/// The loops of each function of a source, by clang. Left out are functions with `goto`, which can
/// make a loop, and with a loop that begins with another one: both may have one head.
fn expected(project: &Project) -> BTreeMap<String, Vec<Nested>> {
    let mut all = BTreeMap::new();
    for file in &project.sources {
        let script = workspace().join("tests/oracle/loops.py");
        let run = Run::new("python3").arg(script).arg(file);
        let run = run.args(&project.flags).limit(LIMIT).run().expect(0);
        let functions: BTreeMap<String, Value> = serde_json::from_str(&run.stdout).expect("JSON");
        for (name, function) in functions {
            let loops = list(&function, "loops");
            let is_plain = function["jumps"] == false && loops.iter().all(|own| own[3] == false);
            if !is_plain {
                continue;
            }
            let nested = |own: &Value| (number(&own[0]), number(&own[1]), number(&own[2]));
            let mut nested: Vec<Nested> = loops.iter().map(nested).collect();
            nested.sort_unstable_by_key(in_order);
            all.insert(name, nested);
        }
    }
    all
}

/// Checks that each function has the same loops, each within the lines of its statement. It is in
/// as many others as the statement, or in fewer: a part of a loop that always leaves it, as by a
/// return, is outside of it. At least so many functions with so many loops must be comparable.
fn compare(project: &Project, least: [usize; 2]) {
    let found = found(project);
    let (mut compared, mut shallower) = ([0; 2], 0);
    for (name, expected) in expected(project) {
        // Functions that are not called may be left out by the linker or the preprocessor.
        let Some(loops) = found.get(&name) else {
            continue;
        };
        assert_eq!(
            loops.len(),
            expected.len(),
            "{name}: {loops:?} {expected:?}"
        );
        for (own, statement) in loops.iter().zip(&expected) {
            let is_within = statement.1 <= own.1 && own.2 <= statement.2;
            assert!(
                own.0 <= statement.0 && is_within,
                "{name}: {loops:?} {expected:?}"
            );
            shallower += usize::from(own.0 < statement.0);
        }
        if !expected.is_empty() {
            compared[0] += 1;
            compared[1] += expected.len();
        }
    }
    println!("{compared:?}, {shallower} shallower");
    assert!(20 * shallower <= compared[1], "{shallower} of {compared:?}");
    let is_enough = compared
        .iter()
        .zip(least)
        .all(|(&found, least)| found >= least);
    assert!(is_enough, "{compared:?} of {least:?}");
}

#[test]
fn loops_of_bzip2_are_those_of_the_source() {
    compare(
        &projects::bzip2(&["-9", "-c", "{folder}/sample1.ref"]),
        [25, 50],
    );
}

#[test]
fn loops_of_zlib_are_those_of_the_source() {
    compare(&projects::zlib(), [30, 60]);
}

#[test]
fn loops_of_lua_are_those_of_the_source() {
    compare(&projects::lua(), [100, 120]);
}
