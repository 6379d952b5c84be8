//! Metrics by name.

use abi::image::SCALE_SHIFT;
use abi::schema::{Derived, source};
use abi::value::RETURN;
use strsim::levenshtein;

use crate::counter::{self, Event, NoEvent};
use ipath_profile::clock;
use ipath_symbols::values::Item;

/// A metric other than the number of calls, which is always counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Elapsed time (wall clock).
    Wall,
    /// CPU time of the thread.
    Cpu,
    /// The time during which the thread was not on a processor.
    Blocked,
    /// The part of [`Self::Blocked`] in which the thread was runnable.
    RunDelay,
    /// The part of [`Self::Blocked`] in which the thread waited for block devices.
    BlockIo,
    /// Reference cycles, if the processor has no counter of cycles.
    Cycles,
    /// Page faults.
    PageFaults,
    /// Page faults that read from a device.
    MajorFaults,
    /// Context switches.
    ContextSwitches,
    /// A hardware counter.
    Counter(Event),
    /// An argument or the return value.
    Value(Item),
}

/// A name of both a counter and the reference cycles of the time-stamp counter.
const CYCLES: &str = "cycles";

/// The properties of a metric that is neither a value nor a counter.
struct Row {
    /// The metric's name on the command line and in the profile.
    name: &'static str,
    /// Another name of the metric, from perf. `None` if it has no other name.
    also: Option<&'static str>,
    metric: Metric,
    /// The metric's unit in the profile.
    unit: &'static str,
    /// True if the source counts ticks of the time-stamp counter while the unit is ns.
    is_in_ticks: bool,
    /// The metric's columns in a record.
    columns: &'static [Derived],
    /// True if reading it takes a system call.
    needs_system_calls: bool,
}

/// A count that the kernel provides.
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

/// A time in ns that the kernel provides.
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
        name,
        also: None,
        metric,
        unit: "ns",
        is_in_ticks: true,
        columns,
        needs_system_calls,
    }
}

const CLOCK: u8 = source::CLOCK as u8;
const CPU: u8 = source::CPU as u8;

/// All metrics except values and counters, in the order in which users see them.
static NAMED: [Row; 9] = [
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
    // Reference cycles are the CPU time in ticks.
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

/// Stalled cycles. Processors count them under one of the two names in [`STALLED_AT`], or not at
/// all.
const STALLED: &str = "stalled-cycles";
/// The counters of stalled cycles, with the part of the processor that each one names.
const STALLED_AT: [(&str, &str); 2] = [
    ("stalled-cycles-backend", "back end"),
    ("stalled-cycles-frontend", "front end"),
];

impl Metric {
    /// The metric with this name; `None` if there is none, or if it is a counter.
    pub fn named(name: &str) -> Option<Self> {
        let is_it = |row: &&Row| row.name == name || row.also == Some(name);
        let named = NAMED.iter().find(is_it).map(|row| row.metric.clone());
        named.or_else(|| name.parse().ok().map(Self::Value))
    }

    /// The metric with this name on this machine. `cycles` is a counter if the processor has one.
    ///
    /// # Errors
    /// There is no such metric, or it is an event that cannot be counted here.
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

    /// The processor's counter of cycles.
    ///
    /// # Errors
    /// The reason why it is not available.
    pub fn counter_of_cycles() -> Result<Event, NoEvent> {
        Event::named(CYCLES)?.check()
    }

    /// The known name that is most similar to an unknown one. `None` if no name is similar enough.
    pub fn nearest(name: &str) -> Option<&'static str> {
        const BOUND: usize = 2;
        let names = NAMED.iter().flat_map(|row| [Some(row.name), row.also]);
        let names = names.flatten();
        let apart = names
            .chain(counter::general())
            .map(|known| (levenshtein(known, name), known));
        // A short name is similar to too many others.
        let near = apart.filter(|&(d, known)| d <= BOUND && 2 * d < known.len());
        near.min().map(|(_, known)| known)
    }

    /// The names of all metrics, for messages.
    pub fn names() -> String {
        let names: Vec<&str> = NAMED.iter().map(|row| row.name).collect();
        format!(
            "count, {}, arg1 to arg6, ret; counters of the processor, where it has them: \
            instructions, cache-misses, branch-misses, stalled-cycles and others by perf's names",
            names.join(", ")
        )
    }

    /// The names of the metrics that can be measured here, for messages. Counters appear only if
    /// their name is not specific to a processor.
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

    /// The names of the named metrics, and of the counters that are available here.
    fn named_here() -> impl Iterator<Item = &'static str> {
        let names = NAMED.iter().map(|row| row.name);
        names.chain(counter::here().filter(|&name| Self::named(name).is_none()))
    }

    /// The metric's name in the profile.
    pub fn name(&self) -> String {
        match self {
            Self::Value(item) => item.to_string(),
            Self::Counter(event) => event.name.to_string(),
            _ => self
                .row()
                .map_or_else(String::new, |row| row.name.to_owned()),
        }
    }

    /// A note for users on the meaning of the metric. `None` unless its name alone is misleading.
    pub fn note(&self) -> Option<String> {
        match self {
            Self::Cycles => Some(
                "cycles are reference cycles (TSC): ticks of the time-stamp counter while the thread is on a processor"
                    .to_owned(),
            ),
            Self::Counter(event) if &*event.name == STALLED => {
                let is_of = |name: &str| {
                    let of = Event::named(name);
                    of.is_ok_and(|of| of.called(STALLED) == *event)
                };
                let (_, end) = STALLED_AT.iter().find(|(name, _)| is_of(name))?;
                Some(format!("{STALLED} are counted at the processor's {end}"))
            }
            _ => None,
        }
    }

    /// The metric's unit in the profile.
    pub fn unit(&self) -> &'static str {
        match self {
            Self::Counter(event) if &*event.name == CYCLES => "cycles",
            Self::Counter(_) => "events",
            _ => self.row().map_or("", |row| row.unit),
        }
    }

    /// Returns `(mult, shift)`: value in the unit = `read * mult >> shift`. `hz` is the frequency
    /// of the time-stamp counter.
    pub fn scale(&self, hz: u64) -> (u64, u64) {
        if self.row().is_some_and(|row| row.is_in_ticks) {
            return clock::scale_to_ns(hz);
        }
        (1 << SCALE_SHIFT, SCALE_SHIFT.into())
    }

    /// The columns of a record that hold the metric. `counter` is the index of the session's
    /// counter with the same name, if there is one.
    pub fn columns(&self, counter: Option<usize>) -> Vec<Derived> {
        match (self, counter) {
            // Within a session, `cycles` keeps the source that it had first: a counter or reference
            // cycles.
            (Self::Cycles | Self::Counter(_), Some(counter)) => {
                vec![Derived::Growth((source::COUNTER + counter) as u8)]
            }
            (Self::Counter(_), None) => vec![Derived::Growth(CPU)],
            (Self::Value(item), _) => {
                let number = number_of(*item);
                vec![Derived::Value(number), Derived::Negative(number)]
            }
            _ => self.row().map_or_else(Vec::new, |row| row.columns.to_vec()),
        }
    }

    /// The metric's row in the table of named metrics. `None` if it has no row.
    fn row(&self) -> Option<&'static Row> {
        NAMED.iter().find(|row| row.metric == *self)
    }

    /// True if the metric is known only when a call ends.
    pub fn needs_exits(&self) -> bool {
        !matches!(self, Self::Value(Item::Argument(_)))
    }

    /// True if the metric is a value of a call, which has no inclusive and exclusive part.
    pub fn is_value(&self) -> bool {
        matches!(self, Self::Value(_))
    }

    /// True if reading the metric takes a system call. Also true for every hardware counter.
    pub fn needs_system_calls(&self) -> bool {
        self.row()
            .map_or(!self.is_value(), |row| row.needs_system_calls)
    }
}

/// The first available event of [`STALLED_AT`], renamed to [`STALLED`]. If none is available, the
/// error of the first.
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
        for metric in NAMED.iter().map(|row| row.metric.clone()).chain(values) {
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
