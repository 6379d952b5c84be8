//! Whether rbp is a frame pointer, in code about which nothing else is known: generated at run time, or
//! stripped of all tables.
//!
//! Every frame between the stack pointer and the one that rbp belongs to has its return address there. So
//! where no word between the two is one, and the word above the one that rbp points to is, rbp is the
//! frame pointer of this very frame. A return address that an ended call has left there is told from
//! one in use by where it leads to: the next one must be where the rule of the first says.

use abi::rule::Rule;

use super::modules::MODULES;
use super::return_address::{is_after_call, is_context_start, rule_of};

/// Bytes between the two that are looked at: in a larger frame it stays in doubt.
const LARGEST: u64 = 64 << 10;

/// What the stack says of rbp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// It is the frame pointer of this frame.
    FramePointer,
    /// It is not: this code has none.
    Other,
    /// It may belong to another frame: a word between the two may be its return address.
    Doubtful,
}

/// Judges `rbp` where the stack pointer is `sp`. `load` reads a word of the stack above it.
pub fn judge(sp: u64, rbp: u64, load: &dyn Fn(u64) -> Option<u64>) -> Evidence {
    // Code may have been mapped since the maps were last read, or unmapped, which may not be read.
    MODULES.read_again();
    let is_place = rbp >= sp && rbp.is_multiple_of(8);
    let caller = rbp.checked_add(8).filter(|_| is_place).and_then(load);
    let is_caller = caller.is_some_and(|pc| {
        let range = MODULES.find(pc.wrapping_sub(1));
        range.is_some_and(|range| is_after_call(&range, pc) || is_context_start(&range, pc))
    });
    if !is_caller {
        return Evidence::Other;
    }
    if rbp - sp > LARGEST || is_another_frame_between(sp, rbp, load) {
        return Evidence::Doubtful;
    }
    Evidence::FramePointer
}

/// Whether a word between the two may be a return address in use, as far as code is known.
fn is_another_frame_between(sp: u64, rbp: u64, load: &dyn Fn(u64) -> Option<u64>) -> bool {
    (sp..rbp)
        .step_by(8)
        .any(|slot| load(slot).is_none_or(|pc| is_known_code(pc) && may_be_in_use(slot, rbp, load)))
}

/// Whether an address lies behind a call, in code seen so far.
fn is_known_code(pc: u64) -> bool {
    let range = MODULES.known(pc.wrapping_sub(1));
    range.is_some_and(|range| is_after_call(&range, pc))
}

/// Whether the return address at `slot`, and those that follow from it, lead beyond `rbp`.
fn may_be_in_use(mut slot: u64, rbp: u64, load: &dyn Fn(u64) -> Option<u64>) -> bool {
    while slot <= rbp {
        let Some(pc) = load(slot).filter(|&pc| is_known_code(pc)) else {
            return false;
        };
        // What another register decides is not known here.
        let Some(Rule::FromRsp { cfa_offset, .. }) = rule_of(pc) else {
            return true;
        };
        let next = slot.wrapping_add(i64::from(cfa_offset) as u64);
        if next <= slot {
            return false;
        }
        slot = next;
    }
    load(slot).is_some_and(is_known_code)
}
