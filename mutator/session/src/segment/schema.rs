//! Schemas in the document: the sources that probes read, and the columns that records have.

use std::fmt;

use abi::counter::words;
use abi::schema::{ColumnRule, Derived, MAX_COLUMNS, MAX_SCHEMAS, Schema, source};
use serde::{Deserialize, Serialize};

use crate::apart::{By, item_of};
use crate::condition::{Condition, Operand, Relation};
use crate::counter::Event;
use crate::metric::{Metric, number_of};
use ipath_symbols::values::Item;

/// The measurements of some functions: see [`Schema`]. Its number is its index in the document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchemaDoc {
    /// The sources to read for a call: bit `n` for source `n`.
    pub sources: u32,
    /// The columns of records.
    pub columns: Vec<ColumnDoc>,
    /// The condition for calls to count, as in [`Schema::condition`]; 0 if all calls count.
    #[serde(default)]
    pub condition: u64,
    /// The number that the condition compares with.
    #[serde(default)]
    pub bound: i64,
    /// The value by which calls of one path are kept apart ([`By::encode`]); 0 if there is none.
    /// For a field, each function has a schema with its place.
    #[serde(default)]
    pub by: u64,
    /// Ticks from which on a call is kept apart as a long one; 0 if none is.
    #[serde(default)]
    pub long: u64,
    /// True if single calls are kept.
    #[serde(default)]
    pub single: bool,
}

/// A column of records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColumnDoc {
    /// The name of the column's metric; empty if only other columns or the runtime need the column.
    pub metric: String,
    /// The column's derivation, by [`Derived::encode`].
    pub derived: u64,
    /// The scale from the raw value to the metric's unit, as in [`ColumnRule`].
    pub scale: u64,
}

/// A hardware counter. Its index in the document gives the number of its source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterDoc {
    /// The name of the counter's metric.
    pub name: String,
    /// The event's `type` in `struct perf_event_attr`.
    pub kind: u32,
    /// The event's `config`, `config1` and `config2` in `struct perf_event_attr`.
    pub config: [u64; 3],
}

impl CounterDoc {
    /// The counter of an event.
    pub fn of(event: &Event) -> Self {
        Self {
            name: event.name.to_string(),
            kind: event.kind,
            config: event.config,
        }
    }

    /// The counter's encoding for the runtime.
    pub fn bytes(&self) -> Vec<u8> {
        let words = words(self.kind, self.config);
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }
}

impl ColumnDoc {
    /// True if each call that has ended contributes a number to the column. If records have a
    /// column of steady calls ([`Derived::Steady`]), steady calls contribute to that column
    /// instead.
    pub fn is_of_all(&self) -> bool {
        self.derived == Derived::Growth(source::CLOCK as u8).encode()
    }

    /// True if the column holds the negative values, without their sign.
    pub fn is_negative(&self) -> bool {
        matches!(Derived::decode(self.derived), Some(Derived::Negative(_)))
    }
}

impl SchemaDoc {
    /// The schema for `metrics`. `hz` is the frequency of the session's time-stamp counter, and
    /// `counters` are the session's counters.
    ///
    /// # Errors
    /// The metrics do not fit into a schema.
    pub fn of(
        metrics: &[Metric],
        condition: Option<&Condition>,
        hz: u64,
        counters: &[CounterDoc],
    ) -> Result<Self, TooMuch> {
        let mut schema = Self::default();
        for metric in metrics {
            let (scale, _) = metric.scale(hz);
            let name = metric.name();
            let counter = counters.iter().position(|counter| counter.name == name);
            for derived in metric.columns(counter) {
                schema.columns.push(ColumnDoc {
                    metric: name.clone(),
                    derived: derived.encode(),
                    scale,
                });
            }
        }
        if let Some(condition) = condition {
            let (of, bound) = compared(condition, hz);
            schema.condition = abi::schema::Condition {
                of,
                relation: relation(condition.relation()),
            }
            .encode();
            schema.bound = bound;
        }
        schema.complete(hz);
        if schema.columns.len() > MAX_COLUMNS {
            Err(TooMuch::Columns)
        } else {
            Ok(schema)
        }
    }

    /// Keeps calls of one path apart by a value, and those of at least this many nanoseconds.
    pub fn keep_apart(&mut self, by: Option<&By>, slower_ns: Option<u64>, hz: u64) {
        const NS: u128 = 1_000_000_000;
        let ticks = |ns: u64| (u128::from(ns) * u128::from(hz)).div_ceil(NS);
        self.by = by.map_or(0, |by| by.encode(None));
        self.long = slower_ns.map_or(0, |ns| u64::try_from(ticks(ns)).unwrap_or(u64::MAX).max(1));
        self.find_sources();
    }

    /// Keeps single calls.
    pub fn keep_single(&mut self) {
        self.single = true;
        self.find_sources();
    }

    /// Removes the columns that [`SchemaDoc::complete`] has added, so that others can be added and
    /// removed.
    pub fn strip(&mut self) {
        self.columns.retain(|column| !column.metric.is_empty());
    }

    /// Determines which sources to read. Also adds columns without a metric if a hand-written way
    /// can then handle the calls. `hz` is the frequency of the session's time-stamp counter.
    pub fn complete(&mut self, hz: u64) {
        self.find_sources();
        if self.condition == 0 {
            self.suit_ways(Metric::Wall.scale(hz).0);
        }
    }

    /// Arranges the columns for a hand-written way ([`abi::schema::way`]), if one could handle the
    /// calls. `scale` is the scale of times.
    fn suit_ways(&mut self, scale: u64) {
        const CLOCK: Derived = Derived::Growth(source::CLOCK as u8);
        let is_of_times = self.columns.iter().all(|column| column.scale == scale);
        let is_clock = |column: &ColumnDoc| column.derived == CLOCK.encode();
        let returned = Derived::Value(abi::value::RETURN).encode();
        let columns: Vec<u64> = self.columns.iter().map(|c| c.derived).collect();
        let unnamed = |derived: Derived| ColumnDoc {
            metric: String::new(),
            derived: derived.encode(),
            scale,
        };
        if self.sources == source::CLOCKS && is_of_times {
            self.columns.insert(0, unnamed(Derived::Steady));
        } else if matches!(columns[..], [first, _] if first == returned) {
            self.sources = 1 << source::CLOCK;
            self.columns.insert(0, unnamed(CLOCK));
        } else {
            self.columns.sort_by_key(|column| !is_clock(column));
        }
    }

    /// Selects the sources that the columns and the condition need. With any source, the clock is
    /// read too.
    fn find_sources(&mut self) {
        let sources = self.derived().map(sources_of);
        self.sources = match sources.fold(0, |all, one| all | one) {
            0 if self.long == 0 && !self.single => 0,
            sources => sources | 1 << source::CLOCK,
        };
    }

    /// The derivations of the schema's columns, and of the operand of its condition.
    fn derived(&self) -> impl Iterator<Item = Derived> + '_ {
        let condition = abi::schema::Condition::decode(self.condition).map(|c| c.of);
        let columns = self.columns.iter().map(|c| Derived::decode(c.derived));
        columns.flatten().chain(condition)
    }

    /// The arguments and return values that the schema uses.
    pub fn items(&self) -> Vec<Item> {
        let derived: Vec<Derived> = self.derived().collect();
        let is_of = |item: &Item| derived.contains(&Derived::Value(number_of(*item)));
        let by = item_of(self.by);
        let is_wanted = |item: &Item| is_of(item) || by == Some(*item);
        Item::all().filter(is_wanted).collect()
    }

    /// True if part of the schema is known only when a call ends.
    pub fn needs_exits(&self) -> bool {
        self.derived().any(|derived| !derived.is_at_entry())
            || item_of(self.by) == Some(Item::Return)
            || self.long != 0
            || self.single
    }

    /// The schema's encoding for the runtime.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.sources.to_le_bytes().to_vec();
        bytes.extend((self.columns.len() as u32).to_le_bytes());
        bytes.extend(self.condition.to_le_bytes());
        bytes.extend(self.bound.to_le_bytes());
        bytes.extend(self.by.to_le_bytes());
        bytes.extend(self.long.to_le_bytes());
        bytes.extend(u64::from(self.single).to_le_bytes());
        for column in &self.columns {
            bytes.extend(column.derived.to_le_bytes());
            bytes.extend(column.scale.to_le_bytes());
        }
        const _: () = assert!(size_of::<ColumnRule>() == 16);
        bytes.resize(size_of::<Schema>(), 0);
        bytes
    }
}

/// The sources of a column.
fn sources_of(derived: Derived) -> u32 {
    match derived {
        Derived::Growth(number) => 1 << number,
        Derived::Rest(whole, part) => 1 << whole | 1 << part,
        Derived::Value(_) | Derived::Negative(_) | Derived::Steady => 0,
    }
}

/// The operand of a condition and the number that it is compared with, in the operand's raw unit.
fn compared(condition: &Condition, hz: u64) -> (Derived, i64) {
    const NS: i128 = 1_000_000_000;
    let metric = match condition.operand() {
        Operand::Item(item) => Metric::Value(item),
        Operand::Timer(timer) => Metric::named(timer.name()).unwrap_or(Metric::Wall),
    };
    let of = metric.columns(None)[0];
    let bound = condition.value();
    let is_ticks = matches!(metric, Metric::Wall | Metric::Cpu | Metric::Blocked);
    let scaled = i128::from(bound) * i128::from(hz) / NS;
    let bound = if is_ticks {
        i64::try_from(scaled).unwrap_or(i64::MAX)
    } else {
        bound
    };
    (of, bound)
}

fn relation(relation: Relation) -> abi::schema::Relation {
    use abi::schema::Relation as Runtime;
    match relation {
        Relation::Less => Runtime::Less,
        Relation::LessOrEqual => Runtime::LessOrEqual,
        Relation::Greater => Runtime::Greater,
        Relation::GreaterOrEqual => Runtime::GreaterOrEqual,
        Relation::Equal => Runtime::Equal,
        Relation::NotEqual => Runtime::NotEqual,
    }
}

/// Why metrics have no schema.
#[derive(Debug, PartialEq, Eq)]
pub enum TooMuch {
    /// There are too many metrics.
    Columns,
    /// There have been too many different lists of metrics.
    Schemas,
    /// A function would need more columns than this session's records have room for.
    Room(usize),
    /// There are too many counters of the processor.
    Counters,
}

impl fmt::Display for TooMuch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Columns => write!(
                f,
                "too many metrics: there is room for {MAX_COLUMNS}; an argument or the return \
                value takes two"
            ),
            Self::Room(room) => write!(
                f,
                "too many metrics: the session has room for {room} per function; an argument or \
                the return value takes two"
            ),
            Self::Counters => write!(
                f,
                "too many counters of the processor: a session has room for {}, including earlier \
                ones",
                source::COUNTERS
            ),
            Self::Schemas => write!(
                f,
                "the session already has {MAX_SCHEMAS} different lists of metrics, and has no \
                room for another one"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use abi::schema::way;

    use super::*;

    /// The columns of records with these metrics, and the hand-written way for them.
    fn of(names: &[&str]) -> (Vec<Derived>, u8) {
        let metrics: Vec<Metric> = names
            .iter()
            .filter_map(|name| Metric::named(name))
            .collect();
        let schema = SchemaDoc::of(&metrics, None, 2_600_000_000, &[]).expect("room");
        let columns = schema.columns.iter().map(|c| Derived::decode(c.derived));
        let columns: Vec<Derived> = columns.map(|column| column.expect("known")).collect();
        let way = way::of(&columns);
        (columns, way)
    }

    #[test]
    fn common_metrics_are_seen_to_by_the_hand_written_ways() {
        for (names, expected) in [
            (&[][..], way::COUNTED),
            (&["wall"], way::TIMED),
            (&["cpu"], way::STEADY),
            (&["blocked", "cpu", "wall"], way::STEADY),
            (&["arg3"], way::ARGUMENT + 2),
            (&["arg1", "wall"], way::TIMED_ARGUMENT),
            (&["ret", "wall"], way::TIMED_RESULT),
            (&["ret"], way::TIMED_RESULT),
            (&["arg1", "arg2"], way::COMPILED),
            (&["arg1", "ret"], way::COMPILED),
            (&["cpu", "arg1"], way::COMPILED),
            (&["wall", "cpu", "page-faults"], way::COMPILED),
        ] {
            let (columns, way) = of(names);
            assert_eq!(way, expected, "{names:?}: {columns:?}");
        }
    }

    #[test]
    fn reference_cycles_are_no_times() {
        let metrics = [Metric::Cycles, Metric::Cpu];
        let schema = SchemaDoc::of(&metrics, None, 2_600_000_000, &[]).expect("room");
        assert!(
            schema
                .columns
                .iter()
                .all(|column| !column.metric.is_empty())
        );
    }
}
