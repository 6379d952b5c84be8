//! The input and the result of a step by a rule.

use abi::cause::Cause;

/// A position in a walk: a frame that continues at `pc` with this stack pointer.
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
    /// The rule uses an address that is not on the stack.
    Astray,
    /// The frame needs a step by a [`crate::Row`].
    Full,
    /// The rule is not known.
    Unknown,
}

/// The words of a stack and the frame pointer. Steps only request words between the stack pointer
/// and the end of the stack.
pub trait Words {
    /// Returns the word at address `at`; `None` if it cannot be read. The walk depends on it from
    /// here on.
    fn word(&mut self, at: u64) -> Option<u64>;
    /// Returns the frame pointer. The walk depends on it from here on.
    fn frame_pointer(&mut self) -> u64;
    /// Loads the frame pointer from the word at address `at`. `None` if it cannot be read.
    fn load_frame_pointer(&mut self, at: u64) -> Option<()>;
}

/// [`Words`] read by a function.
pub struct Loaded<L> {
    /// The function that reads the word at an address.
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
