//! Messages about a search.

use ipath_profile::report::human;
use ipath_sampling::search::{Bounds, Cost, Dropped};

/// The time per call is not given if measuring took a larger share of the CPU time.
const MOST_OVERHEAD: f64 = 0.5;

/// A share by samples, such as `83 % of CPU time and 12 % of waiting`. Omits parts close to 0.
pub(super) fn sampled(share: Cost) -> String {
    shares(share, "waiting")
}

/// A measured share, such as `83 % of CPU time and 12 % of the time off it`. Off the CPU, a thread
/// waits or is ready without a processor. Omits parts close to 0.
pub(super) fn measured(share: Cost) -> String {
    shares(share, "the time off it")
}

fn shares(share: Cost, off: &str) -> String {
    let parts = [(share.cpu, "CPU time"), (share.off, off)];
    let said = parts.iter().filter(|(share, _)| *share >= 0.0005);
    let said: Vec<String> = said
        .map(|(share, of)| format!("{} of {of}", human::rounded(*share)))
        .collect();
    if said.is_empty() {
        "nothing".to_owned()
    } else {
        said.join(" and ")
    }
}

/// The reason why a function is not measured.
pub(super) fn reason(dropped: &Dropped) -> String {
    match dropped {
        Dropped::Costly {
            rate,
            each,
            overhead,
        } => {
            // The correction for the cost of measuring is less exact than the times of such calls.
            let is_known = *each > 0.0 && *overhead <= MOST_OVERHEAD;
            let each = if is_known {
                format!("{} each", human::average(Some(*each), "ns"))
            } else {
                "too short to be timed under this load".to_owned()
            };
            format!(
                "called {} times a second, {each}: measuring took {} of the CPU time",
                human::number(rate.round()),
                human::rounded(*overhead)
            )
        }
        Dropped::Small(share) => format!("{} is too little", human::rounded(*share)),
        Dropped::Unreturned => "no call of it both began and returned meanwhile".to_owned(),
        Dropped::Refused(reason) => format!("cannot be instrumented: {reason}"),
        Dropped::Ended => {
            "its programs end too soon; --follow -f NAME measures it in later ones".to_owned()
        }
    }
}

/// The state of a search at its end.
#[derive(Clone, Copy)]
pub(super) struct Stopped {
    pub(super) bounds: Bounds,
    /// True if the required share is explained.
    pub(super) is_enough: bool,
    /// True if the last steps explained no more than an earlier one.
    pub(super) is_stuck: bool,
    /// The number of functions that were dropped because of their overhead.
    pub(super) costly: usize,
    /// True if the limit of functions measured at once is reached.
    pub(super) is_full: bool,
    /// The number of functions that were dropped because no call returned.
    pub(super) unreturned: usize,
}

/// The reason why a search ends, and the options that would extend it.
pub(super) fn stopped(at: &Stopped) -> String {
    let Stopped { bounds, .. } = at;
    if at.is_enough {
        return format!("ended: {} is explained", human::rounded(bounds.explain));
    }
    let why = if at.is_stuck {
        "ended: further steps explained no more"
    } else {
        "ended: nothing more to add or to drop"
    };
    let more = |limit: f64| human::rounded((4.0 * limit).min(1.0)).replace(' ', "");
    if at.costly > 0 {
        let dropped = human::count(at.costly as u64, "function");
        return format!(
            "{why}; stopped at the overhead limit ({dropped} dropped): try --max-overhead {}",
            more(bounds.max_overhead)
        );
    }
    if at.is_full {
        let twice = bounds.most.saturating_mul(2);
        return format!(
            "{why}; stopped at {} functions: try --max-functions {twice}",
            bounds.most
        );
    }
    if at.unreturned > 0 {
        let calls = human::count(at.unreturned as u64, "function");
        return format!("{why}; no call of {calls} returned: try a longer --interval");
    }
    why.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_said_with_its_numbers() {
        let costly = Dropped::Costly {
            rate: 12_000_000.4,
            each: 4.25,
            overhead: 0.313,
        };
        assert_eq!(
            reason(&costly),
            "called 12.0 M times a second, 4.25 ns each: measuring took 31 % of the CPU time"
        );
        for (each, overhead, percent) in [(0.0, 0.313, 31), (4.25, 0.78, 78)] {
            let costly = Dropped::Costly {
                rate: 147_000.0,
                each,
                overhead,
            };
            assert_eq!(
                reason(&costly),
                format!(
                    "called 147 k times a second, too short to be timed under this load: \
                    measuring took {percent} % of the CPU time"
                )
            );
        }
        assert_eq!(reason(&Dropped::Small(0.004)), "0.4 % is too little");
    }

    #[test]
    fn the_end_names_the_limit_and_what_lifts_it() {
        let bounds = Bounds {
            min_share: 0.01,
            explain: 0.9,
            most: 16,
            max_overhead: 0.05,
            patience: 0,
        };
        let at = Stopped {
            bounds,
            is_enough: false,
            is_stuck: true,
            costly: 3,
            is_full: true,
            unreturned: 1,
        };
        assert_eq!(
            stopped(&at),
            "ended: further steps explained no more; stopped at the overhead limit (3 functions dropped): try --max-overhead 20%"
        );
        let full = Stopped { costly: 0, ..at };
        assert!(stopped(&full).ends_with("try --max-functions 32"));
        let enough = Stopped {
            is_enough: true,
            ..at
        };
        assert_eq!(stopped(&enough), "ended: 90 % is explained");
    }

    #[test]
    fn a_part_without_a_share_is_not_named() {
        let share = |cpu, off| sampled(Cost { cpu, off });
        assert_eq!(share(0.831, 0.0), "83 % of CPU time");
        assert_eq!(share(0.05, 0.97), "5.0 % of CPU time and 97 % of waiting");
        assert_eq!(share(0.0, 0.0), "nothing");
    }
}
