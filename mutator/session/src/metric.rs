//! What can be measured, by name.

use abi::image::SCALE_SHIFT;
use abi::schema::{Derived, source};
use abi::value::RETURN;
use strsim::levenshtein;

use crate::counter::{self, Event, NoEvent};
use ipath_profile::clock;
use ipath_symbols::values::Item;

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
    /// Reference cycles, where there is no counter of cycles.
    Cycles,
    /// Page faults.
    PageFaults,
    /// Those for which a device was read.
    MajorFaults,
    /// Context switches.
    ContextSwitches,
    /// What a counter of the processor counts.
    Counter(Event),
    /// An argument or the return value.
    Value(Item),
}

/// What is either a counter's or the time-stamp counter's.
const CYCLES: &str = "cycles";

/// All but values and counters.
const NAMED: [(&str, Metric); 9] = [
    ("wall", Metric::Wall),
    ("cpu", Metric::Cpu),
    ("blocked", Metric::Blocked),
    ("run-delay", Metric::RunDelay),
    ("block-io", Metric::BlockIo),
    (CYCLES, Metric::Cycles),
    ("page-faults", Metric::PageFaults),
    ("major-faults", Metric::MajorFaults),
    ("context-switches", Metric::ContextSwitches),
];

/// Names that perf has for some of those.
const ALSO: [(&str, Metric); 3] = [
    ("faults", Metric::PageFaults),
    ("cs", Metric::ContextSwitches),
    ("cpu-cycles", Metric::Cycles),
];

/// What processors have under one of two names, or not at all.
const STALLED: &str = "stalled-cycles";
const STALLED_AT: [(&str, &str); 2] = [
    ("stalled-cycles-backend", "back end"),
    ("stalled-cycles-frontend", "front end"),
];

impl Metric {
    /// The metric of a name, if it is none of a counter.
    pub fn named(name: &str) -> Option<Self> {
        let mut named = NAMED.iter().chain(&ALSO);
        let named = named.find(|(known, _)| *known == name);
        let named = named.map(|&(_, metric)| metric);
        named.or_else(|| name.parse().ok().map(Self::Value))
    }

    /// The metric of a name, as this machine has it.
    pub fn asked(name: &str) -> Result<Self, NoEvent> {
        match Self::named(name) {
            Some(Self::Cycles) => {
                let counted = Self::counter_of_cycles();
                Ok(counted.map_or(Self::Cycles, Self::Counter))
            }
            Some(metric) => Ok(metric),
            None if name == STALLED => stalled().map(Self::Counter),
            None => Event::named(name)?.check().map(Self::Counter),
        }
    }

    /// The counter of cycles; why there is none.
    pub fn counter_of_cycles() -> Result<Event, NoEvent> {
        Event::named(CYCLES)?.check()
    }

    /// The name that may have been meant by one that is none.
    pub fn nearest(name: &str) -> Option<&'static str> {
        const BOUND: usize = 2;
        let names = NAMED.iter().chain(&ALSO).map(|&(name, _)| name);
        let apart = names
            .chain(counter::general())
            .map(|known| (levenshtein(known, name), known));
        // Of few letters any others could be meant.
        let near = apart.filter(|&(d, known)| d <= BOUND && 2 * d < known.len());
        near.min().map(|(_, known)| known)
    }

    /// The names there are.
    pub fn names() -> String {
        let names: Vec<&str> = NAMED.iter().map(|&(name, _)| name).collect();
        format!(
            "count, {}, arg1 to arg6, ret; of the processor's counters instructions, cache-misses, branch-misses, \
             stalled-cycles and others by perf's names, as far as it has them",
            names.join(", ")
        )
    }

    /// The names of those that can be measured here, as far as they have one for all processors.
    pub fn here() -> String {
        let names: Vec<&str> = Self::named_here().collect();
        format!("count, {}, arg1 to arg6, ret", names.join(", "))
    }

    /// The names of all metrics that can be measured here, with `count`, the arguments and `ret`.
    pub fn all_here() -> Vec<String> {
        let values = (1..=6).map(|n| format!("arg{n}"));
        let named = ["count"].into_iter().chain(Self::named_here());
        let named = named.map(str::to_owned).chain(values);
        named.chain(["ret".to_owned()]).collect()
    }

    fn named_here() -> impl Iterator<Item = &'static str> {
        let names = NAMED.iter().map(|&(name, _)| name);
        names.chain(counter::here().filter(|&name| Self::named(name).is_none()))
    }

    /// As in the profile.
    pub fn name(self) -> String {
        match self {
            Self::Value(item) => return item.to_string(),
            Self::Counter(event) => return event.name.to_owned(),
            _ => {}
        }
        let named = NAMED.iter().find(|&&(_, metric)| metric == self);
        named.map_or_else(String::new, |&(name, _)| name.to_owned())
    }

    /// What is to be known of it beside its name.
    pub fn note(self) -> Option<String> {
        match self {
            Self::Cycles => Some(
                "cycles are reference cycles (TSC): ticks of the time-stamp counter while the thread is on a processor"
                    .to_owned(),
            ),
            Self::Counter(event) if event.name == STALLED => {
                let is_of = |name: &str| {
                    let of = Event::named(name);
                    of.is_ok_and(|of| of.called(STALLED) == event)
                };
                let (_, end) = STALLED_AT.iter().find(|(name, _)| is_of(name))?;
                Some(format!("{STALLED} are those of the processor's {end}"))
            }
            _ => None,
        }
    }

    /// As in the profile.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Wall | Self::Cpu | Self::Blocked | Self::RunDelay | Self::BlockIo => "ns",
            Self::Cycles => "cycles",
            Self::PageFaults | Self::MajorFaults => "faults",
            Self::ContextSwitches => "switches",
            Self::Counter(Event { name: CYCLES, .. }) => "cycles",
            Self::Counter(_) => "events",
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

    /// The columns of a record that have it; what the session counts by its name has `counter`.
    pub fn columns(self, counter: Option<usize>) -> Vec<Derived> {
        let growth = |number: usize| vec![Derived::Growth(number as u8)];
        let value = |number| vec![Derived::Value(number), Derived::Negative(number)];
        match self {
            Self::Wall => growth(source::CLOCK),
            // What is called cycles stays what it was at first.
            Self::Cycles | Self::Counter(_) => growth(match counter {
                Some(counter) => source::COUNTER + counter,
                None => source::CPU,
            }),
            Self::Cpu => growth(source::CPU),
            Self::Blocked => vec![Derived::Rest(source::CLOCK as u8, source::CPU as u8)],
            Self::RunDelay => growth(source::RUN_DELAY),
            Self::BlockIo => growth(source::BLOCK_IO),
            Self::PageFaults => growth(source::PAGE_FAULTS),
            Self::MajorFaults => growth(source::MAJOR_FAULTS),
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
        !matches!(self, Self::Wall | Self::Value(_))
    }
}

fn stalled() -> Result<Event, NoEvent> {
    let [(first, _), (second, _)] = STALLED_AT;
    let check = |name| Event::named(name).and_then(Event::check);
    let found = check(first).or_else(|not| check(second).map_err(|_| not));
    found.map(|event| event.called(STALLED))
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
        for (name, metric) in ALSO {
            assert_eq!(Metric::named(name), Some(metric));
        }
        for none in ["", "arg", "arg0", "arg7", "arg01", "arg+1", "Wall", "ret1"] {
            assert_eq!(Metric::named(none), None, "{none}");
        }
    }
}
