//! The paths of activations inside functions.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Relaxed, Release};

use abi::count::{BANK_OF, BANK_SHIFT, Bank, FIRST, HASHED, SHARED};
use abi::path::{
    ADDS, BEFORE, BEGINS, BEGUN, EACH, ENDS, ENTRIES, FRAME_ALIGN, HISTOGRAM, Row, SLOTS,
    SUM_SHIFT, Slot, TRIED_ENTRIES, TRIED_SLOTS, UNCOUNTED, UNKNOWN, frame_slot,
};

use crate::arch::exchange;
use crate::os::hash;
use crate::os::parameters::{ipath_alive, ipath_paths, is_alive};
use crate::os::thread_pointer::thread_pointer;

/// Follows the path of an activation by one step.
///
/// A signal handler may interrupt this at any instruction, and run the same function. It is another
/// activation, with another frame address and another slot.
///
/// # Safety
/// Called by the stub of paths. `row` is that of the hook, and `sp` and `fp` are the registers of
/// the activation.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.fast")]
pub unsafe extern "C" fn ipath_follow(row: *const Row, sp: u64, fp: u64) {
    if !is_alive() {
        return;
    }
    // SAFETY: guaranteed by the caller. Trampolines do not change while they are in use.
    let row = unsafe { &*row };
    let base = if row.by_fp != 0 { fp } else { sp };
    let key = base.wrapping_add(i64::from(row.key) as u64);
    if row.kind == BEGINS {
        Counters::of_thread().increment(row.first + BEGUN);
        begin(key, row);
        return;
    }
    let sum = match slot_of(key, row) {
        None if row.kind == ADDS => return,
        None => {
            if row.kind != ENDS {
                // The path from here on is known.
                begin(key, row);
            }
            row.paths
        }
        Some(slot) => {
            let sum = (slot.sum.load(Relaxed) as i64 >> SUM_SHIFT) as u64;
            let sum = sum.wrapping_add(row.add);
            match row.kind {
                ADDS => {
                    slot.sum.store(sum << SUM_SHIFT, Relaxed);
                    return;
                }
                ENDS => {
                    let is_of_frame = core::ptr::eq(slot, of_frame(key));
                    let page = Slot::page(row.activation(key));
                    let free = if is_of_frame { page } else { 0 };
                    slot.activation.store(free, Release);
                }
                _ => slot.sum.store(row.start << SUM_SHIFT, Relaxed),
            }
            sum
        }
    };
    Counters::of_thread().count(row, sum);
}

/// The number of the path that ends at a hook with this row, before the hook has ended it. The
/// return address of the function is at `slot`. `None` if it is not known.
#[inline(never)]
#[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
pub(super) fn number_at_end(row: &Row, slot: u64) -> Option<u64> {
    let key = slot.wrapping_add(8 + FRAME_ALIGN * u64::from(row.first));
    let slot = slot_of(key, row)?;
    let sum = (slot.sum.load(Relaxed) as i64 >> SUM_SHIFT) as u64;
    Some(sum.wrapping_add(row.add)).filter(|&number| number < row.paths)
}

/// The slot of a frame.
#[inline(always)]
fn of_frame(key: u64) -> &'static Slot {
    &ipath_paths.of_frames[frame_slot(key)]
}

/// The other slots that an activation may have.
#[inline(always)]
fn others(key: u64) -> impl Iterator<Item = &'static Slot> {
    let first = hash::bucket(key, SLOTS.trailing_zeros());
    (first..first + TRIED_SLOTS).map(|index| &ipath_paths.others[index % SLOTS])
}

/// The slot of an activation. `None` if it has none.
#[inline(always)]
fn slot_of(key: u64, row: &Row) -> Option<&'static Slot> {
    let is_it = |slot: &&Slot| slot.activation.load(Relaxed) == row.activation(key);
    let first = Some(of_frame(key)).filter(is_it);
    first.or_else(|| others(key).find(is_it))
}

/// Takes the slot of a frame, if it is free. `None` if it is taken, or for another page.
///
/// A signal handler on the same page may take the slot before this activation does. It gives it
/// back when it returns.
#[inline(always)]
fn take_of_frame(key: u64, row: &Row) -> Option<&'static Slot> {
    let slot = of_frame(key);
    let own = row.activation(key);
    match slot.activation.load(Relaxed) {
        0 => {
            let taken = slot
                .activation
                .compare_exchange(0, own, Relaxed, Relaxed)
                .is_ok();
            return taken.then_some(slot);
        }
        free if free == Slot::page(own) => slot.activation.store(own, Relaxed),
        _ => return None,
    }
    Some(slot)
}

/// Gives an activation a slot, if there is one, with the sum of the path that begins.
///
/// If there is one with its frame address already, the activation before has been left.
#[inline(always)]
fn begin(key: u64, row: &Row) {
    let take_other = || {
        let own = row.activation(key);
        let mut free = others(key).filter(|slot| slot.activation.load(Relaxed) == 0);
        free.find(|slot| {
            let taken = slot.activation.compare_exchange(0, own, Relaxed, Relaxed);
            taken.is_ok()
        })
    };
    let known = slot_of(key, row);
    let slot = known
        .or_else(|| take_of_frame(key, row))
        .or_else(take_other);
    if let Some(slot) = slot {
        slot.sum.store(row.start << SUM_SHIFT, Relaxed);
    }
}

/// A bank of counters.
struct Counters {
    at: *mut u64,
    /// True if other threads may change it at the same time.
    is_shared: bool,
}

impl Counters {
    /// The bank of the calling thread, which becomes its owner if it has none.
    #[inline(always)]
    fn of_thread() -> Self {
        let thread = thread_pointer();
        let offset = (thread >> BANK_SHIFT) & u64::from(BANK_OF);
        let banks = ipath_alive.banks();
        let hashed = HASHED + offset as usize / size_of::<Bank>();
        let is_own = |bank: &&Bank| {
            let owner = bank.owner.load(Relaxed);
            let claimed = || bank.owner.compare_exchange(0, thread, Relaxed, Relaxed);
            owner == thread || owner == 0 && claimed().is_ok()
        };
        let own = [&banks[FIRST], &banks[hashed]].into_iter().find(is_own);
        Self {
            at: own.unwrap_or(&banks[SHARED]).at.load(Relaxed) as *mut u64,
            is_shared: own.is_none(),
        }
    }

    /// Increments counter `number`, in one instruction.
    #[inline(always)]
    fn increment(&self, number: u32) {
        let word = self.at.wrapping_add(number as usize);
        // SAFETY: the command has made room for the function's counters in each bank. If the bank
        // is not shared, no other thread writes to it.
        unsafe {
            if self.is_shared {
                (*word.cast::<AtomicU64>()).fetch_add(1, Relaxed);
            } else {
                exchange::increment(word);
            }
        }
    }

    /// Counts the path with this number, which is unknown if it is too large.
    #[inline(always)]
    fn count(&self, row: &Row, number: u64) {
        let first = row.first + BEFORE;
        let counter = if number >= row.paths {
            row.first + UNKNOWN
        } else if row.counters == EACH {
            first + number as u32
        } else if row.counters == HISTOGRAM {
            first + number.checked_ilog2().unwrap_or(0)
        } else {
            let entry = self.entry(first, number);
            entry.unwrap_or(row.first + UNCOUNTED)
        };
        self.increment(counter);
    }

    /// The number of the counter of a path in the hash table that begins at counter `first`. `None`
    /// if there is no room for it.
    #[inline(always)]
    fn entry(&self, first: u32, number: u64) -> Option<u32> {
        let at = hash::bucket(number, ENTRIES.trailing_zeros()) as u64;
        let mut tried = (at..at + TRIED_ENTRIES).map(|at| first + 2 * (at % ENTRIES) as u32);
        let key = number + 1;
        let found = tried.find(|&entry| {
            let word = self.at.wrapping_add(entry as usize).cast::<AtomicU64>();
            // SAFETY: as for `increment`.
            let word = unsafe { &*word };
            let now = word.load(Relaxed);
            let taken = || match word.compare_exchange(0, key, Relaxed, Relaxed) {
                Ok(_) => true,
                Err(other) => other == key,
            };
            now == key || now == 0 && taken()
        });
        found.map(|entry| entry + 1)
    }
}
