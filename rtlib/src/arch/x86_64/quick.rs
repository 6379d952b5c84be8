//! The fast paths in assembly, for calls that need no compiled code: an entry or a point whose walk
//! is cached, and an exit of the innermost activation. They use six registers and no stack. They
//! touch the cache lines of the thread, of the cached walk, and of the record.
//!
//! All of them are text for the stubs. In: esi the function id, [rsp] the flags, rsp + [`SLOT`] the
//! slot. Out: at label `5` if the call has been recorded or is ignored. By falling off the end,
//! with esi unchanged and nothing done yet, if [`super::entry`] or [`super::exit`] must handle it.
//! An exit then leaves its time in rdi, and may have ended some of the activations. The free
//! registers are rax, rcx, rdx, rdi, r8 and r9.

pub mod entry;
pub mod exit;
pub mod point;
pub mod run;
pub mod span;
pub mod thread;
pub mod value;

/// Bytes between the stack pointer here and the application's: six registers, the flags, and the
/// words that the trampoline has pushed.
pub const SLOT: usize = 7 * 8 + 16;
/// Bytes from the stack pointer here up to the stored first argument register. The others follow
/// it.
pub const ARGUMENTS: usize = 8;
