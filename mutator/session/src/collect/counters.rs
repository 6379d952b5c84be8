//! Notes on hardware counters that were scaled or missing.

use std::sync::atomic::Ordering::Relaxed;

use abi::counter::Counted;

use crate::segment::{Document, Segment};
use ipath_profile::report::human;

/// Notes on counters that did not count all the time, or not in all threads.
pub(super) fn notes(segment: &Segment, document: &Document) -> Vec<String> {
    let counted = segment.header().counted.iter();
    let counters = document.counters.iter().zip(counted);
    counters
        .flat_map(|(counter, counted)| of(&counter.name, counted))
        .collect()
}

/// The notes on one counter, called `name`. None if it was counted all the time and in all threads.
fn of(name: &str, counted: &Counted) -> impl Iterator<Item = String> {
    let [enabled, running, refused] =
        [&counted.enabled, &counted.running, &counted.refused].map(|n| n.load(Relaxed));
    // A smaller difference does not show in reports.
    let is_scaled = u128::from(running) * 1000 < u128::from(enabled) * 999;
    let share = human::share(running.into(), enabled.into());
    let scaled = is_scaled.then(|| {
        format!(
            "{name} was counted {share} of the time and is scaled up: the processor has too few \
            counters for all events"
        )
    });
    let threads = human::count(refused, "thread");
    let refused = (refused > 0).then(|| {
        format!("{name} could not be counted on {threads}, whose calls have no value for it")
    });
    scaled.into_iter().chain(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_counted_is_said() {
        let notes = |enabled: u64, running: u64, refused: u64| {
            let counted = Counted {
                enabled: enabled.into(),
                running: running.into(),
                refused: refused.into(),
            };
            of("instructions", &counted).collect::<Vec<_>>().join("; ")
        };
        assert_eq!(notes(0, 0, 0), "");
        assert_eq!(notes(1 << 40, 1 << 40, 0), "");
        let text = notes(1000, 480, 1);
        assert!(text.starts_with("instructions was counted 48.0 % of the time and is scaled"));
        let refused =
            "; instructions could not be counted on 1 thread, whose calls have no value for it";
        assert!(text.ends_with(refused), "{text}");
        assert!(notes(u64::MAX, 0, u64::MAX).contains(" 0.0 % of the time"));
    }
}
