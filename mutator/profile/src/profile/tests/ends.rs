//! Calls whose end is not known.

use super::{contract, read};
use crate::profile::{TimerStats, Total};
use serde_json::json;

/// Calls that left by a tail call are part of the closed calls, and each is on one path.
#[test]
fn calls_that_left_by_a_tail_call_are_on_their_paths() {
    let mut value = contract();
    let mut set = |place: &str, tail: u64| {
        value.pointer_mut(place).unwrap()["tail"] = json!(tail);
        read(&value).check().map_err(|e| e.to_string())
    };
    let wrong = "functions[0].tail is 0, but the paths give 4".to_owned();
    assert_eq!(set("/paths/0", 4), Err(wrong));
    assert_eq!(set("/functions/0", 4), Ok(()));
    let more = "paths[0].tail is 11, but the paths give 10".to_owned();
    assert_eq!(set("/paths/0", 11), Err(more));
    assert_eq!(read(&value).tail_calls(), 4);
}

/// In a profile that records causes, each call on an incomplete path has one cause.
#[test]
fn causes_add_up_to_what_is_incomplete() {
    let mut value = contract();
    value["losses"]["causes"] = json!({"off-stack": 2, "interrupted": 1});
    let wrong = read(&value).check().unwrap_err().to_string();
    assert_eq!(wrong, "losses.causes is 3, but the paths give 0");
    value["losses"]["incomplete"] = json!(3);
    read(&value).check().unwrap();
}

/// A function that never returns has no exit to be patched. The end of its calls and their times
/// are not known.
#[test]
fn calls_without_exits_have_no_times() {
    let mut value = contract();
    let none = json!({"sum": 0, "min": 0, "max": 0, "outermost": 0, "exclusive": 0});
    for place in ["/paths/0/metrics", "/functions/0/totals"] {
        value.pointer_mut(place).unwrap()["wall"] = none.clone();
    }
    let wrong = read(&value).check().unwrap_err().to_string();
    assert_eq!(
        wrong,
        "paths[0].metrics.wall.hist is 0, but the paths give 10"
    );
    for place in ["/paths/0", "/functions/0/totals"] {
        for ends in ["unwound", "open"] {
            value.pointer_mut(place).unwrap()[ends] = json!(null);
        }
    }
    let profile = read(&value);
    profile.check().unwrap();
    let total = Total::of(&profile.paths);
    assert_eq!(
        total.counts.timers.get("wall").map(TimerStats::values),
        Some(0)
    );
}
