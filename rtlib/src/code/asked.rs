//! Return addresses that the command is asked to find a rule for.

use core::mem::size_of;
use core::sync::atomic::Ordering;

use abi::segment::{AREA_ASKED, Asked, NO_FRAME_POINTER};

use super::rules::RULES;
use crate::os::{shared, sys};

/// Bytes of the largest frame whose frame pointer is believed to be one.
pub const LARGEST: u64 = 64 << 10;

/// Asks for the rule of a return address, once; the frame pointer is so many bytes above the stack pointer there.
pub fn ask(pc: u64, distance: u64) {
    if note(pc, distance) {
        wake();
    }
}

/// Writes a question down, unless it has been: whether it has.
pub fn note(pc: u64, distance: u64) -> bool {
    const BYTES: u64 = size_of::<Asked>() as u64;
    if !shared::is_mapped() || !RULES.ask(pc) {
        return false;
    }
    let header = shared::header();
    let (used, done) = (&header.asked_used, &header.asked_done);
    let Some(number) = shared::take_turn(AREA_ASKED, used, done, BYTES) else {
        // There may be room another time.
        RULES.forget_question(pc);
        return false;
    };
    let place = number % header.areas[AREA_ASKED].capacity();
    // SAFETY: one that has just been taken.
    let asked: &Asked = unsafe { shared::item(AREA_ASKED, place, BYTES) };
    let is_place = distance <= LARGEST && distance.is_multiple_of(8);
    let frame_pointer = if is_place { distance } else { NO_FRAME_POINTER };
    asked.frame_pointer.store(frame_pointer, Ordering::Relaxed);
    asked.address.store(pc, Ordering::Release);
    true
}

/// Wakes whoever watches.
pub fn wake() {
    sys::wake_others(&shared::header().asked_used);
}
