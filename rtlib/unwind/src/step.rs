//! What a step by a rule needs and returns.

use abi::cause::Cause;

/// Where a walk stands: a frame that goes on at `pc` with this stack pointer.
#[derive(Clone, Copy)]
pub struct At {
    /// The return address.
    pub pc: u64,
    /// The stack pointer after the return.
    pub sp: u64,
}

/// Result of a step.
pub enum Step {
    /// The caller's frame.
    Caller(At),
    /// The frame has no caller: the path is complete.
    Root,
    /// The rule says that the walk cannot continue.
    Stop(Cause),
    /// A place that is not on the stack.
    Astray,
    /// The frame needs a step by a [`crate::Row`].
    Full,
    /// The rule is not known.
    Unknown,
}

/// The words of a stack and the frame pointer. A step asks for words between the stack pointer and
/// the end of the stack only.
pub trait Words {
    /// The word at `at`. The walk depends on it from here on.
    fn word(&mut self, at: u64) -> Option<u64>;
    /// The frame pointer. The walk depends on it from here on.
    fn frame_pointer(&mut self) -> u64;
    /// Makes the word at `at` the frame pointer.
    fn load_frame_pointer(&mut self, at: u64) -> Option<()>;
}

/// [`Words`] that a function reads.
pub struct Loaded<L> {
    /// Reads a word.
    pub load: L,
    /// The frame pointer.
    pub fp: u64,
}

impl<L: FnMut(u64) -> Option<u64>> Words for Loaded<L> {
    fn word(&mut self, at: u64) -> Option<u64> {
        (self.load)(at)
    }

    fn frame_pointer(&mut self) -> u64 {
        self.fp
    }

    fn load_frame_pointer(&mut self, at: u64) -> Option<()> {
        self.fp = self.word(at)?;
        Some(())
    }
}
