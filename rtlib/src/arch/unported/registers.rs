//! Where registers are.

/// `jmp_buf`.
pub mod jump_buffer {
    use unwind::Saved;

    /// Where a longjmp goes on.
    pub struct Target {
        /// The program counter.
        pub pc: u64,
        /// The stack pointer.
        pub sp: u64,
        /// Callee-saved registers.
        pub saved: Saved,
    }

    /// The targets by the layouts of each C library.
    ///
    /// # Safety
    /// `buffer` is the argument of a longjmp, which is about to read it.
    pub unsafe fn targets(_: u64) -> [Target; 0] {
        []
    }
}

/// Where trampolines and stubs store the registers of a call, in bytes.
pub mod stored {
    /// Below the top of a thread's private stack: the vector registers, on the slow path.
    pub const VECTORS: u64 = 256;
    /// Below the slot: C's arguments in their order.
    pub const ARGUMENTS: [u64; 6] = [64, 56, 48, 40, 32, 24];
    /// The first argument of C's functions.
    pub const FIRST_ARGUMENT: u64 = ARGUMENTS[0];
    /// The third.
    pub const THIRD_ARGUMENT: u64 = ARGUMENTS[2];
    /// The last in a register.
    pub const LAST_ARGUMENT: u64 = ARGUMENTS[5];
    /// Below the slot: the result.
    pub const RESULT: u64 = 8;
    /// Below the slot: the first argument of Go's functions.
    pub const FIRST_ARGUMENT_OF_GO: u64 = RESULT;
}

/// The thread pointer, and what C libraries keep at it.
pub mod thread_pointer {
    use crate::arch::abort::abort;

    /// The thread pointer by the first word of the control block.
    pub fn self_pointer() -> u64 {
        abort()
    }

    /// The thread pointer by its register.
    pub fn register() -> u64 {
        abort()
    }

    /// The thread pointer as the kernel has it; `None` if it refuses.
    pub fn of_kernel() -> Option<u64> {
        None
    }
}

/// Vector registers, which are the program's: they are read, and never written.
pub mod vector {
    /// The lower 64 bits of the first eight.
    pub fn low_half(_: usize) -> u64 {
        crate::arch::abort::abort()
    }
}
