//! What is read at a probe, and what records have of it.

use core::mem::size_of;
use core::sync::atomic::{AtomicU32, AtomicU64};

/// Rows of the table of schemas; one that has been used keeps what it is.
pub const MAX_SCHEMAS: usize = 256;
/// Most columns of a schema.
pub const MAX_COLUMNS: usize = 16;

/// Nothing but the count.
pub const SCHEMA_COUNT: u8 = 0;
/// The one column is the time by the time-stamp counter: what the hand-written ways do by themselves.
pub const SCHEMA_WALL: u8 = 1;
/// The first schema that is made when it is asked for.
pub const FIRST_SCHEMA: u8 = 2;

/// Sources that are read at an entry and again at the exit: what a call has cost is the difference. An activation
/// has a place for each.
pub mod source {
    /// The time-stamp counter, ticks.
    pub const CLOCK: usize = 0;
    /// CPU time of the thread, in ticks.
    pub const CPU: usize = 1;
    /// How long the thread has waited for a processor, ns.
    pub const RUN_DELAY: usize = 2;
    /// How long it has waited for block devices, ns.
    pub const BLOCK_IO: usize = 3;
    /// Page faults.
    pub const PAGE_FAULTS: usize = 4;
    /// Context switches.
    pub const CONTEXT_SWITCHES: usize = 5;
    /// Those of the page faults for which a device was read.
    pub const MAJOR_FAULTS: usize = 6;
    /// The first of the counters, [`COUNTERS`].
    pub const COUNTER: usize = 7;
    /// How many counters there can be in a session.
    pub const COUNTERS: usize = 6;
    /// How many sources there are.
    pub const ALL: usize = COUNTER + COUNTERS;
    /// Those that activations have a place of their own for: a bit each.
    pub const CLOCKS: u32 = 1 << CLOCK | 1 << CPU;
}

/// What the hand-written ways do of a call, by its record's schema: [`way::of`].
pub mod way {
    use super::{Derived, source};
    use crate::value::RETURN;

    /// Nothing: compiled code measures the call.
    pub const COMPILED: u8 = 0;
    /// They count it.
    pub const COUNTED: u8 = 1;
    /// They measure its time.
    pub const TIMED: u8 = 2;
    /// They measure its time if the thread has not been switched out meanwhile, in a column of its own ([`Derived::Steady`]).
    pub const STEADY: u8 = 3;
    /// They count it and read an argument for the first two columns. Its number is added.
    pub const ARGUMENT: u8 = 1 << 6;
    /// They measure its time and read what it returns for the two columns after the first.
    pub const TIMED_RESULT: u8 = 1 << 7;
    /// They measure its time and read an argument for those. Its number is added.
    pub const TIMED_ARGUMENT: u8 = TIMED_RESULT | ARGUMENT;

    /// What they do where records have these columns of all calls.
    pub fn of(columns: &[Derived]) -> u8 {
        const CLOCK: Derived = Derived::Growth(source::CLOCK as u8);
        match *columns {
            [] => COUNTED,
            [CLOCK] => TIMED,
            [Derived::Steady, ..] => STEADY,
            [CLOCK, Derived::Value(RETURN), Derived::Negative(RETURN)] => TIMED_RESULT,
            [CLOCK, Derived::Value(a), Derived::Negative(b)] if a == b && a < RETURN => {
                TIMED_ARGUMENT + a
            }
            [Derived::Value(a), Derived::Negative(b)] if a == b && a < RETURN => ARGUMENT + a,
            _ => COMPILED,
        }
    }
}

/// A schema.
#[repr(C)]
pub struct Schema {
    /// Which sources are read: bit n for source n.
    pub sources: AtomicU32,
    /// How many columns records have.
    pub columns: AtomicU32,
    /// [`Condition::encode`] of what holds for the calls that count; 0 where all do.
    pub condition: AtomicU64,
    /// What is compared with, in the unit that is read.
    pub bound: AtomicU64,
    /// The columns.
    pub column: [ColumnRule; MAX_COLUMNS],
}

/// What a column is.
#[repr(C)]
pub struct ColumnRule {
    /// [`Derived::encode`].
    pub derived: AtomicU64,
    /// Its number to the unit of its histogram: `(number * scale) >> SCALE_SHIFT`, over 128 bits.
    pub scale: AtomicU64,
}

/// How a column comes from what is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Derived {
    /// What a source has grown by from the entry to the exit.
    Growth(u8),
    /// The same of one source without that of another.
    Rest(u8, u8),
    /// A value that is not negative: a number of [`crate::value`].
    Value(u8),
    /// The same of a value's opposite where it is negative.
    Negative(u8),
    /// The time by the time-stamp counter of calls during which the thread has not been switched out. The other columns of
    /// the schema are then of the other calls, and tell nothing but the time, CPU time, and the one without the other: of
    /// these calls the first two are this, and the third is 0.
    Steady,
}

impl Derived {
    /// As a word.
    pub const fn encode(self) -> u64 {
        let (kind, first, second) = match self {
            Self::Growth(source) => (1, source, 0),
            Self::Rest(whole, part) => (2, whole, part),
            Self::Value(value) => (3, value, 0),
            Self::Negative(value) => (4, value, 0),
            Self::Steady => (5, 0, 0),
        };
        kind | (first as u64) << 8 | (second as u64) << 16
    }

    /// Of a word; `None` where it is none of these.
    pub const fn decode(word: u64) -> Option<Self> {
        let (first, second) = ((word >> 8) as u8, (word >> 16) as u8);
        match word & 0xff {
            1 => Some(Self::Growth(first)),
            2 => Some(Self::Rest(first, second)),
            3 => Some(Self::Value(first)),
            4 => Some(Self::Negative(first)),
            5 => Some(Self::Steady),
            _ => None,
        }
    }

    /// Whether it is known when the call begins.
    pub const fn is_at_entry(self) -> bool {
        match self {
            Self::Value(value) | Self::Negative(value) => value != crate::value::RETURN,
            Self::Growth(_) | Self::Rest(..) | Self::Steady => false,
        }
    }
}

/// How what is read is to compare with the bound, as signed numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Relation {
    /// Less.
    Less = 1,
    /// Less or equal.
    LessOrEqual = 2,
    /// Greater.
    Greater = 3,
    /// Greater or equal.
    GreaterOrEqual = 4,
    /// Equal.
    Equal = 5,
    /// Not equal.
    NotEqual = 6,
}

impl Relation {
    const ALL: [Self; 6] = [
        Self::Less,
        Self::LessOrEqual,
        Self::Greater,
        Self::GreaterOrEqual,
        Self::Equal,
        Self::NotEqual,
    ];

    /// Whether it holds.
    pub const fn holds(self, a: i64, b: i64) -> bool {
        match self {
            Self::Less => a < b,
            Self::LessOrEqual => a <= b,
            Self::Greater => a > b,
            Self::GreaterOrEqual => a >= b,
            Self::Equal => a == b,
            Self::NotEqual => a != b,
        }
    }
}

/// What holds for the calls that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    /// What is compared: a [`Derived::Value`] of either sign, or what a source has grown by.
    pub of: Derived,
    /// How.
    pub relation: Relation,
}

impl Condition {
    const RELATION: u32 = 32;

    /// As a word, which is not 0.
    pub const fn encode(self) -> u64 {
        self.of.encode() | (self.relation as u64) << Self::RELATION
    }

    /// Of a word; `None` where it is none.
    pub fn decode(word: u64) -> Option<Self> {
        let relation = (word >> Self::RELATION) as u8;
        Some(Self {
            of: Derived::decode(word & ((1 << Self::RELATION) - 1))?,
            relation: *Relation::ALL.get(usize::from(relation).checked_sub(1)?)?,
        })
    }
}

const _: () = assert!(size_of::<Schema>() == 24 + 16 * MAX_COLUMNS);
