//! Code whose unwind entries the program registers, and takes back before it writes other code in its place.

use super::next::FIRST_ARGUMENT;
use crate::code::registered;
use crate::os::{shared, sys};

/// Drops what is known by the entries that are about to be taken back, and wakes whoever finds those that are registered next.
///
/// # Safety
/// Called by the entry stub: `slot` is the address of the return address, and what the stub has pushed is below it.
pub unsafe fn end(slot: u64) {
    // SAFETY: the caller's promise.
    registered::take_back(unsafe { *((slot - FIRST_ARGUMENT) as *const u64) });
    if shared::is_mapped() && sys::may_call() {
        sys::wake_others(&shared::header().asked_used);
    }
}
