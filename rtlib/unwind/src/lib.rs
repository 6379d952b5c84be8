//! Steps from a frame to its caller's.
//!
//! Responsibilities:
//!
//! * [`Rule`]: the rule of a frame in one word, for walks that know only the stack pointer and the
//!   frame pointer.
//! * [`Row`]: the rules of an unwind table for all registers, and its translation to a [`Rule`].
//! * [`step()`] by a rule, and [`Row::step`] by a row. Both read memory through their caller.
//! * The registers in a signal frame.
//!
//! Non-goals: parsing unwind tables, reading memory, caching, and finding the end of a stack.
//!
//! [`arch`] has a folder for each processor. Rules are part of the ABI: the command writes them
//! into the segment (`abi::segment::TABLE_OF_RULES`), and [`abi::ABI_VERSION`] covers them.
#![no_std]
#![forbid(unsafe_code)]

pub mod arch;
mod row;
mod step;

pub use arch::{Regs, Rule, Saved, rule, step};
pub use row::{Caller, Cfa, Expression, Places, RegisterRule, Row, STAYS};
pub use step::{At, Loaded, Step, Words};
