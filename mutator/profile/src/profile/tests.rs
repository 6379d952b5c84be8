//! Tests of the format against the example in its contract, and with inconsistent profiles.

mod ends;
mod inside;
mod metrics;

use super::*;
use crate::sample::sample;
use serde_json::{Value, json};

/// The example of the command-line contract, with its paths made consistent with its totals.
fn contract() -> Value {
    json!({
      "schema": "ipath-profile/1",
      "ipath": "0.1.0",
      "target": {"pid": 4242, "exe": "/usr/bin/app", "args": ["app"], "host": "n1", "labels": {"rank": "0"}},
      "session": {"started_unix_ns": 0, "elapsed_ns": 5_000_000_000_u64, "clock_hz": 2_596_000_000_u64,
                  "stops": [{"why": "attach", "ns": 1_200_000}]},
      "metrics": [{"name": "count", "unit": "calls"}, {"name": "wall", "unit": "ns"}],
      "modules": [{"path": "/usr/bin/app", "build_id": "ab12"}],
      "functions": [
        {"name": "work", "linkage": "work", "module": 0, "address": 4560, "size": 80,
         "entry": "window", "exits": ["window", "pun"],
         "totals": {"count": 10, "wall": {"sum": 900, "min": 80, "max": 120, "outermost": 900, "exclusive": 900}}}
      ],
      "refused": [{"name": "tiny", "module": 0, "address": 4100, "reason": "branch-into-window"}],
      "frames": [
        {"module": 0, "address": 4711, "function": "main", "offset": 23, "file": "app.c", "line": 12,
         "inlined": [{"function": "helper", "file": "app.h", "line": 3}]}
      ],
      "paths": [
        {"function": 0, "stack": [0], "complete": true, "thread": null,
         "metrics": {"count": 10, "wall": {"sum": 900, "min": 80, "max": 120, "outermost": 900, "exclusive": 900, "hist": [[6, 9], [7, 1]]}}}
      ],
      "losses": {"missed": 0, "overflow": 0, "unwound": 0, "open": 0, "incomplete": 0}
    })
}

fn read(value: &Value) -> Profile {
    serde_json::from_str(&value.to_string()).unwrap()
}

fn temporary(name: &str) -> std::path::PathBuf {
    let dir = std::env::temp_dir().join(format!("ipath-profile-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

#[test]
fn the_contracts_example_is_read_checked_and_written_back_field_for_field() {
    let profile = read(&contract());
    profile.check().unwrap();
    assert_eq!(profile.functions[0].totals.unwound, Some(0));
    assert_eq!(serde_json::to_value(&profile).unwrap(), contract());
}

#[test]
fn fields_and_metrics_are_written_in_their_order() {
    let mut profile = sample();
    let text = serde_json::to_string(&profile).unwrap();
    let order = [
        "\"schema\"",
        "\"ipath\"",
        "\"target\"",
        "\"session\"",
        "\"metrics\"",
        "\"modules\"",
        "\"functions\"",
        "\"refused\"",
        "\"frames\"",
        "\"paths\"",
        "\"losses\"",
    ];
    let places: Vec<_> = order.iter().map(|key| text.find(key).unwrap()).collect();
    assert!(places.is_sorted(), "{places:?}");
    let counts = &mut profile.paths[0].metrics;
    counts.timers = ["wall", "cpu", "blocked"]
        .map(|name| (name.to_owned(), TimerStats::default()))
        .into_iter()
        .collect();
    let text = serde_json::to_string(counts).unwrap();
    let places: Vec<_> = ["count", "wall", "cpu", "blocked"]
        .map(|k| text.find(k).unwrap())
        .into();
    assert!(places.is_sorted(), "{text}");
    assert_eq!(serde_json::from_str::<Counts>(&text).unwrap(), *counts);
}

#[test]
fn unwound_and_open_stand_only_where_they_are_not_0_and_are_null_without_exits() {
    let mut profile = sample();
    let value = serde_json::to_value(&profile).unwrap();
    assert_eq!(value["paths"][1]["unwound"], 2);
    assert_eq!(value["paths"][1]["open"], 1);
    assert_eq!(value["paths"][0].get("unwound"), None);
    assert_eq!(value["functions"][0]["totals"]["unwound"], 2);
    assert_eq!(value["functions"][1]["totals"].get("unwound"), None);

    profile.paths[0].unwound = None;
    profile.paths[0].open = None;
    profile.functions[0].totals.open = None;
    let value = serde_json::to_value(&profile).unwrap();
    assert_eq!(value["paths"][0].get("unwound"), Some(&Value::Null));
    assert_eq!(
        value["functions"][0]["totals"].get("open"),
        Some(&Value::Null)
    );
    assert_eq!(read(&value), profile);
}

#[test]
fn a_sum_of_large_values_is_kept_exactly() {
    let mut profile = read(&contract());
    let large = i128::from(i64::MAX) * 4096;
    for timers in [
        &mut profile.functions[0].totals.counts.timers,
        &mut profile.paths[0].metrics.timers,
    ] {
        let mut wall = timers.get("wall").unwrap().clone();
        wall.sum = large;
        timers.insert("wall", wall);
    }
    let text = serde_json::to_string(&profile).unwrap();
    let again: Profile = serde_json::from_str(&text).unwrap();
    assert_eq!(
        again.paths[0].metrics.timers.get("wall").unwrap().sum,
        large
    );
    again.check().unwrap();
}

#[test]
fn the_sample_fits_together() {
    sample().check().unwrap();
}

#[test]
fn the_parts_of_an_unpatched_exit_and_of_an_argument_fit_together() {
    let mut value = contract();
    let stats = json!({"sum": -5, "min": -9, "max": 4, "hist": [[0, 1], [2, 4]],
        "hist_negative": [[2, 3], [3, 2]]});
    value["metrics"] =
        json!([{"name": "count", "unit": "calls"}, {"name": "arg1", "unit": "value"}]);
    value["functions"][0]["exits"] = json!([]);
    value["functions"][0]["totals"] = json!({"count": 10, "unwound": null, "open": null,
        "arg1": {"sum": -5, "min": -9, "max": 4}});
    value["paths"][0]["metrics"] = json!({"count": 10, "arg1": stats});
    value["paths"][0]["unwound"] = Value::Null;
    value["paths"][0]["open"] = Value::Null;
    value["losses"]["unwound"] = Value::Null;
    value["losses"]["open"] = Value::Null;
    let profile = read(&value);
    profile.check().unwrap();
    assert_eq!(serde_json::to_value(&profile).unwrap(), value);
}

/// Asserts that each change of the example, given by its place, is found and named.
fn assert_found(changes: impl IntoIterator<Item = (&'static str, Value, &'static str)>) {
    for (pointer, wrong, message) in changes {
        let mut value = contract();
        match value.pointer_mut(pointer) {
            Some(place) => *place = wrong,
            None => {
                let (parent, key) = pointer.rsplit_once('/').unwrap();
                value.pointer_mut(parent).unwrap()[key] = wrong;
            }
        }
        assert_eq!(
            read(&value).check().unwrap_err().to_string(),
            message,
            "{pointer}"
        );
    }
}

#[test]
fn every_index_that_leads_nowhere_is_found_and_named() {
    assert_found([
        (
            "/schema",
            json!("ipath-profile/2"),
            "schema is ipath-profile/2, not ipath-profile/1",
        ),
        (
            "/functions/0/module",
            json!(1),
            "functions[0].module is 1, but there are 1 modules",
        ),
        (
            "/refused/0/module",
            json!(9),
            "refused[0].module is 9, but there are 1 modules",
        ),
        (
            "/frames/0/module",
            json!(3),
            "frames[0].module is 3, but there are 1 modules",
        ),
        (
            "/paths/0/function",
            json!(1),
            "paths[0].function is 1, but there are 1 functions",
        ),
        (
            "/paths/0/stack",
            json!([0, 7]),
            "paths[0].stack[1] is 7, but there are 1 frames",
        ),
        (
            "/metrics/1/name",
            json!("cpu"),
            "functions[0] and the list of metrics disagree about `cpu`",
        ),
        (
            "/metrics",
            json!([{"name": "count", "unit": "calls"}]),
            "functions[0] and the list of metrics disagree about `wall`",
        ),
    ]);
}

#[test]
fn every_total_that_its_paths_do_not_give_is_found_and_named() {
    assert_found([
        (
            "/functions/0/totals/count",
            json!(11),
            "functions[0].totals.count is 11, but the paths give 10",
        ),
        (
            "/functions/0/totals/wall/sum",
            json!(901),
            "functions[0].totals.wall.sum is 901, but the paths give 900",
        ),
        (
            "/functions/0/totals/wall/min",
            json!(79),
            "functions[0].totals.wall.min is 79, but the paths give 80",
        ),
        (
            "/functions/0/totals/wall/max",
            json!(119),
            "functions[0].totals.wall.max is 119, but the paths give 120",
        ),
        (
            "/functions/0/totals/wall/outermost",
            json!(1),
            "functions[0].totals.wall.outermost is 1, but the paths give 900",
        ),
        (
            "/functions/0/totals/wall/exclusive",
            json!(1),
            "functions[0].totals.wall.exclusive is 1, but the paths give 900",
        ),
        (
            "/functions/0/totals/wall/hist",
            json!([[6, 9]]),
            "functions[0].totals.wall.hist is 9, but the paths give 10",
        ),
    ]);
}

#[test]
fn every_number_of_calls_that_does_not_fit_is_found_and_named() {
    assert_found([
        (
            "/paths/0/metrics/wall/hist",
            json!([[6, 9]]),
            "paths[0].metrics.wall.hist is 9, but the paths give 10",
        ),
        (
            "/paths/0/open",
            json!(1),
            "paths[0].metrics.wall.hist is 10, but the paths give 9",
        ),
        (
            "/paths/0/unwound",
            json!(11),
            "paths[0].metrics.count is 10, but the paths give 11",
        ),
        (
            "/losses/unwound",
            json!(1),
            "losses.unwound is 1, but the paths give 0",
        ),
        (
            "/losses/open",
            json!(2),
            "losses.open is 2, but the paths give 0",
        ),
    ]);
}

#[test]
fn a_saved_profile_is_loaded_again_and_leaves_no_temporary_file() {
    let dir = temporary("save");
    let path = dir.join("out.json");
    std::fs::write(&path, "what was there before").unwrap();
    sample().save(&path).unwrap();
    assert_eq!(Profile::load(&path).unwrap(), sample());
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 1);
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn what_cannot_be_loaded_is_named_in_one_line() {
    let dir = temporary("load");
    let path = dir.join("p.json");
    let error = |text: Option<&str>| {
        match text {
            Some(text) => std::fs::write(&path, text).unwrap(),
            None => drop(std::fs::remove_file(&path)),
        }
        let line = Profile::load(&path).unwrap_err().to_string();
        assert!(!line.contains('\n'));
        line.replace(&path.display().to_string(), "FILE")
    };
    assert_eq!(error(None), "read FILE: no such file or directory");
    assert!(error(Some("")).starts_with("read FILE: not a profile: it is empty"));
    assert!(error(Some("{}")).ends_with("it is JSON without a schema"));
    assert_eq!(
        error(Some(r#"{"schema": "x\u001b[2J"}"#)),
        "read FILE: not a profile: its schema is x\\x1b[2J"
    );
    assert_eq!(
        error(Some(r#"{"schema": "ipath-profile/7"}"#)),
        "read FILE: it was written by another version of ipath: its schema is ipath-profile/7, and this version reads ipath-profile/1"
    );
    let mut value = contract();
    value["paths"][0]["stack"] = json!([4]);
    assert_eq!(
        error(Some(&value.to_string())),
        "read FILE: paths[0].stack[0] is 4, but there are 1 frames"
    );
    value["paths"][0]["metrics"]["wall"]["sum"] = json!("much");
    assert!(error(Some(&value.to_string())).starts_with("read FILE: not a profile: "));
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn a_frame_is_called_by_its_inlined_functions_then_its_own() {
    let profile = sample();
    let lines: Vec<String> = profile
        .frames
        .iter()
        .flat_map(|f| profile.labels(f))
        .map(|l| format!("{} {} {}", l.name, l.place, l.inlined))
        .collect();
    assert_eq!(
        lines,
        [
            "helper app.h:3 true",
            "main app.c:12 false",
            "__libc_start_main libc.so.6 false",
            "Store::load(int) app false",
            "app+0x1400 app false",
        ]
    );
}

#[test]
fn loops_are_in_the_function_that_contains_them() {
    let mut profile = sample();
    let of = |line: u32, end_line: Option<u32>, inlined: usize| FrameLoop {
        header: 0x1234,
        file: Some("/src/app/app.c".to_owned()),
        line: Some(line),
        end_line,
        inlined,
    };
    let unknown = |header: u64| FrameLoop {
        header,
        ..FrameLoop::default()
    };
    // The last one is in a copy that the call itself is not in.
    profile.frames[0].loops = vec![
        of(3, Some(4), 1),
        of(7, None, 0),
        unknown(4711),
        unknown(0x1000),
        of(9, Some(9), 5),
    ];
    let labels = profile.labels(&profile.frames[0]);
    let loops: Vec<&[String]> = labels.iter().map(|label| &label.loops[..]).collect();
    assert_eq!(
        loops,
        [
            vec!["loop at app.c:3-4", "loop at app.c:9"],
            vec!["loop at app.c:7", "loop at +0x17", "loop at 0x1000"]
        ]
    );
}

#[test]
fn a_name_cannot_command_the_terminal() {
    let mut profile = sample();
    profile.frames[0].function = Some("ev\x1b[2Jil\n".to_owned());
    profile.frames[0].file = Some("/src/a\u{202e}.c".to_owned());
    let labels = profile.labels(&profile.frames[0]);
    let last = labels.last().unwrap();
    assert_eq!(last.name, "ev\\x1b[2Jil\\n");
    assert!(last.place.starts_with("a\\u{202e}.c"), "{}", last.place);
}
