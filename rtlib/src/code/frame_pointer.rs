//! Decides if the frame pointer register holds a frame pointer, in code without any other
//! information: generated at run time, or stripped of all tables.
//!
//! Each frame between the stack pointer and the owner of the frame pointer has its return address
//! there. So the frame pointer belongs to this very frame if no word between the two is a return
//! address, but the word above the frame pointer's target is. A stale return address of an ended
//! call is distinguished from one in use by its caller: the next return address must be at the
//! place given by the first one's rule.

use unwind::Rule;

use super::modules::MODULES;
use super::return_address::{
    convention_of, is_after_call, is_context_start, may_follow_call, rule_of,
};

/// Maximum distance of the frame pointer from the stack pointer, in bytes. In a larger frame the
/// result is [`Evidence::Doubtful`].
const LARGEST: u64 = 64 << 10;

/// The meaning of the frame pointer register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// The register is the frame pointer of this frame.
    FramePointer,
    /// The frame pointer leads to the CFA of a realigned frame: `cfa = *(fp + cfa_at)`, `fp =
    /// *fp`.
    Realigned {
        /// The distance from fp to the word with the CFA, in bytes.
        cfa_at: i32,
    },
    /// The register is not a frame pointer: this code does not use one.
    Other,
    /// The register may belong to another frame: a word between it and the stack pointer may be
    /// that frame's return address.
    Doubtful,
}

/// Judges the frame pointer register's value `fp` at the stack pointer `sp`. `load` reads a word of
/// the stack above `sp`; `None` if it cannot be read. May read the maps.
pub fn judge(sp: u64, fp: u64, load: &dyn Fn(u64) -> Option<u64>) -> Evidence {
    // Code may have been unmapped since the maps were last read.
    MODULES.read_sometimes();
    let is_place = fp >= sp && fp.is_multiple_of(8);
    let caller = fp.checked_add(8).filter(|_| is_place).and_then(load);
    let is_caller = caller.is_some_and(|pc| {
        is_called_from(pc)
            || MODULES
                .known(pc.wrapping_sub(1))
                .is_some_and(|range| is_context_start(&range, pc))
    });
    if !is_caller {
        return Evidence::Other;
    }
    if fp - sp > LARGEST || is_another_frame_between(sp, fp, load) {
        return Evidence::Doubtful;
    }
    copied(fp, load)
}

/// Judges the frame at `fp`, which belongs to the function whose code is running, by the words
/// around it. A realigned frame of GCC has a copy of its return address above fp, up to 56 bytes
/// below the return address itself. Its CFA is among the words below fp:
///
/// ```text
/// ... cfa ... | caller's fp | copy | padding | return address | cfa:
///               ^ fp
/// ```
///
/// In a recursion the same return address also occurs twice, but the frame pointer then points to a
/// frame between the two.
fn copied(fp: u64, load: &dyn Fn(u64) -> Option<u64>) -> Evidence {
    /// The maximum number of words of padding, in a frame aligned to 64 bytes.
    const PADDING: u64 = 7;
    /// The number of words below fp to search: the callee-saved registers are pushed first.
    const SAVED: u64 = 6;
    let Some((caller, after)) = load(fp).zip(load(fp + 8)) else {
        return Evidence::FramePointer;
    };
    let cfas = (2..2 + PADDING + 1).map(|words| fp + 8 * words);
    let mut cfas = cfas
        .filter(|&slot| load(slot) == Some(after))
        .map(|slot| slot + 8);
    let Some(cfa) = cfas.find(|&cfa| !(fp < caller && caller < cfa)) else {
        return Evidence::FramePointer;
    };
    let mut saved = (1..=SAVED).map(|words| (-8 * words as i64) as i32);
    match saved.find(|&at| load(fp.wrapping_add_signed(at.into())) == Some(cfa)) {
        Some(cfa_at) => Evidence::Realigned { cfa_at },
        None => Evidence::Doubtful,
    }
}

/// True if a word between `sp` and `fp` may be a return address in use, as far as the code is
/// known, or if a word cannot be read.
fn is_another_frame_between(sp: u64, fp: u64, load: &dyn Fn(u64) -> Option<u64>) -> bool {
    (sp..fp)
        .step_by(8)
        .any(|slot| load(slot).is_none_or(|pc| is_called_from(pc) && may_be_in_use(slot, fp, load)))
}

/// True if an address follows a call, or is in generated code in which frame pointers are the
/// convention. Most words on a stack are no code addresses. The maps are only read for a word that
/// follows a possible call in memory not known as code, which may have become code.
fn is_called_from(pc: u64) -> bool {
    let before = pc.wrapping_sub(1);
    if let Some(range) = MODULES.known(before) {
        let is_frame = |rule| matches!(rule, Rule::FromFp { .. });
        return is_after_call(&range, pc) || convention_of(&range, pc).is_some_and(is_frame);
    }
    may_follow_call(pc)
        && MODULES
            .find(before)
            .is_some_and(|range| is_after_call(&range, pc))
}

/// True if the return address at `slot`, and those found from it by rules, lead to a return address
/// beyond `fp`, or to one whose rule needs more than the stack pointer. False if they lead to a
/// word that is no return address.
fn may_be_in_use(mut slot: u64, fp: u64, load: &dyn Fn(u64) -> Option<u64>) -> bool {
    while slot <= fp {
        let Some(pc) = load(slot).filter(|&pc| is_called_from(pc)) else {
            return false;
        };
        // Other registers may decide, and they are unknown here.
        let Some(Rule::FromSp { cfa_offset, .. }) = rule_of(pc) else {
            return true;
        };
        let next = slot.wrapping_add(i64::from(cfa_offset) as u64);
        if next <= slot {
            return false;
        }
        slot = next;
    }
    load(slot).is_some_and(is_called_from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::test_code::{CALL, own_return_address};
    use crate::os::parameters::ipath_parameters;
    use crate::os::sys;
    use core::sync::atomic::Ordering;
    use std::vec::Vec;

    /// The maps are read again only for addresses that may have become code, not for each word.
    #[test]
    fn code_that_has_come_since_is_seen_and_data_cost_nothing() {
        ipath_parameters.system_calls.store(1, Ordering::Relaxed);
        let page = sys::map_anonymous(abi::PAGE).expect("memory");
        let caller = own_return_address();
        // The words between the stack pointer and the target of the frame pointer: numbers and
        // addresses of data.
        let data = [1, 2, &raw const caller as u64, page, page + 64, u64::MAX];
        let stack: Vec<u64> = data.into_iter().chain([0, caller]).collect();
        let sp = stack.as_ptr() as u64;
        let fp = sp + 8 * data.len() as u64;
        let load = |at: u64| stack.get((at.wrapping_sub(sp) / 8) as usize).copied();
        assert_eq!(judge(sp, fp, &load), Evidence::FramePointer);
        let read = MODULES.times_read();
        let slow = || MODULES.times_read() - read;
        for _ in 0..1000 {
            assert_eq!(judge(sp, fp, &load), Evidence::FramePointer);
        }
        assert!(slow() < 100, "{} times for 6000 words", slow());
        // A call before one of these words, which becomes code now.
        // SAFETY: the page belongs to the test.
        unsafe { ((page + 62) as *mut [u8; 2]).write(CALL) };
        assert_eq!(judge(sp, fp, &load), Evidence::FramePointer, "not code yet");
        sys::make_executable(page, abi::PAGE);
        assert_eq!(judge(sp, fp, &load), Evidence::Doubtful);
        // SAFETY: the page is no longer used.
        unsafe { sys::unmap(page, abi::PAGE) };
    }

    /// A realigned frame contains its return address twice, and so do two frames of a recursion.
    #[test]
    fn aligned_frames_are_told_from_recursion() {
        let after = own_return_address();
        // Word indexes in the stack drawing; the frame pointer points to the third.
        const FP: usize = 3;
        let judged = |words: &dyn Fn(u64) -> [u64; 12]| {
            let mut stack = [0; 12];
            let sp = stack.as_ptr() as u64;
            stack.copy_from_slice(&words(sp));
            let load = |at: u64| stack.get((at.wrapping_sub(sp) / 8) as usize).copied();
            copied(sp + 8 * FP as u64, &load)
        };
        let at = |sp: u64, word: u64| sp + 8 * word;
        let aligned = |padding: u64| {
            move |sp: u64| {
                let mut words = [0; 12];
                words[FP] = at(sp, 100);
                words[FP + 1] = after;
                let original = FP as u64 + 2 + padding;
                words[original as usize] = after;
                words[FP - 2] = at(sp, original + 1);
                words
            }
        };
        for padding in [0, 1, 3, 6] {
            let found = judged(&aligned(padding));
            assert_eq!(found, Evidence::Realigned { cfa_at: -16 }, "{padding}");
        }
        let without_cfa = |sp| {
            let mut words = aligned(2)(sp);
            words[FP - 2] = 0;
            words
        };
        assert_eq!(judged(&without_cfa), Evidence::Doubtful);
        let recursion = |sp: u64| {
            let mut words = aligned(1)(sp);
            words[FP] = at(sp, FP as u64 + 2);
            words
        };
        assert_eq!(judged(&recursion), Evidence::FramePointer);
        let plain = |sp: u64| {
            let mut words = aligned(1)(sp);
            words[FP + 3] = 0;
            words
        };
        assert_eq!(judged(&plain), Evidence::FramePointer);
    }
}
