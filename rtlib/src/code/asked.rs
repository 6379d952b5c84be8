//! Return addresses that the command is asked to find a rule for.

use core::mem::size_of;
use core::sync::atomic::Ordering;

use abi::segment::{AREA_ASKED, Asked};

use super::rules::RULES;
use crate::os::shared;

/// Asks for the rule of a return address, once; `frame_pointer` as in [`Asked`].
pub fn ask(pc: u64, frame_pointer: u64) {
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
    asked.frame_pointer.store(frame_pointer, Ordering::Relaxed);
    asked.address.store(pc, Ordering::Release);
}
