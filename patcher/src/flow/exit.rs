//! The ways out of a function.

use crate::addr::Svma;

/// An instruction after which the function's activation is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leave {
    /// The address of the instruction.
    pub at: Svma,
    /// How it leaves.
    pub kind: LeaveKind,
}

/// How a function is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaveKind {
    /// `ret`, with whatever prefix or operand.
    Return,
    /// A direct jump while the stack is as at entry.
    Tail {
        /// Where it goes.
        target: Svma,
        /// Only if a condition holds?
        conditional: bool,
    },
    /// The same through a register or memory.
    TailIndirect,
    /// A jump through a pointer that may be a tail call or may stay in the function.
    Unclear,
    /// Another function's code simply follows; the leave's address is its first instruction.
    FallsThrough,
    /// What may be data that look like one of these.
    Doubtful,
    /// A jump into another function's code while this one's frame still stands: its end is there.
    Astray,
}
