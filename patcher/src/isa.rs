//! The instruction set: the interface that the analysis and the patches use.
//!
//! Only this module knows registers and encodings. Each instruction set has a folder, and all
//! folders export the same names. Some features exist on one instruction set only, such as jumps of
//! two lengths, or displacements that overlap the next instruction. The interface describes them by
//! sizes, and by results that may be `None`.

mod x86_64;

pub use x86_64::*;

/// The successor of an instruction in the control flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Control continues at the next instruction.
    Next,
    /// A jump to a fixed address.
    Jump,
    /// A jump to a fixed address if a condition holds, else the next instruction.
    ConditionalJump,
    /// A jump to an address from a register or memory.
    IndirectJump,
    /// A call of a function at a fixed address or of the kernel, then the next instruction.
    Call,
    /// A call of a function at an address from a register or memory, then the next instruction.
    IndirectCall,
    /// A return to the return address.
    Return,
    /// Any other successor.
    Other,
}

/// A direct branch of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Branch {
    /// The target address.
    pub to: u64,
    /// The address of the branch instruction.
    pub from: u64,
}

/// The effect of a call on the stack pointer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Calls {
    /// The effect is unknown: some functions pop their arguments off the stack.
    MayMove,
    /// No effect: the callee restores the stack pointer, as the calling convention requires.
    Keep,
}

/// The location of the caller's frame pointer while a function runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CallerFramePointer {
    /// Still in its register.
    InPlace,
    /// On the stack, at this offset in bytes from the stack pointer at the function's entry.
    At(i64),
    /// Nowhere: the frame pointer has been set to 0, because this function has no caller.
    Zeroed,
    /// Unknown.
    #[default]
    Unknown,
}

/// The computation of an indirect jump's target.
///
/// In ascending order of uncertainty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shape {
    /// A 64-bit word from an address without an index, or a register set elsewhere: a function
    /// pointer or a saved label.
    Pointer,
    /// A 64-bit word from an address with an index: a table of addresses.
    Addresses,
    /// A 32-bit table entry plus a base.
    Offsets,
    /// Arithmetic that the analysis does not understand.
    Unknown,
}

/// The value that the loader stores in a relocated word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// An address in the same file.
    Relative,
    /// The result of calling a resolver function in the same file.
    Resolved,
    /// The address of a symbol.
    Symbol,
    /// Something else.
    Other,
}

/// The source of an indirect jump's target.
#[derive(Debug)]
pub struct JumpSource {
    /// The least certain shape over all paths to the jump.
    pub shape: Shape,
    /// Indexes of the instructions that read the target from an indexed address, in the list given
    /// to [`jump_source`].
    pub reads: Vec<usize>,
}
