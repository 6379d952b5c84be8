//! What can be measured, by name.

use abi::image::SCALE_SHIFT;
use abi::schema::{Derived, source};
use abi::value::RETURN;

use crate::clock;
use crate::values::Item;

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
    /// An argument or the return value.
    Value(Item),
}

/// All but values.
const NAMED: [(&str, Metric); 8] = [
    ("wall", Metric::Wall),
    ("cpu", Metric::Cpu),
    ("blocked", Metric::Blocked),
    ("run-delay", Metric::RunDelay),
    ("block-io", Metric::BlockIo),
    ("cycles", Metric::Cycles),
    ("page-faults", Metric::PageFaults),
    ("context-switches", Metric::ContextSwitches),
];

impl Metric {
    /// The metric of a name.
    pub fn named(name: &str) -> Option<Self> {
        let named = NAMED.iter().find(|(known, _)| *known == name);
        let named = named.map(|&(_, metric)| metric);
        named.or_else(|| name.parse().ok().map(Self::Value))
    }

    /// The names there are.
    pub fn names() -> String {
        let names: Vec<&str> = NAMED.iter().map(|&(name, _)| name).collect();
        format!("count, {}, arg1 to arg6, ret", names.join(", "))
    }

    /// As in the profile.
    pub fn name(self) -> String {
        if let Self::Value(item) = self {
            return item.to_string();
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
            Self::Value(_) => "",
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
            Self::Value(item) => value(number_of(item)),
        }
    }

    /// True if it is known only when a call ends.
    pub fn needs_exits(self) -> bool {
        !matches!(self, Self::Value(Item::Argument(_)))
    }

    /// True if it is a value of a call, which has no inclusive and exclusive part.
    pub fn is_value(self) -> bool {
        matches!(self, Self::Value(_))
    }

    /// True if it takes a system call to find out.
    pub fn needs_system_calls(self) -> bool {
        !matches!(self, Self::Wall | Self::Cycles | Self::Value(_))
    }
}

/// The number of a value in [`abi::value`].
pub fn number_of(item: Item) -> u8 {
    match item {
        Item::Argument(number) => number - 1,
        Item::Return => RETURN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_to_metrics_and_back() {
        let values = Item::all().map(Metric::Value);
        for metric in NAMED.iter().map(|&(_, m)| m).chain(values) {
            assert_eq!(Metric::named(&metric.name()), Some(metric));
        }
        for none in ["", "arg", "arg0", "arg7", "arg01", "arg+1", "Wall", "ret1"] {
            assert_eq!(Metric::named(none), None, "{none}");
        }
    }
}
