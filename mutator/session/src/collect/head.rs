//! The parts of a profile that describe the target and the session.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use abi::segment::Header;
use abi::shortage::Shortage;

use super::measured::Measured;
use super::{apart, counters, overhead, stats};
use crate::segment::{Document, Segment};
use ipath_profile::clock::{self, ExitClock};
use ipath_profile::{COUNT, FunctionTotals, Metric, Profile, Stop, Target, Unseen};

/// The note of a profile with times if exits do not wait. The bound is from
/// docs/reference/performance.md.
const LOOSE: &str = "the clock is loose: an exit does not wait until the work of its function is complete, so times \
    of less than 10 us may be wrong (--clock ordered)";

/// A profile with only the data of the session's document.
pub(super) fn begin(measured: Measured<'_>) -> Profile {
    let document = measured.document;
    let target = Target {
        pid: measured.process.pid.0 as u32,
        exe: document.exe.clone(),
        args: document.args.clone(),
        host: document.host.clone(),
        labels: labels(document),
        state: None,
        parent: document.parent.and_then(|pid| pid.try_into().ok()),
    };
    let stops = document.stops.iter().map(|stop| Stop {
        why: stop.why.clone(),
        ns: stop.ns,
    });
    let during = ipath_profile::Session {
        stops: stops.collect(),
        collapsed: document.collapsed,
        ..ipath_profile::Session::default()
    };
    let count = Metric {
        name: COUNT.to_owned(),
        unit: "calls".to_owned(),
        since_ns: None,
    };
    let timers = stats::timers(document).map(|(_, m)| Metric {
        name: m.name.clone(),
        unit: m.unit.clone(),
        since_ns: m.since_ns,
    });
    let metrics = std::iter::once(count).chain(timers).collect();
    Profile::empty(target, during, metrics)
}

/// Updates the parts that change over time. The totals of the functions must be up to date.
/// `remarks` are notes that do not come from the session.
pub(super) fn refresh<'n>(
    profile: &mut Profile,
    measured: Measured<'_>,
    remarks: impl Iterator<Item = &'n String>,
) {
    let Measured {
        segment,
        document,
        process,
        is_in_target,
        is_replaced,
    } = measured;
    let header = segment.header();
    let until = if is_in_target {
        process.cpu_time()
    } else {
        document.cpu_ended_ns
    };
    let times = until.zip(document.cpu_begun_ns);
    let session = &mut profile.session;
    session.started_unix_ns = header.started_unix_ns.load(Relaxed);
    session.clock_hz = header.clock_hz.load(Relaxed).max(1);
    session.clock = Some(document.exit_clock);
    session.elapsed_ns = elapsed_ns(header);
    session.cpu_ns = times.map(|(until, from)| until.saturating_sub(from));
    session.phases = apart::phases(segment, document);
    session.by.clone_from(&document.by);
    session.slower_ns = document.slower_ns;
    (session.slowest, session.trace) = (document.slowest, document.traced);
    let monotonic = header.started_monotonic_ns.load(Relaxed);
    session.monotonic_ns = document.keeps_single().then_some(monotonic);
    session.notes.clear();
    session.notes.extend(document.notes.iter().cloned());
    let waiting = document.pending.iter().filter(|p| !p.is_met);
    session.pending = waiting.map(|p| p.pattern.clone()).collect();
    session.notes.extend(counters::notes(segment, document));
    let mut timers = document.metrics.iter().skip(1).filter(|m| !m.is_value);
    if document.exit_clock == ExitClock::Loose && timers.next().is_some() {
        session.notes.push(LOOSE.to_owned());
    }
    session.notes.extend(remarks.cloned());

    let threads = header
        .threads_used
        .load(Relaxed)
        .min(abi::MAX_THREADS as u64) as u32;
    let missed = Missed::of(segment, threads);
    let notes = missed.notes(header.missed_by.load(Relaxed));
    session.notes.extend(notes);
    if header.memory_refused.load(Relaxed) != 0 {
        session.notes.push(BOUNDED.to_owned());
    }
    session.notes.extend(lumped(document.per_thread, threads));
    let left = header.calls_without_block.load(Relaxed);
    if left > 0 {
        let note = "calls are neither among the slowest nor in the trace: there was no room for \
            the calls of their function on their thread";
        session.notes.push(format!("{left} {note}"));
    }
    let totals = || profile.functions.iter().map(|f| &f.totals);
    let sum = |of: fn(&FunctionTotals) -> Option<u64>| {
        totals().filter_map(of).reduce(u64::saturating_add)
    };
    let losses = &mut profile.losses;
    losses.missed = missed.all();
    losses.overflow_by = ipath_profile::names_of(header.overflow_by.load(Relaxed));
    losses.unwound = sum(|totals| totals.unwound);
    losses.open = sum(|totals| totals.open);
    losses.unseen.clear();
    let is_left = is_replaced && document.tells_of_execs;
    if is_left {
        profile.session.notes.push(ipath_profile::LEFT.to_owned());
    }
    for (kind, n) in [
        (Unseen::Programs, u64::from(is_left)),
        (Unseen::Loads, header.loads_missed.load(Relaxed)),
        (Unseen::TakenOut, document.taken_out),
        (Unseen::Replaced, document.replaced),
    ] {
        kind.count(&mut losses.unseen, n);
    }
    profile.session.overhead = overhead::of(profile, segment, document);
}

/// The note for paths or threads that are merged because the memory cgroup is nearly full.
const BOUNDED: &str = "the memory cgroup of the process is nearly full: the session has taken \
    half of the memory that was left, and takes no more";

/// Calls that are not recorded, by their reasons.
#[derive(Default)]
struct Missed {
    /// The number of calls not recorded because there was no room or no memory for them.
    short: u64,
    /// The number of calls not recorded because the stack that they ran on is unknown.
    stack: u64,
    /// The number of calls not recorded because a signal handler made them while another call was
    /// being recorded.
    handler: u64,
}

impl Missed {
    /// The calls missed by the first `threads` threads of the segment, and by threads without an
    /// entry.
    fn of(segment: &Segment, threads: u32) -> Self {
        let mut missed = Self {
            short: segment.header().missed.load(Relaxed),
            ..Self::default()
        };
        for thread in (0..threads).filter_map(|i| segment.thread(i)) {
            let [short, stack] =
                [&thread.missed_short, &thread.missed_stack].map(|n| n.load(Relaxed));
            let rest = thread.missed.load(Relaxed);
            let rest = rest.saturating_sub(short.saturating_add(stack));
            missed.short = missed.short.saturating_add(short);
            missed.stack = missed.stack.saturating_add(stack);
            missed.handler = missed.handler.saturating_add(rest);
        }
        missed
    }

    /// The number of calls that are not recorded, for any reason.
    fn all(&self) -> u64 {
        let all = [self.short, self.stack, self.handler];
        all.into_iter().fold(0, u64::saturating_add)
    }

    /// The reasons without the numbers, so that they are the same in all processes. `by` has the
    /// bits of the exhausted resources.
    fn notes(&self, by: u64) -> impl Iterator<Item = String> {
        let short = Shortage::of(by).filter(|_| self.short > 0);
        let short = short.map(|shortage| match shortage {
            Shortage::Room => "there are too many threads or paths",
            other => ipath_profile::reason(other),
        });
        let handler = "made by a signal handler that interrupted the recording of another call";
        let others = [
            (self.stack, "made on an unknown stack"),
            (self.handler, handler),
        ];
        let others = others.into_iter().filter(|&(calls, _)| calls > 0);
        let others = others.map(|(_, why)| why);
        let all: Vec<_> = short.chain(others).collect();
        all.into_iter()
            .map(|why| format!("calls not recorded: {why}"))
    }
}

/// The note on calls that are counted with those of another thread. `None` below the limit of
/// threads, or if paths are not kept apart by thread.
fn lumped(per_thread: bool, threads: u32) -> Option<String> {
    let is_full = per_thread && threads as usize >= abi::MAX_THREADS;
    is_full.then(|| {
        format!(
            "only {} threads are kept apart: calls of further threads are counted with those of \
            an earlier one",
            abi::MAX_THREADS
        )
    })
}

/// The time from the session's start to its end, or until now, in nanoseconds.
pub fn elapsed_ns(header: &Header) -> u64 {
    let ended = header.ended_tsc.load(Relaxed);
    let now = if ended == 0 { clock::tsc() } else { ended };
    clock::ns_since_start(header, now)
}

/// The labels that a launcher of parallel programs gives the process. Empty outside of a parallel
/// program.
fn labels(document: &Document) -> BTreeMap<String, String> {
    let rank = document.rank.iter();
    rank.map(|rank| ("rank".to_owned(), rank.to_string()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_the_first_reason_of_missed_calls() {
        let missed = Missed {
            short: 3,
            stack: 0,
            handler: 1,
        };
        let notes: Vec<_> = missed.notes(Shortage::Mapping.bit()).collect();
        assert!(notes[0].contains("vm.max_map_count"), "{notes:?}");
        assert!(notes[1].contains("signal handler"), "{notes:?}");
        assert_eq!((notes.len(), missed.all()), (2, 4));
        assert_eq!(Missed::default().notes(u64::MAX).count(), 0);
    }

    #[test]
    fn threads_beyond_those_that_are_told_apart_are_noted() {
        let most = abi::MAX_THREADS as u32;
        assert_eq!(lumped(true, most - 1), None);
        assert_eq!(lumped(false, most), None);
        assert!(lumped(true, most).is_some_and(|note| note.starts_with("only 8192 threads")));
    }
}
