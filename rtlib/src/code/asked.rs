//! Requests to the command for rules of return addresses.

use core::mem::size_of;
use core::sync::atomic::Ordering;

use abi::segment::{AREA_ASKED, Asked, NO_FRAME_POINTER};

use super::rules::RULES;
use crate::os::{shared, sys};

/// Maximum size in bytes of a frame whose frame pointer is trusted.
pub const LARGEST: u64 = 64 << 10;

/// Requests the rule of the return address `pc` and wakes the command, unless it was requested
/// before or there is no room. `distance` is the frame pointer minus the stack pointer after the
/// return, in bytes.
pub fn ask(pc: u64, distance: u64) {
    if note(pc, distance) {
        wake();
    }
}

/// Records a request as [`ask`] does, without waking the command. True if it is new; false if it
/// was made before, or there is no room or no segment.
pub fn note(pc: u64, distance: u64) -> bool {
    const BYTES: u64 = size_of::<Asked>() as u64;
    if !shared::is_mapped() || !RULES.ask(pc) {
        return false;
    }
    let header = shared::header();
    let (used, done) = (&header.asked_used, &header.asked_done);
    let Some(number) = shared::take_turn(AREA_ASKED, used, done, BYTES) else {
        // There may be room later.
        RULES.forget_question(pc);
        return false;
    };
    let place = number % header.areas[AREA_ASKED].capacity();
    // SAFETY: the entry has just been taken.
    let asked: &Asked = unsafe { shared::item(AREA_ASKED, place, BYTES) };
    let is_place = distance <= LARGEST && distance.is_multiple_of(8);
    let frame_pointer = if is_place { distance } else { NO_FRAME_POINTER };
    asked.frame_pointer.store(frame_pointer, Ordering::Relaxed);
    asked.address.store(pc, Ordering::Release);
    true
}

/// Wakes the command that waits for requests.
pub fn wake() {
    sys::wake_others(&shared::header().asked_used);
}
