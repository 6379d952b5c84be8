//! The place of an argument at its function's entry, by debug information: DWARF 5, section 2.6.
//!
//! It confirms or contradicts the calling convention, but does not replace it. A variable may have
//! several values at one address, of which the argument is the first.

use super::entries::{Entries, Entry};
use super::reason::Reason;
use super::value::ValueRegister;
use gimli::constants;
use gimli::{AttributeValue, Expression, Operation, RawLocListEntry, Reader as _};
use patcher::Svma;

use crate::arch::dwarf::place;
use crate::lines::Reader;

/// The place of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ArgumentLocation {
    /// Unknown, or known only for later addresses.
    Nothing,
    /// In a register.
    Register(ValueRegister),
    /// In a register that passes no arguments.
    OtherRegister,
    /// In memory, at the address in a register.
    AtRegister(ValueRegister),
    /// In memory, at an address in memory.
    ByAddress,
    /// In the caller's part of the stack.
    Stack,
    /// In the function's own frame.
    Frame,
}

/// The place of the argument `parameter` at the first address `entry` of `function`.
pub(super) fn at_entry<'d>(
    entries: &Entries<'d>,
    function: &Entry<'d>,
    parameter: &Entry<'d>,
    entry: Svma,
) -> ArgumentLocation {
    let Some(value) = parameter.die.attr_value(constants::DW_AT_location) else {
        return ArgumentLocation::Nothing;
    };
    if let AttributeValue::Exprloc(expression) = value {
        // The expression may hold for the whole function except its prologue.
        return match read(function, parameter, expression) {
            ArgumentLocation::OtherRegister => ArgumentLocation::Nothing,
            found => found,
        };
    }
    match first(entries, parameter, value, entry) {
        Ok(Some(expression)) => read(function, parameter, expression),
        Ok(None) | Err(_) => ArgumentLocation::Nothing,
    }
}

/// The first expression of a location list for an address. `None` if there is none. If another
/// value is assigned there at once, the range of the argument's expression is empty. So empty
/// ranges count.
fn first<'d>(
    entries: &Entries<'d>,
    parameter: &Entry<'d>,
    list: AttributeValue<Reader<'d>>,
    at: Svma,
) -> Result<Option<Expression<Reader<'d>>>, Reason> {
    let (dwarf, unit) = (entries.dwarf(parameter.side)?, &*parameter.unit);
    let Some(list) = dwarf.attr_locations_offset(unit, list)? else {
        return Ok(None);
    };
    let mut list = dwarf.raw_locations(unit, list)?;
    let mut base = unit.low_pc;
    while let Some(one) = list.next()? {
        let (begin, end, data) = match one {
            RawLocListEntry::BaseAddress { addr } => {
                base = addr;
                continue;
            }
            RawLocListEntry::BaseAddressx { addr } => {
                base = dwarf.address(unit, addr)?;
                continue;
            }
            RawLocListEntry::OffsetPair { begin, end, data }
            | RawLocListEntry::AddressOrOffsetPair { begin, end, data } => {
                (base.wrapping_add(begin), base.wrapping_add(end), data)
            }
            RawLocListEntry::StartEnd { begin, end, data } => (begin, end, data),
            RawLocListEntry::StartLength {
                begin,
                length,
                data,
            } => (begin, begin.wrapping_add(length), data),
            RawLocListEntry::StartxEndx { begin, end, data } => {
                (dwarf.address(unit, begin)?, dwarf.address(unit, end)?, data)
            }
            RawLocListEntry::StartxLength {
                begin,
                length,
                data,
            } => {
                let begin = dwarf.address(unit, begin)?;
                (begin, begin.wrapping_add(length), data)
            }
            RawLocListEntry::DefaultLocation { data } => (0, u64::MAX, data),
        };
        if begin == at.0 || (begin..end).contains(&at.0) {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

fn read<'d>(
    function: &Entry<'d>,
    parameter: &Entry<'d>,
    expression: Expression<Reader<'d>>,
) -> ArgumentLocation {
    const MAX_OPERATIONS: usize = 4;
    let mut operations = Vec::new();
    let mut all = expression.operations(parameter.unit.encoding());
    loop {
        match all.next() {
            Ok(Some(operation)) if operations.len() < MAX_OPERATIONS => operations.push(operation),
            Ok(None) => break,
            _ => return ArgumentLocation::Nothing,
        }
    }
    match operations[..] {
        [Operation::Register { register }] => {
            place(register.0).map_or(ArgumentLocation::OtherRegister, ArgumentLocation::Register)
        }
        [
            Operation::RegisterOffset {
                register,
                offset: 0,
                ..
            },
        ] => place(register.0).map_or(ArgumentLocation::Nothing, ArgumentLocation::AtRegister),
        [.., Operation::Deref { .. }] => ArgumentLocation::ByAddress,
        // The arguments on the stack begin at the CFA.
        [Operation::FrameOffset { offset }] if offset >= 0 && is_cfa(function) => {
            ArgumentLocation::Stack
        }
        [Operation::FrameOffset { .. }] => ArgumentLocation::Frame,
        _ => ArgumentLocation::Nothing,
    }
}

/// True if the function's frame base is the CFA.
fn is_cfa(function: &Entry<'_>) -> bool {
    match function.die.attr_value(constants::DW_AT_frame_base) {
        Some(AttributeValue::Exprloc(expression)) => expression
            .0
            .to_slice()
            .is_ok_and(|bytes| *bytes == [constants::DW_OP_call_frame_cfa.0]),
        _ => false,
    }
}
