//! The headings of metrics, and the waiting within the time off the processor.

use super::Timers;

/// The metric of the time off the processor.
const BLOCKED: &str = "blocked";
/// The metric of the time spent waiting for a processor.
const RUN_DELAY: &str = "run-delay";

/// The heading of the time off the processor without the time spent waiting for a processor.
pub const WAITING: &str = "waiting";

/// The heading of a metric. `blocked` is the time off the processor for any reason: a function that
/// only computes has some if its thread is preempted.
pub fn heading(metric: &str) -> &str {
    match metric {
        BLOCKED => "off-cpu",
        other => other,
    }
}

/// True if the line of [`waiting`] comes directly after the line of `metric`.
pub fn comes_after(metric: &str) -> bool {
    metric == BLOCKED
}

/// `blocked` - `run-delay` in nanoseconds, at least 0, with the number of calls. `None` unless both
/// were measured for the same calls. `told` returns the sum of a metric and its calls.
pub fn waiting_by(told: impl Fn(&str) -> Option<(i128, u64)>) -> Option<(i128, u64)> {
    let ((off, calls), (delay, delayed)) = (told(BLOCKED)?, told(RUN_DELAY)?);
    // The kernel's clock and the processor's differ slightly.
    (calls > 0 && calls == delayed).then(|| ((off - delay).max(0), calls))
}

/// The time spent waiting (`blocked` - `run-delay`) in the calls that `timers` sums, in
/// nanoseconds, and their number. `None` unless both metrics were measured for the same calls.
pub fn waiting(timers: &Timers) -> Option<(i128, u64)> {
    waiting_by(|name| timers.get(name).map(|stats| (stats.sum, stats.values())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_is_what_is_not_waiting_for_a_processor() {
        let told = |off: Option<(i128, u64)>, delay| {
            waiting_by(|name| if name == BLOCKED { off } else { delay })
        };
        assert_eq!(told(Some((70, 3)), Some((30, 3))), Some((40, 3)));
        assert_eq!(told(Some((70, 3)), Some((71, 3))), Some((0, 3)));
        assert_eq!(told(Some((70, 3)), Some((30, 2))), None);
        assert_eq!(told(Some((70, 3)), None), None);
        assert_eq!(heading("blocked"), "off-cpu");
        assert_eq!(heading("wall"), "wall");
    }
}
