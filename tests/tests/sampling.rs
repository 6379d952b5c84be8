//! `ipath suggest` with few resources: descriptors, locked memory, no perf events.

use ipath_tests::command::Run;
use ipath_tests::compile::program;
use ipath_tests::place::{Scratch, ipath};
use ipath_tests::snapshot::ProcessState;
use ipath_tests::target::Target;
use nix::sys::signal::Signal;
use serde_json::Value;
use std::process::Command;
use std::time::Duration;

fn first(found: &Value) -> &Value {
    &found["candidates"][0]
}

/// Checks that `hot`, which uses all CPU time, is among the first three candidates.
fn assert_hot_is_found(found: &Value) {
    let first = found["candidates"]
        .as_array()
        .expect("candidates")
        .iter()
        .take(3);
    let hot = first.into_iter().find(|c| c["name"] == "hot");
    assert!(
        hot.and_then(|c| c["self"].as_f64()) > Some(0.5),
        "{found:#}"
    );
}

/// `ipath suggest` of a process, started by a shell that sets a limit.
fn limited(limit: &str, target: &Target, command: &str) -> Run {
    let script = format!("{limit}; exec {command} suggest {} --json", target.pid());
    Run::new("sh").args(["-c", &script])
}

#[test]
fn who_works_is_found_among_thousands_of_threads() {
    let target = Target::start(program("crowd.c"), ["4000"]).await_output("ready");
    let command = ipath().display().to_string();
    let found = limited(":", &target, &command).run().expect(0).json();
    assert_hot_is_found(&found);
    target.finish("ok");
}

#[test]
fn threads_take_turns_where_descriptors_are_few() {
    let target = Target::start(program("crowd.c"), ["1000"]).await_output("ready");
    let command = ipath().display().to_string();
    let found = limited("ulimit -n 200", &target, &command).run();
    let found = found.expect(0).json();
    assert_hot_is_found(&found);
    target.finish("ok");
}

#[test]
fn threads_take_turns_where_locked_memory_is_short() {
    let scratch = Scratch::public("sampling");
    let public = |from: std::path::PathBuf| {
        let to = scratch.file(&from.file_name().expect("a file").to_string_lossy());
        std::fs::copy(&from, &to).expect("room for a copy");
        to
    };
    let (own, crowd) = (public(ipath()), public(program("crowd.c")));
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.arg(crowd).arg("300");
    let target = Target::spawn(command).await_output("ready");
    let own = own.display().to_string();
    let found = limited("ulimit -l 0", &target, &own).as_nobody().run();
    let found = found.expect(0).json();
    assert_hot_is_found(&found);
    target.finish("ok");
}

/// `ipath suggest` of a process without perf events.
fn without_perf(target: &Target, more: &[&str]) -> Run {
    let pid = target.pid().to_string();
    let run = Run::new(program("without_perf.c")).arg(ipath());
    run.args(["suggest", &pid, "--json"]).args(more)
}

#[test]
fn without_perf_events_threads_are_stopped_and_it_is_said() {
    let target = Target::start(program("suggested.c"), ["cpu"]).await_output("ready");
    let before = ProcessState::of(target.pid());
    let finished = without_perf(&target, &[]).run().expect(0);
    let found = finished.json();
    assert_eq!(first(&found)["name"], "hot", "{found:#}");
    assert_eq!(first(&found)["stack"][0], "mixed", "{found:#}");
    let said = &finished.stderr;
    assert!(said.contains("no perf events"), "{said}");
    before.assert_unchanged(target.pid());
    target.finish("ok");
}

#[test]
fn without_perf_events_it_is_seen_who_waits() {
    let target = Target::start(program("suggested.c"), ["lock"]).await_output("ready");
    let found = without_perf(&target, &["--limit", "0"]).run();
    let found = found.expect(0).json();
    let all = found["candidates"].as_array().expect("candidates");
    let shared = all.iter().find(|c| c["name"] == "update_shared");
    let waiting = shared.and_then(|c| c["waiting"].as_f64());
    assert!(waiting > Some(0.3), "{found:#}");
    target.finish("ok");
}

#[test]
fn without_perf_events_a_process_is_refused_that_another_traces() {
    let target = Target::start(program("suggested.c"), ["cpu"]).await_output("ready");
    let pid = target.pid().to_string();
    let tracer = Target::start(program("tracer.c"), [&pid]).await_output("ready");
    let error = without_perf(&target, &[]).run().expect(1).expect_error();
    let expected = format!("it is traced by {} (tracer", tracer.pid());
    assert!(error.contains(&expected), "{error}");
    drop(tracer);
    target.finish("ok");
}

/// The target continues, wherever its threads are at that moment.
#[test]
fn without_perf_events_ipath_may_be_killed_at_any_time() {
    let target = Target::start(program("suggested.c"), ["cpu"]).await_output("ready");
    let pid = target.pid().to_string();
    for round in 0..8 {
        let mut command = Command::new(program("without_perf.c"));
        command
            .arg(ipath())
            .args(["suggest", &pid, "--duration", "10m"]);
        let mut suggest = Target::spawn(command);
        suggest.until(Duration::from_secs(60), "begun", |t| {
            t.stderr().contains("no perf events")
        });
        std::thread::sleep(Duration::from_millis(round * 7));
        suggest.signal(Signal::SIGKILL);
        suggest.wait(Duration::from_secs(60));
    }
    target.finish("ok");
}
