//! Metrics other than times: values, counters, and metrics that were not measured from the start.

use super::{assert_found, contract, read};
use crate::profile::{Metric, Overhead, Presence, Thread};
use serde_json::{Value, json};

/// The example with `ret` instead of `wall`: 4 negative values and 6 others.
fn returning(values: Value) -> Value {
    let mut value = contract();
    value["metrics"][1] = json!({"name": "ret", "unit": ""});
    let mut totals = values.clone();
    for part in ["hist", "hist_negative"] {
        totals.as_object_mut().unwrap().remove(part);
    }
    value["functions"][0]["totals"] = json!({"count": 10, "ret": totals});
    value["paths"][0]["metrics"] = json!({"count": 10, "ret": values});
    value
}

/// The presence of a function that was added during the session.
fn since(ns: u64) -> Presence {
    Presence {
        since_ns: Some(ns),
        away_ns: 0,
    }
}

fn signed() -> Value {
    json!({"sum": i64::MIN + 20, "min": i64::MIN, "max": 7,
           "hist": [[0, 2], [2, 4]], "hist_negative": [[0, 3], [63, 1]]})
}

#[test]
fn signed_values_are_read_checked_and_written_back_field_for_field() {
    let value = returning(signed());
    let profile = read(&value);
    profile.check().unwrap();
    assert_eq!(serde_json::to_value(&profile).unwrap(), value);
    assert_eq!(
        profile.run_of(&profile.metrics[1], Presence::default()),
        None
    );
}

#[test]
fn each_call_has_a_value_but_those_that_leave_by_a_tail_call() {
    let mut value = returning(signed());
    value["paths"][0]["metrics"]["ret"]["hist"] = json!([[0, 2], [2, 1]]);
    let wrong = |value: &Value| read(value).check().map_err(|e| e.to_string());
    let few = "paths[0].metrics.ret.hist is 7, but the paths give 10".to_owned();
    assert_eq!(wrong(&value), Err(few));
    for place in ["/paths/0", "/functions/0"] {
        value.pointer_mut(place).unwrap()["tail"] = json!(3);
    }
    assert_eq!(wrong(&value), Ok(()));
    value["paths"][0]["metrics"]["ret"]["hist_negative"] = json!([[0, 8]]);
    let many = "paths[0].metrics.ret.hist is 11, but the paths give 10".to_owned();
    assert_eq!(wrong(&value), Err(many));
}

#[test]
fn a_smallest_value_above_the_largest_is_found() {
    assert_found([(
        "/paths/0/metrics/wall/min",
        json!(121),
        "paths[0].metrics.wall.min is 121, but the paths give 120",
    )]);
}

/// Calls before a metric was added have no values, and do not count as a minimum of 0.
#[test]
fn a_metric_that_was_added_later_has_fewer_values() {
    let mut value = contract();
    let mut early = value["paths"][0].clone();
    early["metrics"]["wall"] =
        json!({"sum": 0, "min": 0, "max": 0, "outermost": 0, "exclusive": 0});
    value["paths"].as_array_mut().unwrap().push(early);
    value["functions"][0]["totals"]["count"] = json!(20);
    assert!(read(&value).check().is_err());
    value["metrics"][1]["since_ns"] = json!(2_000_000_000_u64);
    let profile = read(&value);
    profile.check().unwrap();
    assert_eq!(
        profile.run_of(&profile.metrics[1], Presence::default()),
        Some(3_000_000_000)
    );
    let of = |function: u64| profile.run_of(&profile.metrics[1], since(function));
    assert_eq!(of(1_000_000_000), Some(3_000_000_000));
    assert_eq!(of(4_000_000_000), Some(1_000_000_000));
    assert_eq!(serde_json::to_value(&profile).unwrap(), value);
}

#[test]
fn cpu_time_is_a_part_of_the_processs() {
    let mut profile = read(&contract());
    let cpu = Metric {
        name: "cpu".to_owned(),
        unit: "ns".to_owned(),
        since_ns: None,
    };
    assert_eq!(profile.run_of(&cpu, Presence::default()), None);
    profile.session.cpu_ns = Some(7);
    assert_eq!(profile.run_of(&cpu, Presence::default()), Some(7));
    // The run of a function excludes the time in which it was removed.
    let away = Presence {
        since_ns: None,
        away_ns: 4_000_000_000,
    };
    let wall = &profile.metrics[1];
    assert_eq!(profile.run_of(wall, away), Some(1_000_000_000));
    assert_eq!(profile.run_of(&cpu, away), None);
    // The CPU time of the process until then is not known.
    assert_eq!(profile.run_of(&cpu, since(1)), None);
    assert_eq!(
        profile.run_of(&profile.metrics[1], Presence::default()),
        Some(5_000_000_000)
    );
}

#[test]
fn threads_and_overhead_are_read_and_written_back() {
    let mut value = contract();
    value["threads"] = json!([{"tid": 4243, "name": "worker"}]);
    value["session"]["cpu_ns"] = json!(4_000_000_000_u64);
    value["session"]["overhead"] =
        json!({"call_ns": 24.1, "total_ns": 1_234_567, "share": 0.012, "corrected": true});
    let profile = read(&value);
    let overhead = Overhead {
        call_ns: 24.1,
        total_ns: 1_234_567,
        share: 0.012,
        libraries_ns: 0,
        corrected: true,
        unreliable: false,
    };
    let worker = Thread {
        tid: 4243,
        name: "worker".to_owned(),
    };
    assert_eq!(profile.session.overhead, Some(overhead));
    assert_eq!(profile.threads, [worker]);
    assert_eq!(profile.thread_names(), [(4243, "worker")].into());
    assert_eq!(serde_json::to_value(&profile).unwrap(), value);
}
