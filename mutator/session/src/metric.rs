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

/// The properties of a metric that is neither a value nor a counter.
struct Row {
    /// As on the command line and in the profile.
    name: &'static str,
    /// A name that perf has for it.
    also: Option<&'static str>,
    metric: Metric,
    /// As in the profile.
    unit: &'static str,
    /// True if the source counts ticks of the time-stamp counter, and the unit is ns.
    is_in_ticks: bool,
    /// Its columns in a record.
    columns: &'static [Derived],
    /// True if it takes a system call to find out.
    needs_system_calls: bool,
}

/// A metric of counts that the kernel gives.
const fn counted(
    name: &'static str,
    also: Option<&'static str>,
    metric: Metric,
    unit: &'static str,
    columns: &'static [Derived],
) -> Row {
    Row {
        name,
        also,
        metric,
        unit,
        is_in_ticks: false,
        columns,
        needs_system_calls: true,
    }
}

/// A time in ns that the kernel gives.
const fn waited(name: &'static str, metric: Metric, columns: &'static [Derived]) -> Row {
    counted(name, None, metric, "ns", columns)
}

/// A time that is read in ticks.
const fn timed(
    name: &'static str,
    metric: Metric,
    columns: &'static [Derived],
    needs_system_calls: bool,
) -> Row {
    Row {
        is_in_ticks: true,
        needs_system_calls,
        ..counted(name, None, metric, "ns", columns)
    }
}

const CLOCK: u8 = source::CLOCK as u8;
const CPU: u8 = source::CPU as u8;

/// All but values and counters, in the order in which users see them.
const NAMED: [Row; 9] = [
    timed("wall", Metric::Wall, &[Derived::Growth(CLOCK)], false),
    timed("cpu", Metric::Cpu, &[Derived::Growth(CPU)], true),
    timed(
        "blocked",
        Metric::Blocked,
        &[Derived::Rest(CLOCK, CPU)],
        true,
    ),
    waited(
        "run-delay",
        Metric::RunDelay,
        &[Derived::Growth(source::RUN_DELAY as u8)],
    ),
    waited(
        "block-io",
        Metric::BlockIo,
        &[Derived::Growth(source::BLOCK_IO as u8)],
    ),
    // Of reference cycles, which are the CPU time in ticks.
    counted(
        CYCLES,
        Some("cpu-cycles"),
        Metric::Cycles,
        "cycles",
        &[Derived::Growth(CPU)],
    ),
    counted(
        "page-faults",
        Some("faults"),
        Metric::PageFaults,
        "faults",
        &[Derived::Growth(source::PAGE_FAULTS as u8)],
    ),
    counted(
        "major-faults",
        None,
        Metric::MajorFaults,
        "faults",
        &[Derived::Growth(source::MAJOR_FAULTS as u8)],
    ),
    counted(
        "context-switches",
        Some("cs"),
        Metric::ContextSwitches,
        "switches",
        &[Derived::Growth(source::CONTEXT_SWITCHES as u8)],
    ),
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
        let is_it = |row: &&Row| row.name == name || row.also == Some(name);
        let named = NAMED.iter().find(is_it).map(|row| row.metric);
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
        let names = NAMED.iter().flat_map(|row| [Some(row.name), row.also]);
        let names = names.flatten();
        let apart = names
            .chain(counter::general())
            .map(|known| (levenshtein(known, name), known));
        // Of few letters any others could be meant.
        let near = apart.filter(|&(d, known)| d <= BOUND && 2 * d < known.len());
        near.min().map(|(_, known)| known)
    }

    /// The names there are.
    pub fn names() -> String {
        let names: Vec<&str> = NAMED.iter().map(|row| row.name).collect();
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
        let names = NAMED.iter().map(|row| row.name);
        names.chain(counter::here().filter(|&name| Self::named(name).is_none()))
    }

    /// As in the profile.
    pub fn name(self) -> String {
        match self {
            Self::Value(item) => item.to_string(),
            Self::Counter(event) => event.name.to_owned(),
            _ => self
                .row()
                .map_or_else(String::new, |row| row.name.to_owned()),
        }
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
            Self::Counter(Event { name: CYCLES, .. }) => "cycles",
            Self::Counter(_) => "events",
            _ => self.row().map_or("", |row| row.unit),
        }
    }

    /// `(mult, shift)` from what is read to the unit: `read * mult >> shift`.
    pub fn scale(self, hz: u64) -> (u64, u64) {
        if self.row().is_some_and(|row| row.is_in_ticks) {
            return clock::scale_to_ns(hz);
        }
        (1 << SCALE_SHIFT, SCALE_SHIFT.into())
    }

    /// The columns of a record that have it; what the session counts by its name has `counter`.
    pub fn columns(self, counter: Option<usize>) -> Vec<Derived> {
        match (self, counter) {
            // What is called cycles stays what it was at first.
            (Self::Cycles | Self::Counter(_), Some(counter)) => {
                vec![Derived::Growth((source::COUNTER + counter) as u8)]
            }
            (Self::Counter(_), None) => vec![Derived::Growth(CPU)],
            (Self::Value(item), _) => {
                let number = number_of(item);
                vec![Derived::Value(number), Derived::Negative(number)]
            }
            _ => self.row().map_or_else(Vec::new, |row| row.columns.to_vec()),
        }
    }

    /// Its row in the table.
    fn row(self) -> Option<&'static Row> {
        NAMED.iter().find(|row| row.metric == self)
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
        self.row()
            .map_or(!self.is_value(), |row| row.needs_system_calls)
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
        for metric in NAMED.iter().map(|row| row.metric).chain(values) {
            assert_eq!(Metric::named(&metric.name()), Some(metric));
        }
        assert_eq!(Metric::named("faults"), Some(Metric::PageFaults));
        assert_eq!(Metric::named("cs"), Some(Metric::ContextSwitches));
        assert_eq!(Metric::named("cpu-cycles"), Some(Metric::Cycles));
        for none in ["", "arg", "arg0", "arg7", "arg01", "arg+1", "Wall", "ret1"] {
            assert_eq!(Metric::named(none), None, "{none}");
        }
    }
}
