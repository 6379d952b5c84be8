//! What the measuring has taken.

use std::sync::atomic::Ordering::Relaxed;

use abi::image::SCALE_SHIFT;
use abi::segment::AREA_THREADS;

use crate::clock;
use crate::profile::{Overhead, Profile};
use crate::segment::{Document, Segment};

/// What it has taken by now on all threads; `None` where nothing has been measured yet, and as long as the runtime has not
/// found out what a call takes.
pub(super) fn of(profile: &Profile, segment: &Segment, document: &Document) -> Option<Overhead> {
    let header = segment.header();
    let used = segment.used(AREA_THREADS, header.threads_used.load(Relaxed));
    let threads = (0..used).map_while(|index| segment.thread(u32::try_from(index).ok()?));
    let ticks: u128 = threads.map(|t| u128::from(t.overhead.load(Relaxed))).sum();
    let of_libraries = u128::from(header.loads_cost.load(Relaxed));
    let (scale, _) = clock::scale_to_ns(profile.session.clock_hz);
    let ns = |ticks: u128| u64::try_from((ticks * u128::from(scale)) >> SCALE_SHIFT).ok();
    let (total, libraries_ns) = (ns(ticks.saturating_sub(of_libraries))?, ns(of_libraries)?);
    let calls = profile.calls();
    if calls == 0 || header.call_cost.load(Relaxed) == 0 {
        return None;
    }
    let run = profile.session.cpu_ns.unwrap_or(profile.session.elapsed_ns);
    Some(Overhead {
        call_ns: total as f64 / calls as f64,
        total_ns: total,
        share: total as f64 / run.max(1) as f64,
        libraries_ns,
        corrected: !document.is_uncorrected,
    })
}
