//! The step by a rule.

use super::rule;
use crate::step::{At, Step, Words};

/// Steps from the frame at `at` to its caller's by the encoded rule `word`, on a stack that ends at
/// `high`.
#[inline(always)]
pub fn step(mut word: u64, at: At, high: u64, words: &mut impl Words) -> Step {
    let base = match rule::kind(word) {
        rule::FROM_SP => at.sp,
        rule::FROM_FP => words.frame_pointer(),
        rule::REALIGNED => {
            let fp = words.frame_pointer();
            let cfa_at = fp.wrapping_add(rule::cfa_offset(word) as u64);
            let saved = fp.wrapping_add(rule::fp_bytes(word) as u64);
            let is_inside = |word: u64| word >= at.sp && word < high && word.is_multiple_of(8);
            if !is_inside(cfa_at) || !is_inside(saved) {
                return Step::Astray;
            }
            let Some(cfa) = words.word(cfa_at) else {
                return Step::Astray;
            };
            if words.load_frame_pointer(saved).is_none() {
                return Step::Astray;
            }
            word = 0;
            cfa
        }
        rule::ROOT => return Step::Root,
        rule::STOP => return Step::Stop(rule::stop_cause(word)),
        rule::FULL => return Step::Full,
        _ => return Step::Unknown,
    };
    let cfa = base.wrapping_add(rule::cfa_offset(word) as u64);
    let fp_bytes = rule::fp_bytes(word);
    let saved_fp = cfa.wrapping_add(fp_bytes as u64);
    // A frame holds at least its return address, and the stack holds the frame.
    if cfa < at.sp + 8 || cfa > high || cfa % 8 != 0 || saved_fp < at.sp {
        return Step::Astray;
    }
    let Some(pc) = words.word(cfa - 8) else {
        return Step::Astray;
    };
    if fp_bytes != 0 && words.load_frame_pointer(saved_fp).is_none() {
        return Step::Astray;
    }
    Step::Caller(At { pc, sp: cfa })
}
