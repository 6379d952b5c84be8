//! Numbers of system calls that libc does not name.

/// The number of the system call io_pgetevents(2).
pub const IO_PGETEVENTS: i64 = 333;
