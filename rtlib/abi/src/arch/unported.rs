//! A processor without a port. The values only keep the runtime compiling for it.

/// Registers.
pub mod registers {
    /// The number of callee-saved registers besides the stack pointer and the frame pointer.
    pub const OTHERS: usize = 5;
}

/// The stack frame of a signal handler.
pub mod signal_frame {
    /// The code that a handler returns to.
    pub const RESTORER: [u8; 4] = [0; 4];
}

/// The stack.
pub mod stack {
    /// Bytes below the stack pointer that a function may use without moving it.
    pub const RED_ZONE: u64 = 0;
}
