//! `--search`: without a function name it finds the costliest call path, in programs whose
//! costliest path is known by construction, and leaves them unchanged.

use ipath_tests::command::{Finished, Run};
use ipath_tests::compile::{program, program_with};
use ipath_tests::halo::{halo, mpirun};
use ipath_tests::place::{Scratch, ipath};
use ipath_tests::session::{listed, own_counts};
use ipath_tests::snapshot::ProcessState;
use ipath_tests::target::Target;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::process::Command;
use std::time::Duration;

/// The arguments of a search in a process, with the profile as JSON.
fn arguments(pid: u32, more: &[&str]) -> Vec<String> {
    let arguments = ["attach", &pid.to_string(), "--search", "--format", "json"].map(str::to_owned);
    let more = more.iter().map(|&argument| argument.to_owned());
    arguments.into_iter().chain(more).collect()
}

/// Searches in a process, and checks that nothing is left in it. Returns the finished command.
fn searched(target: &Target, more: &[&str]) -> Finished {
    let before = ProcessState::of(target.pid());
    let run = Run::ipath(arguments(target.pid(), more)).limit(Duration::from_secs(180));
    let finished = run.run().expect(0);
    before.assert_unchanged(target.pid());
    assert_eq!(listed(target.pid()), None);
    finished
}

/// The elements of an array in an object; empty if it has none.
fn array<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn number(value: &Value, key: &str) -> f64 {
    value[key]
        .as_f64()
        .unwrap_or_else(|| panic!("no {key} in {value}"))
}

/// The paths that were found, each with its names from the function outwards, its share of the CPU
/// time, and its share of the waiting.
fn found(profile: &Value) -> Vec<(Vec<String>, f64, f64)> {
    let named = |path: &Value| {
        let index = |value: &Value| value.as_u64().expect("an index") as usize;
        let function = &profile["functions"][index(&path["function"])]["name"];
        let frames = array(path, "stack").iter();
        let callers = frames.map(|frame| &profile["frames"][index(frame)]["function"]);
        let names = std::iter::once(function).chain(callers);
        let name = |name: &Value| name.as_str().unwrap_or("?").to_owned();
        (
            names.map(name).collect(),
            number(path, "cpu_share"),
            number(path, "waiting_share"),
        )
    };
    array(&profile["search"], "paths")
        .iter()
        .map(named)
        .collect()
}

/// Checks that the costliest path begins with these names. That is the first one, or the one with
/// most CPU time: on a busy machine a computing program also waits.
fn assert_first(profile: &Value, names: &[&str]) {
    let found = found(profile);
    let most = found.iter().max_by(|a, b| a.1.total_cmp(&b.1));
    let begins = |path: &&(Vec<String>, f64, f64)| {
        path.0.len() >= names.len() && path.0.iter().zip(names).all(|(a, b)| a == b)
    };
    let is_one = found.first().is_some_and(|path| begins(&path));
    let is_other = most.is_some_and(|path| begins(&path));
    assert!(is_one || is_other, "{names:?}: {found:#?}");
}

#[test]
fn search_finds_the_one_guilty_caller_of_a_utility() {
    let mut target = Target::start(program("searched.c"), ["lookup"]).await_output("ready");
    let finished = searched(&target, &[]);
    let profile = finished.json();
    assert_first(&profile, &["find_entry", "resolve_bodies"]);
    // One path has most of the time, so no other one is needed. A path that waited on a busy
    // machine may be listed.
    let paths = profile["search"]["paths"].as_array().expect("paths");
    let share = |path: &Value| path["cpu_share"].as_f64().expect("a share");
    let are_needed = paths.iter().skip(1).any(|path| share(path) > 0.05);
    assert!(!are_needed, "{:#}", profile["search"]);
    for said in ["sampling", "by samples", "added find_entry", "step 1"] {
        assert!(finished.stderr.contains(said), "{}", finished.report());
    }
    target.signal(Signal::SIGTERM);
    target.wait(Duration::from_secs(20));
    // At most as many calls as the program made.
    let own = own_counts(&target.stdout());
    let calls = number(&profile["search"]["paths"][0], "calls");
    assert!(
        calls > 0.0 && calls <= own["resolve_bodies"] as f64,
        "{calls}: {own:?}"
    );
}

#[test]
fn search_finds_who_has_others_wait_at_a_barrier() {
    let target = Target::start(program("searched.c"), ["barrier"]).await_output("ready");
    let profile = searched(&target, &[]).json();
    let found = found(&profile);
    let has = |names: &[&str]| {
        let is_it = |path: &[String]| names.iter().all(|name| path.iter().any(|n| n == name));
        found.iter().any(|(path, ..)| is_it(path))
    };
    assert!(
        has(&["pthread_barrier_wait", "synchronize", "assemble"]),
        "{found:#?}"
    );
    assert!(has(&["busy", "assemble"]), "{found:#?}");
    target.finish("ok");
}

/// An idle process waits only for work. The results contain neither that wait nor the time in which
/// ipath stops threads.
#[test]
fn search_in_an_idle_process_names_no_waiting() {
    let target = Target::start(program("searched.c"), ["idle"]).await_output("ready");
    let finished = searched(&target, &[]);
    let said = &finished.stderr;
    assert!(!said.contains("_dl_write"), "{said}");
    let profile = finished.json();
    assert_first(&profile, &["handle", "serve"]);
    for (names, _, waiting) in found(&profile) {
        let is_wait = names[0].trim_start_matches('_') == "poll";
        assert!(!is_wait || waiting == 0.0, "{names:?} {waiting}: {said}");
    }
    target.finish("ok");
}

#[test]
fn search_finds_where_an_mpi_program_waits() {
    let scratch = Scratch::new("search");
    let file = scratch.file("p.json").display().to_string();
    let (halo, ipath) = (halo().display().to_string(), ipath().display().to_string());
    let searched = format!("{ipath} attach $P --search --no-tui -o {file}");
    let rank_1 = format!("{halo} 1000000 & P=$!; sleep 2; {searched}; kill $P; wait $P");
    // The program is killed before its end, which shows in the status.
    let run = mpirun(&format!("[ $R = 0 ] && exec {halo} 1000000; {rank_1}"));
    let finished = run.run();
    let text = std::fs::read_to_string(&file).expect("written");
    let profile: Value = serde_json::from_str(&text).expect("JSON");
    let found = found(&profile);
    // It is the costliest path, unless other processes delay the rank that is waited for, which may
    // then be late anywhere.
    let is_it = |path: &[String]| {
        path[0].ends_with("MPI_Wait") && path.iter().any(|name| name == "exchange_corners")
    };
    assert!(
        found.iter().any(|(path, ..)| is_it(path)),
        "{found:#?}\n{}",
        finished.report()
    );
}

/// A search in a program that ipath starts begins with the program, and ends before it.
#[test]
fn search_looks_at_a_program_from_its_start() {
    let scratch = Scratch::new("search");
    let file = scratch.file("p.json").display().to_string();
    let program = program("searched.c").display().to_string();
    let arguments = ["run", "--search", "-o", &file, "--", &program, "lookup"];
    let mut command = Command::new(ipath());
    command.args(arguments);
    let mut running = Target::spawn(command);
    let is_written = |_: &Target| std::fs::exists(&file).unwrap_or(false);
    running.until(Duration::from_secs(180), "written the profile", is_written);
    let text = std::fs::read_to_string(&file).expect("written");
    let profile: Value = serde_json::from_str(&text).expect("JSON");
    assert_first(&profile, &["find_entry", "resolve_bodies", "load_module"]);
    let pid = profile["target"]["pid"].as_u64().expect("a pid");
    let pid = Pid::from_raw(i32::try_from(pid).expect("a pid"));
    kill(pid, Signal::SIGTERM).expect("it runs on");
    let status = running.wait(Duration::from_secs(60));
    assert!(status.success(), "{}", running.report());
}

/// If a function is called millions of times a second, its caller is measured instead.
#[test]
fn search_drops_what_costs_too_much_to_measure() {
    let target = Target::start(program("searched.c"), ["tiny"]).await_output("ready");
    let profile = searched(&target, &[]).json();
    assert_first(&profile, &["crunch", "main"]);
    let search = &profile["search"];
    let left = array(search, "left").iter().find(|l| l["name"] == "tiny");
    let reason = left
        .and_then(|left| left["reason"].as_str())
        .unwrap_or_default();
    assert!(reason.contains("times a second"), "{search:#}");
    assert!(number(search, "overhead") <= 0.05, "{search:#}");
    target.finish("ok");
}

/// A function that the user names is also replaced by its caller.
#[test]
fn search_goes_from_a_function_that_costs_too_much_to_its_callers() {
    let target = Target::start(program("searched.c"), ["tiny"]).await_output("ready");
    let profile = searched(&target, &["-f", "tiny"]).json();
    assert_first(&profile, &["crunch", "main"]);
    target.finish("ok");
}

#[test]
fn search_begins_with_the_functions_that_are_named() {
    let target = Target::start(program("searched.c"), ["lookup"]).await_output("ready");
    let profile = searched(&target, &["-f", "load_module"]).json();
    assert_first(&profile, &["find_entry", "resolve_bodies"]);
    let functions = array(&profile, "functions").iter();
    let names: Vec<_> = functions
        .map(|f| f["name"].as_str().expect("a name"))
        .collect();
    assert_eq!(names[0], "load_module");
    assert!(!names.contains(&"main"), "{names:?}");
    target.finish("ok");
}

#[test]
fn search_finds_functions_without_a_name() {
    let scratch = Scratch::new("search");
    let whole = program("searched.c");
    let symbols = Run::new("nm").arg(&whole).run().expect(0).stdout;
    let line = symbols.lines().find(|l| l.ends_with(" T find_entry"));
    let address = line.and_then(|l| u64::from_str_radix(l.split(' ').next()?, 16).ok());
    let copy = scratch.file("stripped");
    let strip = Run::new("strip").arg("-o").arg(&copy).arg(&whole);
    strip.run().expect(0);
    let target = Target::start(&copy, ["lookup"]).await_output("ready");
    let profile = searched(&target, &[]).json();
    let first = &profile["search"]["paths"][0];
    let function = &profile["functions"][first["function"].as_u64().expect("found") as usize];
    assert_eq!(
        function["address"].as_u64(),
        address,
        "{:#}",
        profile["search"]
    );
    target.finish("ok");
}

#[test]
fn search_finds_its_way_in_cpp() {
    let target = Target::start(program("searched.cc"), [""; 0]).await_output("ready");
    let profile = searched(&target, &[]).json();
    let found = found(&profile);
    let (first, ..) = found.first().expect("a path");
    assert!(first[0].starts_with("Mesh::intersect"), "{found:#?}");
    assert!(first[1].contains("cast_shadows"), "{found:#?}");
    target.finish("ok");
}

#[test]
fn search_finds_its_way_in_go() {
    let target = Target::start(program("suggested.go"), [""; 0]).await_output("ready");
    let finished = Run::ipath(arguments(target.pid(), &[])).limit(Duration::from_secs(180));
    let profile = finished.run().expect(0).json();
    assert_first(&profile, &["main.hot", "main.mixed", "main.main"]);
    assert_eq!(listed(target.pid()), None);
}

#[test]
fn search_finds_its_way_without_frame_pointers_and_unwind_tables() {
    let flags = [
        "-fomit-frame-pointer",
        "-fno-asynchronous-unwind-tables",
        "-fno-unwind-tables",
    ];
    let target = Target::start(program_with("searched.c", &flags), ["lookup"]);
    let target = target.await_output("ready");
    assert_first(
        &searched(&target, &[]).json(),
        &["find_entry", "resolve_bodies"],
    );
    target.finish("ok");
}

/// A search that runs for a while, because it waits for a call that does not return.
fn begun(target: &Target) -> Target {
    let mut command = Command::new(ipath());
    command.args(arguments(
        target.pid(),
        &["--interval", "10s", "-f", "forever"],
    ));
    let mut search = Target::spawn(command);
    search.until(Duration::from_secs(120), "begun to measure", |search| {
        search.stderr().contains("measuring 1 function")
    });
    search
}

#[test]
fn search_that_is_interrupted_takes_everything_out() {
    let target = Target::start(program("searched.c"), ["stuck"]).await_output("ready");
    let before = ProcessState::of(target.pid());
    let mut search = begun(&target);
    search.signal(Signal::SIGINT);
    let status = search.wait(Duration::from_secs(60));
    assert!(status.success(), "{}", search.report());
    assert!(
        search.stderr().contains("ended early"),
        "{}",
        search.report()
    );
    let profile: Value = serde_json::from_str(&search.stdout()).expect("a profile");
    assert_eq!(profile["functions"][0]["name"], "forever");
    before.assert_unchanged(target.pid());
    assert_eq!(listed(target.pid()), None);
    target.finish("ok");
}

#[test]
fn search_ends_with_the_program() {
    let mut target = Target::start(program("searched.c"), ["stuck"]).await_output("ready");
    let mut search = begun(&target);
    target.signal(Signal::SIGKILL);
    target.wait(Duration::from_secs(20));
    let status = search.wait(Duration::from_secs(60));
    assert!(status.success(), "{}", search.report());
    assert!(search.stderr().contains("has ended"), "{}", search.report());
    assert!(ProcessState::shared_of(target.pid()).is_empty());
    assert_eq!(listed(target.pid()), None);
}

/// A search gives up on a call that never returns, and reports it.
#[test]
fn search_says_what_it_cannot_measure() {
    let target = Target::start(program("searched.c"), ["stuck"]).await_output("ready");
    let profile = searched(&target, &["--interval", "200ms"]).json();
    let search = &profile["search"];
    assert!(array(search, "paths").is_empty(), "{search:#}");
    let left = array(search, "left")
        .iter()
        .find(|l| l["name"] == "forever");
    let left = left.unwrap_or_else(|| panic!("{search:#}"));
    assert!(number(left, "cpu_share") > 0.5, "{search:#}");
    assert!(
        left["reason"]
            .as_str()
            .is_some_and(|r| r.contains("returned")),
        "{search:#}"
    );
    target.finish("ok");
}

#[test]
fn search_is_over_when_its_time_is() {
    let target = Target::start(program("searched.c"), ["lookup"]).await_output("ready");
    let before = ProcessState::of(target.pid());
    let pid = target.pid().to_string();
    let ended = Run::ipath(["attach", &pid, "--search", "--duration", "100ms"]).run();
    let ended = ended.expect(0);
    assert!(
        ended.stderr.contains("before anything was measured"),
        "{}",
        ended.report()
    );
    assert_eq!(ended.stdout, "");
    before.assert_unchanged(target.pid());
    target.finish("ok");
}

/// A process with few samples is sampled for a part of `--duration` only.
#[test]
fn a_short_search_of_a_quiet_process_measures_something() {
    let target = Target::start(program("searched.c"), ["sparse"]).await_output("ready");
    let finished = searched(&target, &["--duration", "9s"]);
    assert!(finished.stderr.contains("step 1"), "{}", finished.report());
    assert_first(&finished.json(), &["handle", "serve"]);
    target.finish("ok");
}

/// A recursion has thousands of paths, each with little time. The path of the result goes through
/// it to the caller.
#[test]
fn search_names_the_caller_of_a_recursion() {
    let target = Target::start(program("searched.c"), ["order"]).await_output("ready");
    let profile = searched(&target, &[]).json();
    let found = found(&profile);
    assert!(!found.is_empty(), "{:#}", profile["search"]);
    for (path, ..) in &found {
        let has = |name: &str| path.iter().any(|function| function == name);
        assert!(has("rank_all") && has("main"), "{found:#?}");
    }
    target.finish("ok");
}

#[test]
fn search_prints_a_table_and_a_profile_that_reports_show() {
    let scratch = Scratch::new("search");
    let file = scratch.file("p.json").display().to_string();
    let target = Target::start(program("searched.c"), ["lookup"]).await_output("ready");
    let pid = target.pid().to_string();
    let run = Run::ipath(["attach", &pid, "--search", "-o", &file]).limit(Duration::from_secs(180));
    let finished = run.run().expect(0);
    let report = Run::ipath(["report", &file]).run().expect(0);
    // The log of the step and the report show the same figure.
    let profile: Value =
        serde_json::from_str(&fs::read_to_string(&file).expect("a profile")).expect("JSON");
    let step = format!("step {}: ", profile["search"]["steps"]);
    let step = finished.stderr.lines().find(|line| line.contains(&step));
    let (_, said) = step
        .and_then(|line| line.split_once(" explain "))
        .expect("a step");
    let shares = said
        .split(';')
        .next()
        .into_iter()
        .flat_map(|said| said.split(" and "));
    let shares = shares.map(|said| said.split(" of ").next().expect("a share"));
    let shares: Vec<String> = shares.map(|share| format!("{share} of ")).collect();
    for text in [&finished.stdout, &report.stdout] {
        let explained = text.lines().find(|line| line.starts_with("explained: "));
        let explained = explained.expect("a share");
        assert!(explained.ends_with("; most of it by 1 call path"), "{text}");
        for share in &shares {
            assert!(explained.contains(share), "{share}: {text}");
        }
        assert!(text.contains("resolve_bodies"), "{text}");
    }
    target.finish("ok");
}

#[test]
fn search_has_options_of_its_own() {
    let target = Target::start(program("searched.c"), ["lookup"]).await_output("ready");
    let pid = target.pid().to_string();
    for alone in [["--min-share", "2%"], ["--max-functions", "2"]] {
        Run::ipath(["attach", &pid]).args(alone).run().expect(2);
    }
    for beside in [&["--keep"][..], &["--when", "ret < 0"], &["--depth", "3"]] {
        let run = Run::ipath(["attach", &pid, "--search"]).args(beside);
        run.run().expect(2);
    }
    let jsonl = Run::ipath(["attach", &pid, "--search", "--format", "jsonl"]).run();
    let error = jsonl.expect_error();
    assert!(error.contains("one profile"), "{error}");
    target.finish("ok");
}

#[test]
fn a_program_that_ends_at_once_ends_the_search_as_it_does() {
    for (program, status) in [("true", 0), ("false", 1)] {
        let run = Run::ipath(["run", "--search", "--", program]);
        run.run().expect(status);
    }
}
