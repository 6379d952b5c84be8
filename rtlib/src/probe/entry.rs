//! What happens when a probed function is entered.

use core::ptr;
use core::sync::atomic::Ordering;

use abi::TRIAL;
use abi::probe::{Children, Kind};
use abi::segment::{ROOT_COMPLETE, RecordHead};

use super::next::{AGAIN, DONE, FOUND};
use super::{busy, departing, ending, forks, loads, moves, registering, switches, trial};
use crate::arch::clock;
use crate::arch::stored::VECTORS;
use crate::calls::Calls;
use crate::calls::activation::{Activation, doubted, lent, return_address};
use crate::calls::cost::Entered;
use crate::calls::meter::{Meter, Values};
use crate::calls::overhead::ipath_costs;
use crate::calls::{closing, coroutines, cost, doubt, list};
use crate::code;
use crate::code::epoch;
use crate::code::modules::MODULES;
use crate::code::return_address::begins_coroutine;
use crate::ledger::{Missed, record};
use crate::os::parameters::{self, is_alive};
use crate::os::shared;
use crate::sources::value::REGISTERS;
use crate::thread::{self, Thread, registry};
use crate::walk::memo::InEpoch;
use crate::walk::{Frame, Walk, Walker};
use unwind::Saved;

/// Remembers the walk of a call of `function`, so that the stub can record it: what to do next.
///
/// # Safety
/// Called by the entry stub: `slot` is the address of the return address, on the stack of the
/// calling thread, `fp` the register at the function's entry. `has_tried` where this has been called
/// for this call before.
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
    // SAFETY: the stub's promise.
    unsafe {
        let thread = match begin(function, slot) {
            Ok(thread) => thread,
            Err(next) => return next,
        };
        let kind = parameters::kind(function);
        let is_special = !kind.is_measured()
            || has_children(function)
            || doubt::is_doubtful(function, slot)
            || kind == Kind::Ending && leaves(thread, slot);
        let is_known = thread::is_same(thread) && (*thread).walker.stack.holds(slot);
        if has_tried || is_special || !is_known {
            return thread;
        }
        (*thread).walker.entry_fp = fp;
        remember_walk(thread, function, slot)
    }
}

/// Whether calls may have been left behind that stand where one begins that gets no activation: its return would end them.
///
/// # Safety
/// The thread is the caller's own.
#[inline(always)]
unsafe fn leaves(thread: *mut Thread, slot: u64) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        let top = (*thread).calls.top;
        (*top).slot <= lent(slot)
    }
}

/// The second half of [`ipath_remember_walk`], apart from the first to use less of the stack.
///
/// # Safety
/// The thread is the caller's own, marked busy, and `slot` on the stack that it was last seen on; the frame pointer at the function's
/// entry is in its walker.
#[inline(never)]
#[unsafe(link_section = ".text.fast")]
pub(super) unsafe fn remember_walk(thread: *mut Thread, function: u32, slot: u64) -> *mut Thread {
    // SAFETY: the caller's promise; the thread is marked busy.
    unsafe {
        (*thread).meter.pass_from(clock::now());
        // The thread's place among all is one that the stub does not look at, or it is something
        // else that the stub's code could not do; then it comes here again.
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

/// Whether a walk of the call is remembered.
#[inline(never)]
#[unsafe(link_section = ".text.fast")]
unsafe fn recall(thread: *mut Thread, function: InEpoch, slot: u64) -> bool {
    // SAFETY: the caller's promise.
    unsafe { (*thread).walker.recall(function, slot) }
}

/// Whether the walk of the call could be made by what its words have determined alone.
#[inline(never)]
#[unsafe(link_section = ".text.fast")]
pub(super) unsafe fn walk(thread: *mut Thread, function: u32, slot: u64) -> bool {
    // SAFETY: the caller's promise.
    unsafe { (*thread).walker.walk_determined(function, slot) }
}

/// Identifies the stack of a walk that `--depth` has cut. False if only the slow path can do it.
///
/// While no coroutine is known, it is the thread's first stack, or the stack of an activation in
/// the thread's list whose frame the walk reaches. Then nothing needs to be remembered, and in deep
/// recursion the way is short.
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
    // SAFETY: the caller's promise.
    unsafe { return_address((*activation).slot) }
}

/// The record of the path just walked, if the thread has one.
#[inline(never)]
#[unsafe(link_section = ".text.fast")]
pub(super) unsafe fn find_last(thread: *mut Thread, function: u32) -> Option<&'static RecordHead> {
    // SAFETY: the caller's promise.
    unsafe { (*thread).ledger.find(&(*thread).walker.last_path(function)) }
}

/// Has the walk just made remembered. It takes all else from the thread, so that its caller has left the stack
/// before.
#[inline(never)]
#[unsafe(link_section = ".text.fast")]
unsafe fn remember(thread: *mut Thread, known: &'static RecordHead) -> *mut Thread {
    // SAFETY: the caller's promise.
    unsafe {
        let words = (*thread).walker.words();
        let cost = ipath_costs.of(record::way(known), words);
        (*thread).walker.remember(known, cost);
        (*thread).meter.pass_until(clock::now());
    }
    thread.wrapping_byte_add(FOUND)
}

/// The calling thread, marked busy with this call; what to do next where there is none.
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
        // SAFETY: the stub's promise.
        unsafe { departing::announce(kind, slot) };
        return Err(DONE);
    }
    let moves = kind == Kind::Moves;
    let forks = has_children(function);
    // It concerns other threads, too, or later calls.
    let is_for_all = moves || forks || matches!(kind, Kind::Loads | Kind::TakesBack);
    // SAFETY: the stub's promise, of a call of `copystack`.
    if moves && !unsafe { moves::is_known(slot) } {
        return Err(DONE);
    }
    // SAFETY: the stub's promise.
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
    // SAFETY: the thread is the caller's own, and `busy` keeps signal handlers on it out.
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

/// Makes the calling thread known, at a call of the program's or a reaper's.
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

/// Records a call of `function` whatever it takes. Runs on the private stack, with signals
/// blocked and the thread's callee-saved registers stored.
///
/// # Safety
/// Called by the entry stub with what [`ipath_remember_walk`] returned; the stub ends the thread's being busy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ipath_slow_entry(
    thread: *mut Thread,
    function: u64,
    slot: u64,
    calls: trial::Calls,
) {
    let function = function as u32;
    // SAFETY: the stub's promise; the thread is marked busy.
    unsafe {
        thread::settle(thread);
        trial::find_out(thread, calls);
        let kind = parameters::kind(function);
        let passed = (*thread).meter.passed();
        match kind {
            Kind::Moves => moves::begin(thread, function, slot),
            Kind::Switches => switches::leave(thread, slot),
            Kind::Loads => {
                MODULES.refresh();
                loads::have_changed();
            }
            Kind::TakesBack => registering::end(slot),
            // What it cannot tell is found at a later call.
            kind if kind.ends_calls() => drop(ending::reap(thread, kind, slot)),
            kind if kind.is_measured() => {
                let has_exits = kind == Kind::Call;
                let registers = (&(*thread).saved, true);
                if let Err(why) = record_slowly(thread, function, slot, registers, has_exits) {
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

/// Whether a child that shares the process's memory may come of a function.
#[inline(always)]
fn has_children(function: u32) -> bool {
    parameters::children(function) != Children::Never as u8
}

/// Counts a call whose walk the stub has found, and measures what its schema says beside the clock, or drops it. What to do
/// next: the slow way where the record takes more memory. `activation` is that of the call, or null where none is wanted.
///
/// # Safety
/// Called by the entry stub, which has put the activation on top of the list and no count into the record.
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
    // SAFETY: the stub's promise; the thread is marked busy.
    unsafe {
        if function as u32 == TRIAL {
            // On the private stack already. The round does not count.
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
        // Else a walk that has been remembered before a change of what the function measures has led there.
        let is_call = parameters::is_call_by(function as u32, record::schema(&*record));
        let is_of_now = is_call == Some(!activation.is_null());
        let entered = if is_home && is_of_now {
            ipath_enter_at_home(
                meter,
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

/// The same where there is more room on the stack. It is exported for a test to know where that begins.
///
/// # Safety
/// As for [`cost::enter`].
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.fast")]
#[inline(never)]
unsafe extern "C" fn ipath_enter_at_home(
    meter: *mut Meter,
    activation: *mut Activation,
    function: u32,
    record: *const RecordHead,
    values: *const Values,
) -> Entered {
    // SAFETY: the caller's promise.
    unsafe { cost::enter::<false>(&mut *meter, activation, function, &*record, &*values) }
}

/// Records a call whatever it takes.
///
/// # Errors
/// It is missed.
///
/// # Safety
/// The thread is the caller's own, marked busy, and `slot` on its stack. The registers are those at the function's entry,
/// the frame pointer alone where not `all` are known.
pub(super) unsafe fn record_slowly(
    thread: *mut Thread,
    function: u32,
    slot: u64,
    (saved, all): (&Saved, bool),
    has_exits: bool,
) -> Result<(), Missed> {
    // SAFETY: the caller's promise.
    unsafe {
        let calls = &raw mut (*thread).calls;
        let (walker, ledger) = (&mut (*thread).walker, &mut (*thread).ledger);
        if has_exits {
            // Before anything is recorded of the call.
            list::lock_own(calls);
            let room = list::make_room(calls);
            list::unlock(calls);
            room?;
        }
        let walk = walker.walk_slowly(function, slot, saved, all);
        let mut walk = walk.ok_or(Missed::Stack)?;
        let mut root = 0;
        if walk.is_short() {
            // The frames that are not kept still identify the stack.
            let stack = walker.stack_of(&Frame::of_caller(slot, saved), all);
            if let Some(stack) = stack {
                (walk.stack, walk.is_told, root) = (stack.id, stack.is_told, stack.root);
            }
        }
        walker.fold(function, &mut walk);
        let path = walker.path(function, &walk);
        if walk.root == ROOT_COMPLETE {
            root = path.frame(walk.len as usize - 1);
        }
        // What the function measures may have changed since the probe was reached.
        let (known, has_exits) = loop {
            let known = ledger.find_or_make(&path)?;
            if let Some(is_call) = parameters::is_call_by(function, record::schema(known)) {
                break (known, is_call);
            }
        };
        let meter = &mut (*thread).meter;
        let values = Values {
            slot,
            vectors: (*thread).private_stack - VECTORS,
        };
        if !has_exits {
            if parameters::kind(function) == Kind::Ending {
                list::lock_own(calls);
                close_left_behind(calls, walker, walk.stack, slot);
                list::unlock(calls);
            }
            cost::enter::<true>(meter, ptr::null_mut(), function, known, &values);
            return Ok(());
        }
        if walk.is_told {
            note_stack(thread, &walk, root);
            coroutines::arrive(calls, ledger, walk.stack);
        }
        list::lock_own(calls);
        close_left_behind(calls, walker, walk.stack, slot);
        let is_doubtful = doubt::is_doubtful(function, slot);
        if is_doubtful {
            list::unlock(calls);
            let found = all.then(|| switches::left(thread, slot));
            doubt::keep(slot, found.flatten());
            list::lock_own(calls);
        }
        let room = list::make_room(calls);
        if room.is_ok() {
            let new = list::push(calls, function, slot, walk.stack, known);
            if is_doubtful {
                (*new).slot = doubted(slot);
            }
            let entered = cost::enter::<true>(meter, new, function, known, &values);
            if entered == Entered::Not {
                list::pop(calls, new);
            }
        }
        list::unlock(calls);
        Ok(room?)
    }
}

/// Closes activations that an entry finds left behind. No jump was announced, so their slots become
/// doubtful.
///
/// # Safety
/// List and walker are the caller's, and the list is locked.
unsafe fn close_left_behind(calls: *mut Calls, walker: &mut Walker, stack: u64, slot: u64) {
    let mut note = |function, slot| {
        if doubt::note(function, slot) {
            walker.forget_call(function, slot);
        }
    };
    // SAFETY: the caller's promise.
    unsafe { closing::close_each(calls, stack, slot, &mut note) };
}

/// Functions that the loader calls have another root than `main`, a few words away.
const NEAR: u64 = 1024;

/// Records the presence of coroutines if a thread runs on another stack than its first. `root` is
/// the return address of the outermost frame; 0 if it is not known.
unsafe fn note_stack(thread: *mut Thread, walk: &Walk, root: u64) {
    // SAFETY: the thread is the caller's.
    let home = unsafe { &mut (*thread).calls.home };
    if root == 0 {
        code::coroutines::note();
    } else if *home == 0 {
        if !begins_coroutine(root) {
            *home = walk.stack;
        }
    } else if home.abs_diff(walk.stack) > NEAR {
        code::coroutines::note();
    }
}
