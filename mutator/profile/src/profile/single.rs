//! Single calls of a function: the slowest ones, and the last ones.

use serde::{Deserialize, Serialize};
use std::cmp::Reverse;

/// A call that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SingleCall {
    /// The call's path: an index into [`Profile::paths`](crate::Profile::paths).
    pub path: usize,
    /// The process that made the call: an index into
    /// [`Profile::processes`](crate::Profile::processes). `None` in a profile of one process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<usize>,
    /// The id of the thread on which the call ended.
    pub thread: u32,
    /// The start, in nanoseconds since the start of the session in the call's process, by
    /// CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// The end, by the same clock.
    pub end_ns: u64,
    /// The time of the call in nanoseconds, without the cost of measuring.
    pub wall: u64,
    /// The part of `wall` in measured functions that the call has called, in nanoseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub nested: u64,
    /// The part of `nested` in each of some of these functions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub callees: Vec<Callee>,
    /// The CPU time of the call in nanoseconds. `None` if it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u64>,
    /// The arguments as integers. `None` for those that cannot be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<Option<i64>>,
    /// The return value. `None` if there is none, or if it cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ret: Option<i64>,
}

/// The time of a call in one of the measured functions that it has called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Callee {
    /// The function: an index into [`Profile::functions`](crate::Profile::functions).
    pub function: usize,
    /// The time in nanoseconds.
    pub wall: u64,
    /// True if some calls of the function may be missing in `wall`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
}

impl SingleCall {
    /// The time that the thread was not on a processor, in nanoseconds. `None` if it is not known.
    pub fn blocked(&self) -> Option<u64> {
        Some(self.wall.saturating_sub(self.cpu?))
    }

    /// The time that is neither in `callees` nor in further measured functions, in nanoseconds.
    pub fn own(&self) -> u64 {
        self.wall.saturating_sub(self.nested)
    }

    /// The part of `nested` in functions that are not in `callees`, in nanoseconds.
    pub fn in_others(&self) -> u64 {
        let known = self.callees.iter().map(|callee| callee.wall);
        self.nested
            .saturating_sub(known.fold(0, u64::saturating_add))
    }

    /// The call in a sum of profiles.
    pub(crate) fn in_sum(&self, paths: &[usize], functions: &[usize], process: usize) -> Self {
        let mut call = self.clone();
        call.path = paths[self.path];
        call.process = Some(process + self.process.unwrap_or(0));
        for callee in &mut call.callees {
            callee.function = functions[callee.function];
        }
        call
    }
}

/// Keeps the `most` slowest calls, the slowest first. Of calls that took equally long, the first
/// ones are kept.
pub fn keep_slowest(calls: &mut Vec<SingleCall>, most: u64) {
    calls.sort_by_key(|call| (Reverse(call.wall), call.start_ns, call.thread));
    calls.truncate(usize::try_from(most).unwrap_or(usize::MAX));
}

/// Orders calls by their start. Of two that have begun at the same time, the outer one comes first.
pub fn order_in_time(calls: &mut [SingleCall]) {
    calls.sort_by_key(|call| {
        (
            call.process,
            call.start_ns,
            Reverse(call.end_ns),
            call.thread,
        )
    });
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(wall: u64, start_ns: u64) -> SingleCall {
        SingleCall {
            path: 0,
            process: None,
            thread: 7,
            start_ns,
            end_ns: start_ns + wall,
            wall,
            nested: wall / 2,
            callees: vec![Callee {
                function: 0,
                wall: wall / 4,
                partial: false,
            }],
            cpu: Some(wall / 5),
            args: vec![Some(-1), None],
            ret: Some(3),
        }
    }

    #[test]
    fn the_slowest_are_kept_and_the_first_of_equal_ones() {
        let mut calls = vec![call(5, 30), call(9, 20), call(5, 10), call(1, 0)];
        keep_slowest(&mut calls, 2);
        let kept: Vec<_> = calls.iter().map(|c| (c.wall, c.start_ns)).collect();
        assert_eq!(kept, [(9, 20), (5, 10)]);
        keep_slowest(&mut calls, 10);
        assert_eq!(calls.len(), 2);
    }

    #[test]
    fn outer_calls_come_first() {
        let mut calls = vec![call(5, 30), call(9, 30), call(5, 10)];
        order_in_time(&mut calls);
        let order: Vec<_> = calls.iter().map(|c| (c.start_ns, c.wall)).collect();
        assert_eq!(order, [(10, 5), (30, 9), (30, 5)]);
    }

    #[test]
    fn the_parts_of_a_call_add_up() {
        let call = call(100, 0);
        assert_eq!((call.own(), call.in_others()), (50, 25));
        assert_eq!(call.blocked(), Some(80));
        let text = serde_json::to_string(&call).expect("json");
        assert_eq!(
            serde_json::from_str::<SingleCall>(&text).expect("a call"),
            call
        );
    }
}
