//! The probe table: what the runtime does where a hook has a number.
//!
//! A row is for all hooks with its number. Those at the entry and at the exits of a function share one: which of the two
//! a hook is, the stub that it calls tells.

use core::mem::size_of;
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32};

/// A row.
#[repr(C)]
pub struct Probe {
    /// 0 while it is out; changes with every add and remove, and each time that exits come in, so that an activation
    /// whose return has not been seen is not mistaken for a later one.
    pub generation: AtomicU32,
    /// A [`Kind`], and above it a [`Children`].
    pub kind: AtomicU8,
    /// The [`Schema`](crate::schema::Schema) of what is measured.
    pub schema: AtomicU8,
    /// The number that functions have which leave by tail calls of each other, directly or by way of others, so that
    /// returns of one may end calls of another: [`LENDING`]. 0 where there are none; another number each time that
    /// they change. With [`LENDS`] where calls that leave by a tail call are ended by a return of another such function.
    pub lending: AtomicU16,
}

/// See [`Probe::lending`].
pub const LENDING: u16 = 0x7fff;
/// See [`Probe::lending`].
pub const LENDS: u16 = 1 << 15;

/// What a probe is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Calls of a function are counted at its entry, and no exit has a probe.
    Entry = 0,
    /// Calls of a function are measured from the entry to an exit.
    Call = 1,
    /// What comes through an instruction is counted.
    Point = 2,
    /// Exits alone, of a function that is not measured: they end calls that have been lent to it by a tail call.
    Ender = 3,
    /// The entry tells that frames below its caller's have been left, by an exception as a rule.
    Frames = 4,
    /// The same of what is below the frame that the `jmp_buf` at its first argument belongs to.
    Jump = 5,
    /// The same of the whole stack, since its thread ends.
    End = 6,
    /// A stack has another place when the function returns. Its exits have probes, too.
    Moves = 7,
    /// Libraries have been loaded or unloaded.
    Loads = 8,
    /// A child may come of it: [`Children`] tells where.
    Forks = 9,
    /// Calls are counted at the entry from now on. The exits are still in, for calls that were measured from their entry.
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

/// Where a child that shares the process's memory may come of a function, be it measured or not. It is in
/// [`Probe::kind`] from bit [`CHILDREN_SHIFT`] on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Children {
    /// Nowhere.
    Never = 0,
    /// At each call.
    Always = 1,
    /// Where the flags of a `clone`, its third argument, say so.
    Clone = 2,
    /// Where the flags of a `clone3`, the first word its first argument leads to, say so.
    Clone3 = 3,
}

/// See [`Children`].
pub const CHILDREN_SHIFT: u32 = 4;

impl Kind {
    /// Of the bits of [`Probe::kind`].
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

    /// With [`Children`], as [`Probe::kind`] has both.
    pub const fn with(self, children: Children) -> u8 {
        self as u8 | (children as u8) << CHILDREN_SHIFT
    }

    /// Whether calls are recorded by it.
    pub const fn is_measured(self) -> bool {
        matches!(self, Self::Entry | Self::Call | Self::Point | Self::Ending)
    }

    /// Whether returns of the calls that it has measured are seen.
    pub const fn has_exits(self) -> bool {
        matches!(self, Self::Call | Self::Ending)
    }

    /// True if the program may be left through the function.
    pub const fn departs(self) -> bool {
        matches!(self, Self::Execs | Self::Exits | Self::Checks)
    }

    /// Whether it tells that calls have ended without a return.
    pub const fn ends_calls(self) -> bool {
        matches!(self, Self::Frames | Self::Jump | Self::End)
    }
}

const _: () = assert!(size_of::<Probe>() == 8);
