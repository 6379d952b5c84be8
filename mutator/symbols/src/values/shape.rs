//! Shapes of arguments and return values from their types: DWARF 5, chapter 5.

use super::bare::{bare, is_class};
use super::by_reference::{Copies, copies};
use super::entries::{Entries, Entry};
use super::parts::parts;
use super::reason::Reason;
use crate::arch::classes::{Class, Part, Shape};
use gimli::constants;

/// The size of the largest vector, in bytes. Larger values are passed in memory.
const LARGEST_VECTOR: u64 = 64;

/// The shape of a value of a type, which the function `user` takes or returns.
pub(super) fn shape<'d>(entries: &Entries<'d>, of: &Entry<'d>, user: &Entry<'d>) -> Shape {
    match value(entries, of, user) {
        Ok(shape) => shape,
        Err(reason) => Shape::Unknown(reason),
    }
}

fn value<'d>(entries: &Entries<'d>, of: &Entry<'d>, user: &Entry<'d>) -> Result<Shape, Reason> {
    let bare = bare(entries, of)?;
    if is_class(&bare) {
        match copies(entries, &bare, user)? {
            Copies::ByCode => return Ok(Shape::ByReference),
            Copies::Unknown => return Err(Reason::MaybeByReference),
            Copies::Plain => {}
        }
        let size = bare.number(constants::DW_AT_byte_size);
        let size = size.ok_or(Reason::NotDescribed)?;
        if size > LARGEST_VECTOR {
            return Ok(Shape::Value(size, Vec::new()));
        }
    }
    let (size, parts) = parts(entries, &bare)?;
    let is_vector =
        |part: &Part| matches!(part, Part::Leaf(_, leaf) if leaf.classes[1] == Class::SseUp);
    // A vector of more than 16 bytes may be in a register or in memory.
    if size > 16 && parts.iter().any(is_vector) {
        return Err(Reason::Vector);
    }
    Ok(Shape::Value(size, parts))
}
