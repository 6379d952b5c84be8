//! What a search does, in words.

use crate::report::human;
use crate::search::{Cost, Dropped};

/// What samples say: `83 % of CPU time and 12 % of waiting`, as far as there is some of it.
pub(super) fn sampled(share: Cost) -> String {
    shares(share, "waiting")
}

/// The same of what was measured: time off a processor, where a thread waits or has none though it could run.
pub(super) fn measured(share: Cost) -> String {
    shares(share, "the time off it")
}

fn shares(share: Cost, off: &str) -> String {
    let parts = [(share.cpu, "CPU time"), (share.off, off)];
    let said = parts.iter().filter(|(share, _)| *share >= 0.0005);
    let said: Vec<String> = said
        .map(|(share, of)| format!("{} of {of}", percent(*share)))
        .collect();
    match said.is_empty() {
        true => "nothing".to_owned(),
        false => said.join(" and "),
    }
}

/// `83 %`, `0.4 %`.
pub(super) fn percent(share: f64) -> String {
    match 100.0 * share {
        p if p < 9.95 => format!("{p:.1} %"),
        p => format!("{p:.0} %"),
    }
}

/// Why a function is not measured.
pub(super) fn reason(dropped: &Dropped) -> String {
    match dropped {
        Dropped::Costly {
            rate,
            each,
            overhead,
        } => format!(
            "called {} times a second, {} each: measuring took {} of the CPU time",
            human::number(rate.round()),
            human::average(Some(*each), "ns"),
            percent(*overhead)
        ),
        Dropped::Small(share) => format!("{} is too little", percent(*share)),
        Dropped::Unreturned => "no call of it began and returned meanwhile".to_owned(),
        Dropped::Refused(reason) => format!("cannot be instrumented: {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_said_with_its_numbers() {
        let costly = Dropped::Costly {
            rate: 12_000_000.4,
            each: 4.25,
            overhead: 0.613,
        };
        assert_eq!(
            reason(&costly),
            "called 12.0 M times a second, 4.25 ns each: measuring took 61 % of the CPU time"
        );
        assert_eq!(reason(&Dropped::Small(0.004)), "0.4 % is too little");
    }

    #[test]
    fn a_part_without_a_share_is_not_named() {
        let share = |cpu, off| sampled(Cost { cpu, off });
        assert_eq!(share(0.831, 0.0), "83 % of CPU time");
        assert_eq!(share(0.05, 0.97), "5.0 % of CPU time and 97 % of waiting");
        assert_eq!(share(0.0, 0.0), "nothing");
    }
}
