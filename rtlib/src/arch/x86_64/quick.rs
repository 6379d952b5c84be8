//! The ways of a call that need no compiled code: an entry or a point whose walk is remembered, and an exit
//! of the innermost activation. Written by hand, they use six registers, no stack, and touch the
//! lines of the thread, of the remembered walk, and of the record.
//!
//! All are text for the stubs. In: esi the function id, [rsp] the flags, rsp + [`SLOT`] the slot.
//! Out: by label `5` where the call has been recorded or is none of ours; by falling off the end,
//! with esi as it was and nothing done yet, where [`super::entry`] or [`super::exit`] must see to it.
//! An exit leaves the time it was reached in rdi then, and may have ended some of the activations.
//! Free to use are rax, rcx, rdx, rdi, r8 and r9.

pub mod entry;
pub mod exit;
pub mod point;
pub mod run;
pub mod thread;
pub mod value;

/// Bytes between the stack pointer here and the application's: six registers and the flags, and what
/// the trampoline has pushed.
pub const SLOT: usize = 7 * 8 + 16;
/// Bytes from the stack pointer here up to where the first argument register has been stored; the others follow it.
pub const ARGUMENTS: usize = 8;
