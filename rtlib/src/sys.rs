//! Raw system calls: no libc stands between.

use core::arch::asm;

/// Linux system-call numbers, arch/x86/entry/syscalls/syscall_64.tbl.
mod number {
    pub const READ: u64 = 0;
    pub const OPEN: u64 = 2;
    pub const CLOSE: u64 = 3;
    pub const MMAP: u64 = 9;
    pub const MUNMAP: u64 = 11;
    pub const SCHED_YIELD: u64 = 24;
    pub const MADVISE: u64 = 28;
    pub const NANOSLEEP: u64 = 35;
    pub const SIGALTSTACK: u64 = 131;
    pub const GETTID: u64 = 186;
}

/// Makes a system call; errors come back as -errno.
///
/// # Safety
/// The call's own contract for its arguments.
#[inline]
unsafe fn syscall(number: u64, arguments: [u64; 6]) -> i64 {
    let result;
    // SAFETY: the kernel clobbers rax, rcx and r11 only; the rest is the caller's promise.
    unsafe {
        asm!(
            "syscall",
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

fn checked(result: i64) -> Option<u64> {
    u64::try_from(result).ok()
}

/// Maps `len` bytes of zeroed memory, readable and writable, not reserved until touched.
pub fn map_anonymous(len: u64) -> Option<u64> {
    const READ_WRITE: u64 = 1 | 2;
    const PRIVATE_ANONYMOUS_NORESERVE: u64 = 0x02 | 0x20 | 0x4000;
    let arguments = [0, len, READ_WRITE, PRIVATE_ANONYMOUS_NORESERVE, u64::MAX, 0];
    // SAFETY: a new mapping where the kernel chooses touches nothing that exists.
    checked(unsafe { syscall(number::MMAP, arguments) })
}

/// Unmaps memory.
///
/// # Safety
/// Nothing uses the range any more.
pub unsafe fn unmap(address: u64, len: u64) {
    // SAFETY: the caller's promise.
    unsafe { syscall(number::MUNMAP, [address, len, 0, 0, 0, 0]) };
}

/// Makes the pages of a mapping present and writable; false where there is no memory for them,
/// which a plain write would answer with SIGBUS.
pub fn populate(address: u64, len: u64) -> bool {
    const MADV_POPULATE_WRITE: u64 = 23;
    // SAFETY: populating changes no contents.
    unsafe {
        syscall(
            number::MADVISE,
            [address, len, MADV_POPULATE_WRITE, 0, 0, 0],
        ) == 0
    }
}

/// Asks for large pages where memory is used all over; that it is not heeded does no harm.
pub fn prefer_huge_pages(address: u64, len: u64) {
    const MADV_HUGEPAGE: u64 = 14;
    // SAFETY: changes no contents.
    unsafe {
        syscall(number::MADVISE, [address, len, MADV_HUGEPAGE, 0, 0, 0]);
    }
}

/// The calling thread's id.
pub fn gettid() -> u32 {
    // SAFETY: takes no argument and changes nothing.
    unsafe { syscall(number::GETTID, [0; 6]) as u32 }
}

/// A stack_t, sigaltstack(2).
#[repr(C)]
pub struct AlternateStack {
    /// Lowest address.
    pub low: u64,
    /// How it is used.
    pub flags: u64,
    /// Bytes, 0 where there is none.
    pub size: u64,
}

/// Stores how the calling thread's alternate signal stack is set; nothing where that cannot be known.
///
/// # Safety
/// `to` is the caller's.
pub unsafe fn alternate_stack(to: *mut AlternateStack) {
    // SAFETY: nothing is set; the rest is the caller's promise.
    unsafe { syscall(number::SIGALTSTACK, [0, to as u64, 0, 0, 0, 0]) };
}

/// Sleeps for 50 microseconds, or what the system makes of them.
pub fn sleep_briefly() {
    const TIME: [u64; 2] = [0, 50_000];
    // SAFETY: reads a timespec.
    unsafe {
        syscall(number::NANOSLEEP, [TIME.as_ptr() as u64, 0, 0, 0, 0, 0]);
    }
}

/// Lets another thread run.
pub fn sched_yield() {
    // SAFETY: takes no argument and changes nothing of ours.
    unsafe { syscall(number::SCHED_YIELD, [0; 6]) };
}

/// A file open for reading, closed when dropped.
pub struct File(u64);

impl File {
    /// Opens the file named by a C string.
    pub fn open(path: &core::ffi::CStr) -> Option<Self> {
        const RDONLY_CLOEXEC: u64 = 0o2_000_000;
        let arguments = [path.as_ptr() as u64, RDONLY_CLOEXEC, 0, 0, 0, 0];
        // SAFETY: the path ends with a zero byte.
        checked(unsafe { syscall(number::OPEN, arguments) }).map(Self)
    }

    /// Reads into `buffer`; the number of bytes, 0 at the end of the file.
    pub fn read(&self, buffer: &mut [u8]) -> Option<usize> {
        let arguments = [
            self.0,
            buffer.as_mut_ptr() as u64,
            buffer.len() as u64,
            0,
            0,
            0,
        ];
        // SAFETY: the buffer is ours to write, for its whole length.
        checked(unsafe { syscall(number::READ, arguments) }).map(|n| n as usize)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: the descriptor is ours.
        unsafe { syscall(number::CLOSE, [self.0, 0, 0, 0, 0, 0]) };
    }
}
