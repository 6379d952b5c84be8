//! What a call has cost, by the schema of its record: what sources and values have come to, from entry to exit.

use abi::schema::{Condition, Derived, MAX_COLUMNS, Schema, source, way};
use abi::segment::RecordHead;
use abi::value::RETURN;
use core::sync::atomic::Ordering;

use super::activation::{ARGUMENTS, Activation, Growing, More, UNKNOWN};

use super::meter::{Meter, Values, since};
use crate::ledger::record::{self, Amount, Amounts};
use crate::os::parameters;
use crate::sources::Silent;
use crate::sources::value;

/// Which sources a schema has.
#[inline(always)]
fn wanted(schema: &Schema) -> u32 {
    schema.sources.load(Ordering::Relaxed)
}

/// Whether a call counts only if something holds that is not known before it ends.
#[inline(always)]
pub fn is_decided_at_exit(record: &RecordHead) -> bool {
    condition(schema(record)).is_some_and(|condition| !condition.of.is_at_entry())
}

#[inline(always)]
fn schema(record: &RecordHead) -> &'static Schema {
    parameters::schema(record::schema(record))
}

#[inline(always)]
fn condition(schema: &Schema) -> Option<Condition> {
    match schema.condition.load(Ordering::Relaxed) {
        0 => None,
        word => Condition::decode(word),
    }
}

#[inline(always)]
fn holds(schema: &Schema, condition: Condition, said: i64) -> bool {
    let bound = schema.bound.load(Ordering::Relaxed) as i64;
    condition.relation.holds(said, bound)
}

/// The columns of a schema.
#[inline(always)]
fn columns(schema: &Schema) -> impl Iterator<Item = (usize, Derived)> {
    let count = schema.columns.load(Ordering::Relaxed) as usize;
    let rules = schema.column.iter().take(count).enumerate();
    rules.filter_map(|(number, rule)| {
        Derived::decode(rule.derived.load(Ordering::Relaxed)).map(|derived| (number, derived))
    })
}

/// What becomes of a call at its entry.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Entered {
    /// It counts.
    Counts,
    /// Whether it does is known when it ends.
    Undecided,
    /// It does not count.
    Not,
    /// It must be seen to on another stack, and nothing has been done.
    Later,
}

/// Counts a call that begins, as its record's schema says, with what is known of it by now; `activation` is null where
/// nothing is to be measured, and has its clock read last. With `ALL` the record may take more memory and the kernel be asked; else
/// it is left for later where that has to be.
///
/// # Safety
/// Meter, activation and record are the caller's; the values of the call are where `values` says.
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
    // SAFETY: the caller's promise.
    unsafe {
        if let Some(condition) = condition
            && let Derived::Value(number) = condition.of
            && !is_undecided
            && !holds(schema, condition, argument(function, number, values))
        {
            return Entered::Not;
        }
        if !is_undecided {
            find_arguments(meter, function, schema, values);
            if ALL {
                count::<true>(meter, record);
            } else if record::must_grow_to_enter(record, &meter.amounts) {
                return Entered::Later;
            }
        }
        if !activation.is_null() {
            if is_undecided || wanted(schema) & !source::CLOCKS != 0 {
                if ALL {
                    meter.make_room(activation);
                } else if (*activation).more.is_null() {
                    return Entered::Later;
                }
            }
            if !start::<ALL>(meter, activation, wanted(schema)) {
                return Entered::Later;
            }
            if is_undecided {
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

/// An argument of a call at its entry.
#[inline(always)]
unsafe fn argument(function: u32, number: u8, values: &Values) -> i64 {
    let details = parameters::detail(function);
    // SAFETY: the caller's promise.
    unsafe { value::read(number, details, values.slot, values.vectors) }
}

/// Counts a call that begins, with the arguments that have been found.
#[inline(always)]
fn count<const GROW: bool>(meter: &Meter, record: &RecordHead) {
    if meter.amounts.known != 0 {
        record::add_entered::<GROW>(record, &meter.amounts);
    }
    record::enter(record);
}

/// Finds the arguments that a schema has.
#[inline(never)]
#[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
unsafe fn find_arguments(meter: &mut Meter, function: u32, schema: &Schema, values: &Values) {
    let amounts = &mut meter.amounts;
    amounts.known = 0;
    for (column, derived) in columns(schema) {
        if let Derived::Value(number) | Derived::Negative(number) = derived
            && number != RETURN
        {
            // SAFETY: the caller's promise.
            let value = unsafe { argument(function, number, values) };
            add_value(amounts, column, derived, value);
        }
    }
}

/// Keeps the arguments of a call of which it is not known yet whether it counts.
#[inline(never)]
#[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
unsafe fn keep_arguments(activation: *mut Activation, function: u32, values: &Values) {
    // SAFETY: the caller's promise.
    unsafe {
        let more = (*activation).more;
        if more.is_null() {
            return;
        }
        for (number, kept) in (*more).arguments.iter_mut().enumerate() {
            *kept = argument(function, number as u8, values);
        }
    }
}

/// Reads the sources at an entry; false where the kernel would have to be asked, and may not.
#[inline(never)]
#[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
unsafe fn start<const ALL: bool>(
    meter: &mut Meter,
    activation: *mut Activation,
    mut wanted: u32,
) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        let more = (*activation).more;
        if more.is_null() {
            // There is no memory for what else is wanted.
            wanted &= source::CLOCKS;
        } else {
            (*more).known = 0;
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
        let Some(start) = start else {
            return false;
        };
        (*activation).ahead = cpu.map_or(UNKNOWN, |cpu| start.wrapping_sub(cpu));
        (*activation).nested_cpu = 0;
        if meter.since != 0 {
            meter.pass_until(start);
        }
        let behind = meter.corrected_at_entry();
        (*activation).start = start.wrapping_sub(behind);
        true
    }
}

/// Has a column get a value.
#[inline(always)]
fn add_value(amounts: &mut Amounts, column: usize, derived: Derived, value: i64) {
    let whole = value.unsigned_abs();
    if (value < 0) == matches!(derived, Derived::Negative(_)) {
        amounts.known |= 1 << column;
        amounts.outermost &= !(1 << column);
        // None of it is a part of what encloses the call; what is left is for `abi::value::whole_sum`.
        let nested = whole - (whole >> 32);
        amounts.of[column % MAX_COLUMNS] = Amount { whole, nested };
    }
}

/// By how much a source has grown during a call that ends.
#[inline(never)]
#[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
unsafe fn growth<const ALL: bool>(
    meter: &mut Meter,
    top: *mut Activation,
    number: u8,
) -> Result<Amount, Silent> {
    let number = usize::from(number) % source::ALL;
    // SAFETY: the activation is valid, and what it leads to.
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
            // The kernel's clock and the processor's differ a little.
            let whole = since(start, now).min(ticks);
            meter.cpu = whole;
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

/// The time of a call that ends, where the thread has not been switched out since its entry and all that is nested in it is
/// CPU time as well.
#[inline(always)]
unsafe fn steady(meter: &mut Meter, top: *mut Activation) -> Option<Amount> {
    // SAFETY: the activation is valid.
    unsafe {
        let nested = (*top).nested;
        let is_steady = (*top).nested_cpu == nested && meter.sources.is_steady((*top).ahead);
        is_steady.then(|| {
            let whole = meter.ticks(top);
            meter.cpu = whole;
            Amount { whole, nested }
        })
    }
}

/// What becomes of a call that ends.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Ended {
    /// It has been counted, where its function has stayed in.
    Counted,
    /// It does not count.
    Not,
    /// It must be seen to on another stack, and nothing has been done.
    Later,
}

/// Counts a call that ends, as its record's schema says. Without `ALL` it is left for later where the record would have to
/// grow, or the kernel be asked what it has cost.
///
/// # Safety
/// The activation is valid, and the meter the caller's, which has begun.
#[inline(always)]
pub unsafe fn end<const ALL: bool>(
    meter: &mut Meter,
    top: *mut Activation,
    is_current: bool,
    by_tail_call: bool,
) -> Ended {
    // SAFETY: the caller's promise; records stay valid.
    unsafe {
        let record = &*(*top).record;
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

/// The same of a call whose time alone is measured, where the record need not grow: false where it must.
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
    // SAFETY: the caller's promise.
    unsafe {
        let amount = Amount {
            whole: meter.ticks(top),
            nested: (*top).nested,
        };
        let is_outermost = (*top).outermost != 0;
        !is_current || record::try_close_timed(&*(*top).record, amount, is_outermost, by_tail_call)
    }
}

/// Whether that is all that is measured of a call.
///
/// # Safety
/// The activation is valid.
#[inline(always)]
pub unsafe fn is_timed_alone(activation: *mut Activation) -> bool {
    // SAFETY: the caller's promise; records stay valid.
    unsafe { record::way(&*(*activation).record) == way::TIMED }
}

/// [`end`] where there is more room on the stack. It is exported for a test to know where that begins.
///
/// # Safety
/// As for [`end`].
#[unsafe(no_mangle)]
#[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
#[inline(never)]
pub unsafe extern "C" fn ipath_end_at_home(
    meter: *mut Meter,
    top: *mut Activation,
    is_current: bool,
    by_tail_call: bool,
) -> Ended {
    // SAFETY: the caller's promise.
    unsafe { end::<false>(&mut *meter, top, is_current, by_tail_call) }
}

#[inline(always)]
unsafe fn of_any<const ALL: bool>(
    meter: &mut Meter,
    top: *mut Activation,
    record: &RecordHead,
) -> Option<bool> {
    // SAFETY: the caller's promise.
    unsafe {
        let schema = schema(record);
        let condition = condition(schema).filter(|condition| !condition.of.is_at_entry());
        if let Some(condition) = condition
            && !holds_at_exit::<ALL>(meter, top, schema, condition)?
        {
            return Some(false);
        }
        meter.amounts.known = 0;
        meter.cpu = (*top).nested_cpu;
        if record::way(record) == way::STEADY
            && let Some(amount) = steady(meter, top)
        {
            meter.amounts.known = 1;
            meter.amounts.of[0] = amount;
            return Some(true);
        }
        for (column, derived) in columns(schema) {
            let amount = match derived {
                // It is none of those.
                Derived::Steady => continue,
                Derived::Growth(number) => growth::<ALL>(meter, top, number),
                Derived::Rest(whole, part) => rest::<ALL>(meter, top, whole, part),
                Derived::Value(number) | Derived::Negative(number) => {
                    let value = match number {
                        RETURN => returned(meter, top),
                        _ if condition.is_some() => kept_argument(top, number),
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

/// Whether a call that ends counts.
#[inline(never)]
#[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
unsafe fn holds_at_exit<const ALL: bool>(
    meter: &mut Meter,
    top: *mut Activation,
    schema: &Schema,
    condition: Condition,
) -> Option<bool> {
    // SAFETY: the caller's promise.
    let said = unsafe {
        match condition.of {
            Derived::Value(_) | Derived::Negative(_) => returned(meter, top).ok_or(Silent::Unknown),
            Derived::Growth(number) => {
                growth::<ALL>(meter, top, number).map(|amount| amount.whole as i64)
            }
            Derived::Rest(whole, part) => {
                rest::<ALL>(meter, top, whole, part).map(|amount| amount.whole as i64)
            }
            // No condition is about it.
            Derived::Steady => Err(Silent::Unknown),
        }
    };
    match said {
        Ok(said) => Some(holds(schema, condition, said)),
        Err(Silent::Unknown) => Some(false),
        Err(Silent::Unasked) => None,
    }
}

/// By how much one source has grown without another.
unsafe fn rest<const ALL: bool>(
    meter: &mut Meter,
    top: *mut Activation,
    whole: u8,
    part: u8,
) -> Result<Amount, Silent> {
    // SAFETY: the caller's promise.
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

unsafe fn kept_argument(top: *mut Activation, number: u8) -> Option<i64> {
    // SAFETY: the caller's promise.
    unsafe {
        let more = (*top).more;
        if more.is_null() {
            return None;
        }
        (&raw const (*more).arguments)
            .cast::<i64>()
            .add(usize::from(number) % ARGUMENTS)
            .read()
            .into()
    }
}

/// What the function of a call that ends returns; `None` where it leaves by a tail call.
unsafe fn returned(meter: &Meter, top: *mut Activation) -> Option<i64> {
    let values = &meter.values;
    // SAFETY: the caller's promise.
    unsafe {
        let details = parameters::detail((*top).function);
        let read = || value::read(RETURN, details, values.slot, values.vectors);
        (values.slot != 0).then(read)
    }
}

/// Has the call that encloses one that ends know what that has taken; of one that does not count, what was nested in it.
///
/// # Safety
/// Both are valid, and the meter has measured the one.
#[inline(always)]
pub unsafe fn pass_on(meter: &Meter, top: *mut Activation, caller: *mut Activation, counts: bool) {
    // SAFETY: the caller's promise.
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

#[inline(never)]
#[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
unsafe fn pass_on_more(meter: &Meter, top: *mut Activation, to: *mut More, counts: bool) {
    // SAFETY: the caller's promise.
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
