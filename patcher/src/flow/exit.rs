//! The exits of a function.

use crate::addr::Svma;

/// An instruction that ends the function's activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leave {
    /// The address of the instruction.
    pub at: Svma,
    /// The kind of the exit.
    pub kind: LeaveKind,
}

/// The kind of an exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaveKind {
    /// `ret`, with any prefix or operand.
    Return,
    /// A direct jump with the stack as at the entry. If the unwind tables do not describe the
    /// stack, a direct jump to the start of a function or to a linkage stub.
    Tail {
        /// The target of the jump.
        target: Svma,
        /// True if the jump is conditional.
        conditional: bool,
    },
    /// A jump through a register or memory with the stack as at the entry.
    TailIndirect,
    /// A jump through a pointer that may be a tail call or may stay in the function.
    Unclear,
    /// Control falls through into another function; `at` is the address of its first instruction.
    FallsThrough,
    /// An exit in bytes that may be data.
    Doubtful,
    /// Any other direct jump out of the function, for example into the middle of another one while
    /// this one's frame still exists. The activation ends at the jump.
    Astray,
}
