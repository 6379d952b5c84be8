//! Patterns in code.

/// Patterns of calls.
pub mod call {
    /// Length of the longest call instruction, in bytes.
    pub const LONGEST: usize = 4;
    /// A system call.
    pub const SYSTEM_CALL: [u8; 4] = [0; 4];
    /// The end of threads in musl's `__clone`.
    pub const THREAD_END: [u8; 4] = [0; 4];
    /// The first instructions of glibc's `__start_context`.
    pub const START_CONTEXT: [u8; 4] = [0; 4];

    /// True if a call instruction ends at the end of the bytes, or may end there under a patch.
    pub fn ends_with_call(_: &[u8; LONGEST]) -> bool {
        false
    }

    /// True if a call instruction ends at the end of the bytes. Patches are not considered.
    pub fn ends_with_unpatched_call(_: &[u8; LONGEST]) -> bool {
        false
    }

    /// The offset of a direct call's target from the call's end, if a breakpoint has replaced a
    /// part of it.
    pub fn direct_under_breakpoint(_: &[u8; LONGEST]) -> Option<i32> {
        None
    }

    /// True if a call with a breakpoint on it may end at the end of the bytes.
    pub fn may_be_under_breakpoint(_: &[u8; LONGEST]) -> bool {
        false
    }

    /// True if an instruction with this first byte may be the start of a patch.
    pub fn may_be_patch(_: u8) -> bool {
        false
    }
}

/// The hooks of trampolines.
pub mod hook {
    /// Bytes from the slot down to the address that the hook's call returns to.
    pub const WAY_BACK: u64 = 16;
    /// Size of the hook up to the return address of its call, in bytes.
    pub const LEN: u64 = 8;

    /// True if the bytes are the start of a hook.
    pub fn begins_with(_: [u8; 8]) -> bool {
        false
    }
}
