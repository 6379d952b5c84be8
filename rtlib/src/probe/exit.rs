//! What happens when a probed function is left.

use core::ptr;

use abi::TRIAL;
use abi::probe::Kind;

use super::next::{AGAIN, DONE};
use super::{busy, forks, moves, switches};
use crate::arch::clock;
use crate::arch::stored::VECTORS;
use crate::calls::Calls;
use crate::calls::activation::{Activation, doubted, lent, return_address};
use crate::calls::left::Left;
use crate::calls::meter::Meter;
use crate::calls::{closing, coroutines, doubt, list, moving, slices};
use crate::code;
use crate::ledger::record;
use crate::os::foreign;
use crate::os::parameters::{self, is_alive};
use crate::sources::value::REGISTERS;
use crate::thread::{self, Thread, registry};
use crate::walk::Frame;

/// How a function is left, as the stub knows: [`ipath_fast_exit`] and the others are its variants.
trait Leaving {
    /// Whether the function is measured, and so has an activation of its own.
    const IS_MEASURED: bool = true;
    /// Whether activations that end here end at a tail call.
    const BY_TAIL_CALL: bool = false;
    /// Whether the callee may end the activation.
    const LENDS: bool = false;

    /// The slot of a call that has a return value now; 0 where there is none yet.
    #[inline(always)]
    fn returning(slot: u64) -> u64 {
        if Self::BY_TAIL_CALL { 0 } else { slot }
    }
}

struct Return;
impl Leaving for Return {}

struct TailCall;
impl Leaving for TailCall {
    const BY_TAIL_CALL: bool = true;
}

/// A tail call of a function whose exits end what is lent to them. Where it cannot be lent it ends at the tail call.
struct Lending;
impl Leaving for Lending {
    const BY_TAIL_CALL: bool = true;
    const LENDS: bool = true;
}

/// A return of a function that is not measured.
struct Ender;
impl Leaving for Ender {
    const IS_MEASURED: bool = false;
}

/// A tail call of such a function, of one whose exits end nothing.
struct EnderTailCall;
impl Leaving for EnderTailCall {
    const IS_MEASURED: bool = false;
    const BY_TAIL_CALL: bool = true;
}

/// The two ways of a kind of exit, as symbols for its stub.
macro_rules! ways {
    ($(#[$doc:meta])* $leaving:ty, $fast:ident, $slow:ident) => {
        $(#[$doc])*
        ///
        /// It ends the activations whose return address is at `slot` where they are the innermost, at `now`: the thread to
        /// take the slow path with, else `DONE`.
        ///
        /// # Safety
        /// Called by the exit's stub: `slot` is the address of the return address about to be used.
        #[unsafe(no_mangle)]
        #[unsafe(link_section = ".text.fast")]
        pub unsafe extern "C" fn $fast(function: u64, slot: u64, now: u64) -> *mut Thread {
            // SAFETY: the caller's promise.
            unsafe { fast::<$leaving>(function, slot, now) }
        }

        /// Ends activations that are not the innermost, or whose record must grow, or none: the call may have begun before
        /// its function was instrumented.
        ///
        /// # Safety
        /// Called by the exit's stub with what its other way returned; the stub ends the thread's being busy.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $slow(thread: *mut Thread, function: u64, slot: u64) {
            // SAFETY: the caller's promise.
            unsafe {
                slow::<$leaving>(thread, function, slot);
                (*thread).meter.pass_until(clock::now());
            }
        }
    };
}

ways!(
    /// An exit by a return.
    Return, ipath_fast_exit, ipath_slow_exit
);
ways!(
    /// An exit by a tail call.
    TailCall, ipath_fast_tail_exit, ipath_slow_tail_exit
);
ways!(
    /// An exit by a tail call of a function that ends what is lent to it.
    Lending, ipath_fast_lend, ipath_slow_lend
);
ways!(
    /// A return of a function that is not measured.
    Ender, ipath_fast_ender, ipath_slow_ender
);
ways!(
    /// A tail call of such a function.
    EnderTailCall, ipath_fast_ender_tail, ipath_slow_ender_tail
);

#[inline(always)]
unsafe fn fast<L: Leaving>(function: u64, slot: u64, now: u64) -> *mut Thread {
    let function = function as u32;
    if !is_alive() {
        forks::keep_room();
        return DONE;
    }
    if function == TRIAL {
        return DONE;
    }
    let thread = thread::current();
    if thread.is_null() {
        return if L::IS_MEASURED { meet() } else { DONE };
    }
    // SAFETY: the thread is the caller's own, and `busy` keeps signal handlers on it out.
    unsafe {
        let calls = &raw mut (*thread).calls;
        let moves = L::IS_MEASURED && moves(function);
        let switches = L::IS_MEASURED && switches(function);
        let has_none = match (moves, L::IS_MEASURED) {
            (true, _) => !moving::is_begun(calls),
            _ if switches => slices::are_none_left(),
            (false, true) => list::is_empty(calls) && !code::coroutines::are_known(),
            // As a rule the innermost activation is of a frame further out.
            (false, false) => {
                let at = (*(*calls).top).slot;
                at > lent(slot) || at != lent(slot) && list::find_lent(calls, slot).is_null()
            }
        };
        if has_none {
            if L::IS_MEASURED && doubt::is_doubtful(function, slot) {
                doubt::prove();
            }
            return DONE;
        }
        match busy::begin(thread, slot) {
            Ok(()) => {}
            Err(busy::Why::Recording) => {
                list::leave_open(calls, function, slot);
                return DONE;
            }
            Err(busy::Why::Child) => return DONE,
        }
        if moves || switches {
            return thread;
        }
        let meter = &mut (*thread).meter;
        meter.begin(now, L::returning(slot), REGISTERS);
        if !thread::is_same(thread) || !end_innermost::<L>(calls, meter, function, slot) {
            (*thread).now = now;
            return thread;
        }
        let meter = &mut (*thread).meter;
        let ticks = if meter.exits.is_due() {
            meter.exits.learn(clock::now().wrapping_sub(now))
        } else {
            meter.exits.ticks()
        };
        meter.pass(ticks);
        busy::end(thread);
        DONE
    }
}

/// Ends the innermost activations with this slot; false where one is left, or which they are is not so clear.
#[inline(always)]
unsafe fn end_innermost<L: Leaving>(
    calls: *mut Calls,
    meter: &mut Meter,
    function: u32,
    slot: u64,
) -> bool {
    // SAFETY: the list is the caller's.
    unsafe {
        let mut end = |top: *mut Activation| {
            let caller = (*top).prev;
            if L::BY_TAIL_CALL {
                list::end::<false, true>(calls, top, caller, meter)
            } else {
                list::end::<false, false>(calls, top, caller, meter)
            }
        };
        let top = (*calls).top;
        if L::IS_MEASURED {
            if (*top).slot != slot || (*top).function != function {
                return false;
            }
            if L::LENDS && list::lend(calls, top) {
                return true;
            }
            if !end(top) {
                return false;
            }
        } else if (*top).slot != lent(slot) {
            return false;
        }
        loop {
            let top = (*calls).top;
            if (*top).slot != lent(slot) {
                return true;
            }
            if !list::is_lent_to(top, function) || !end(top) {
                return false;
            }
        }
    }
}

/// Whether a function is one that moves stacks.
#[inline(always)]
fn moves(function: u32) -> bool {
    parameters::kind(function) == Kind::Moves
}

/// True if the function switches between stacks that share one memory range.
#[inline(always)]
fn switches(function: u32) -> bool {
    parameters::kind(function) == Kind::Switches
}

/// Makes a thread known that comes out of a call which another one may have begun, or it itself before it had a control
/// block.
#[cold]
#[inline(never)]
#[unsafe(link_section = ".text.fast")]
fn meet() -> *mut Thread {
    let may_have_begun = code::coroutines::are_known() || registry::has_first();
    if !may_have_begun || !registry::register() {
        return DONE;
    }
    AGAIN
}

unsafe fn slow<L: Leaving>(thread: *mut Thread, function: u64, slot: u64) {
    let function = function as u32;
    // SAFETY: the stub's promise.
    unsafe {
        if L::IS_MEASURED && moves(function) {
            moves::end(thread, function);
            return;
        }
        thread::settle(thread);
        if L::IS_MEASURED && switches(function) {
            switches::arrive(thread, slot);
            return;
        }
        let vectors = (*thread).private_stack - VECTORS;
        (*thread)
            .meter
            .begin((*thread).now, L::returning(slot), vectors);
        let calls = &raw mut (*thread).calls;
        list::lock_own(calls);
        let mut found = ptr::null_mut();
        if L::IS_MEASURED {
            found = list::find(calls, function, slot);
            if found.is_null() && code::coroutines::are_known() {
                list::unlock(calls);
                come_to_stack_of(thread, slot);
                list::lock_own(calls);
                found = list::find(calls, function, slot);
            }
        }
        if L::IS_MEASURED && found.is_null() {
            let place = list::find(calls, function, doubted(slot));
            if !place.is_null() {
                list::unlock(calls);
                let seen = switches::left(thread, slot);
                list::lock_own(calls);
                if !settle(list::find(calls, function, doubted(slot)), seen) {
                    list::unlock(calls);
                    return;
                }
                found = list::find(calls, function, slot);
            } else if doubt::is_doubtful(function, slot) {
                doubt::prove();
            }
        }
        let is_own = !found.is_null();
        if !is_own {
            found = list::find_lent(calls, slot);
        }
        if !found.is_null() {
            closing::close_left_behind(calls, (*found).stack, slot - 1);
        }
        if is_own && L::LENDS {
            let found = list::find(calls, function, slot);
            let is_first = list::enclosing(calls, found) == (*found).prev;
            if is_first && list::lend(calls, list::raise(calls, found)) {
                list::unlock(calls);
                return;
            }
        }
        // What is still above runs on other stacks and stays.
        if is_own {
            end::<L>(thread, list::find(calls, function, slot));
        }
        loop {
            let found = list::find_lent(calls, slot);
            if found.is_null() {
                break;
            }
            if list::is_lent_to(found, function) {
                end::<L>(thread, found)
            } else {
                closing::leave(calls, list::raise(calls, found))
            }
        }
        list::unlock(calls);
    }
}

/// Restores the slot of an activation in doubt if this return ends it. False if this return belongs
/// to another call.
///
/// # Safety
/// It is null or on the caller's list, which is locked.
unsafe fn settle(place: *mut Activation, seen: Option<Left>) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        if place.is_null() {
            return false;
        }
        let slot = return_address((*place).slot);
        let returns_to = foreign::read_array(slot).map(u64::from_le_bytes);
        let site = record::call_site(&*(*place).record);
        let is_its_site = site.is_none() || returns_to.is_none() || site == returns_to;
        if !doubt::ends(slot, seen, is_its_site) {
            return false;
        }
        (*place).slot = slot;
        true
    }
}

/// Ends one of the thread's activations, as of when the exit was reached.
unsafe fn end<L: Leaving>(thread: *mut Thread, activation: *mut Activation) {
    // SAFETY: the list is the caller's, and locked, and has the activation.
    unsafe {
        let calls = &raw mut (*thread).calls;
        let caller = list::enclosing(calls, activation);
        let top = list::raise(calls, activation);
        let meter = &mut (*thread).meter;
        if L::BY_TAIL_CALL {
            list::end::<true, true>(calls, top, caller, meter);
        } else {
            list::end::<true, false>(calls, top, caller, meter);
        }
    }
}

/// Makes the thread's list that of the stack that the call is on whose return address is at `slot`, where it
/// is known which that is.
unsafe fn come_to_stack_of(thread: *mut Thread, slot: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        let frame = Frame::of_caller(slot, &(*thread).saved);
        if let Some(stack) = (*thread).walker.stack_of(&frame, true)
            && stack.is_told
        {
            let calls = &raw mut (*thread).calls;
            coroutines::arrive(calls, &mut (*thread).ledger, stack.id);
        }
    }
}
