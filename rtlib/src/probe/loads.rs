//! Loads of libraries while some are awaited. The loader reports them before their own code runs,
//! and continues once the command has patched their functions.

use core::sync::atomic::Ordering;

use crate::arch::clock;
use crate::os::parameters::ipath_parameters;
use crate::os::{shared, sys};

/// Notifies the command of a load, and waits until it has processed it. Stops waiting when the
/// command ends or no longer promises to watch. If no libraries are awaited, only wakes the
/// command. Does nothing while the load is only announced.
pub fn have_changed() {
    let awaits = || ipath_parameters.awaits_libraries.load(Ordering::Relaxed) != 0;
    if !is_whole() || !sys::may_call() || !shared::is_mapped() {
        return;
    }
    let header = shared::header();
    if !awaits() {
        // The new library may switch stacks, which the command follows soon. Waiting for that at
        // each library would cost too much.
        sys::wake_others(&header.asked_used);
        return;
    }
    let number = header.loads.fetch_add(1, Ordering::AcqRel) + 1;
    loop {
        let seen = header.loads_seen.load(Ordering::Acquire);
        let is_watched = clock::now() < header.watched_until.load(Ordering::Acquire);
        let by = header.watched_by.load(Ordering::Relaxed) as u32;
        // While a session is being removed, nothing is awaited any more.
        if seen >= number || !awaits() {
            return;
        }
        if !is_watched || by != 0 && sys::has_ended(by) {
            header.loads_missed.fetch_add(1, Ordering::Relaxed);
            return;
        }
        sys::wake_others(&header.asked_used);
        sys::sleep_by(&header.loads_seen, seen as u32);
    }
}

/// False if the loader is about to change its list of libraries (RT_ADD, RT_DELETE of link.h).
/// Nothing has been loaded yet. A child forked at this point would have a loader that considers the
/// list broken.
fn is_whole() -> bool {
    const RT_CONSISTENT: u32 = 0;
    let state = ipath_parameters.loader_state.load(Ordering::Relaxed) as *const u32;
    // SAFETY: null or a word in the loader, which is never unloaded.
    state.is_null() || unsafe { state.read_volatile() } == RT_CONSISTENT
}

/// Adds to the ticks that the process has spent on waiting for loads
/// ([`abi::segment::Header::loads_cost`]).
pub fn note_cost(ticks: u64) {
    if shared::is_mapped() {
        shared::header()
            .loads_cost
            .fetch_add(ticks, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicU32;

    #[test]
    fn a_change_that_is_only_announced_is_not_waited_for() {
        let state = AtomicU32::new(0);
        assert!(is_whole(), "where it is not known");
        let place = &ipath_parameters.loader_state;
        place.store(state.as_ptr() as u64, Ordering::Relaxed);
        assert!(is_whole());
        for announced in [1, 2] {
            state.store(announced, Ordering::Relaxed);
            assert!(!is_whole());
        }
        place.store(0, Ordering::Relaxed);
    }
}
