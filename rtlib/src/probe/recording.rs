//! Recording a call at any cost.

use core::ptr;

use abi::probe::Kind;
use abi::segment::ROOT_COMPLETE;

use crate::arch::stored::VECTORS;
use crate::calls::Calls;
use crate::calls::activation::doubted;
use crate::calls::cost::Entered;
use crate::calls::meter::Values;
use crate::calls::{apart, closing, coroutines, cost, doubt, list, phases};
use crate::code;
use crate::code::return_address::begins_coroutine;
use crate::ledger::{Ledger, Missed, record};
use crate::os::{parameters, shared};
use crate::thread::Thread;
use crate::walk::{Frame, Walk, Walker, filter};
use unwind::Saved;

use super::{called, switches};

/// What begins when a hook records a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Entering {
    /// A call of a function; true if its exits have probes.
    Function(bool),
    /// Nothing: the call is at a point.
    Point,
    /// A span of the call; true if its ends have probes.
    Span(bool),
}

impl Entering {
    fn is_span(self) -> bool {
        matches!(self, Self::Span(_))
    }

    /// The highest slot of calls that have been left behind, if the call in question is at `slot`.
    fn left_behind(self, slot: u64) -> u64 {
        // A span is in the frame of its call, which may be in doubt, and in other spans of it.
        if self.is_span() {
            doubted(slot) - 1
        } else {
            slot
        }
    }
}

/// Records a call at any cost.
///
/// # Errors
/// The call is missed.
///
/// # Safety
/// The thread belongs to the caller and is marked busy, and `slot` is on its stack. The registers
/// are those at the function's entry; unless `all` is true, only the frame pointer is valid.
pub(super) unsafe fn record_slowly(
    thread: *mut Thread,
    function: u32,
    slot: u64,
    (saved, all): (&Saved, bool),
    entering: Entering,
) -> Result<(), Missed> {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let calls = &raw mut (*thread).calls;
        let (walker, ledger) = (&mut (*thread).walker, &mut (*thread).ledger);
        if matches!(entering, Entering::Function(true) | Entering::Span(true)) {
            // Done first, because the call must not be recorded in part.
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
        if filter::is_on() && !filter::admits(&walker.path(function, &walk)) {
            return Ok(());
        }
        walker.fold(function, &mut walk);
        let path = walker.path(function, &walk);
        if walk.root == ROOT_COMPLETE {
            root = path.frame(walk.len as usize - 1);
        }
        // The function's measurements may have changed since the probe was reached.
        let (walked, schema, has_exits) = loop {
            let walked = match parameters::is_by_callers() {
                false => Some(ledger.find_or_make(&path)?),
                true => None,
            };
            let schema = walked.map_or_else(|| parameters::schema_of(function), record::schema);
            if let Some(is_call) = parameters::is_call_by(function, schema) {
                break (walked, schema, is_call);
            }
        };
        // The callers are known once those that were left behind are closed.
        let find_base = |ledger: &mut Ledger| match walked {
            Some(known) => Ok(known),
            None => called::find_or_make(ledger, calls, function, schema),
        };
        let meter = &mut (*thread).meter;
        let values = Values {
            slot,
            vectors: (*thread).private_stack - VECTORS,
        };
        let of_call = matches!(entering, Entering::Function(_)).then_some(&values);
        if !has_exits {
            let uses_list = shared::keeps_phases() || walked.is_none();
            if uses_list && walk.is_told {
                note_stack(thread, &walk, root);
                coroutines::arrive(calls, ledger, walk.stack);
            }
            if parameters::kind(function) == Kind::Ending || uses_list {
                list::lock_own(calls);
                close_left_behind(calls, walker, walk.stack, slot);
                if walked.is_none() {
                    list::drop_stale(calls);
                }
                list::unlock(calls);
            }
            let phase = phases::current((*calls).phase);
            let known = find_base(ledger)?;
            let known = apart::find_or_make_at_entry(ledger, phase, function, known, of_call)?;
            cost::enter::<true>(meter, ptr::null_mut(), function, known, &values);
            return Ok(());
        }
        if entering.is_span() && doubt::do_stacks_take_turns() {
            let phase = phases::current((*calls).phase);
            let known = find_base(ledger)?;
            let known = apart::find_or_make_at_entry(ledger, phase, function, known, None)?;
            cost::enter::<true>(meter, ptr::null_mut(), function, known, &values);
            record::unwind(known);
            return Ok(());
        }
        if walk.is_told {
            note_stack(thread, &walk, root);
            coroutines::arrive(calls, ledger, walk.stack);
        }
        list::lock_own(calls);
        close_left_behind(calls, walker, walk.stack, entering.left_behind(slot));
        if walked.is_none() {
            list::drop_stale(calls);
        }
        if entering.is_span() {
            let open = list::find(calls, function, slot);
            if !open.is_null() {
                closing::close_spans(calls, open);
                closing::leave(calls, list::raise(calls, open));
            }
        }
        let is_doubtful = !entering.is_span() && doubt::is_doubtful(function, slot);
        if is_doubtful {
            list::unlock(calls);
            let found = all.then(|| switches::left(thread, slot));
            doubt::keep(slot, found.flatten());
            list::lock_own(calls);
        }
        let is_phase = parameters::is_phase(function) && shared::keeps_phases();
        let phase = if is_phase {
            phases::begin(function)
        } else {
            phases::current((*calls).phase)
        };
        let known = find_base(ledger).and_then(|known| {
            apart::find_or_make_at_entry(ledger, phase, function, known, of_call)
        });
        let room = known.and_then(|known| list::make_room(calls).map(|()| known));
        let mut is_recorded = false;
        if let Ok(known) = room {
            let new = list::push(calls, function, slot, walk.stack, known);
            if is_doubtful {
                (*new).slot = doubted(slot);
            }
            if is_phase {
                (*calls).phase = phase;
                phases::note(phase);
            }
            let entered = cost::enter::<true>(meter, new, function, known, &values);
            is_recorded = entered != Entered::Not;
            if !is_recorded {
                list::pop(calls, new);
                (*calls).phase = phases::of((*calls).top);
            }
        }
        if is_phase && !is_recorded {
            phases::end(phase);
        }
        list::unlock(calls);
        room?;
        Ok(())
    }
}

/// Closes activations that an entry finds left behind. No jump was announced, so their slots become
/// doubtful.
///
/// # Safety
/// The list and the walker belong to the caller, and the list is locked.
unsafe fn close_left_behind(calls: *mut Calls, walker: &mut Walker, stack: u64, slot: u64) {
    let mut note = |function, slot| {
        if doubt::note(function, slot) {
            walker.forget_call(function, slot);
        }
    };
    // SAFETY: guaranteed by the caller.
    unsafe { closing::close_each(calls, stack, slot, &mut note) };
}

/// Functions that the loader calls have another root than `main`, but at most this many bytes away.
pub(super) const NEAR: u64 = 1024;

/// Records the presence of coroutines if a thread runs on another stack than its first. `root` is
/// the return address of the outermost frame; 0 if it is not known.
unsafe fn note_stack(thread: *mut Thread, walk: &Walk, root: u64) {
    // SAFETY: the thread belongs to the caller.
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
