//! The single calls that a session keeps.

use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::fence;

use abi::segment::AREA_CALLS;
use abi::single::{
    CALL_ARGUMENTS, CALL_RETURNED, CALLEES, CALLS_STRIDE, CallsHead, SingleCall, UNKNOWN_CPU,
    block_items,
};

use super::Segment;

/// Where a call is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Among the slowest.
    Slow,
    /// Among the last.
    Last,
}

/// A call as the runtime has written it. Times are in ticks.
#[derive(Clone, Copy, Debug)]
pub struct CallRead {
    /// Where it is kept.
    pub kept: Kept,
    /// The id of its function.
    pub function: u32,
    /// The index of its record.
    pub record: u32,
    /// The id of its thread.
    pub tid: u32,
    /// Time-stamp counter at the start.
    pub start: u64,
    /// Time-stamp counter at the end.
    pub end: u64,
    /// The time without the cost of measuring.
    pub wall: u64,
    /// The part of `wall` in probed functions that it has called.
    pub nested: u64,
    /// The CPU time. `None` if it was not measured.
    pub cpu: Option<u64>,
    /// The arguments.
    pub arguments: [i64; CALL_ARGUMENTS],
    /// The return value. `None` if there is none.
    pub returned: Option<i64>,
    /// The functions that it has called: the word of each, and the time in it. Words are as in
    /// [`SingleCall::callees`].
    pub callees: [(u32, u64); CALLEES],
}

impl Segment {
    /// The single calls, in a session that keeps `slowest` and `last` ones per thread and function.
    /// A call that is being written is left out, unless it is complete soon.
    pub fn single_calls(&self, slowest: u64, last: u64) -> Vec<CallRead> {
        let used = self.header().calls_used.load(Acquire);
        let used = self.used(AREA_CALLS, used);
        let items = block_items(slowest, last);
        let mut all = Vec::new();
        let mut at = 0;
        while used.saturating_sub(at) >= items {
            let head: Option<&CallsHead> = self.item(AREA_CALLS, at, CALLS_STRIDE, 0);
            let function = head.map_or(0, |head| head.function.load(Acquire));
            if let Some(function) = function.checked_sub(1) {
                for number in 0..slowest + last {
                    let kept = if number < slowest {
                        Kept::Slow
                    } else {
                        Kept::Last
                    };
                    let call: Option<&SingleCall> =
                        self.item(AREA_CALLS, at + 1 + number, CALLS_STRIDE, 0);
                    let Some(read) = call.and_then(|call| read(call, kept, function)) else {
                        continue;
                    };
                    all.push(read);
                }
            }
            at += items;
        }
        all
    }
}

/// Reads a call. `None` if there is none, or if it is being written all the time.
fn read(call: &SingleCall, kept: Kept, function: u32) -> Option<CallRead> {
    const TRIES: usize = 64;
    for _ in 0..TRIES {
        let before = call.sequence.load(Acquire);
        if before == 0 {
            return None;
        }
        if before % 2 == 1 {
            std::hint::spin_loop();
            continue;
        }
        let of = |word: &std::sync::atomic::AtomicU64| word.load(Relaxed);
        let (cpu, flags) = (of(&call.cpu), of(&call.flags));
        let returned = of(&call.returned) as i64;
        let read = CallRead {
            kept,
            function,
            record: call.record.load(Relaxed),
            tid: call.tid.load(Relaxed),
            start: of(&call.start),
            end: of(&call.end),
            wall: of(&call.wall),
            nested: of(&call.nested),
            cpu: (cpu != UNKNOWN_CPU).then_some(cpu),
            arguments: call.arguments.each_ref().map(|word| of(word) as i64),
            returned: (flags & CALL_RETURNED != 0).then_some(returned),
            callees: std::array::from_fn(|number| {
                let function = call.callees[number].load(Relaxed);
                (function, of(&call.callee_ticks[number]))
            }),
        };
        fence(Acquire);
        if call.sequence.load(Relaxed) == before {
            return Some(read);
        }
    }
    None
}
