//! Locations of registers.

/// `jmp_buf`.
pub mod jump_buffer {
    use unwind::Saved;

    /// The target of a longjmp.
    pub struct Target {
        /// The program counter.
        pub pc: u64,
        /// The stack pointer.
        pub sp: u64,
        /// Callee-saved registers.
        pub saved: Saved,
    }

    /// The possible targets, by the layout of each C library. Only that of the program's own
    /// library is right.
    ///
    /// # Safety
    /// `buffer` is the argument of longjmp, which is about to read it.
    pub unsafe fn targets(_: u64) -> [Target; 0] {
        []
    }
}

/// Locations at which trampolines and stubs store the registers of a call. Offsets are in bytes;
/// the slot is the address of the return address.
pub mod stored {
    /// Offset of the vector registers, on the slow path, down from the top of a thread's private
    /// stack.
    pub const VECTORS: u64 = 256;
    /// Offsets of C's arguments, in their order, down from the slot.
    pub const ARGUMENTS: [u64; 6] = [64, 56, 48, 40, 32, 24];
    /// Offset of the first argument of C's functions, down from the slot.
    pub const FIRST_ARGUMENT: u64 = ARGUMENTS[0];
    /// Offset of the third argument of C's functions, down from the slot.
    pub const THIRD_ARGUMENT: u64 = ARGUMENTS[2];
    /// Offset of the last argument in a register of C's functions, down from the slot.
    pub const LAST_ARGUMENT: u64 = ARGUMENTS[5];
    /// Offset of the result, down from the slot.
    pub const RESULT: u64 = 8;
    /// Offset of the first argument of Go's functions, down from the slot.
    pub const FIRST_ARGUMENT_OF_GO: u64 = RESULT;
}

/// The thread pointer, and the data of C libraries at it.
pub mod thread_pointer {
    use crate::arch::abort::abort;

    /// The thread pointer by the first word of the control block.
    pub fn self_pointer() -> u64 {
        abort()
    }

    /// The thread pointer, read from its register.
    pub fn register() -> u64 {
        abort()
    }

    /// The thread pointer according to the kernel; `None` if it refuses.
    pub fn of_kernel() -> Option<u64> {
        None
    }
}

/// Vector registers. They belong to the program, so they are only read.
pub mod vector {
    /// The lower 64 bits of one of the first eight vector registers, by its number.
    pub fn low_half(_: usize) -> u64 {
        crate::arch::abort::abort()
    }
}
