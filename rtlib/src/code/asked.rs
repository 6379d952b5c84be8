//! Return addresses that the command is asked to find a rule for.

use core::mem::size_of;
use core::sync::atomic::Ordering;

use abi::segment::{AREA_ASKED, Asked, NO_FRAME_POINTER};

use super::rules::RULES;
use crate::os::shared;

/// Bytes of the largest frame whose frame pointer is believed to be one.
const LARGEST: u64 = 64 << 10;

/// Asks for the rule of a return address, once; rbp is so many bytes above the stack pointer there.
pub fn ask(pc: u64, distance: u64) {
    const BYTES: u64 = size_of::<Asked>() as u64;
    if !shared::is_mapped() || !RULES.ask(pc) {
        return;
    }
    let used = &shared::header().asked_used;
    let Some(index) = shared::take(AREA_ASKED, used, BYTES, 0, |_| Some(())) else {
        return;
    };
    // SAFETY: one that has just been taken.
    let asked: &Asked = unsafe { shared::item(AREA_ASKED, index.into(), BYTES) };
    let is_place = distance <= LARGEST && distance.is_multiple_of(8);
    let frame_pointer = if is_place { distance } else { NO_FRAME_POINTER };
    asked.frame_pointer.store(frame_pointer, Ordering::Relaxed);
    asked.address.store(pc, Ordering::Release);
}
