//! Validity and unwind rules of return addresses, from the code around them.

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

/// Finds the rule of return address `pc` and caches it. If there is none, caches a [`Rule::Stop`],
/// unless a rule may be found soon. Requests a better rule from the command if it may have one.
/// `distance` is the frame pointer minus the stack pointer after the return, in bytes.
pub fn find_rule(pc: u64, distance: u64) {
    MODULES.read_sometimes();
    let epoch = epoch::number();
    let rule = rule_of(pc).or_else(|| {
        let cause = why_none(pc);
        // If the maps could not be read, for lack of a descriptor, the next call tries again. An
        // address without code may be in code that is being changed. It takes the slow path until
        // that is unlikely.
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

/// True if the code around a return address follows a convention.
fn is_convention(range: &Range, pc: u64) -> bool {
    convention_of(range, pc).is_some()
}

/// The rule of all return addresses in the code around `pc`, by the conventions of its generator.
/// `None` if the code is of a file, or no convention is known. With a Java virtual machine in the
/// process, the walk stops instead: such code has no other rules, except those published for single
/// addresses.
pub fn convention_of(range: &Range, pc: u64) -> Option<Rule> {
    if range.is_of_file() {
        return None;
    }
    let unknown = || MODULES.have_java().then_some(Rule::Stop(Cause::NoRule));
    published::convention_of(pc).or_else(unknown)
}

/// Forgets the cached rule of return address `pc`, which was found in `epoch`, if another epoch has
/// begun since. Such rules may have been dropped for the new epoch before this one was cached.
pub fn forget_if_old(pc: u64, epoch: u64) {
    if epoch::number() != epoch {
        RULES.forget_one(pc);
    }
}

/// The reason why a return address has no rule, after a search for one.
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

/// The rule of return address `pc` by tables and known code patterns; `None` if they give none. May
/// read the maps, and notes coroutines that it detects.
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
        // A root need not follow a call: goroutines return to such an address.
        return match published::rule_of(&range, pc) {
            Some(Rule::Root) => {
                if !is_after_call(&range, pc) {
                    coroutines::note();
                }
                Some(Rule::Root)
            }
            Some(rule) if is_after_call(&range, pc) => Some(rule),
            // Interpreters create frames without a call.
            _ => convention_of(&range, pc).or_else(|| {
                // The full walk checks if there is a frame pointer.
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

/// The rule that the command has published to replace a table's rule, `rule`, for `pc`; `None` if
/// it has published none. If the stack height at the call is fixed, a walk can use it instead of
/// the frame pointer, and need not compare saved words. If the instructions contradict the table,
/// the walk follows the instructions or stops.
fn better(range: &Range, pc: u64, rule: Rule) -> Option<Rule> {
    let published = published::rule_of(range, pc)?;
    match (rule, published) {
        (Rule::FromSp { .. } | Rule::FromFp { .. }, Rule::FromSp { .. })
        | (Rule::FromSp { .. } | Rule::Full, Rule::Stop(_)) => Some(published),
        // The full walk handles these.
        _ => None,
    }
}

/// True if `pc` is in the loader's entry code, which calls constructors and has no tables.
pub fn is_entry_code(pc: u64) -> bool {
    let (start, end) = (&ipath_parameters.root_start, &ipath_parameters.root_end);
    start.load(Ordering::Relaxed) < pc && pc < end.load(Ordering::Relaxed)
}

/// True if `pc` is glibc's `__start_context`, the return address at the end of a stack that
/// makecontext(3) has set up. The program then has coroutines, which is noted. No call has put the
/// address there: it is the first address of a function. A static program that lld has linked has
/// no table to confirm that.
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

/// True if the outermost function of a thread returns to `pc`.
pub fn is_thread_end(range: &Range, pc: u64) -> bool {
    unpatched_at(range, pc) == Some(call::THREAD_END) && is_after_call(range, pc)
}

/// True if a signal handler returns to `pc`, in code whose unwind entry does not say so.
pub fn is_restorer(range: &Range, pc: u64) -> bool {
    unpatched_at(range, pc) == Some(signal_frame::RESTORER)
}

/// True if `pc` can be the address of memory in user space.
fn is_user(pc: u64) -> bool {
    /// The range from vm.mmap_min_addr to the end of user space.
    const USER: core::ops::Range<u64> = 1 << 16..1 << 47;
    USER.contains(&pc)
}

/// True if the bytes before `pc`, in any memory, may be a call. Also true if they cannot be
/// checked.
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

/// True if a system call instruction ends at `pc`.
pub fn is_after_system_call(range: &Range, pc: u64) -> bool {
    code_before(range, pc) == Some(call::SYSTEM_CALL)
}

/// True if a call returns to `pc`. May read the maps.
pub fn is_return_address(pc: u64) -> bool {
    MODULES
        .find(pc.wrapping_sub(1))
        .is_some_and(|range| is_after_call(&range, pc))
}

/// True if the root at `pc` belongs to a coroutine: `pc` is in executable memory but does not
/// follow a call. May read the maps.
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

/// True if a call instruction ends at `pc`, which is in `range`. Also true for a breakpoint on a
/// direct call, if the call's target is known code.
pub fn is_after_call(range: &Range, pc: u64) -> bool {
    if let Some(bytes) = code_before(range, pc) {
        let hidden = || {
            let distance = call::direct_under_breakpoint(&bytes)?;
            MODULES.known(pc.wrapping_add_signed(distance.into()))
        };
        return call::ends_with_call(&bytes) || hidden().is_some();
    }
    // This close to the start of the range, bytes before the range are not part of a call.
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

/// The `N` bytes at `at`, with the session's patches undone if one begins at `at`. `None` unless
/// they are in the range.
fn unpatched_at<const N: usize>(range: &Range, at: u64) -> Option<[u8; N]> {
    let mut code = code_at(range, at)?;
    if code.first().is_some_and(|&first| call::may_be_patch(first)) {
        journal::undo(at, &mut code);
    }
    Some(code)
}

/// The `N` bytes at `at`; `None` unless they are in the range and mapped.
fn code_at<const N: usize>(range: &Range, at: u64) -> Option<[u8; N]> {
    let is_inside = at >= range.start && range.end.checked_sub(at)? >= N as u64;
    // SAFETY: the bytes are in an executable mapping. On x86-64 it is also readable, unless
    // protection keys make it execute-only.
    is_inside.then(|| unsafe { foreign::read_array(at) })?
}

/// The `N` bytes before `at`; `None` unless they are in the range.
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
