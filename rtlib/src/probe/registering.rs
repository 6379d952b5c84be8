//! The probe of functions that deregister unwind entries, before the program overwrites their code.

use crate::arch::stored::FIRST_ARGUMENT;
use crate::code::registered;
use crate::os::{shared, sys};

/// Drops the tables of the entries that are about to be deregistered. Wakes the watching command,
/// which will read the next registrations.
///
/// # Safety
/// Called by the entry stub: `slot` is the address of the return address, and the registers that
/// the stub pushed are below it.
pub unsafe fn end(slot: u64) {
    // SAFETY: guaranteed by the caller.
    registered::take_back(unsafe { *((slot - FIRST_ARGUMENT) as *const u64) });
    if shared::is_mapped() && sys::may_call() {
        sys::wake_others(&shared::header().asked_used);
    }
}
