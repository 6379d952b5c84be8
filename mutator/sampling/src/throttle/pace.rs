//! The time between two looks.

use std::time::Duration;

/// The time until the first look after the probes came in, and after a change. A program may last
/// only some milliseconds.
const FIRST: Duration = Duration::from_millis(2);
/// The longest time between two looks.
const LAST: Duration = Duration::from_millis(250);
/// The least time between two looks, as a multiple of the time that a look takes. It grows with the
/// pauses: at first a look in time matters more than the processor that looking takes.
const EACH: (u32, u32) = (2, 20);
/// The pause from which on the larger multiple applies.
const SETTLED: Duration = Duration::from_millis(20);

/// The time between two looks. It grows while nothing changes.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    next: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { next: FIRST }
    }
}

impl Pace {
    /// The time until the next look.
    pub fn pause(&self) -> Duration {
        self.next
    }

    /// True if nothing has changed in several looks.
    pub fn is_quiet(&self) -> bool {
        self.next >= SETTLED
    }

    /// Notes a look that took this long, and was followed by a change if `has_changed`.
    pub fn looked(&mut self, took: Duration, has_changed: bool) {
        let next = if has_changed {
            FIRST
        } else {
            self.next.mul_f64(1.5).min(LAST)
        };
        let each = if next < SETTLED { EACH.0 } else { EACH.1 };
        self.next = next.max(took * each);
    }
}
