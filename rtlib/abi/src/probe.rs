//! The probe table: the action of the runtime for each hook number.
//!
//! All hooks with the same number share a row, such as those at the entry and the exits of a
//! function. The stub that a hook calls distinguishes entries from exits.

use core::mem::size_of;
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32};

/// A row of the probe table.
#[repr(C)]
pub struct Probe {
    /// 0 while the probe is removed. Changes with every add and remove, and whenever exits are
    /// installed. So an activation whose return was not seen is not confused with a later one.
    pub generation: AtomicU32,
    /// A [`Kind`], and above it a [`Children`], [`SPAN`] and [`PHASE`].
    pub kind: AtomicU8,
    /// The index of the measurement's [`Schema`](crate::schema::Schema) in the table of schemas.
    pub schema: AtomicU8,
    /// The number of a group of functions that call each other by tail calls, directly or
    /// indirectly. A return of one may end a call of another: [`LENDING`]. 0 if there is no such
    /// function. Each change of the group changes the number. [`LENDS`] is set if the return of
    /// another function of the group ends the calls that leave by a tail call.
    pub lending: AtomicU16,
}

/// Mask of the group's number in [`Probe::lending`].
pub const LENDING: u16 = 0x7fff;
/// Flag in [`Probe::lending`]: the return of another function of the group ends the calls that
/// leave by a tail call.
pub const LENDS: u16 = 1 << 15;

/// The purpose of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Calls of a function are counted at its entry, and no exit has a probe.
    Entry = 0,
    /// Calls of a function are measured from the entry to an exit.
    Call = 1,
    /// Executions of an instruction are counted.
    Point = 2,
    /// Exits only, of a function that is not measured. They end calls lent to it by a tail call.
    Ender = 3,
    /// The entry shows that the frames below its caller's have been left, usually by an exception.
    Frames = 4,
    /// The entry shows that the frames below the one that set the `jmp_buf` in its first argument
    /// have been left.
    Jump = 5,
    /// The entry shows that the whole stack has been left, because its thread ends.
    End = 6,
    /// A stack has moved to another place when the function returns. Its exits have probes, too.
    Moves = 7,
    /// Libraries have been loaded or unloaded.
    Loads = 8,
    /// The function may create a child that shares memory: see [`Children`].
    Forks = 9,
    /// Calls are counted at the entry from now on. The exits stay installed for calls that are
    /// already being measured.
    Ending = 10,
    /// The entry of a function that executes another program.
    Execs = 11,
    /// The entry of a function that ends the process.
    Exits = 12,
    /// The entry of a function that checks for leaks as at the exit of the process, and may return.
    Checks = 13,
    /// The function switches between stacks that share one memory range. Its exits have probes,
    /// too.
    Switches = 14,
    /// The entry of a function that deregisters unwind entries.
    TakesBack = 15,
}

/// The bits of a [`Kind`] in [`Probe::kind`].
pub const KIND: u8 = 0xf;

/// The calls of a function, measured or not, that may create a child sharing the process's memory.
/// Stored in [`Probe::kind`] from bit [`CHILDREN_SHIFT`] on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Children {
    /// No call of the function creates a child that shares memory.
    Never = 0,
    /// Every call of the function may create a child that shares memory.
    Always = 1,
    /// Calls may create a child that shares memory if the flags of `clone`, its third argument, say
    /// so.
    Clone = 2,
    /// Calls may create a child that shares memory if the flags of `clone3` say so: the first word
    /// of the structure in its first argument.
    Clone3 = 3,
}

/// The first bit of a [`Children`] in [`Probe::kind`].
pub const CHILDREN_SHIFT: u32 = 4;
/// The bits of a [`Children`] in [`Probe::kind`].
pub const CHILDREN: u8 = 3 << CHILDREN_SHIFT;
/// Flag in [`Probe::kind`]: the row is of a span, a part of the calls of a function. Its kind is
/// [`Kind::Call`] or [`Kind::Entry`], for its starts and ends instead of an entry and exits.
pub const SPAN: u8 = 1 << 6;
/// Flag in [`Probe::kind`]: each call of the function is a phase of the program.
pub const PHASE: u8 = 1 << 7;

impl Kind {
    /// Decodes the kind in the bits [`KIND`] of [`Probe::kind`]. Never `None`, because every value
    /// of these bits is a kind.
    pub const fn of(bits: u8) -> Option<Self> {
        Some(match bits & KIND {
            0 => Self::Entry,
            1 => Self::Call,
            2 => Self::Point,
            3 => Self::Ender,
            4 => Self::Frames,
            5 => Self::Jump,
            6 => Self::End,
            7 => Self::Moves,
            8 => Self::Loads,
            9 => Self::Forks,
            10 => Self::Ending,
            11 => Self::Execs,
            12 => Self::Exits,
            13 => Self::Checks,
            14 => Self::Switches,
            15 => Self::TakesBack,
            _ => return None,
        })
    }

    /// Encodes the kind and the [`Children`] as [`Probe::kind`].
    pub const fn with(self, children: Children) -> u8 {
        self as u8 | (children as u8) << CHILDREN_SHIFT
    }

    /// True if the probe records calls of a function or executions of an instruction.
    pub const fn is_measured(self) -> bool {
        matches!(self, Self::Entry | Self::Call | Self::Point | Self::Ending)
    }

    /// True if the exits of measured calls have probes.
    pub const fn has_exits(self) -> bool {
        matches!(self, Self::Call | Self::Ending)
    }

    /// True if the function may end the process or execute another program.
    pub const fn departs(self) -> bool {
        matches!(self, Self::Execs | Self::Exits | Self::Checks)
    }

    /// True if the probe shows that calls have ended without a return.
    pub const fn ends_calls(self) -> bool {
        matches!(self, Self::Frames | Self::Jump | Self::End)
    }
}

const _: () = assert!(size_of::<Probe>() == 8);
