//! The exits of a probed function.

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
use crate::calls::overhead::Estimate;
use crate::calls::{apart, closing, coroutines, doubt, list, moving, slices};
use crate::code;
use crate::ledger::{Ledger, record};
use crate::os::foreign;
use crate::os::parameters::{self, is_alive};
use crate::sources::value::REGISTERS;
use crate::thread::{self, Thread, registry};
use crate::walk::Frame;
use unwind::Saved;

/// The kind of an exit, known to the stub. [`ipath_fast_exit`] and similar functions are instances.
pub(super) trait Leaving {
    /// True if the function is measured, and so has an activation of its own.
    const IS_MEASURED: bool = true;
    /// True if activations that end here end by a tail call.
    const BY_TAIL_CALL: bool = false;
    /// True if the callee may end the activation.
    const LENDS: bool = false;
    /// True at the end of a span, after which the call goes on.
    const IS_SPAN: bool = false;

    /// The estimate of what the fast path in compiled code takes.
    #[inline(always)]
    fn estimate(meter: &mut Meter) -> &mut Estimate {
        &mut meter.exits
    }

    /// Prepares the activation for its end, with the row of the hook at `mark`. False if only the
    /// slow path can do that, in which `IS_SLOW` is true.
    ///
    /// # Safety
    /// The thread belongs to the caller and is marked busy. The activation is on its list, which is
    /// locked if `IS_SLOW`. `mark` is that of [`fast`].
    #[inline(always)]
    unsafe fn prepare<const IS_SLOW: bool>(
        _thread: *mut Thread,
        _activation: *mut Activation,
        _mark: u64,
    ) -> bool {
        true
    }

    /// The slot of a call that has a return value now; 0 if there is none yet.
    #[inline(always)]
    fn returning(slot: u64) -> u64 {
        if Self::BY_TAIL_CALL { 0 } else { slot }
    }
}

/// A return of a measured function.
struct Return;
impl Leaving for Return {}

/// A tail call by a measured function, which ends its activation.
struct TailCall;
impl Leaving for TailCall {
    const BY_TAIL_CALL: bool = true;
}

/// A tail call by a measured function, to one whose exits end lent activations. An activation that
/// cannot be lent ends at the tail call.
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

/// A tail call by a function that is not measured, to one whose exits do not end lent activations.
struct EnderTailCall;
impl Leaving for EnderTailCall {
    const IS_MEASURED: bool = false;
    const BY_TAIL_CALL: bool = true;
}

/// The end of a span.
pub(super) struct SpanEnd;
impl Leaving for SpanEnd {
    const IS_SPAN: bool = true;

    fn returning(_: u64) -> u64 {
        0
    }
}

/// The fast and the slow path of a kind of exit, as symbols for its stub.
macro_rules! ways {
    ($(#[$doc:meta])* $leaving:ty, $fast:ident, $slow:ident) => {
        $(#[$doc])*
        ///
        /// The fast path. Ends the activations whose return address is at `slot`, as of `now`, if
        /// they are the innermost ones. Returns `DONE`, or the thread for the slow path.
        ///
        /// # Safety
        /// Called by the exit's stub. `slot` is the address of the return address about to be used.
        #[unsafe(no_mangle)]
        #[unsafe(link_section = ".text.fast")]
        pub unsafe extern "C" fn $fast(function: u64, slot: u64, now: u64) -> *mut Thread {
            // SAFETY: guaranteed by the caller.
            unsafe { fast::<$leaving>(function, slot, slot, now) }
        }

        /// The slow path. Ends activations that are not the innermost ones, or whose record must
        /// grow. There may be no activation to end: the call may have begun before its function was
        /// instrumented.
        ///
        /// # Safety
        /// Called by the exit's stub with the thread that the fast path returned. The stub clears
        /// the busy mark.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $slow(thread: *mut Thread, function: u64, slot: u64) {
            // SAFETY: guaranteed by the caller.
            unsafe {
                slow::<$leaving>(thread, function, slot, slot, (&(*thread).saved, true));
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
    /// An exit by a tail call to a function whose exits end lent activations.
    Lending, ipath_fast_lend, ipath_slow_lend
);
ways!(
    /// A return of a function that is not measured.
    Ender, ipath_fast_ender, ipath_slow_ender
);
ways!(
    /// A tail call by a function that is not measured.
    EnderTailCall, ipath_fast_ender_tail, ipath_slow_ender_tail
);

/// The fast path of an exit of kind `L`, as `ways!` describes it.
///
/// `mark` is the busy mark: the lowest address above the words that the hook has pushed.
#[inline(always)]
pub(super) unsafe fn fast<L: Leaving>(
    function: u64,
    slot: u64,
    mark: u64,
    now: u64,
) -> *mut Thread {
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
    // SAFETY: the thread belongs to the caller, and `busy` excludes signal handlers on it.
    unsafe {
        let calls = &raw mut (*thread).calls;
        let moves = L::IS_MEASURED && moves(function);
        let switches = L::IS_MEASURED && switches(function);
        let has_none = match (moves, L::IS_MEASURED) {
            (true, _) => !moving::is_begun(calls),
            _ if switches => slices::are_none_left(),
            // Usually the span was removed, or an exception has left none.
            _ if L::IS_SPAN => {
                let depth = (*calls).depths.add(function as usize % abi::MAX_FUNCTIONS);
                *depth == 0 && !code::coroutines::are_known()
            }
            (false, true) => list::is_empty(calls) && !code::coroutines::are_known(),
            // Usually the innermost activation belongs to an outer frame.
            (false, false) => {
                let at = (*(*calls).top).slot;
                at > lent(slot) || at != lent(slot) && list::find_lent(calls, slot).is_null()
            }
        };
        if has_none {
            if L::IS_MEASURED && !L::IS_SPAN && doubt::is_doubtful(function, slot) {
                doubt::prove();
            }
            return DONE;
        }
        match busy::begin(thread, mark) {
            Ok(()) => {}
            Err(busy::Why::Recording) => {
                list::leave_open(calls, function, slot, L::IS_SPAN);
                return DONE;
            }
            Err(busy::Why::Child) => return DONE,
        }
        if moves || switches {
            return thread;
        }
        let meter = &mut (*thread).meter;
        meter.begin(now, L::returning(slot), REGISTERS);
        if !thread::is_same(thread)
            || L::IS_SPAN && !prepare_innermost::<L>(thread, function, slot, mark)
            || !end_innermost::<L>(calls, &mut (*thread).ledger, meter, function, slot)
        {
            (*thread).now = now;
            return thread;
        }
        let meter = &mut (*thread).meter;
        let estimate = L::estimate(meter);
        let ticks = if estimate.is_due() {
            estimate.learn(clock::now().wrapping_sub(now))
        } else {
            estimate.ticks()
        };
        meter.pass(ticks);
        busy::end(thread);
        DONE
    }
}

/// Prepares the innermost activation for its end, if it is that of the span. False if only the slow
/// path can do that.
#[inline(always)]
unsafe fn prepare_innermost<L: Leaving>(
    thread: *mut Thread,
    function: u32,
    slot: u64,
    mark: u64,
) -> bool {
    // SAFETY: the list belongs to the caller.
    unsafe {
        let top = (*thread).calls.top;
        let is_it = (*top).slot == slot && (*top).function == function;
        !is_it || L::prepare::<false>(thread, top, mark)
    }
}

/// Ends the innermost activations with this slot, or lends one. False if one is left or if it is
/// not clear which ones they are.
#[inline(always)]
unsafe fn end_innermost<L: Leaving>(
    calls: *mut Calls,
    ledger: &mut Ledger,
    meter: &mut Meter,
    function: u32,
    slot: u64,
) -> bool {
    // SAFETY: the list belongs to the caller.
    unsafe {
        let top = (*calls).top;
        if L::IS_MEASURED {
            if (*top).slot != slot || (*top).function != function {
                return false;
            }
            if L::LENDS && list::lend(calls, top) {
                return true;
            }
            if !end_top::<L>(calls, ledger, meter, top) {
                return false;
            }
        } else if (*top).slot != lent(slot) {
            return false;
        }
        loop {
            let top = (*calls).top;
            if L::IS_SPAN || (*top).slot != lent(slot) {
                return true;
            }
            if !list::is_lent_to(top, function) || !end_top::<L>(calls, ledger, meter, top) {
                return false;
            }
        }
    }
}

/// Ends the innermost activation. False, without an effect, if only the slow path can do that.
#[inline(always)]
unsafe fn end_top<L: Leaving>(
    calls: *mut Calls,
    ledger: &mut Ledger,
    meter: &mut Meter,
    top: *mut Activation,
) -> bool {
    // SAFETY: the list belongs to the caller.
    unsafe {
        let caller = (*top).prev;
        if !apart::at_exit::<false>(calls, ledger, meter, top) {
            false
        } else if L::BY_TAIL_CALL {
            list::end::<false, true>(calls, top, caller, meter)
        } else {
            list::end::<false, false>(calls, top, caller, meter)
        }
    }
}

/// True if `function` moves goroutines' stacks ([`Kind::Moves`]).
#[inline(always)]
fn moves(function: u32) -> bool {
    parameters::kind(function) == Kind::Moves
}

/// True if `function` switches between stacks that share one memory range ([`Kind::Switches`]).
#[inline(always)]
fn switches(function: u32) -> bool {
    parameters::kind(function) == Kind::Switches
}

/// Registers a thread at an exit, if another thread may have begun the call, or this one before it
/// had a control block. Returns the stub's next action: `DONE` without either, or if there is no
/// place for the thread.
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

/// The slow path of an exit of kind `L`, as `ways!` describes it. `mark` is the busy mark of
/// [`fast`]. The registers are those of the function's caller; unless `all` is true, only the frame
/// pointer is valid.
pub(super) unsafe fn slow<L: Leaving>(
    thread: *mut Thread,
    function: u64,
    slot: u64,
    mark: u64,
    (saved, all): (&Saved, bool),
) {
    let function = function as u32;
    // SAFETY: guaranteed by the stub.
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
                come_to_stack_of(thread, slot, (saved, all));
                list::lock_own(calls);
                found = list::find(calls, function, slot);
            }
        }
        if L::IS_MEASURED && !L::IS_SPAN && found.is_null() {
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
        if !is_own && !L::IS_SPAN {
            found = list::find_lent(calls, slot);
        }
        if !found.is_null() {
            let left = match (L::IS_SPAN, is_own) {
                // The call of a span may be in doubt.
                (true, _) => doubted(slot) - 1,
                (false, true) => slot - 1,
                // Only spans of this call have its slot.
                (false, false) => slot,
            };
            closing::close_left_behind(calls, (*found).stack, left);
        }
        if is_own {
            closing::close_spans(calls, list::find(calls, function, slot));
        }
        if is_own && L::LENDS {
            let found = list::find(calls, function, slot);
            let is_first = list::enclosing(calls, found) == (*found).prev;
            if is_first && list::lend(calls, list::raise(calls, found)) {
                list::unlock(calls);
                return;
            }
        }
        // Activations above it run on other stacks and stay.
        if is_own {
            L::prepare::<true>(thread, list::find(calls, function, slot), mark);
            end::<L>(thread, list::find(calls, function, slot));
        }
        if !L::IS_SPAN {
            end_lent::<L>(thread, function, slot);
        }
        list::unlock(calls);
    }
}

/// Ends the activations that were lent to the call at `slot`.
///
/// # Safety
/// The thread's list is locked.
unsafe fn end_lent<L: Leaving>(thread: *mut Thread, function: u32, slot: u64) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let calls = &raw mut (*thread).calls;
        loop {
            let found = list::find_lent(calls, slot);
            if found.is_null() {
                return;
            }
            if list::is_lent_to(found, function) {
                end::<L>(thread, found)
            } else {
                closing::leave(calls, list::raise(calls, found))
            }
        }
    }
}

/// Restores the slot of the activation `place`, which is in doubt, if this return ends it. `seen`
/// is the identity of the stack at the return. False if this return belongs to another call, or if
/// `place` is null.
///
/// # Safety
/// It is null or on the caller's list, which is locked.
unsafe fn settle(place: *mut Activation, seen: Option<Left>) -> bool {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if place.is_null() {
            return false;
        }
        let slot = return_address((*place).slot);
        let returns_to = foreign::read_array(slot).map(u64::from_le_bytes);
        let site = record::return_address(&*(*place).record);
        let is_its_site = site.is_none() || returns_to.is_none() || site == returns_to;
        if !doubt::ends(slot, seen, is_its_site) {
            return false;
        }
        (*place).slot = slot;
        true
    }
}

/// Ends one of the thread's activations, with the sources' values at the exit.
unsafe fn end<L: Leaving>(thread: *mut Thread, activation: *mut Activation) {
    // SAFETY: the list belongs to the caller, is locked, and contains the activation.
    unsafe {
        let calls = &raw mut (*thread).calls;
        let caller = list::enclosing(calls, activation);
        let top = list::raise(calls, activation);
        let meter = &mut (*thread).meter;
        apart::at_exit::<true>(calls, &mut (*thread).ledger, meter, top);
        if L::BY_TAIL_CALL {
            list::end::<true, true>(calls, top, caller, meter);
        } else {
            list::end::<true, false>(calls, top, caller, meter);
        }
    }
}

/// Makes the thread's list contain the calls of the stack that contains `slot`, if that stack is
/// known. `slot` is the address of the return address.
unsafe fn come_to_stack_of(thread: *mut Thread, slot: u64, (saved, all): (&Saved, bool)) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let frame = Frame::of_caller(slot, saved);
        if let Some(stack) = (*thread).walker.stack_of(&frame, all)
            && stack.is_told
        {
            let calls = &raw mut (*thread).calls;
            coroutines::arrive(calls, &mut (*thread).ledger, stack.id);
        }
    }
}
