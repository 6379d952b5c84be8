//! Types without their names and qualifiers: DWARF 5, sections 5.2 and 5.3.

use super::entries::{Entries, Entry};
use super::reason::Reason;
use gimli::constants;

/// The maximum depth of types that refer to each other: typedefs, members, elements.
pub(super) const DEPTH: usize = 64;

/// True for structures, classes and unions.
pub(super) fn is_class(entry: &Entry<'_>) -> bool {
    matches!(
        entry.tag(),
        constants::DW_TAG_structure_type
            | constants::DW_TAG_class_type
            | constants::DW_TAG_union_type
    )
}

/// True for integers, characters, truth values, floating-point numbers and addresses of up to 8
/// bytes.
pub(super) fn is_scalar<'d>(entries: &Entries<'d>, of: &Entry<'d>) -> Result<bool, Reason> {
    let of = bare(entries, of)?;
    let size = of.number(constants::DW_AT_byte_size);
    Ok(match of.tag() {
        constants::DW_TAG_pointer_type => size.is_none_or(|size| size == 8),
        constants::DW_TAG_base_type if of.encoding() == Some(constants::DW_ATE_float) => {
            matches!(size, Some(4 | 8))
        }
        constants::DW_TAG_base_type | constants::DW_TAG_enumeration_type => {
            matches!(size, Some(1 | 2 | 4 | 8))
        }
        _ => false,
    })
}

/// The type without its names and qualifiers, and its complete entry if there is one.
pub(super) fn bare<'d>(entries: &Entries<'d>, of: &Entry<'d>) -> Result<Entry<'d>, Reason> {
    let mut of = of.clone();
    for _ in 0..DEPTH {
        let next = match of.tag() {
            constants::DW_TAG_typedef
            | constants::DW_TAG_const_type
            | constants::DW_TAG_volatile_type
            | constants::DW_TAG_restrict_type
            | constants::DW_TAG_atomic_type
            | constants::DW_TAG_immutable_type => entries.type_of(&of)?,
            _ if of.die.attr(constants::DW_AT_signature).is_some() => {
                entries.follow(&of, constants::DW_AT_signature)?
            }
            _ => return Ok(of),
        };
        // For example `const void`.
        of = next.ok_or(Reason::NotDescribed)?;
    }
    Err(Reason::NotDescribed)
}
