//! Process trees that are sampled and searched as one, including processes that start during the
//! search.

use ipath_tests::command::Run;
use ipath_tests::compile::program;
use ipath_tests::place::{Scratch, ipath};
use ipath_tests::session::listed;
use ipath_tests::snapshot::ProcessState;
use ipath_tests::target::{Target, descendants};
use serde_json::Value;
use std::fs;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// A shell with three programs in the background, once all are ready: two of `searched` in this
/// mode, and one of `suggested`.
fn three_programs(searched: &str) -> Target {
    let (searcher, suggested) = (program("searched.c"), program("suggested.c"));
    let script = format!(
        "{0} {searched} & {0} {searched} & {1} cpu & wait",
        searcher.display(),
        suggested.display()
    );
    let mut shell = Target::start("sh", ["-c", &script]);
    let are_ready = |shell: &Target| shell.stdout().matches("ready").count() == 3;
    shell.until(LIMIT, "started its programs", are_ready);
    shell
}

/// The samples of a tree are the samples of all its processes. A function of several processes is
/// one candidate.
#[test]
fn a_tree_is_sampled_as_one() {
    let shell = three_programs("lookup");
    let pid = shell.pid().to_string();
    let suggest = |more: &[&str]| {
        let run = Run::ipath(["suggest", &pid, "--children", "--limit", "0"]);
        run.args(more).run().expect(0)
    };
    let suggestion = suggest(&["--json"]).json();
    assert_eq!(suggestion["processes"], 4);
    let candidates = suggestion["candidates"].as_array().expect("candidates");
    let named = |name: &str| {
        let of_name = candidates.iter().filter(|c| c["name"] == name);
        let of_name: Vec<&Value> = of_name.collect();
        assert_eq!(of_name.len(), 1, "{name}: {suggestion:#}");
        of_name[0]
    };
    for (name, caller) in [("find_entry", "resolve_bodies"), ("hot", "mixed")] {
        let candidate = named(name);
        assert_eq!(candidate["patchable"], true, "{candidate:#}");
        assert_eq!(candidate["stack"][0], caller, "{candidate:#}");
    }
    let own = candidates
        .iter()
        .map(|c| c["self"].as_f64().expect("a share"));
    let all: f64 = own.sum();
    assert!((0.9..1.1).contains(&all), "{all}: {suggestion:#}");
    let text = suggest(&[]).stdout;
    let head = format!("4 processes: {pid}: ");
    let next = format!("ipath attach {pid} --children -f ");
    assert!(text.starts_with(&head) && text.contains(&next), "{text}");
}

/// A search over a tree measures the same functions in all its processes, and leaves nothing in
/// them.
#[test]
fn a_tree_is_searched_as_one() {
    let shell = three_programs("lookup");
    let pid = shell.pid().to_string();
    let children = descendants(shell.pid());
    let before: Vec<ProcessState> = children.iter().map(|&pid| ProcessState::of(pid)).collect();
    let search = |more: &[&str]| {
        let run = Run::ipath(["attach", &pid, "--children", "--search", "--format", "json"]);
        run.args(more).limit(3 * LIMIT).run().expect(0)
    };
    let finished = search(&[]);
    let profile = finished.json();
    let found = found(&profile);
    let is_of_the_other = |path: &Vec<String>| path.iter().any(|name| name == "mixed");
    // On a busy machine the order of the programs depends on the processor time that each gets.
    let first = found.iter().position(|path| !is_of_the_other(path));
    let first = first.unwrap_or_else(|| panic!("{found:?}"));
    assert_eq!(
        found[first][..2],
        ["find_entry", "resolve_bodies"],
        "{found:?}"
    );
    assert!(found.iter().any(is_of_the_other), "{found:?}");
    // Both processes that look up entries called it, on the same path.
    let function = profile["search"]["paths"][first]["function"]
        .as_u64()
        .expect("an index");
    let of_each = &profile["functions"][function as usize]["processes"];
    assert_eq!(of_each.as_array().map(Vec::len), Some(2), "{of_each}");
    assert_eq!(profile["target"]["pid"], shell.pid());
    let within = search(&["-f", "mixed"]);
    assert!(
        within.stderr.contains("no function matches 'mixed'"),
        "{}",
        within.report()
    );
    let paths = self::found(&within.json());
    assert!(
        !paths.is_empty() && paths.iter().all(is_of_the_other),
        "{paths:?}"
    );
    for (pid, state) in children.into_iter().zip(before) {
        state.assert_unchanged(pid);
        assert_eq!(listed(pid), None);
    }
}

/// A search follows processes that start later: short-lived children of fork, and programs.
#[test]
fn a_search_follows_later_processes() {
    let target = Target::start(program("serving_children.c"), [""; 0]).await_output("ready");
    let pid = target.pid().to_string();
    let before = ProcessState::of(target.pid());
    let run = Run::ipath(["attach", &pid, "--search", "--follow", "--format", "json"]);
    let finished = run.limit(3 * LIMIT).run().expect(0);
    before.assert_unchanged(target.pid());
    let profile = finished.json();
    let paths = found(&profile);
    assert_eq!(
        paths[0][..2],
        ["compute", "serve"],
        "{paths:?} {}",
        finished.stderr
    );
    let processes = profile["processes"].as_array().map_or(0, Vec::len);
    assert!(processes > 5, "{processes}: {}", finished.stderr);
    target.finish("ok children ");
    let scratch = Scratch::new("later");
    let go = scratch.file("go");
    let script = format!(
        "echo ready; while ! [ -e {} ]; do sleep 0.05; done; {} lookup & wait",
        go.display(),
        program("searched.c").display()
    );
    let shell = Target::start("bash", ["-c", &script]).await_output("ready\n");
    let mut command = Command::new(ipath());
    let pid = shell.pid().to_string();
    command.args(["attach", &pid, "--search", "--follow", "--format", "json"]);
    let mut search = Target::spawn(command);
    search.until(LIMIT, "begun to sample", |t| {
        t.stderr().contains("sampling for")
    });
    fs::write(&go, "").expect("an own folder");
    assert!(search.wait(3 * LIMIT).success(), "{}", search.report());
    let profile: Value = serde_json::from_str(&search.stdout()).expect("JSON");
    let paths = found(&profile);
    assert_eq!(paths[0][..2], ["find_entry", "resolve_bodies"], "{paths:?}");
    for pid in descendants(shell.pid()) {
        assert_eq!(listed(pid), None);
    }
}

/// Programs that end before they can be measured are named with their sampled shares.
#[test]
fn a_search_names_the_functions_of_programs_that_end_too_soon() {
    let script = format!(
        "echo ready; while :; do timeout -s TERM 0.1 {} lookup > /dev/null; done",
        program("searched.c").display()
    );
    let shell = Target::start("bash", ["-c", &script]).await_output("ready\n");
    let pid = shell.pid().to_string();
    let run = Run::ipath(["attach", &pid, "--search", "--children", "--follow"]);
    let finished = run
        .args(["--duration", "8s"])
        .limit(3 * LIMIT)
        .run()
        .expect(0);
    let mut lines = finished.stdout.lines();
    let first = lines.find(|line| line.starts_with("costliest: "));
    let first = first.unwrap_or_else(|| panic!("{}", finished.report()));
    for said in ["find_entry", "searched", "end too soon", "-f"] {
        assert!(first.contains(said), "{first}");
    }
}

/// `run --search --follow` searches in the program and in its children.
#[test]
fn a_search_follows_a_program_from_its_start() {
    let scratch = Scratch::new("later");
    let file = scratch.file("p.json");
    let script = format!(
        "{} lookup > /dev/null & sleep 8; kill $!; wait; exit 5",
        program("searched.c").display()
    );
    let run = Run::ipath(["run", "--search", "--follow", "-o"]).arg(&file);
    let run = run.args(["--", "bash", "-c", &script]).limit(3 * LIMIT);
    run.run().expect(5);
    let text = fs::read_to_string(&file).expect("a profile");
    let paths = found(&serde_json::from_str(&text).expect("JSON"));
    assert_eq!(paths[0][..2], ["find_entry", "resolve_bodies"], "{paths:?}");
}

/// The paths that a search has found, each with the function first and then its callers.
fn found(profile: &Value) -> Vec<Vec<String>> {
    let index = |value: &Value| value.as_u64().expect("an index") as usize;
    let path = |path: &Value| {
        let function = &profile["functions"][index(&path["function"])]["name"];
        let stack = path["stack"].as_array().expect("a stack").iter();
        let callers = stack.map(|frame| &profile["frames"][index(frame)]["function"]);
        let names = std::iter::once(function).chain(callers);
        names
            .map(|name| name.as_str().unwrap_or("?").to_owned())
            .collect()
    };
    let paths = profile["search"]["paths"].as_array().expect("paths");
    paths.iter().map(path).collect()
}
