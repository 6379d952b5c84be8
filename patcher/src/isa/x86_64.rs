//! x86-64 as in the Intel SDM, volume 2, with the calling convention of the System V ABI, x86-64 supplement (psABI).

mod code;
mod decoding;
pub mod dwarf;
pub mod elf;
mod epilogue;
mod insn;
mod jump_source;
mod patch;
mod patterns;
mod pun;
mod realigned;
mod relocate;
mod scan;
mod stack;

pub use code::{Code, Goal, HOOK, HOOK_AT_POINT};
pub use decoding::{Insns, decode, first};
pub use epilogue::{FramePointer, FrameState, StackPlace};
pub use insn::{Facts, Insn, LONGEST_INSN, Reg, SHORTEST_CALL};
pub use jump_source::{jump_source, table_of};
pub use patch::{
    BREAKPOINT, CodeError, JUMP, SHORT_JUMP, STONE, jump, punned_jump, retargeted, short_jump,
    stone,
};
pub use patterns::*;
pub use pun::Pun;
pub use realigned::Places;
pub use relocate::{Displaced, Immovable};
pub use scan::{TargetKind, targets_in};
pub use stack::StackState;

/// What messages call it.
pub const NAME: &str = "x86-64";
/// Bytes of a word on the stack.
pub const WORD: i64 = 8;
/// Bytes from the stack pointer to the canonical frame address when a function has been called: the return address.
pub const CFA_AT_ENTRY: i64 = 8;
/// The stack is aligned to so many bytes at every call (psABI 3.2.2).
pub const STACK_ALIGNMENT: i64 = 16;
