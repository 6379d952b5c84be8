//! What can be measured, by name.

use abi::image::SCALE_SHIFT;
use abi::schema::{Derived, source};
use abi::value::RETURN;

use crate::clock;

/// What is measured beside the count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Time by the clock on the wall.
    Wall,
    /// CPU time of the thread.
    Cpu,
    /// The time that the thread was not on a processor.
    Blocked,
    /// The part of that in which it could have run.
    RunDelay,
    /// The part of it in which it waited for block devices.
    BlockIo,
    /// Cycles; reference cycles where there are no counters.
    Cycles,
    /// Page faults.
    PageFaults,
    /// Context switches.
    ContextSwitches,
    /// An argument, from 0 on.
    Argument(u8),
    /// The return value.
    Return,
}

/// All but arguments.
const NAMED: [(&str, Metric); 9] = [
    ("wall", Metric::Wall),
    ("cpu", Metric::Cpu),
    ("blocked", Metric::Blocked),
    ("run-delay", Metric::RunDelay),
    ("block-io", Metric::BlockIo),
    ("cycles", Metric::Cycles),
    ("page-faults", Metric::PageFaults),
    ("context-switches", Metric::ContextSwitches),
    ("ret", Metric::Return),
];

/// The names of arguments begin so.
const ARGUMENT: &str = "arg";

impl Metric {
    /// The metric of a name.
    pub fn named(name: &str) -> Option<Self> {
        if let Some(number) = name.strip_prefix(ARGUMENT) {
            let number: u8 = number.parse().ok()?;
            let is_one = (1..=RETURN).contains(&number) && name.len() == ARGUMENT.len() + 1;
            return is_one.then_some(Self::Argument(number - 1));
        }
        let named = NAMED.iter().find(|(known, _)| *known == name);
        named.map(|&(_, metric)| metric)
    }

    /// The names there are.
    pub fn names() -> String {
        let names: Vec<&str> = NAMED.iter().map(|&(name, _)| name).collect();
        format!("count, {}, arg1 to arg6", names.join(", "))
    }

    /// As in the profile.
    pub fn name(self) -> String {
        if let Self::Argument(number) = self {
            return format!("{ARGUMENT}{}", number + 1);
        }
        let named = NAMED.iter().find(|&&(_, metric)| metric == self);
        named.map_or_else(String::new, |&(name, _)| name.to_owned())
    }

    /// As in the profile.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Wall | Self::Cpu | Self::Blocked | Self::RunDelay | Self::BlockIo => "ns",
            Self::Cycles => "cycles",
            Self::PageFaults => "faults",
            Self::ContextSwitches => "switches",
            Self::Argument(_) | Self::Return => "",
        }
    }

    /// `(mult, shift)` from what is read to the unit: `read * mult >> shift`.
    pub fn scale(self, hz: u64) -> (u64, u64) {
        match self {
            Self::Wall | Self::Cpu | Self::Blocked => clock::scale_to_ns(hz),
            _ => (1 << SCALE_SHIFT, SCALE_SHIFT.into()),
        }
    }

    /// The columns of a record that have it.
    pub fn columns(self) -> Vec<Derived> {
        let growth = |number: usize| vec![Derived::Growth(number as u8)];
        let value = |number| vec![Derived::Value(number), Derived::Negative(number)];
        match self {
            Self::Wall | Self::Cycles => growth(source::CLOCK),
            Self::Cpu => growth(source::CPU),
            Self::Blocked => vec![Derived::Rest(source::CLOCK as u8, source::CPU as u8)],
            Self::RunDelay => growth(source::RUN_DELAY),
            Self::BlockIo => growth(source::BLOCK_IO),
            Self::PageFaults => growth(source::PAGE_FAULTS),
            Self::ContextSwitches => growth(source::CONTEXT_SWITCHES),
            Self::Argument(number) => value(number),
            Self::Return => value(RETURN),
        }
    }

    /// True if it is known only when a call ends.
    pub fn needs_exits(self) -> bool {
        !matches!(self, Self::Argument(_))
    }

    /// True if it is a value of a call, which has no inclusive and exclusive part.
    pub fn is_value(self) -> bool {
        matches!(self, Self::Argument(_) | Self::Return)
    }

    /// True if it takes a system call to find out.
    pub fn needs_system_calls(self) -> bool {
        !matches!(
            self,
            Self::Wall | Self::Cycles | Self::Argument(_) | Self::Return
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_to_metrics_and_back() {
        let arguments = (0..RETURN).map(Metric::Argument);
        for metric in NAMED.iter().map(|&(_, m)| m).chain(arguments) {
            assert_eq!(Metric::named(&metric.name()), Some(metric));
        }
        for none in ["", "arg", "arg0", "arg7", "arg01", "arg+1", "Wall", "ret1"] {
            assert_eq!(Metric::named(none), None, "{none}");
        }
    }
}
