//! What code tells of a return address: whether it is one, and how the frame it belongs to is left.

use core::sync::atomic::Ordering;

use abi::arch::signal_frame;
use abi::cause::Cause;
use unwind::Rule;
use unwind::arch::register::RA;

use super::cfi::{self, RegisterRule};
use super::modules::MODULES;
use super::range::Range;
use super::rules::RULES;
use super::{asked, coroutines, epoch, published};
use crate::arch::call;
use crate::os::parameters::ipath_parameters;
use crate::os::{foreign, journal};

/// The rule of a return address, found in the unwind tables and remembered. The command is asked for a better one
/// where it may have one; the frame pointer is so many bytes above the stack pointer there.
pub fn find_rule(pc: u64, distance: u64) {
    MODULES.read_sometimes();
    let epoch = epoch::number();
    let rule = rule_of(pc).or_else(|| {
        let cause = why_none(pc);
        // Where the maps could not be read, for want of a descriptor, the next call asks again. What is in no code may
        // be code that is being changed, and is walked the long way until that is unlikely.
        let is_known = match cause {
            Cause::UnknownCode => !is_user(pc) || MODULES.is_settled(),
            Cause::NoCall => !may_be_under_breakpoint(pc),
            _ => true,
        };
        (MODULES.are_whole() && is_known).then_some(Rule::Stop(cause))
    });
    let Some(rule) = rule else {
        return;
    };
    let is_kept = RULES.insert(pc, rule);
    forget_if_old(pc, epoch);
    let range = || MODULES.known(pc.wrapping_sub(1));
    let is_asked = |range: Range| {
        let better = match rule {
            Rule::FromFp { .. } => !is_convention(&range, pc),
            Rule::Stop(_) => is_convention(&range, pc),
            _ => false,
        };
        better && published::rule_of(&range, pc).is_none()
    };
    if is_kept && range().is_some_and(is_asked) {
        asked::ask(pc, distance);
    }
}

/// Whether the rule of a return address is that of all in the code around it.
fn is_convention(range: &Range, pc: u64) -> bool {
    convention_of(range, pc).is_some()
}

/// The rule of all return addresses in the code around `pc`, by what is known of who generates it. What a Java virtual
/// machine generates has no other than those, and those that are published for one address.
pub fn convention_of(range: &Range, pc: u64) -> Option<Rule> {
    if range.is_of_file() {
        return None;
    }
    let unknown = || MODULES.have_java().then_some(Rule::Stop(Cause::NoRule));
    published::convention_of(pc).or_else(unknown)
}

/// Forgets the rule of a return address that was found in an epoch, and put where rules are only when another one had
/// begun: it may be one of those that have been forgotten for that.
pub fn forget_if_old(pc: u64, epoch: u64) {
    if epoch::number() != epoch {
        RULES.forget_one(pc);
    }
}

/// Why there is no rule for what stands at a return address's place, which has been looked for.
pub fn why_none(pc: u64) -> Cause {
    if pc == 0 {
        return Cause::NullReturn;
    }
    match MODULES.known(pc.wrapping_sub(1)) {
        None => Cause::UnknownCode,
        Some(range) if !is_after_call(&range, pc) => Cause::NoCall,
        Some(_) => Cause::NoRule,
    }
}

/// The rule of a return address by tables and recipes.
pub fn rule_of(pc: u64) -> Option<Rule> {
    let range = MODULES.find_code(pc.wrapping_sub(1))?;
    let look_up = pc.wrapping_sub(1);
    if is_context_start(&range, pc) {
        return Some(Rule::Root);
    }
    let Some(fde) = range.tables.and_then(|t| t.find(look_up)) else {
        if is_entry_code(pc) || is_thread_end(&range, pc) {
            return Some(Rule::Root);
        }
        if is_restorer(&range, pc) {
            return Some(Rule::Full);
        }
        // A root may be no address after a call: goroutines return to one.
        return match published::rule_of(&range, pc) {
            Some(Rule::Root) => {
                if !is_after_call(&range, pc) {
                    coroutines::note();
                }
                Some(Rule::Root)
            }
            Some(rule) if is_after_call(&range, pc) => Some(rule),
            // Interpreters have frames that no call has made.
            _ => convention_of(&range, pc).or_else(|| {
                // Whether there is a frame pointer the full walk finds out.
                is_after_call(&range, pc).then_some(Rule::Full)
            }),
        };
    };
    if fde.signal_frame {
        return Some(Rule::Full);
    }
    let row = cfi::row_at(&fde, look_up)?;
    let is_root = matches!(row.registers[RA], RegisterRule::Undefined);
    if is_root {
        return Some(Rule::Root);
    }
    if !is_after_call(&range, pc) {
        return None;
    }
    let rule = Rule::of_row(&row).unwrap_or(Rule::Full);
    Some(better(&range, pc, rule).unwrap_or(rule))
}

/// The rule that the command has published to replace a table's rule. If the stack height at the
/// call is fixed, a walk can use it instead of the frame pointer, and need not compare saved words.
/// If the instructions contradict the table, the walk follows the instructions or stops.
fn better(range: &Range, pc: u64, rule: Rule) -> Option<Rule> {
    let published = published::rule_of(range, pc)?;
    match (rule, published) {
        (Rule::FromSp { .. } | Rule::FromFp { .. }, Rule::FromSp { .. })
        | (Rule::FromSp { .. } | Rule::Full, Rule::Stop(_)) => Some(published),
        // The full walk handles these.
        _ => None,
    }
}

/// Whether `pc` lies in the loader's entry code, which calls constructors and has no tables.
pub fn is_entry_code(pc: u64) -> bool {
    let (start, end) = (&ipath_parameters.root_start, &ipath_parameters.root_end);
    start.load(Ordering::Relaxed) < pc && pc < end.load(Ordering::Relaxed)
}

/// True if `pc` is glibc's `__start_context`, the return address at the end of a stack that
/// makecontext(3) has set up. No call has put it there: it is the first address of a function. A
/// static program that lld has linked has no table to confirm that.
pub fn is_context_start(range: &Range, pc: u64) -> bool {
    let is_start = unpatched_at(range, pc) == Some(call::START_CONTEXT)
        && !is_after_unpatched_call(range, pc)
        && range
            .tables
            .is_none_or(|tables| tables.find(pc).is_some_and(|fde| fde.start == pc));
    if is_start {
        coroutines::note();
    }
    is_start
}

/// Whether a thread ends at `pc`, where its outermost function returns to.
pub fn is_thread_end(range: &Range, pc: u64) -> bool {
    unpatched_at(range, pc) == Some(call::THREAD_END) && is_after_call(range, pc)
}

/// Whether a signal handler returns to `pc`, in code without an unwind entry that says so.
pub fn is_restorer(range: &Range, pc: u64) -> bool {
    unpatched_at(range, pc) == Some(signal_frame::RESTORER)
}

/// Whether a program may have memory there.
fn is_user(pc: u64) -> bool {
    /// Not below (vm.mmap_min_addr), nor above.
    const USER: core::ops::Range<u64> = 1 << 16..1 << 47;
    USER.contains(&pc)
}

/// Whether what stands before `pc`, whatever that is, may be a call. It is where that is not to be told.
pub fn may_follow_call(pc: u64) -> bool {
    if !is_user(pc) {
        return false;
    }
    let mut bytes = [0; call::LONGEST];
    match foreign::try_read(pc.wrapping_sub(call::LONGEST as u64), &mut bytes) {
        Some(count) => count == bytes.len() && call::ends_with_call(&bytes),
        None => true,
    }
}

/// Whether a system call ends at `pc`.
pub fn is_after_system_call(range: &Range, pc: u64) -> bool {
    code_before(range, pc) == Some(call::SYSTEM_CALL)
}

/// Whether `pc` is where a call returns to.
pub fn is_return_address(pc: u64) -> bool {
    MODULES
        .find(pc.wrapping_sub(1))
        .is_some_and(|range| is_after_call(&range, pc))
}

/// Whether the root at `pc` is a coroutine's: no call has put it there.
pub fn begins_coroutine(pc: u64) -> bool {
    MODULES
        .find(pc.wrapping_sub(1))
        .is_some_and(|range| !is_after_call(&range, pc))
}

/// True if the instruction before `pc` may be a call with a breakpoint on it. The breakpoint may be
/// removed later, so a verdict that `pc` follows no call is only temporary.
pub fn may_be_under_breakpoint(pc: u64) -> bool {
    let range = MODULES.known(pc.wrapping_sub(1));
    let bytes = range.and_then(|range| code_before(&range, pc));
    bytes.is_some_and(|bytes| call::may_be_under_breakpoint(&bytes))
}

/// Whether a call instruction ends at `pc`.
pub fn is_after_call(range: &Range, pc: u64) -> bool {
    if let Some(bytes) = code_before(range, pc) {
        let hidden = || {
            let distance = call::direct_under_breakpoint(&bytes)?;
            MODULES.known(pc.wrapping_add_signed(distance.into()))
        };
        return call::ends_with_call(&bytes) || hidden().is_some();
    }
    // So near the beginning of the code, what stands before that is no part of a call.
    let Some(known) = pc.checked_sub(range.start).filter(|_| pc <= range.end) else {
        return false;
    };
    let mut bytes = [0; call::LONGEST];
    for (distance, byte) in (1..=known).zip(bytes.iter_mut().rev()) {
        let Some([code]) = code_at(range, pc.wrapping_sub(distance)) else {
            return false;
        };
        *byte = code;
    }
    call::ends_with_call(&bytes)
}

/// True if a call instruction ends at `pc` in the code without the session's patches. Breakpoints
/// before a function are padding then, as lld writes it.
fn is_after_unpatched_call(range: &Range, pc: u64) -> bool {
    code_before(range, pc).is_some_and(|mut bytes| {
        journal::undo(pc - bytes.len() as u64, &mut bytes);
        call::ends_with_unpatched_call(&bytes)
    })
}

/// Like [`code_at`], without the session's patches that begin at `at`.
fn unpatched_at<const N: usize>(range: &Range, at: u64) -> Option<[u8; N]> {
    let mut code = code_at(range, at)?;
    if code.first().is_some_and(|&first| call::may_be_patch(first)) {
        journal::undo(at, &mut code);
    }
    Some(code)
}

/// So many bytes from `at` on, where they lie in the range.
fn code_at<const N: usize>(range: &Range, at: u64) -> Option<[u8; N]> {
    let is_inside = at >= range.start && range.end.checked_sub(at)? >= N as u64;
    // SAFETY: they lie in a mapping that is executable and so, on x86-64 without protection keys for execute-only
    // memory, readable.
    is_inside.then(|| unsafe { foreign::read_array(at) })?
}

/// The same up to `at`.
fn code_before<const N: usize>(range: &Range, at: u64) -> Option<[u8; N]> {
    code_at(range, at.checked_sub(N as u64)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::test_code::{from_realigned_frame, own_return_address};

    #[inline(never)]
    extern "C" fn through_a_pointer(function: extern "C" fn() -> u64) -> u64 {
        core::hint::black_box(function)() + 1
    }

    #[test]
    fn realigned_frames_have_a_rule_of_their_own() {
        let pc = from_realigned_frame(own_return_address);
        let expected = Rule::Realigned {
            cfa_at: -8,
            fp_words: 0,
        };
        assert_eq!(rule_of(pc), Some(expected));
    }

    #[test]
    fn return_addresses_have_rules() {
        let direct = own_return_address();
        let indirect = through_a_pointer(own_return_address) - 1;
        for pc in [direct, indirect] {
            let range = MODULES.find(pc).expect("code is mapped executable");
            assert!(is_after_call(&range, pc));
            assert!(!is_after_call(&range, pc + 1));
            let rule = rule_of(pc).expect("Rust programs have tables");
            assert!(
                matches!(rule, Rule::FromSp { .. } | Rule::FromFp { .. }),
                "{rule:?}"
            );
        }
    }
}
