//! The values of a call for the columns of its record: arguments, read at its entry, and the return
//! value.

use core::sync::atomic::Ordering;

use abi::schema::{Derived, MAX_COLUMNS, Schema};
use abi::value::RETURN;

use super::activation::{ARGUMENTS, Activation};
use super::meter::{Meter, Values};
use crate::ledger::record::{Amount, Amounts};
use crate::os::parameters;
use crate::sources::value;

/// The used columns of a schema, with their numbers.
#[inline(always)]
pub(super) fn columns(schema: &Schema) -> impl Iterator<Item = (usize, Derived)> {
    let count = schema.columns.load(Ordering::Relaxed) as usize;
    let rules = schema.column.iter().take(count).enumerate();
    rules.filter_map(|(number, rule)| {
        Derived::decode(rule.derived.load(Ordering::Relaxed)).map(|derived| (number, derived))
    })
}

/// True if calls may move to another record at their end, and values of their entry are measured.
/// These then count at the end.
#[inline(always)]
pub(super) fn moves_values(schema: &Schema) -> bool {
    let is_value = |derived: Derived| matches!(derived, Derived::Value(number) | Derived::Negative(number) if number != RETURN);
    schema.divides_at_exit() && columns(schema).any(|(_, derived)| is_value(derived))
}

/// Argument `number` of a call of `function`, read at its entry.
#[inline(always)]
pub(super) unsafe fn argument(function: u32, number: u8, values: &Values) -> i64 {
    let details = parameters::detail(function);
    // SAFETY: guaranteed by the caller.
    unsafe { value::read(number, details, values.slot, values.vectors) }
}

/// Reads the arguments in the columns of a schema into the meter's amounts.
#[inline(never)]
#[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
pub(super) unsafe fn find_arguments(
    meter: &mut Meter,
    function: u32,
    schema: &Schema,
    values: &Values,
) {
    let amounts = &mut meter.amounts;
    for (column, derived) in columns(schema) {
        if let Derived::Value(number) | Derived::Negative(number) = derived
            && number != RETURN
        {
            // SAFETY: guaranteed by the caller.
            let value = unsafe { argument(function, number, values) };
            add_value(amounts, column, derived, value);
        }
    }
}

/// Keeps the arguments of a call for its end.
#[inline(never)]
#[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
pub(super) unsafe fn keep_arguments(activation: *mut Activation, function: u32, values: &Values) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        for number in 0..ARGUMENTS {
            (*activation).arguments[number] = argument(function, number as u8, values);
        }
    }
}

/// Sets the amount of a column to a value, if the value has the sign that the column is for.
#[inline(always)]
pub(super) fn add_value(amounts: &mut Amounts, column: usize, derived: Derived, value: i64) {
    let whole = value.unsigned_abs();
    if (value < 0) == matches!(derived, Derived::Negative(_)) {
        amounts.known |= 1 << column;
        amounts.outermost &= !(1 << column);
        // A value has no nested part. The split is the one that `abi::value::whole_sum` expects.
        let nested = whole - (whole >> 32);
        amounts.of[column % MAX_COLUMNS] = Amount { whole, nested };
    }
}

/// Argument `number` of a call that ends, as kept at its entry.
pub(super) unsafe fn kept_argument(top: *mut Activation, number: u8) -> i64 {
    // SAFETY: guaranteed by the caller.
    unsafe { (*top).arguments[usize::from(number) % ARGUMENTS] }
}

/// The return value of a call that ends; `None` if its function leaves by a tail call.
pub(super) unsafe fn returned(meter: &Meter, top: *mut Activation) -> Option<i64> {
    let values = &meter.values;
    // SAFETY: guaranteed by the caller.
    unsafe {
        let details = parameters::detail((*top).function);
        let read = || value::read(RETURN, details, values.slot, values.vectors);
        (values.slot != 0).then(read)
    }
}
