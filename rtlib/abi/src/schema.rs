//! The sources read at probes, and the columns that records keep of them.

use core::mem::size_of;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::apart::By;

/// Number of rows of the table of schemas. A used row never changes.
pub const MAX_SCHEMAS: usize = 256;
/// Maximum number of columns of a schema.
pub const MAX_COLUMNS: usize = 16;

/// The schema that only counts calls: it has no columns.
pub const SCHEMA_COUNT: u8 = 0;
/// The schema whose only column is the time, by the time-stamp counter. The assembly fast path
/// measures it.
pub const SCHEMA_WALL: u8 = 1;
/// The first schema that is created on request.
pub const FIRST_SCHEMA: u8 = 2;

/// Sources read at the entry and again at the exit: the cost of a call is the difference. An
/// activation stores the value of each at its entry.
pub mod source {
    /// The time-stamp counter, ticks.
    pub const CLOCK: usize = 0;
    /// CPU time of the thread, in ticks.
    pub const CPU: usize = 1;
    /// The time that the thread has waited for a processor, in ns.
    pub const RUN_DELAY: usize = 2;
    /// The time that the thread has waited for block devices, in ns.
    pub const BLOCK_IO: usize = 3;
    /// The number of page faults of the thread.
    pub const PAGE_FAULTS: usize = 4;
    /// The number of context switches of the thread.
    pub const CONTEXT_SWITCHES: usize = 5;
    /// The number of page faults of the thread that read from a device.
    pub const MAJOR_FAULTS: usize = 6;
    /// The first of the [`COUNTERS`] hardware counters.
    pub const COUNTER: usize = 7;
    /// The maximum number of counters in a session.
    pub const COUNTERS: usize = 6;
    /// The number of sources.
    pub const ALL: usize = COUNTER + COUNTERS;
    /// Sources with their own fields in activations, one bit each.
    pub const CLOCKS: u32 = 1 << CLOCK | 1 << CPU;
}

/// The part of a call that the assembly fast path measures, derived from its record's schema:
/// [`way::of`].
pub mod way {
    use super::{Derived, source};
    use crate::value::RETURN;

    /// Nothing: compiled code measures the call.
    pub const COMPILED: u8 = 0;
    /// The fast path counts the call.
    pub const COUNTED: u8 = 1;
    /// The fast path measures the call's time.
    pub const TIMED: u8 = 2;
    /// The fast path measures the time of calls during which the thread is not switched out, in a
    /// separate column ([`Derived::Steady`]).
    pub const STEADY: u8 = 3;
    /// The fast path counts the call and reads an argument for the first two columns. The
    /// argument's number is added.
    pub const ARGUMENT: u8 = 1 << 6;
    /// The fast path measures the time and reads the return value for the second and third column.
    pub const TIMED_RESULT: u8 = 1 << 7;
    /// The fast path measures the time and reads an argument for the second and third column. The
    /// argument's number is added.
    pub const TIMED_ARGUMENT: u8 = TIMED_RESULT | ARGUMENT;

    /// The way for records with `columns` whose condition counts all calls; [`COMPILED`] if the
    /// fast path cannot measure these columns.
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

/// The sources that the probes of a function read, the condition for a call to count, and the
/// columns of the function's records.
#[repr(C)]
pub struct Schema {
    /// The sources to read: bit n for source n.
    pub sources: AtomicU32,
    /// The number of columns in a record.
    pub columns: AtomicU32,
    /// [`Condition::encode`] of the condition for a call to count; 0 if all calls count.
    pub condition: AtomicU64,
    /// The bound of the condition, a signed number in the unit of [`Condition::of`].
    pub bound: AtomicU64,
    /// [`By::encode`](crate::apart::By::encode) of the value by which calls are kept apart; 0 if
    /// there is none.
    pub by: AtomicU64,
    /// Ticks from which on a call is kept apart as a long one; 0 if none is.
    pub long: AtomicU64,
    /// 1 if single calls are kept ([`crate::single`]), else 0.
    pub single: AtomicU64,
    /// The columns, of which the first `columns` are in use.
    pub column: [ColumnRule; MAX_COLUMNS],
}

impl Schema {
    /// True if calls of one path are kept apart by something that is known when they begin.
    #[inline(always)]
    pub fn divides_at_entry(&self) -> bool {
        let by = self.by.load(Ordering::Relaxed);
        by != 0 && by != By::Return.encode()
    }

    /// True if calls of one path are kept apart by something that is known when they end.
    #[inline(always)]
    pub fn divides_at_exit(&self) -> bool {
        self.by.load(Ordering::Relaxed) == By::Return.encode()
            || self.long.load(Ordering::Relaxed) != 0
    }

    /// True if single calls are kept.
    #[inline(always)]
    pub fn keeps_single(&self) -> bool {
        self.single.load(Ordering::Relaxed) != 0
    }
}

/// The definition of a column.
#[repr(C)]
pub struct ColumnRule {
    /// [`Derived::encode`].
    pub derived: AtomicU64,
    /// Factor from the column's number to the unit of its histogram: `(number * scale) >>
    /// SCALE_SHIFT`, in 128-bit arithmetic.
    pub scale: AtomicU64,
}

/// The number that a column holds, in terms of the sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Derived {
    /// The growth of a source from the entry to the exit.
    Growth(u8),
    /// The growth of the first source minus that of the second.
    Rest(u8, u8),
    /// A value if it is not negative: a number of [`crate::value`].
    Value(u8),
    /// The absolute value of a value if it is negative.
    Negative(u8),
    /// The time of calls during which the thread was not switched out, by the time-stamp counter.
    /// The other columns then cover the other calls only. Such a schema has no columns but the
    /// time, the CPU time, and their difference. For calls that were not switched out, the first
    /// two equal this column and the third is 0.
    Steady,
}

impl Derived {
    /// Encodes the number's definition as a word.
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

    /// Decodes a word; `None` if it is not an encoding.
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

    /// True if the number is known when the call begins.
    pub const fn is_at_entry(self) -> bool {
        match self {
            Self::Value(value) | Self::Negative(value) => value != crate::value::RETURN,
            Self::Growth(_) | Self::Rest(..) | Self::Steady => false,
        }
    }
}

/// A comparison of signed numbers: the number on the left, the bound on the right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Relation {
    /// The left number is less.
    Less = 1,
    /// The left number is less or equal.
    LessOrEqual = 2,
    /// The left number is greater.
    Greater = 3,
    /// The left number is greater or equal.
    GreaterOrEqual = 4,
    /// The numbers are equal.
    Equal = 5,
    /// The numbers are not equal.
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

    /// True if `a` is in this relation to `b`.
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

/// The condition for a call to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The left side of the comparison: a [`Derived::Value`] of either sign, or the growth of a
    /// source.
    pub of: Derived,
    /// The relation that the left side must have to the bound ([`Schema::bound`]).
    pub relation: Relation,
}

impl Condition {
    /// Bit offset of the relation in an encoded condition.
    const RELATION: u32 = 32;

    /// Encodes the condition as a word that is not 0.
    pub const fn encode(self) -> u64 {
        self.of.encode() | (self.relation as u64) << Self::RELATION
    }

    /// Decodes a word; `None` if it is not an encoding.
    pub fn decode(word: u64) -> Option<Self> {
        let relation = (word >> Self::RELATION) as u8;
        Some(Self {
            of: Derived::decode(word & ((1 << Self::RELATION) - 1))?,
            relation: *Relation::ALL.get(usize::from(relation).checked_sub(1)?)?,
        })
    }
}

const _: () = assert!(size_of::<Schema>() == 48 + 16 * MAX_COLUMNS);
