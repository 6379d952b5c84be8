//! The instruction set: what the analysis and the patches ask of it, and the only place that knows its registers and
//! bytes. One folder answers for one instruction set, with the same names. What one has and another has not, such as
//! jumps of two lengths or displacements that are bytes of the next instruction, is asked for with sizes and answers
//! that may be "none".

mod x86_64;

pub use x86_64::*;

/// How control goes on after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// With the next one.
    Next,
    /// At a fixed address.
    Jump,
    /// At a fixed address, if a condition holds.
    ConditionalJump,
    /// At an address from a register or memory.
    IndirectJump,
    /// In a function at a fixed address, or in the kernel, and then with the next one.
    Call,
    /// In a function at an address from a register or memory, and then with the next one.
    IndirectCall,
    /// At the return address.
    Return,
    /// Otherwise.
    Other,
}

/// A direct branch of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Branch {
    /// Where it lands.
    pub to: u64,
    /// The address of the branch instruction.
    pub from: u64,
}

/// What a call does to the stack pointer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Calls {
    /// Anything: some functions take their arguments off the stack.
    MayMove,
    /// Nothing, as the calling convention has it.
    Keep,
}

/// Where a function has the frame pointer of its caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CallerFramePointer {
    /// Still in its register.
    InPlace,
    /// On the stack, relative to the stack pointer at the function's entry.
    At(i64),
    /// Nowhere: the frame pointer has been set to 0, and no function has called this one.
    Zeroed,
    /// Not known.
    #[default]
    Unknown,
}

/// How the target of an indirect jump is computed.
///
/// In ascending order of what is left open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shape {
    /// A 64-bit word from a place that is not indexed, or a register set elsewhere: a function
    /// pointer or a saved label.
    Pointer,
    /// A 64-bit word from an indexed place: a table of addresses.
    Addresses,
    /// A 32-bit table entry plus a base.
    Offsets,
    /// Arithmetic that is not understood.
    Unknown,
}

/// What the loader fills a word with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// An address of the same file.
    Relative,
    /// What a function of the same file answers.
    Resolved,
    /// The address of a symbol.
    Symbol,
    /// Something else.
    Other,
}

/// Where the target of an indirect jump comes from.
#[derive(Debug)]
pub struct JumpSource {
    /// On all paths to the jump: the least understood.
    pub shape: Shape,
    /// Indexes of the instructions that read it from an indexed place.
    pub reads: Vec<usize>,
}
