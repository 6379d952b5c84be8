//! The entry of a probed function.

use core::sync::atomic::Ordering;

use abi::TRIAL;
use abi::probe::{Children, Kind};
use abi::segment::RecordHead;

use super::next::{AGAIN, DONE, FOUND};
use super::recording::{Entering, NEAR, record_slowly};
use super::remembering::{remember, walk};
use super::{busy, called, departing, ending, forks, loads, moves, registering, switches, trial};
use crate::arch::clock;
use crate::calls::activation::{Activation, lent, return_address};
use crate::calls::cost::Entered;
use crate::calls::meter::Values;
use crate::calls::{apart, cost, doubt, list, phases};
use crate::code;
use crate::code::epoch;
use crate::code::modules::MODULES;
use crate::ledger::{Missed, record};
use crate::os::parameters::{self, is_alive};
use crate::os::shared;
use crate::sources::value::REGISTERS;
use crate::thread::{self, Thread, registry};
use crate::walk::filter;
use crate::walk::memo::InEpoch;

/// Caches the walk of a call of `function`, so that the stub can record it. Returns the stub's next
/// action.
///
/// # Safety
/// Called by the entry stub. `slot` is the address of the return address, on the stack of the
/// calling thread, and `fp` the register at the function's entry. `has_tried` if this was called
/// before for this call.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.fast")]
pub unsafe extern "C" fn ipath_remember_walk(
    function: u64,
    slot: u64,
    fp: u64,
    has_tried: bool,
) -> *mut Thread {
    let function = function as u32;
    if function == TRIAL {
        return DONE;
    }
    // SAFETY: guaranteed by the stub.
    unsafe {
        let thread = match begin(function, slot) {
            Ok(thread) => thread,
            Err(next) => return next,
        };
        let kind = parameters::kind(function);
        let is_special = !kind.is_measured()
            || has_children(function)
            || parameters::is_phase(function)
            || doubt::is_doubtful(function, slot)
            || kind == Kind::Ending && leaves(thread, slot);
        let is_known = thread::is_same(thread) && (*thread).walker.stack.holds(slot);
        if has_tried || is_special || !is_known {
            return thread;
        }
        (*thread).walker.entry_fp = fp;
        if parameters::is_by_callers() {
            called::remember(thread, function, slot)
        } else {
            remember_walk(thread, function, slot)
        }
    }
}

/// True if calls may have been left behind at or below the slot of a new call. If that gets no
/// activation, its return would end theirs.
///
/// # Safety
/// The thread belongs to the caller.
#[inline(always)]
unsafe fn leaves(thread: *mut Thread, slot: u64) -> bool {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let top = (*thread).calls.top;
        (*top).slot <= lent(slot)
    }
}

/// The second half of [`ipath_remember_walk`], separate to use less of the stack.
///
/// # Safety
/// The thread belongs to the caller and is marked busy. `slot` is on the stack on which it was last
/// seen. Its walker has the frame pointer at the function's entry.
#[inline(never)]
#[unsafe(link_section = ".text.fast")]
pub(super) unsafe fn remember_walk(thread: *mut Thread, function: u32, slot: u64) -> *mut Thread {
    // SAFETY: guaranteed by the caller; the thread is marked busy.
    unsafe {
        (*thread).meter.pass_from(clock::now());
        // If the walk is cached, the stub found no thread in the place where it looks, or its code
        // could not do something else. Then it comes here again.
        let Some(epoch) = epoch::current() else {
            return thread;
        };
        if recall(thread, InEpoch::of(function, epoch), slot) {
            (*thread).meter.pass_until(clock::now());
            return thread.wrapping_byte_add(FOUND);
        }
        if !walk(thread, function, slot) {
            return thread;
        }
        if filter::is_on() && !is_admitted(thread, function) {
            (*thread).walker.leave_out();
            return remember(thread, &(*thread).elsewhere);
        }
        let needs_stack =
            (*thread).walker.last_walk().is_cut() && parameters::kind(function) == Kind::Call;
        if needs_stack && !walk_on(thread) {
            return thread;
        }
        (*thread).walker.fold_last(function);
        match find_last(thread, function) {
            Some(known) => remember(thread, known),
            None => thread,
        }
    }
}

/// True if the walk of the call of `function` at `slot` is cached. The stub can then record the
/// call.
#[inline(never)]
#[unsafe(link_section = ".text.fast")]
unsafe fn recall(thread: *mut Thread, function: InEpoch, slot: u64) -> bool {
    // SAFETY: guaranteed by the caller.
    unsafe { (*thread).walker.recall(function, slot) }
}

/// Identifies the stack of a walk that `--depth` has cut. False if only the slow path can do it.
///
/// While no coroutine is known, the stack is the thread's first one, or the stack of an activation
/// in the thread's list whose frame the walk reaches. Then no words need to be cached, and the walk
/// is short even in deep recursion.
#[cold]
#[inline(never)]
#[unsafe(link_section = ".text.fast")]
unsafe fn walk_on(thread: *mut Thread) -> bool {
    // SAFETY: see above; the list ends at the bottom, above every slot.
    unsafe {
        let walker = &mut (*thread).walker;
        if code::coroutines::are_known() {
            return walker.walk_on(true, |_| None);
        }
        let mut at = (*thread).calls.top;
        let enclosing = |slot: u64| {
            while return_address_of(at) < slot {
                at = (*at).prev;
            }
            (return_address_of(at) == slot).then_some((*at).stack)
        };
        if !walker.walk_on(false, enclosing) {
            return false;
        }
        let walk = walker.last_walk();
        !walk.is_told || walk.stack.abs_diff((*thread).calls.home) <= NEAR
    }
}

/// The address of an activation's return address.
#[inline(always)]
unsafe fn return_address_of(activation: *const Activation) -> u64 {
    // SAFETY: guaranteed by the caller.
    unsafe { return_address((*activation).slot) }
}

/// The record of the path just walked; `None` if the thread has none.
#[inline(never)]
#[unsafe(link_section = ".text.fast")]
pub(super) unsafe fn find_last(thread: *mut Thread, function: u32) -> Option<&'static RecordHead> {
    // SAFETY: guaranteed by the caller.
    unsafe { (*thread).ledger.find(&(*thread).walker.last_path(function)) }
}

/// True if calls on the path just walked are recorded. A separate function, so that its caller uses
/// less of the stack.
#[inline(never)]
#[unsafe(link_section = ".text.fast")]
unsafe fn is_admitted(thread: *mut Thread, function: u32) -> bool {
    // SAFETY: guaranteed by the caller.
    unsafe { filter::admits(&(*thread).walker.last_path(function)) }
}

/// The calling thread, marked busy with this call. Otherwise the stub's next action: `AGAIN` if the
/// thread has just been registered, `DONE` if there is nothing to record or the call cannot be
/// recorded.
///
/// # Safety
/// As for [`ipath_remember_walk`].
#[inline(always)]
pub(super) unsafe fn begin(function: u32, slot: u64) -> Result<*mut Thread, *mut Thread> {
    if !is_alive() || parameters::generation(function) == 0 {
        return Err(DONE);
    }
    let kind = parameters::kind(function);
    let is_reaper = !kind.is_measured();
    if is_reaper && kind.departs() {
        // SAFETY: guaranteed by the stub.
        unsafe { departing::announce(kind, slot) };
        return Err(DONE);
    }
    let moves = kind == Kind::Moves;
    let forks = has_children(function);
    // These calls concern other threads or later calls, too.
    let is_for_all = moves || forks || matches!(kind, Kind::Loads | Kind::TakesBack);
    // SAFETY: guaranteed by the stub, for a call of `copystack`.
    if moves && !unsafe { moves::is_known(slot) } {
        return Err(DONE);
    }
    // SAFETY: guaranteed by the stub.
    if forks && is_reaper && !unsafe { forks::shares(function, slot) } {
        return Err(DONE);
    }
    let thread = thread::current();
    if thread.is_null() {
        return Err(if is_reaper && !is_for_all {
            DONE
        } else {
            meet(is_reaper)
        });
    }
    // SAFETY: the thread belongs to the caller, and `busy` excludes signal handlers on it.
    unsafe {
        let has_none =
            || list::is_empty(&raw mut (*thread).calls) && !code::coroutines::are_known();
        if is_reaper && !is_for_all && has_none() {
            return Err(DONE);
        }
        if forks && is_reaper {
            busy::expect_child(thread);
            return Err(DONE);
        }
        match busy::begin(thread, slot) {
            Ok(()) => Ok(thread),
            Err(why) => {
                if !is_reaper && why == busy::Why::Recording {
                    (*thread).ledger.count_missed(Missed::Handler);
                }
                Err(DONE)
            }
        }
    }
}

/// Registers the calling thread, at a call of the program or of a reaper. Returns the stub's next
/// action: `DONE` if there is no place for the thread. A call of the program is then missed.
#[cold]
#[inline(never)]
#[unsafe(link_section = ".text.fast")]
fn meet(is_reaper: bool) -> *mut Thread {
    if !registry::register() {
        let missed = u64::from(!is_reaper);
        shared::header().missed.fetch_add(missed, Ordering::Relaxed);
        return DONE;
    }
    AGAIN
}

/// Records a call of `function` at any cost. Runs on the private stack, with signals blocked and
/// the thread's callee-saved registers stored.
///
/// # Safety
/// Called by the entry stub with the thread that [`ipath_remember_walk`] returned. The stub clears
/// the busy mark.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ipath_slow_entry(
    thread: *mut Thread,
    function: u64,
    slot: u64,
    calls: trial::Calls,
) {
    let function = function as u32;
    // SAFETY: guaranteed by the stub; the thread is marked busy.
    unsafe {
        thread::settle(thread);
        trial::find_out(thread, calls);
        let kind = parameters::kind(function);
        let passed = (*thread).meter.passed();
        match kind {
            Kind::Moves => moves::begin(thread, function, slot),
            Kind::Switches => {
                called::note_switch();
                switches::leave(thread, slot);
            }
            Kind::Loads => {
                MODULES.refresh();
                loads::have_changed();
            }
            Kind::TakesBack => registering::end(slot),
            // If that fails, a later call finds the activations.
            kind if kind.ends_calls() => drop(ending::reap(thread, kind, slot)),
            kind if kind.is_measured() => {
                let entering = Entering::Function(kind == Kind::Call);
                let registers = (&(*thread).saved, true);
                if let Err(why) = record_slowly(thread, function, slot, registers, entering) {
                    (*thread).ledger.count_missed(why);
                }
                if has_children(function) && forks::shares(function, slot) {
                    busy::expect_child_after(thread);
                }
            }
            _ => {}
        }
        if kind != Kind::Loads {
            (*thread).meter.pass_until(clock::now());
        } else {
            (*thread).meter.pass_waiting_until(clock::now());
            loads::note_cost((*thread).meter.passed().wrapping_sub(passed));
        }
    }
}

/// True if the function may create a child that shares the process's memory.
#[inline(always)]
fn has_children(function: u32) -> bool {
    parameters::children(function) != Children::Never as u8
}

/// Counts a call whose walk the stub has found, and starts the measurements of its schema other
/// than the clock, or drops the call. Returns the stub's next action: the slow path if the record
/// needs more memory. `activation` is the call's, or null if none is needed.
///
/// # Safety
/// Called by the entry stub, which has put the activation on top of the list and has not counted
/// the call in the record.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.fast")]
pub unsafe extern "C" fn ipath_enter(
    thread: *mut Thread,
    function: u64,
    slot: u64,
    activation: *mut Activation,
    record: *const RecordHead,
) -> *mut Thread {
    let values = Values {
        slot,
        vectors: REGISTERS,
    };
    // SAFETY: guaranteed by the stub; the thread is marked busy.
    unsafe {
        if function as u32 == TRIAL {
            // The private stack is in use already. The round does not count.
            if !activation.is_null() {
                list::pop(&raw mut (*thread).calls, activation);
            }
            busy::end(thread);
            return DONE;
        }
        let meter = &mut (*thread).meter;
        let is_due = meter.entries.is_due();
        if is_due {
            meter.pass_from(clock::now())
        } else {
            meter.pass(meter.entries.ticks());
            meter.since = 0;
        }
        let since = meter.since;
        let is_home = list::is_at_home(&raw const (*thread).calls);
        // Otherwise a walk cached before a change of the function's measurements led here.
        let is_call = parameters::is_call_by(function as u32, record::schema(&*record));
        let is_of_now = is_call == Some(!activation.is_null());
        let entered = if is_home && is_of_now {
            ipath_enter_at_home(
                thread,
                activation,
                function as u32,
                record,
                &raw const values,
            )
        } else {
            Entered::Later
        };
        let is_dropped = matches!(entered, Entered::Later | Entered::Not);
        if is_dropped && !activation.is_null() {
            list::pop(&raw mut (*thread).calls, activation);
        }
        if entered == Entered::Later {
            return thread;
        }
        if is_due {
            let meter = &mut (*thread).meter;
            if meter.since == since {
                meter.pass_until(clock::now());
            }
            meter.entries.learn(meter.since.wrapping_sub(since));
        }
        busy::end(thread);
        DONE
    }
}

/// The record of a call whose path leads to `record`, if calls of one path are kept apart. It
/// becomes that of the activation, if there is one. `None` if only the slow path can find it.
///
/// # Safety
/// As for [`ipath_enter`].
#[inline(always)]
unsafe fn find_apart(
    thread: *mut Thread,
    function: u32,
    activation: *mut Activation,
    record: &'static RecordHead,
    values: &Values,
) -> Option<&'static RecordHead> {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let calls = &raw mut (*thread).calls;
        // A phase that was left behind has not ended yet.
        if activation.is_null() && shared::keeps_phases() && leaves(thread, values.slot) {
            return None;
        }
        let phase = phases::current((*calls).phase);
        let known = apart::find_at_entry(&(*thread).ledger, phase, function, record, values)?;
        if !activation.is_null() {
            (*activation).record = known;
        }
        Some(known)
    }
}

/// Counts the call as [`cost::enter`] does, on a stack with more room, in the record that
/// [`find_apart`] finds. It is exported so that a test can find its address.
///
/// # Safety
/// As for [`cost::enter`].
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.fast")]
#[inline(never)]
unsafe extern "C" fn ipath_enter_at_home(
    thread: *mut Thread,
    activation: *mut Activation,
    function: u32,
    record: *const RecordHead,
    values: *const Values,
) -> Entered {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let Some(known) = find_apart(thread, function, activation, &*record, &*values) else {
            return Entered::Later;
        };
        let meter = &mut (*thread).meter;
        cost::enter::<false>(meter, activation, function, known, &*values)
    }
}
