//! Counters of transfers of control inside functions ([`crate::segment::AREA_COUNTS`]).
//!
//! Each counter has a word in each of [`BANKS`] banks, and its count is their sum. A bank other
//! than the shared one belongs to at most one thread pointer. The thread with that pointer
//! increments its words by one instruction each, without a lock. All other threads share a bank and
//! increment its words with a lock. A bank is never given away: only one living thread at a time
//! has a thread pointer, and the next one with it continues the sums.

use core::sync::atomic::AtomicU64;

/// The shared bank.
pub const SHARED: usize = 0;
/// The bank of the first thread that counts. In a program with one thread, it is the only one.
pub const FIRST: usize = 1;
/// The first of the banks that bits of the thread pointer select ([`BANK_OF`]).
pub const HASHED: usize = 2;
/// The number of those banks, a power of two.
pub const HASHED_BANKS: usize = 64;
/// The number of banks.
pub const BANKS: usize = HASHED + HASHED_BANKS;
/// The number of counters of a session.
pub const MOST_COUNTERS: u64 = 1 << 16;
/// The number of a counter that is never read. Threads count with it to become the owner of a bank.
pub const CLAIM: u32 = 0;
/// Bytes from one bank to the next.
pub const BANK_BYTES: u64 = 8 * MOST_COUNTERS;

/// The banks, in the page of [`crate::image::SYMBOL_ALIVE`], which is zeroed in a forked child.
#[repr(C)]
pub struct Bank {
    /// The thread pointer of the bank's owner; 0 without one. That of the shared bank is
    /// [`crate::image::ALIVE`], which is no thread pointer.
    pub owner: AtomicU64,
    /// The address of the bank in the target; 0 while the session has no counters. Written by the
    /// command.
    pub at: AtomicU64,
}

/// The entry of a thread pointer is `BANK_OF & (tp >> BANK_SHIFT)` bytes after that of the bank
/// [`HASHED`]. The stacks of a C library are some pages more than a power of two apart.
pub const BANK_SHIFT: u32 = 8;
/// See [`BANK_SHIFT`].
pub const BANK_OF: u32 = (HASHED_BANKS as u32 - 1) * size_of::<Bank>() as u32;

const _: () = assert!(size_of::<Bank>() == 16 && BANKS * size_of::<Bank>() <= crate::PAGE as usize);
