//! Types as in source code.

use super::bare::DEPTH;
use super::entries::{Entries, Entry};
use super::language;
use gimli::constants;

/// The name of a type as in source code, `void` without a type. `None` if it has no name.
pub(super) fn name<'d>(entries: &Entries<'d>, of: Option<&Entry<'d>>) -> Option<String> {
    spelled(entries, of, DEPTH)
}

fn spelled<'d>(entries: &Entries<'d>, of: Option<&Entry<'d>>, depth: usize) -> Option<String> {
    let depth = depth.checked_sub(1)?;
    let Some(of) = of else {
        return Some("void".to_owned());
    };
    if let Some(own) = entries.text(of, constants::DW_AT_name) {
        let has_tags = language::of(entries, of).is_ok_and(|language| language.has_tags());
        return Some(match of.tag() {
            _ if !has_tags => own,
            constants::DW_TAG_structure_type => format!("struct {own}"),
            constants::DW_TAG_union_type => format!("union {own}"),
            constants::DW_TAG_enumeration_type => format!("enum {own}"),
            _ => own,
        });
    }
    if let Ok(Some(whole)) = entries.follow(of, constants::DW_AT_signature) {
        return spelled(entries, Some(&whole), depth);
    }
    let to = entries.type_of(of).ok()?;
    let inner = || spelled(entries, to.as_ref(), depth);
    let is_pointer = to
        .as_ref()
        .is_some_and(|to| to.tag() == constants::DW_TAG_pointer_type);
    let qualified = |word: &str| {
        let inner = inner()?;
        Some(if is_pointer {
            format!("{inner} {word}")
        } else {
            format!("{word} {inner}")
        })
    };
    match of.tag() {
        constants::DW_TAG_const_type => qualified("const"),
        constants::DW_TAG_volatile_type => qualified("volatile"),
        constants::DW_TAG_atomic_type => qualified("_Atomic"),
        constants::DW_TAG_restrict_type => Some(format!("{} restrict", inner()?)),
        constants::DW_TAG_pointer_type => Some(format!("{} *", inner()?)),
        constants::DW_TAG_reference_type => Some(format!("{} &", inner()?)),
        constants::DW_TAG_rvalue_reference_type => Some(format!("{} &&", inner()?)),
        constants::DW_TAG_subroutine_type => Some("function".to_owned()),
        _ => None,
    }
}
