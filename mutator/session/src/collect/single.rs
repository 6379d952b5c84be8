//! Single calls, in the terms of profiles.

use std::sync::atomic::Ordering::Relaxed;

use abi::single::CALLEE_IS_PARTIAL;
use abi::value::{RETURN, is_known};

use super::paths::Paths;
use crate::segment::{CallRead, Document, Kept, Segment};
use ipath_profile::clock::{ns_of_ticks, scale_to_ns};
use ipath_profile::timeline::Timeline;
use ipath_profile::{Callee, Profile, SingleCall, keep_slowest, order_in_time};

/// The single calls of a session.
#[derive(Default)]
pub(super) struct SingleCalls {
    slowest: u64,
    last: u64,
    /// For each function, by its id: the word of its values' locations.
    values: Vec<u64>,
    /// The calls read last. They are read before the records, so that these include those of all
    /// calls.
    read: Vec<CallRead>,
}

impl SingleCalls {
    /// Those of the session with this document. None have been read yet.
    pub(super) fn of(document: &Document) -> Self {
        let values = document.functions.iter().map(|function| function.values);
        Self {
            slowest: document.slowest,
            last: document.traced,
            values: values.collect(),
            read: Vec::new(),
        }
    }

    /// Reads the calls. The records are to be read afterwards.
    pub(super) fn read(&mut self, segment: &Segment) {
        if self.slowest + self.last > 0 {
            self.read = segment.single_calls(self.slowest, self.last);
        }
    }

    /// Writes the calls into the profile, whose paths are up to date.
    pub(super) fn write(
        &mut self,
        segment: &Segment,
        paths: &Paths,
        timeline: &mut Timeline,
        profile: &mut Profile,
    ) {
        if self.slowest + self.last == 0 {
            return;
        }
        timeline.look(segment.header());
        let hz = segment.header().clock_hz.load(Relaxed);
        let scale = scale_to_ns(hz);
        for function in &mut profile.functions {
            function.slowest.clear();
            function.trace.clear();
        }
        for read in std::mem::take(&mut self.read) {
            let Some(path) = paths.path_of(read.record) else {
                continue;
            };
            let values = self.values.get(read.function as usize).copied();
            let call = call(&read, path, values.unwrap_or(0), paths, timeline, scale);
            let function = profile.paths.get(path).map(|path| path.function);
            let Some(function) = function.and_then(|index| profile.functions.get_mut(index)) else {
                continue;
            };
            match read.kept {
                Kept::Slow => function.slowest.push(call),
                Kept::Last => function.trace.push(call),
            }
        }
        for function in &mut profile.functions {
            keep_slowest(&mut function.slowest, self.slowest);
            order_in_time(&mut function.trace);
        }
    }
}

/// A call in the terms of profiles. `values` has the locations of its function's values.
fn call(
    read: &CallRead,
    path: usize,
    values: u64,
    paths: &Paths,
    timeline: &Timeline,
    scale: (u64, u64),
) -> SingleCall {
    let ns = |ticks: u64| ns_of_ticks(ticks, scale);
    let start_ns = timeline.ns_since_start(read.start);
    let callees = read.callees.iter().take_while(|&&(word, _)| word != 0);
    let callees = callees.filter_map(|&(word, ticks)| {
        let id = (word & !CALLEE_IS_PARTIAL).checked_sub(1)?;
        Some(Callee {
            function: paths.function_of(id)?,
            wall: ns(ticks),
            partial: word & CALLEE_IS_PARTIAL != 0,
        })
    });
    let mut args: Vec<Option<i64>> = (0..)
        .zip(read.arguments)
        .map(|(number, value)| (values & is_known(number) != 0).then_some(value))
        .collect();
    let known = args.iter().rposition(Option::is_some);
    args.truncate(known.map_or(0, |last| last + 1));
    SingleCall {
        path,
        process: None,
        thread: read.tid,
        start_ns,
        end_ns: timeline.ns_since_start(read.end).max(start_ns),
        wall: ns(read.wall),
        nested: ns(read.nested),
        callees: callees.collect(),
        cpu: read.cpu.map(ns),
        args,
        ret: read.returned.filter(|_| values & is_known(RETURN) != 0),
    }
}
