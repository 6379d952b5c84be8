//! The kernel's interface.

/// Signal masks.
pub mod signals {
    /// Defines `$block(old: *mut u64)`, which blocks every signal, and `$restore(old: *const u64)`.
    /// Both do nothing if the word `$allowed` bytes from the static `$parameters` is 0.
    macro_rules! define {
        ($(#[$block_doc:meta])* $block:ident, $(#[$restore_doc:meta])* $restore:ident, $parameters:path, $allowed:expr) => {
            $(#[$block_doc])*
            pub unsafe extern "C" fn $block(_: *mut u64) {
                let _ = (&raw const $parameters, $allowed);
            }

            $(#[$restore_doc])*
            pub unsafe extern "C" fn $restore(_: *const u64) {}
        };
    }

    pub(crate) use define;
}

/// System calls.
pub mod system_call {
    /// Numbers of Linux system calls.
    #[allow(missing_docs, reason = "their names are the calls'")]
    pub mod number {
        pub const READ: u64 = 0;
        pub const OPEN: u64 = 0;
        pub const CLOSE: u64 = 0;
        pub const MMAP: u64 = 0;
        #[cfg(test)]
        pub const MPROTECT: u64 = 0;
        pub const MUNMAP: u64 = 0;
        pub const MADVISE: u64 = 0;
        pub const GETPID: u64 = 0;
        pub const FCNTL: u64 = 0;
        pub const GETRUSAGE: u64 = 0;
        pub const SIGALTSTACK: u64 = 0;
        pub const PRCTL: u64 = 0;
        pub const GETTID: u64 = 0;
        pub const FUTEX: u64 = 0;
        pub const PROCESS_VM_READV: u64 = 0;
        pub const MSYNC: u64 = 0;
        pub const CLOCK_GETTIME: u64 = 0;
        pub const TGKILL: u64 = 0;
        pub const KILL: u64 = 0;
        pub const PERF_EVENT_OPEN: u64 = 0;
    }

    /// Makes a system call. Errors are returned as -errno.
    ///
    /// # Safety
    /// The call's own contract for its arguments.
    pub unsafe fn syscall(_: u64, _: [u64; 6]) -> i64 {
        const ENOSYS: i64 = 38;
        -ENOSYS
    }
}
