//! The types that a segment's areas consist of.

use std::sync::atomic::AtomicU64;

use abi::segment::{
    Asked, Column, Header, Histogram, JournalEntry, ModuleEntry, Node, PhaseEntry, Record,
    TableHead, TableRow, ThreadEntry,
};
use abi::single::{CallsHead, SingleCall};

/// A type that can be read in place in memory that another process writes to.
///
/// # Safety
/// An implementor promises:
///
/// * All of it is atomics, or arrays and structures of atomics. Another process may write to any
///   byte at any time, so a plain integer would be a data race.
/// * Any bytes are a valid value. The other process may be hostile.
/// * Its layout is fixed (`repr(C)`).
/// * It has no destructor.
pub(super) unsafe trait Shared {}

// SAFETY: all fields are atomic integers, or arrays and `repr(C)` structures of them.
unsafe impl Shared for Header {}
// SAFETY: it is an atomic integer.
unsafe impl Shared for AtomicU64 {}
// SAFETY: as `Header`.
unsafe impl Shared for Node {}
// SAFETY: as `Header`.
unsafe impl Shared for PhaseEntry {}
// SAFETY: as `Header`.
unsafe impl Shared for CallsHead {}
// SAFETY: as `Header`.
unsafe impl Shared for SingleCall {}
// SAFETY: as `Header`.
unsafe impl Shared for Record {}
// SAFETY: as `Header`.
unsafe impl Shared for Column {}
// SAFETY: as `Header`.
unsafe impl Shared for Histogram {}
// SAFETY: as `Header`.
unsafe impl Shared for ThreadEntry {}
// SAFETY: as `Header`.
unsafe impl Shared for ModuleEntry {}
// SAFETY: as `Header`.
unsafe impl Shared for JournalEntry {}
// SAFETY: as `Header`.
unsafe impl Shared for TableHead {}
// SAFETY: as `Header`.
unsafe impl Shared for TableRow {}
// SAFETY: as `Header`.
unsafe impl Shared for Asked {}
