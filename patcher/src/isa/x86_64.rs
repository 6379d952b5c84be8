//! x86-64, as in the Intel SDM, volume 2, with the calling convention of the System V ABI, x86-64
//! supplement (psABI).

mod bank;
mod code;
mod count;
mod decoding;
mod dispatch;
pub mod dwarf;
pub mod elf;
mod epilogue;
mod insn;
mod jump_source;
mod late;
mod offset_table;
mod patch;
mod path_row;
mod patterns;
mod pun;
mod realigned;
mod relocate;
mod scan;
mod stack;
mod stack_use;
mod text;
mod uses;

pub use bank::{
    ADVANCE, BankRegister, COUNT_IN, ENTER, GROWS, Height, LEAVE, LOOP_ALIGNMENT, LOWERED,
    PathEntry, SavedFlags, WORDS_BELOW, lowered,
};
pub use code::{Code, Goal, HOOK, HOOK_AT_POINT};
pub use count::{COUNT, CountIn};
pub use decoding::{Insns, decode, first};
pub use dispatch::{COMPARED, DISPATCH, Dispatch, DispatchLabels};
pub use epilogue::{FramePointer, FrameState, StackPlace};
pub use insn::{Facts, Insn, LONGEST_INSN, Reg, SHORTEST_CALL};
pub use jump_source::{jump_source, table_of};
pub use offset_table::{OffsetTable, OffsetTables};
pub use patch::{
    BREAKPOINT, CodeError, JUMP, SHORT_JUMP, STONE, jump, punned_jump, retargeted, short_jump,
    stone,
};
pub use path_row::{PATH_HOOK, PathCells, PathKey, PathRow, TIMED_PATH_HOOK};
pub use patterns::*;
pub use pun::Pun;
pub use realigned::Places;
pub use relocate::{Displaced, Immovable};
pub use scan::{TargetKind, targets_in};
pub use stack::StackState;
pub use stack_use::StackUse;
pub use text::Texts;
pub use uses::{Registers, Uses, Values};

/// The name of the instruction set in messages.
pub const NAME: &str = "x86-64";
/// The size of a stack word, in bytes.
pub const WORD: i64 = 8;
/// The distance from the stack pointer to the canonical frame address at a function's entry, in
/// bytes: the size of the return address.
pub const CFA_AT_ENTRY: i64 = 8;
/// The alignment of the stack at every call, in bytes (psABI 3.2.2).
pub const STACK_ALIGNMENT: i64 = 16;
