//! System calls.

use core::arch::asm;

/// Linux system-call numbers, arch/x86/entry/syscalls/syscall_64.tbl.
#[allow(missing_docs, reason = "their names are the calls'")]
pub mod number {
    pub const READ: u64 = 0;
    pub const OPEN: u64 = 2;
    pub const CLOSE: u64 = 3;
    pub const MMAP: u64 = 9;
    #[cfg(test)]
    pub const MPROTECT: u64 = 10;
    pub const MUNMAP: u64 = 11;
    pub const MADVISE: u64 = 28;
    pub const RT_SIGACTION: u64 = 13;
    pub const RT_SIGPROCMASK: u64 = 14;
    pub const RT_SIGRETURN: u64 = 15;
    pub const GETPID: u64 = 39;
    pub const FCNTL: u64 = 72;
    pub const GETRUSAGE: u64 = 98;
    pub const SIGALTSTACK: u64 = 131;
    pub const PRCTL: u64 = 157;
    pub const ARCH_PRCTL: u64 = 158;
    pub const GETTID: u64 = 186;
    pub const FUTEX: u64 = 202;
    pub const PROCESS_VM_READV: u64 = 310;
    pub const MSYNC: u64 = 26;
    pub const CLOCK_GETTIME: u64 = 228;
    pub const TGKILL: u64 = 234;
    pub const KILL: u64 = 62;
    pub const PERF_EVENT_OPEN: u64 = 298;
}

/// Makes a system call. Errors are returned as -errno.
///
/// # Safety
/// The call's own contract for its arguments.
#[inline]
pub unsafe fn syscall(number: u64, arguments: [u64; 6]) -> i64 {
    let result;
    // SAFETY: the kernel only clobbers rax, rcx and r11. The rest is guaranteed by the caller.
    unsafe {
        asm!(
            "syscall", // rax: the number, then the result
            inlateout("rax") number as i64 => result,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            in("r8") arguments[4],
            in("r9") arguments[5],
            out("rcx") _,
            out("r11") _,
            options(nostack),
        );
    }
    result
}
