//! Raw system calls, without a libc.

use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use abi::counter::Event;
use abi::image::Parameters;

use super::parameters::ipath_parameters;
use crate::arch::system_call::{number, syscall};
use crate::arch::{signals, thread_pointer};

// Arguments of mmap(2).
const READ_WRITE: u64 = 1 | 2;
const PRIVATE_ANONYMOUS_NORESERVE: u64 = 0x02 | 0x20 | 0x4000;

/// The result of a system call; `None` if it is an error.
fn checked(result: i64) -> Option<u64> {
    u64::try_from(result).ok()
}

/// Maps `len` bytes of zeroed memory, readable and writable, without reserving swap space, and
/// returns their address. `None` if the kernel refuses.
pub fn map_anonymous(len: u64) -> Option<u64> {
    let arguments = [0, len, READ_WRITE, PRIVATE_ANONYMOUS_NORESERVE, u64::MAX, 0];
    // SAFETY: a new mapping at an address chosen by the kernel does not affect existing memory.
    checked(unsafe { syscall(number::MMAP, arguments) })
}

/// Maps `len` bytes of zeroed memory at `address`, unless something is mapped at that address. A
/// failure is not reported.
pub fn map_anonymous_at(address: u64, len: u64) {
    const FIXED_NOREPLACE: u64 = 0x10_0000;
    let flags = PRIVATE_ANONYMOUS_NORESERVE | FIXED_NOREPLACE;
    // SAFETY: existing mappings are not replaced.
    unsafe {
        syscall(number::MMAP, [address, len, READ_WRITE, flags, u64::MAX, 0]);
    }
}

/// Unmaps memory.
///
/// # Safety
/// Nothing uses the range any more.
pub unsafe fn unmap(address: u64, len: u64) {
    // SAFETY: guaranteed by the caller.
    unsafe { syscall(number::MUNMAP, [address, len, 0, 0, 0, 0]) };
}

/// Makes memory of a test executable.
#[cfg(test)]
pub fn make_executable(address: u64, len: u64) {
    const READ_EXECUTE: u64 = 1 | 4;
    // SAFETY: the memory belongs to the caller.
    let done = unsafe { syscall(number::MPROTECT, [address, len, READ_EXECUTE, 0, 0, 0]) };
    assert_eq!(done, 0);
}

/// Makes the pages of a mapping present and writable. False if there is no memory for them; a plain
/// write would then raise SIGBUS.
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

/// Requests large pages for memory that is used throughout. A refusal does no harm.
pub fn prefer_huge_pages(address: u64, len: u64) {
    const MADV_HUGEPAGE: u64 = 14;
    if !may_call() {
        return;
    }
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

/// The name of the calling thread, padded with zeroes; all zeroes if system calls are not allowed.
pub fn thread_name() -> [u64; 2] {
    const PR_GET_NAME: u64 = 16;
    let mut name = [0; 2];
    if may_call() {
        // SAFETY: the kernel writes 16 bytes there.
        unsafe {
            syscall(
                number::PRCTL,
                [PR_GET_NAME, &raw mut name as u64, 0, 0, 0, 0],
            )
        };
    }
    name
}

/// The id of the process that makes the call.
pub fn getpid() -> u32 {
    // SAFETY: takes no argument and changes nothing.
    unsafe { syscall(number::GETPID, [0; 6]) as u32 }
}

/// True if the process has a thread with this id, including one that is about to end.
pub fn is_thread(process: u32, tid: u32) -> bool {
    const ESRCH: i64 = -3;
    let arguments = [process.into(), tid.into(), 0, 0, 0, 0];
    // SAFETY: signal 0 has no effect.
    unsafe { syscall(number::TGKILL, arguments) != ESRCH }
}

/// True if no process with this id is visible from this one. A process that has ended is visible
/// until its parent has waited for it.
pub fn has_ended(process: u32) -> bool {
    const ESRCH: i64 = -3;
    // SAFETY: signal 0 has no effect.
    unsafe { syscall(number::KILL, [process.into(), 0, 0, 0, 0, 0]) == ESRCH }
}

/// The thread pointer according to the kernel. `None` if system calls are not allowed or the kernel
/// refuses.
pub fn thread_pointer() -> Option<u64> {
    may_call().then(thread_pointer::of_kernel)?
}

signals::define!(
    /// Blocks every signal and stores the mask before in `old`. Does nothing if system calls are
    /// not allowed.
    ///
    /// # Safety
    /// `old` belongs to the caller, which restores it.
    block_signals,
    /// Restores the signal mask stored by [`block_signals`].
    ///
    /// # Safety
    /// It came from [`block_signals`].
    restore_signals,
    ipath_parameters,
    offset_of!(Parameters, system_calls)
);

/// True if system calls are allowed.
#[inline(always)]
pub fn may_call() -> bool {
    ipath_parameters.system_calls.load(Ordering::Relaxed) != 0
}

/// A `stack_t` of sigaltstack(2).
#[repr(C)]
pub struct AlternateStack {
    /// Lowest address of the stack.
    pub low: u64,
    /// State and options of the stack (`ss_flags`).
    pub flags: u64,
    /// Size of the stack in bytes; 0 if there is no stack.
    pub size: u64,
}

impl AlternateStack {
    /// No stack.
    pub const NONE: Self = Self {
        low: 0,
        flags: 0,
        size: 0,
    };
}

/// Stores the alternate signal stack of the calling thread; no stack if system calls are not
/// allowed.
///
/// # Safety
/// `to` belongs to the caller.
pub unsafe fn alternate_stack(to: *mut AlternateStack) {
    if !may_call() {
        // The alternate stack is unknown.
        // SAFETY: guaranteed by the caller.
        unsafe { (*to).size = 0 };
        return;
    }
    // SAFETY: no stack is set; the rest is guaranteed by the caller.
    unsafe { syscall(number::SIGALTSTACK, [0, to as u64, 0, 0, 0, 0]) };
}

/// Sleeps until [`wake`] is called for the word, unless its value differs from `value`. May return
/// early.
pub fn wait_while(word: &AtomicU32, value: u32) {
    const WAIT_PRIVATE: u64 = 128;
    let arguments = [word.as_ptr() as u64, WAIT_PRIVATE, value.into(), 0, 0, 0];
    // SAFETY: only reads the word.
    unsafe { syscall(number::FUTEX, arguments) };
}

/// Wakes up to `count` threads that sleep in [`wait_while`].
pub fn wake(word: &AtomicU32, count: u32) {
    const WAKE_PRIVATE: u64 = 129;
    // SAFETY: changes no memory.
    unsafe {
        syscall(
            number::FUTEX,
            [word.as_ptr() as u64, WAKE_PRIVATE, count.into(), 0, 0, 0],
        )
    };
}

/// Wakes the threads of all processes that sleep in [`sleep_by`] or an equivalent call, on the
/// lower half of a word in shared memory.
pub fn wake_others(word: &AtomicU64) {
    const WAKE: u64 = 1;
    const ALL: u64 = i32::MAX as u64;
    if !may_call() {
        return;
    }
    // SAFETY: changes no memory.
    unsafe { syscall(number::FUTEX, [word.as_ptr() as u64, WAKE, ALL, 0, 0, 0]) };
}

/// Sleeps on the lower half of a word of shared memory while it equals `value`, until
/// [`wake_others`] is called for it, at most a millisecond. May return early.
pub fn sleep_by(word: &AtomicU64, value: u32) {
    const WAIT: u64 = 0;
    /// Seconds and nanoseconds. A static, because a local would take room on the program's stack.
    static A_MOMENT: [u64; 2] = [0, 1_000_000];
    let arguments = [
        word.as_ptr() as u64,
        WAIT,
        value.into(),
        A_MOMENT.as_ptr() as u64,
        0,
        0,
    ];
    // SAFETY: reads the word and the time.
    unsafe { syscall(number::FUTEX, arguments) };
}

/// The reason why memory could not be read.
pub enum Refused {
    /// The memory is not mapped.
    Fault,
    /// The system call has failed for another reason, usually because it is not available.
    Call,
}

/// Reads memory of this process from address `at` on into `to`. Returns the number of bytes up to
/// the first one that is not mapped.
///
/// # Errors
/// The first byte is not mapped, or the system call fails.
pub fn read_memory(at: u64, to: &mut [u8]) -> Result<usize, Refused> {
    const EFAULT: i64 = -14;
    let own = [to.as_mut_ptr() as u64, to.len() as u64];
    let other = [at, to.len() as u64];
    let process = own_pid().into();
    let arguments = [process, own.as_ptr() as u64, 1, other.as_ptr() as u64, 1, 0];
    // SAFETY: the buffer is writable for its whole length.
    match unsafe { syscall(number::PROCESS_VM_READV, arguments) } {
        EFAULT => Err(Refused::Fault),
        count => usize::try_from(count).map_err(|_| Refused::Call),
    }
}

/// The order of pages.
#[derive(Clone, Copy)]
pub enum Direction {
    /// Towards lower addresses.
    Down,
    /// Towards higher addresses.
    Up,
}

/// The number of readable pages from the one at `from` on, up to the first unreadable one and at
/// most `count` or `MAX_PAGES`. `None` if the first page is unreadable or the system call fails.
#[inline(never)]
pub fn readable_pages<const MAX_PAGES: usize>(
    from: u64,
    direction: Direction,
    count: usize,
) -> Option<usize> {
    let mut bytes = [0u8; MAX_PAGES];
    let mut pages = [[0u64; 2]; MAX_PAGES];
    let count = count.min(MAX_PAGES);
    for (index, page) in pages.iter_mut().take(count).enumerate() {
        let away = index as u64 * abi::PAGE;
        let at = match direction {
            Direction::Down => from.wrapping_sub(away),
            Direction::Up => from.wrapping_add(away),
        };
        *page = [at, 1];
    }
    let own = [bytes.as_mut_ptr() as u64, count as u64];
    let process = own_pid().into();
    let (own, other) = (own.as_ptr() as u64, pages.as_ptr() as u64);
    let arguments = [process, own, 1, other, count as u64, 0];
    // SAFETY: the buffers are valid for their whole length.
    checked(unsafe { syscall(number::PROCESS_VM_READV, arguments) }).map(|n| n as usize)
}

/// The id of the process that owns this memory, also in a child that shares it (vfork). A child
/// with a copy (fork) records nothing.
pub fn own_pid() -> u32 {
    match ipath_parameters.process.load(Ordering::Relaxed) as u32 {
        // The crate's own tests.
        0 => getpid(),
        pid => pid,
    }
}

/// True if a range of whole pages is mapped entirely.
pub fn is_mapped(start: u64, end: u64) -> bool {
    const ENOMEM: i64 = -12;
    const ASYNC: u64 = 1;
    let arguments = [start, end.saturating_sub(start), ASYNC, 0, 0, 0];
    // SAFETY: changes nothing.
    unsafe { syscall(number::MSYNC, arguments) != ENOMEM }
}

/// CPU time of the calling thread, in ns. `None` if the kernel refuses or system calls are not
/// allowed. `time` is a buffer.
pub fn thread_cpu_time(time: &mut [u64; 2]) -> Option<u64> {
    const THREAD_CPUTIME: u64 = 3;
    const NS: u64 = 1_000_000_000;
    if !may_call() {
        return None;
    }
    let arguments = [THREAD_CPUTIME, time.as_mut_ptr() as u64, 0, 0, 0, 0];
    // SAFETY: the words are writable.
    checked(unsafe { syscall(number::CLOCK_GETTIME, arguments) })?;
    Some(time[0] * NS + time[1])
}

/// Reads a `struct rusage` of the calling thread into `usage`. `None` if the kernel refuses or
/// system calls are not allowed.
pub fn thread_usage(usage: &mut [u64; 18]) -> Option<()> {
    const THREAD: u64 = 1;
    if !may_call() {
        return None;
    }
    let arguments = [THREAD, usage.as_mut_ptr() as u64, 0, 0, 0, 0];
    // SAFETY: the words are writable, and as many as the structure has.
    checked(unsafe { syscall(number::GETRUSAGE, arguments) }).map(drop)
}

/// Opens a perf event for the calling thread. `None` if the kernel refuses or system calls are not
/// allowed.
pub fn own_event(event: &'static Event) -> Option<File> {
    const SELF: u64 = 0;
    const ANY_CPU: u64 = u64::MAX;
    const NO_GROUP: u64 = u64::MAX;
    const CLOEXEC: u64 = 8;
    if !may_call() {
        return None;
    }
    let at = event.words.as_ptr() as u64;
    let arguments = [at, SELF, ANY_CPU, NO_GROUP, CLOEXEC, 0];
    // SAFETY: the words contain their own size, and are static.
    checked(unsafe { syscall(number::PERF_EVENT_OPEN, arguments) }).map(File::out_of_the_way)
}

/// Maps the first `count` pages of a file read-only over other pages. False if the kernel refuses.
///
/// # Safety
/// The replaced pages belong to the runtime and are not in use.
pub unsafe fn map_pages_of(file: &File, pages: u64, count: u64) -> bool {
    const READ: u64 = 1;
    const SHARED_FIXED: u64 = 0x01 | 0x10;
    let arguments = [pages, count * abi::PAGE, READ, SHARED_FIXED, file.0, 0];
    // SAFETY: guaranteed by the caller.
    checked(unsafe { syscall(number::MMAP, arguments) }).is_some()
}

/// A file open for reading, closed when dropped.
pub struct File(u64);

impl File {
    /// Opens the file at `path` for reading. `None` if the kernel refuses or system calls are not
    /// allowed.
    pub fn open(path: &core::ffi::CStr) -> Option<Self> {
        const RDONLY_CLOEXEC: u64 = 0o2_000_000;
        if !may_call() {
            return None;
        }
        let arguments = [path.as_ptr() as u64, RDONLY_CLOEXEC, 0, 0, 0, 0];
        // SAFETY: the path ends with a zero byte.
        checked(unsafe { syscall(number::OPEN, arguments) }).map(Self::out_of_the_way)
    }

    /// A file with this descriptor, moved to a high number. The program may rely on getting the
    /// lowest free number for a file of its own. It may also close all numbers that it does not
    /// know. Its other threads keep running meanwhile.
    fn out_of_the_way(descriptor: u64) -> Self {
        const DUPFD_CLOEXEC: u64 = 1030;
        /// One of the 64 descriptors that every process has room for (NR_OPEN_DEFAULT,
        /// include/linux/fdtable.h). To make room for more, the kernel makes threads wait that
        /// share them.
        const HIGH: u64 = 56;
        let low = Self(descriptor);
        if low.0 >= HIGH {
            return low;
        }
        let arguments = [low.0, DUPFD_CLOEXEC, HIGH, 0, 0, 0];
        // SAFETY: takes no pointer.
        match checked(unsafe { syscall(number::FCNTL, arguments) }) {
            Some(high) => Self(high),
            None => low,
        }
    }

    /// Reads into `buffer`. Returns the number of bytes, 0 at the end of the file. `None` on an
    /// error.
    pub fn read(&self, buffer: &mut [u8]) -> Option<usize> {
        let arguments = [
            self.0,
            buffer.as_mut_ptr() as u64,
            buffer.len() as u64,
            0,
            0,
            0,
        ];
        // SAFETY: the buffer is writable for its whole length.
        checked(unsafe { syscall(number::READ, arguments) }).map(|n| n as usize)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: the descriptor belongs to `self`.
        unsafe { syscall(number::CLOSE, [self.0, 0, 0, 0, 0, 0]) };
    }
}
