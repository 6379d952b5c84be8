//! Where the debug information says that an argument is at its function's entry: DWARF 5, section 2.6.
//!
//! It confirms or contradicts the calling convention. It does not replace it: at the same address there may be several
//! values of a variable, of which the argument is the first.

use super::entries::{Entries, Entry};
use super::reason::Reason;
use super::value::Place;
use gimli::constants;
use gimli::{AttributeValue, Expression, Operation, RawLocListEntry, Reader as _};
use patcher::Svma;

use crate::arch::dwarf::place;
use crate::lines::Reader;

/// Where an argument is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// It is not told, or only for later.
    Nothing,
    /// In a register.
    Register(Place),
    /// In a register in which no argument is passed.
    OtherRegister,
    /// At the address that a register has.
    AtRegister(Place),
    /// Where an address in memory leads.
    ByAddress,
    /// In memory that the caller has written.
    Stack,
    /// In the function's own frame.
    Frame,
}

/// Where the argument `parameter` of `function` is at its entry.
pub(super) fn at_entry<'d>(
    entries: &Entries<'d>,
    function: &Entry<'d>,
    parameter: &Entry<'d>,
    entry: Svma,
) -> Found {
    let Some(value) = parameter.die.attr_value(constants::DW_AT_location) else {
        return Found::Nothing;
    };
    if let AttributeValue::Exprloc(expression) = value {
        // It may be said of all of the function but for its prologue.
        return match read(function, parameter, expression) {
            Found::OtherRegister => Found::Nothing,
            found => found,
        };
    }
    match first(entries, parameter, value, entry) {
        Ok(Some(expression)) => read(function, parameter, expression),
        Ok(None) | Err(_) => Found::Nothing,
    }
}

/// The first expression that a list has for an address. Before a value that is assigned there at once it is the
/// argument's, for no instruction at all: so ranges that are empty count.
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
) -> Found {
    const MOST: usize = 4;
    let mut operations = Vec::new();
    let mut all = expression.operations(parameter.unit.encoding());
    loop {
        match all.next() {
            Ok(Some(operation)) if operations.len() < MOST => operations.push(operation),
            Ok(None) => break,
            _ => return Found::Nothing,
        }
    }
    match operations[..] {
        [Operation::Register { register }] => {
            place(register.0).map_or(Found::OtherRegister, Found::Register)
        }
        [
            Operation::RegisterOffset {
                register,
                offset: 0,
                ..
            },
        ] => place(register.0).map_or(Found::Nothing, Found::AtRegister),
        [.., Operation::Deref { .. }] => Found::ByAddress,
        // The CFA is where the arguments on the stack begin.
        [Operation::FrameOffset { offset }] if offset >= 0 && is_cfa(function) => Found::Stack,
        [Operation::FrameOffset { .. }] => Found::Frame,
        _ => Found::Nothing,
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
