//! The cost of a call by the schema of its record: the growth of sources from entry to exit, and
//! values.

use abi::schema::{Condition, Derived, MAX_COLUMNS, Schema, source, way};
use abi::segment::RecordHead;
use abi::value::RETURN;
use core::sync::atomic::Ordering;

use super::activation::{self, Activation, Growing, More, UNKNOWN};
use super::meter::{Meter, Values, since};
use super::single;
use super::values::{
    add_value, argument, columns, find_arguments, keep_arguments, kept_argument, moves_values,
    returned,
};
use crate::ledger::record::{self, Amount};
use crate::os::parameters;
use crate::sources::{Entry, Silent};

/// The sources that the columns of a schema need: bit `n` is source `n`.
#[inline(always)]
fn wanted(schema: &Schema) -> u32 {
    schema.sources.load(Ordering::Relaxed)
}

/// True if the condition for the call to count is only known at its end.
#[inline(always)]
pub fn is_decided_at_exit(record: &RecordHead) -> bool {
    condition(schema(record)).is_some_and(|condition| !condition.of.is_at_entry())
}

/// The schema of a record.
#[inline(always)]
fn schema(record: &RecordHead) -> &'static Schema {
    parameters::schema(record::schema(record))
}

/// The condition for a call to count; `None` if all calls count.
#[inline(always)]
fn condition(schema: &Schema) -> Option<Condition> {
    match schema.condition.load(Ordering::Relaxed) {
        0 => None,
        word => Condition::decode(word),
    }
}

/// True if `said`, the left side of the schema's condition, has the relation to the bound.
#[inline(always)]
fn holds(schema: &Schema, condition: Condition, said: i64) -> bool {
    let bound = schema.bound.load(Ordering::Relaxed) as i64;
    condition.relation.holds(said, bound)
}

/// The result of a call's entry.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Entered {
    /// The call counts.
    Counts,
    /// The condition is only known when the call ends.
    Undecided,
    /// The call does not count.
    Not,
    /// The entry must be processed on another stack. It has had no effect yet.
    Later,
}

/// Counts a call that begins, by the schema of its record, as far as its numbers are known.
/// `activation` is null if nothing is measured; otherwise the clock is read last. Without `ALL`,
/// the result is [`Entered::Later`] if the record needs more memory or the kernel must be queried.
///
/// # Safety
/// Meter, activation and record belong to the caller, and `values` are the locations of the call's
/// values.
#[inline(always)]
pub unsafe fn enter<const ALL: bool>(
    meter: &mut Meter,
    activation: *mut Activation,
    function: u32,
    record: &RecordHead,
    values: &Values,
) -> Entered {
    let schema = schema(record);
    let condition = condition(schema);
    let is_undecided = condition.is_some_and(|condition| !condition.of.is_at_entry());
    let is_single = !activation.is_null() && schema.keeps_single();
    let moves = !activation.is_null() && (is_undecided || moves_values(schema));
    let keeps_arguments = moves || is_single;
    // SAFETY: guaranteed by the caller.
    unsafe {
        if let Some(condition) = condition
            && let Derived::Value(number) = condition.of
            && !is_undecided
            && !holds(schema, condition, argument(function, number, values))
        {
            return Entered::Not;
        }
        if !is_undecided {
            meter.amounts.known = 0;
            if !moves {
                find_arguments(meter, function, schema, values);
            }
            if ALL {
                count::<true>(meter, record);
            } else if record::must_grow_to_enter(record, &meter.amounts) {
                return Entered::Later;
            }
        }
        if !activation.is_null() {
            if is_single || wanted(schema) & !source::CLOCKS != 0 {
                if ALL {
                    meter.make_room(activation);
                } else if (*activation).more.is_null() {
                    return Entered::Later;
                }
            }
            if !start::<ALL>(meter, activation, wanted(schema)) {
                return Entered::Later;
            }
            if keeps_arguments {
                keep_arguments(activation, function, values);
            }
        }
        if !ALL && !is_undecided {
            count::<false>(meter, record);
        }
    }
    if is_undecided {
        Entered::Undecided
    } else {
        Entered::Counts
    }
}

/// Counts a call that begins, with the arguments in the meter.
#[inline(always)]
fn count<const GROW: bool>(meter: &Meter, record: &RecordHead) {
    if meter.amounts.known != 0 {
        record::add_entered::<GROW>(record, &meter.amounts);
    }
    record::enter(record);
}

/// Reads the sources at an entry. False if the kernel must be queried and `ALL` is false.
#[inline(never)]
#[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
unsafe fn start<const ALL: bool>(
    meter: &mut Meter,
    activation: *mut Activation,
    mut wanted: u32,
) -> bool {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let more = (*activation).more;
        if more.is_null() {
            // There is no memory for the other sources.
            wanted &= source::CLOCKS;
        } else {
            (*more).known = 0;
            (*more).callees.function[0] = 0;
        }
        let mut cpu = None;
        let start = meter.sources.at_entry::<ALL>(wanted, |number, start| {
            let number = number % source::ALL;
            if number == source::CPU {
                cpu = Some(start.number);
                return;
            }
            (*more).known |= 1 << number;
            (*more).source[number] = Growing { start, nested: 0 };
        });
        let Some(Entry { now, waited }) = start else {
            return false;
        };
        let mut start = now;
        if meter.since != 0 {
            // A wait while the kernel was asked belongs to the call, which has begun by then.
            start = now.wrapping_sub(meter.pass_until(now).min(waited));
        }
        (*activation).ahead = cpu.map_or(UNKNOWN, |cpu| start.wrapping_sub(cpu));
        (*activation).nested_cpu = 0;
        let behind = meter.corrected_at_entry();
        (*activation).start = start.wrapping_sub(behind);
        (*activation).entered = start;
        true
    }
}

/// The growth of source `number` during a call that ends.
///
/// # Errors
/// [`Silent::Unknown`] if the growth is not known. Without `ALL`, [`Silent::Unasked`] if the kernel
/// must be queried.
#[inline(never)]
#[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
unsafe fn growth<const ALL: bool>(
    meter: &mut Meter,
    top: *mut Activation,
    number: u8,
) -> Result<Amount, Silent> {
    let number = usize::from(number) % source::ALL;
    // SAFETY: the activation is valid, and so are its pointers.
    unsafe {
        let ticks = meter.ticks(top);
        if number == source::CLOCK {
            let nested = (*top).nested;
            return Ok(Amount {
                whole: ticks,
                nested,
            });
        }
        if number == source::CPU {
            if (*top).ahead == UNKNOWN {
                return Err(Silent::Unknown);
            }
            let said = meter.sources.cpu_at_exit::<ALL>()?;
            let start = (*top).start.wrapping_sub((*top).ahead);
            let now = said.wrapping_sub(meter.corrected());
            // The clocks of the kernel and of the processor differ slightly.
            let whole = since(start, now).min(ticks);
            (meter.cpu, meter.knows_cpu) = (whole, true);
            let nested = (*top).nested_cpu;
            return Ok(Amount { whole, nested });
        }
        let more = (*top).more;
        if more.is_null() || (*more).known & 1 << number == 0 {
            return Err(Silent::Unknown);
        }
        let Growing { start, nested } = &(*more).source[number];
        let said = meter.sources.at_exit::<ALL>(number)?;
        let whole = said.since(start).ok_or(Silent::Unknown)?;
        Ok(Amount {
            whole,
            nested: *nested,
        })
    }
}

/// The time of a call that ends. `None` if the thread has been switched out since its entry, or if
/// nested time differs from nested CPU time.
#[inline(always)]
unsafe fn steady(meter: &mut Meter, top: *mut Activation) -> Option<Amount> {
    // SAFETY: the activation is valid.
    unsafe {
        let nested = (*top).nested;
        let is_steady = (*top).nested_cpu == nested && meter.sources.is_steady((*top).ahead);
        is_steady.then(|| {
            let whole = meter.ticks(top);
            (meter.cpu, meter.knows_cpu) = (whole, true);
            Amount { whole, nested }
        })
    }
}

/// The result of a call's end.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Ended {
    /// The call was counted, if its function has stayed instrumented.
    Counted,
    /// The call does not count.
    Not,
    /// The end must be processed on another stack. It has had no effect yet.
    Later,
}

/// Counts a call that ends, by the schema of its record. If `is_current` is false, its function was
/// removed meanwhile, and the record stays as it is. Without `ALL`, the result is [`Ended::Later`]
/// if the record must grow or the kernel must be queried.
///
/// # Safety
/// The activation is valid. The meter belongs to the caller and has begun.
#[inline(always)]
pub unsafe fn end<const ALL: bool>(
    meter: &mut Meter,
    top: *mut Activation,
    is_current: bool,
    by_tail_call: bool,
) -> Ended {
    // SAFETY: guaranteed by the caller; records stay valid.
    unsafe {
        let record = &*(*top).record;
        if ALL {
            ask(meter, record);
        }
        meter.amounts.outermost = 0u32.wrapping_sub((*top).outermost);
        match of_any::<ALL>(meter, top, record) {
            None => return Ended::Later,
            Some(false) => return Ended::Not,
            Some(true) => {}
        }
        if !is_current {
            return Ended::Counted;
        }
        if ALL {
            record::close(record, &meter.amounts, by_tail_call);
        } else if !record::try_close(record, &meter.amounts, by_tail_call) {
            return Ended::Later;
        }
        if is_decided_at_exit(record) {
            record::enter(record);
        }
        Ended::Counted
    }
}

/// Asks the kernel for what the record of a call that ends needs.
#[inline(never)]
fn ask(meter: &mut Meter, record: &RecordHead) {
    let wanted = wanted(schema(record));
    if wanted & !(1 << source::CLOCK) != 0 {
        meter.ask_at_exit(wanted);
    }
}

/// Counts a call that ends as [`end`] does, for a call that is only timed. False, without an
/// effect, if the record must grow.
///
/// # Safety
/// As for [`end`].
#[inline(always)]
pub unsafe fn end_timed(
    meter: &Meter,
    top: *mut Activation,
    is_current: bool,
    by_tail_call: bool,
) -> bool {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let amount = Amount {
            whole: meter.ticks(top),
            nested: (*top).nested,
        };
        let is_outermost = (*top).outermost != 0;
        !is_current || record::try_close_timed(&*(*top).record, amount, is_outermost, by_tail_call)
    }
}

/// True if only the time of the call is measured.
///
/// # Safety
/// The activation is valid.
#[inline(always)]
pub unsafe fn is_timed_alone(activation: *mut Activation) -> bool {
    // SAFETY: guaranteed by the caller; records stay valid.
    unsafe { record::way(&*(*activation).record) == way::TIMED }
}

/// Counts a call that ends as [`end`] does, and keeps it if single calls of its function are kept.
///
/// # Safety
/// As for [`end`]; `caller` is the enclosing activation.
#[inline(always)]
pub unsafe fn end_any<const ALL: bool>(
    meter: &mut Meter,
    top: *mut Activation,
    caller: *mut Activation,
    is_current: bool,
    by_tail_call: bool,
) -> Ended {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if !is_current || !single::are_kept(top) {
            return end::<ALL>(meter, top, is_current, by_tail_call);
        }
        let function = (*top).function;
        let block = match meter.single.find(function) {
            None if !meter.single.is_full() => {
                if !ALL {
                    return Ended::Later;
                }
                meter.single.find_or_make(function)
            }
            found => found,
        };
        let ended = end::<ALL>(meter, top, is_current, by_tail_call);
        if ended == Ended::Counted {
            single::keep(block, meter, top);
            let more = (*caller).more;
            if !more.is_null() {
                (*more).callees.add(function, meter.ticks(top));
            }
        }
        ended
    }
}

/// [`end_any`] for the innermost activation, on a stack with more room. It is exported so that a
/// test can find its address.
///
/// # Safety
/// As for [`end_any`].
#[unsafe(no_mangle)]
#[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
#[inline(never)]
pub unsafe extern "C" fn ipath_end_at_home(
    meter: *mut Meter,
    top: *mut Activation,
    by_tail_call: bool,
) -> Ended {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let (caller, is_current) = ((*top).prev, activation::is_current(top));
        end_any::<false>(&mut *meter, top, caller, is_current, by_tail_call)
    }
}

/// Finds the amounts of a call that ends, and stores them in the meter. False if the call does not
/// count. `None` if the kernel must be queried first, which is never so with `ALL`.
#[inline(always)]
unsafe fn of_any<const ALL: bool>(
    meter: &mut Meter,
    top: *mut Activation,
    record: &RecordHead,
) -> Option<bool> {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let schema = schema(record);
        let condition = condition(schema).filter(|condition| !condition.of.is_at_entry());
        if let Some(condition) = condition
            && !holds_at_exit::<ALL>(meter, top, schema, condition)?
        {
            return Some(false);
        }
        meter.amounts.known = 0;
        (meter.cpu, meter.knows_cpu) = ((*top).nested_cpu, false);
        if record::way(record) == way::STEADY
            && let Some(amount) = steady(meter, top)
        {
            meter.amounts.known = 1;
            meter.amounts.of[0] = amount;
            return Some(true);
        }
        for (column, derived) in columns(schema) {
            let amount = match derived {
                // The call was not steady, so the column has no value.
                Derived::Steady => continue,
                Derived::Growth(number) => growth::<ALL>(meter, top, number),
                Derived::Rest(whole, part) => rest::<ALL>(meter, top, whole, part),
                Derived::Value(number) | Derived::Negative(number) => {
                    let value = match number {
                        RETURN => returned(meter, top),
                        _ if condition.is_some() || schema.divides_at_exit() => {
                            Some(kept_argument(top, number))
                        }
                        _ => None,
                    };
                    if let Some(value) = value {
                        add_value(&mut meter.amounts, column, derived, value);
                    }
                    continue;
                }
            };
            match amount {
                Ok(amount) => {
                    meter.amounts.known |= 1 << column;
                    meter.amounts.of[column % MAX_COLUMNS] = amount;
                }
                Err(Silent::Unasked) => return None,
                Err(Silent::Unknown) => {}
            }
        }
        Some(true)
    }
}

/// True if a call that ends counts. `None` if the kernel must be queried first.
#[inline(never)]
#[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
unsafe fn holds_at_exit<const ALL: bool>(
    meter: &mut Meter,
    top: *mut Activation,
    schema: &Schema,
    condition: Condition,
) -> Option<bool> {
    // SAFETY: guaranteed by the caller.
    let said = unsafe {
        match condition.of {
            Derived::Value(_) | Derived::Negative(_) => returned(meter, top).ok_or(Silent::Unknown),
            Derived::Growth(number) => {
                growth::<ALL>(meter, top, number).map(|amount| amount.whole as i64)
            }
            Derived::Rest(whole, part) => {
                rest::<ALL>(meter, top, whole, part).map(|amount| amount.whole as i64)
            }
            // Conditions do not use this column.
            Derived::Steady => Err(Silent::Unknown),
        }
    };
    match said {
        Ok(said) => Some(holds(schema, condition, said)),
        Err(Silent::Unknown) => Some(false),
        Err(Silent::Unasked) => None,
    }
}

/// The growth of source `whole` minus that of source `part`, during the call that ends. Errors are
/// those of [`growth`].
unsafe fn rest<const ALL: bool>(
    meter: &mut Meter,
    top: *mut Activation,
    whole: u8,
    part: u8,
) -> Result<Amount, Silent> {
    // SAFETY: guaranteed by the caller.
    let (whole, part) = unsafe {
        (
            growth::<ALL>(meter, top, whole)?,
            growth::<ALL>(meter, top, part)?,
        )
    };
    Ok(Amount {
        whole: whole.whole.saturating_sub(part.whole),
        nested: whole.nested.saturating_sub(part.nested),
    })
}

/// Adds the cost of a call that ends to the nested cost of its caller. For a call that does not
/// count, adds the nested cost only.
///
/// # Safety
/// Both are valid, and the meter has measured `top`.
#[inline(always)]
pub unsafe fn pass_on(meter: &Meter, top: *mut Activation, caller: *mut Activation, counts: bool) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        (*caller).nested += if counts {
            meter.ticks(top)
        } else {
            (*top).nested
        };
        let record = &*(*top).record;
        if record::way(record) == way::TIMED {
            return;
        }
        let wanted = wanted(schema(record));
        if wanted & 1 << source::CPU != 0 {
            (*caller).nested_cpu += if counts { meter.cpu } else { (*top).nested_cpu };
        }
        let (of, to) = ((*top).more, (*caller).more);
        if wanted & !source::CLOCKS == 0 || of.is_null() || to.is_null() || (*of).known == 0 {
            return;
        }
        pass_on_more(meter, top, to, counts);
    }
}

/// Does the same as [`pass_on`] for the sources other than the clock and CPU time.
#[inline(never)]
#[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
unsafe fn pass_on_more(meter: &Meter, top: *mut Activation, to: *mut More, counts: bool) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let of = (*top).more;
        for number in source::CPU + 1..source::ALL {
            if (*of).known & 1 << number == 0 {
                continue;
            }
            let Growing { start, nested } = &(*of).source[number];
            let said = meter.sources.has_said(number).filter(|_| counts);
            let grown = said.and_then(|said| said.since(start));
            (*to).source[number].nested += grown.unwrap_or(*nested);
        }
    }
}
