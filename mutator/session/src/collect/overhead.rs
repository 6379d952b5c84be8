//! The overhead of measuring.

use std::sync::atomic::Ordering::Relaxed;

use abi::image::SCALE_SHIFT;
use abi::segment::AREA_THREADS;

use crate::segment::{Document, Segment};
use ipath_profile::clock;
use ipath_profile::{Overhead, Profile};

/// The overhead on all threads until now. `None` if nothing has been measured yet, or if the
/// runtime has not measured the cost of a call yet.
pub(super) fn of(profile: &Profile, segment: &Segment, document: &Document) -> Option<Overhead> {
    let header = segment.header();
    let ticks = ticks(segment);
    let of_libraries = u128::from(header.loads_cost.load(Relaxed));
    let (scale, _) = clock::scale_to_ns(profile.session.clock_hz);
    let ns = |ticks: u128| u64::try_from((ticks * u128::from(scale)) >> SCALE_SHIFT).ok();
    let (total, libraries_ns) = (ns(ticks.saturating_sub(of_libraries))?, ns(of_libraries)?);
    let calls = profile.calls();
    if calls == 0 || header.call_cost.load(Relaxed) == 0 {
        return None;
    }
    let run = profile.session.cpu_ns.unwrap_or(profile.session.elapsed_ns);
    Some(bounded(
        Overhead {
            call_ns: total as f64 / calls as f64,
            total_ns: total,
            share: total as f64 / run.max(1) as f64,
            libraries_ns,
            corrected: !document.is_uncorrected,
            unreliable: false,
        },
        profile.session.cpu_ns,
    ))
}

/// The overhead on all threads until now, in nanoseconds, without the part for loads of libraries.
/// Reads no path. 0 before the runtime has measured the cost of a call.
pub fn measuring_ns(segment: &Segment) -> u64 {
    let header = segment.header();
    if header.call_cost.load(Relaxed) == 0 {
        return 0;
    }
    let ticks = ticks(segment).saturating_sub(header.loads_cost.load(Relaxed).into());
    let (scale, _) = clock::scale_to_ns(header.clock_hz.load(Relaxed));
    u64::try_from((ticks * u128::from(scale)) >> SCALE_SHIFT).unwrap_or(u64::MAX)
}

/// The ticks of overhead on all threads, with the part for loads of libraries.
fn ticks(segment: &Segment) -> u128 {
    let used = segment.used(AREA_THREADS, segment.header().threads_used.load(Relaxed));
    let threads = (0..used).map_while(|index| segment.thread(u32::try_from(index).ok()?));
    threads.map(|t| u128::from(t.overhead.load(Relaxed))).sum()
}

/// Limits the overhead to the CPU time of the process. The runtime measures more if it cannot see
/// that a thread lost its processor.
fn bounded(overhead: Overhead, cpu_ns: Option<u64>) -> Overhead {
    let Some(cpu_ns) = cpu_ns.filter(|&cpu| overhead.total_ns > cpu) else {
        return overhead;
    };
    Overhead {
        call_ns: overhead.call_ns * cpu_ns as f64 / overhead.total_ns as f64,
        total_ns: cpu_ns,
        share: 1.0,
        unreliable: true,
        ..overhead
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measuring_takes_no_more_than_the_cpu_time() {
        let measured = Overhead {
            call_ns: 500.0,
            total_ns: 5_000,
            share: 5.0,
            libraries_ns: 0,
            corrected: true,
            unreliable: false,
        };
        let limited = bounded(measured.clone(), Some(1_000));
        assert_eq!((limited.total_ns, limited.call_ns), (1_000, 100.0));
        assert_eq!((limited.share, limited.unreliable), (1.0, true));
        for enough in [Some(5_000), None] {
            assert_eq!(bounded(measured.clone(), enough), measured);
        }
    }
}
