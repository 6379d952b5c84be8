//! Rule requests for all callers at once.

use unwind::rule;

use super::asked::{LARGEST, note, wake};
use super::modules::MODULES;
use super::published;
use super::return_address::is_after_call;
use super::rules::RULES;

/// Maximum number of callers per request.
const MAX_CALLERS: usize = 64;

/// Requests the rule of a return address, once, and the rules of its callers along the chain of
/// frame pointers. Callers of code without a rule often have no rule themselves, and single
/// requests would advance the walk by one frame each. The frame pointer may not point to a frame,
/// and the walk does not follow it. But if the chain yields return addresses, the distances of
/// frame and stack pointers there are correct. If it ends in other data, the request is useless but
/// harmless. `load` reads a word of the stack.
pub fn ask(pc: u64, sp: u64, fp: u64, load: &dyn Fn(u64) -> Option<u64>) {
    if !note(pc, fp.wrapping_sub(sp)) {
        return;
    }
    let mut frame = Some((sp, fp));
    for _ in 0..MAX_CALLERS {
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

/// The return address of the frame at `fp`, followed by the stack pointer and the frame pointer
/// after the return. `None` if the words at `fp` are no frame or cannot be read.
fn caller(sp: u64, fp: u64, load: &dyn Fn(u64) -> Option<u64>) -> Option<(u64, u64, u64)> {
    let is_frame = fp >= sp && fp - sp <= LARGEST && fp.is_multiple_of(8);
    let sp = fp.checked_add(16).filter(|_| is_frame)?;
    Some((load(sp - 8)?, sp, load(fp)?))
}

/// True if a known call returns to `pc`.
fn is_known_call(pc: u64) -> bool {
    let range = MODULES.known(pc.wrapping_sub(1));
    range.is_some_and(|range| is_after_call(&range, pc))
}

/// True if there is no rule for `pc`, neither from unwind entries nor published.
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
