//! Counters of transfers of control inside functions ([`crate::segment::AREA_COUNTS`]).
//!
//! Each counter has a word in each of [`BANKS`] banks, and its count is their sum. A bank other
//! than the first belongs to at most one thread pointer. The thread with that pointer increments
//! its words by one instruction each, without a lock. All other threads share the first bank and
//! increment its words with a lock. A bank is never given away: only one living thread at a time
//! has a thread pointer, and the next one with it continues the sums.

use core::sync::atomic::AtomicU64;

/// The number of banks for one thread each, a power of two.
pub const OWNED_BANKS: usize = 64;
/// The number of banks: the shared one, which is the first, and those for one thread each.
pub const BANKS: usize = 1 + OWNED_BANKS;
/// The number of counters of a session.
pub const MOST_COUNTERS: u64 = 1 << 16;
/// The number of a counter that is never read. Threads count with it to become the owner of a bank.
pub const CLAIM: u32 = 0;
/// Bytes from one bank to the next.
pub const BANK_BYTES: u64 = 8 * MOST_COUNTERS;

/// The banks, in the page of [`crate::image::SYMBOL_ALIVE`], which is zeroed in a forked child.
#[repr(C)]
pub struct Bank {
    /// The thread pointer of the bank's owner; 0 without one. That of the first bank is
    /// [`crate::image::ALIVE`], which is no thread pointer.
    pub owner: AtomicU64,
    /// The address of the bank in the target; 0 while the session has no counters. Written by the
    /// command.
    pub at: AtomicU64,
}

/// The bank for a thread pointer is `BANK_OF & (tp >> BANK_SHIFT)` bytes after the second one. The
/// stacks of a C library are some pages more than a power of two apart.
pub const BANK_SHIFT: u32 = 8;
/// See [`BANK_SHIFT`].
pub const BANK_OF: u32 = (OWNED_BANKS as u32 - 1) * size_of::<Bank>() as u32;

const _: () = assert!(size_of::<Bank>() == 16 && BANKS * size_of::<Bank>() <= crate::PAGE as usize);
