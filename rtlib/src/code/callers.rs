//! Questions for all callers at once.

use unwind::rule;

use super::asked::{LARGEST, note, wake};
use super::modules::MODULES;
use super::published;
use super::return_address::is_after_call;
use super::rules::RULES;

/// Most callers that are asked for at once.
const MOST: usize = 64;

/// Asks for the rule of a return address, once, and for those of the callers that frame pointers lead to from there on:
/// who has called code without a rule has often none, either, and each answer would take the walk to the next of them
/// alone. What the frame pointer points to may not be a frame, and the walk does not follow it. But what is seen where it leads to
/// return addresses is true of those: how far the frame pointer points above the stack pointer there. If it leads nowhere, the
/// question is in vain. `load` reads a word of the stack.
pub fn ask(pc: u64, sp: u64, fp: u64, load: &dyn Fn(u64) -> Option<u64>) {
    if !note(pc, fp.wrapping_sub(sp)) {
        return;
    }
    let mut frame = Some((sp, fp));
    for _ in 0..MOST {
        let caller = frame.and_then(|(sp, fp)| caller(sp, fp, load));
        let Some((pc, sp, fp)) = caller.filter(|&(pc, ..)| is_known_call(pc)) else {
            break;
        };
        if has_no_rule(pc) {
            note(pc, fp.wrapping_sub(sp));
        }
        frame = Some((sp, fp));
    }
    wake();
}

/// Where the frame at fp returns to, with the stack pointer and fp there.
fn caller(sp: u64, fp: u64, load: &dyn Fn(u64) -> Option<u64>) -> Option<(u64, u64, u64)> {
    let is_frame = fp >= sp && fp - sp <= LARGEST && fp.is_multiple_of(8);
    let sp = fp.checked_add(16).filter(|_| is_frame)?;
    Some((load(sp - 8)?, sp, load(fp)?))
}

/// Whether a call is known to return there.
fn is_known_call(pc: u64) -> bool {
    let range = MODULES.known(pc.wrapping_sub(1));
    range.is_some_and(|range| is_after_call(&range, pc))
}

/// Whether neither unwind entries nor what the command has published says how the frame is left.
fn has_no_rule(pc: u64) -> bool {
    let (word, _) = RULES.get(pc);
    if !matches!(rule::kind(word), 0 | rule::FULL | rule::STOP) {
        return false;
    }
    let before = pc.wrapping_sub(1);
    MODULES.known(before).is_some_and(|range| {
        let has_entry = range.tables.is_some_and(|t| t.find(before).is_some());
        !has_entry && published::rule_of(&range, pc).is_none()
    })
}
