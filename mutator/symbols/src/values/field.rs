//! Integers in what an argument points to: DWARF 5, sections 5.7 and 5.8.

use super::bare::{DEPTH, bare, is_class};
use super::entries::{Entries, Entry};
use super::function::{Parameters, is_artificial};
use super::reason::Reason;
use gimli::AttributeValue;
use gimli::constants;

/// The place of an integer behind an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Bytes from the address to the integer.
    pub offset: i32,
    /// The binary logarithm of its bytes.
    pub width: u8,
    /// True if it is signed.
    pub is_signed: bool,
}

/// Why there is no such field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoField {
    /// The debug information cannot be used.
    Reason(Reason),
    /// Something is not as the request assumes, for users.
    Other(String),
}

impl From<Reason> for NoField {
    fn from(reason: Reason) -> Self {
        Self::Reason(reason)
    }
}

fn other<T>(why: String) -> Result<T, NoField> {
    Err(NoField::Other(why))
}

/// The field `names`, each a member of the one before, of what argument `number` of a function
/// points to. Arguments are counted from 1.
pub(super) fn field<'d>(
    entries: &Entries<'d>,
    function: &Entry<'d>,
    number: u8,
    names: &[&str],
) -> Result<Field, NoField> {
    let parameters = Parameters::of(entries, function)?;
    let all = parameters.all.into_iter().enumerate();
    // The object that a method is called on is its first argument.
    let mut written = all.filter(|(index, entry)| *index == 0 || !is_artificial(entries, entry));
    let Some((_, parameter)) = written.nth(usize::from(number.saturating_sub(1))) else {
        return other(format!("it has no argument {number}"));
    };
    let of = entries.type_of(&parameter)?.ok_or(Reason::Parameters)?;
    let pointer = bare(entries, &of)?;
    let is_address = matches!(
        pointer.tag(),
        constants::DW_TAG_pointer_type
            | constants::DW_TAG_reference_type
            | constants::DW_TAG_rvalue_reference_type
    );
    let to = match entries.type_of(&pointer)? {
        Some(to) if is_address => bare(entries, &to)?,
        _ => return other(format!("arg{number} points to nothing that is described")),
    };
    let (mut at, mut of) = (0, to);
    for name in names {
        if !is_class(&of) {
            return other(format!("`{name}` is a field of something without fields"));
        }
        let Some((offset, member)) = member(entries, &of, name, 0)? else {
            let what = entries.name(&of).unwrap_or_else(|| "it".to_owned());
            return other(format!("{what} has no field `{name}`"));
        };
        at += offset;
        of = bare(entries, &member)?;
    }
    let size = of.number(constants::DW_AT_byte_size);
    let (size, is_signed) = match of.tag() {
        constants::DW_TAG_pointer_type => (size.unwrap_or(8), false),
        constants::DW_TAG_enumeration_type => (size.unwrap_or(0), false),
        constants::DW_TAG_base_type => match of.encoding() {
            Some(constants::DW_ATE_signed | constants::DW_ATE_signed_char) => {
                (size.unwrap_or(0), true)
            }
            Some(
                constants::DW_ATE_unsigned
                | constants::DW_ATE_unsigned_char
                | constants::DW_ATE_boolean
                | constants::DW_ATE_UTF
                | constants::DW_ATE_address,
            ) => (size.unwrap_or(0), false),
            _ => (0, false),
        },
        _ => (0, false),
    };
    match (size, i32::try_from(at)) {
        (1 | 2 | 4 | 8, Ok(offset)) => Ok(Field {
            offset,
            width: size.ilog2() as u8,
            is_signed,
        }),
        _ => other(format!("`{}` is no integer", names.join("."))),
    }
}

/// The offset and the type of a member of a class, also of those that it inherits from. `None` if
/// it has none of this name.
fn member<'d>(
    entries: &Entries<'d>,
    of: &Entry<'d>,
    name: &str,
    depth: usize,
) -> Result<Option<(u64, Entry<'d>)>, NoField> {
    if depth > DEPTH {
        return Err(Reason::NotDescribed.into());
    }
    for child in entries.children(of)? {
        let own = entries.name(&child);
        let is_member = child.tag() == constants::DW_TAG_member;
        let is_static =
            child.flag(constants::DW_AT_external) || child.flag(constants::DW_AT_declaration);
        let is_it = is_member && own.as_deref() == Some(name);
        // Members of an unnamed structure or union are the class's own.
        let is_around = is_member && own.is_none() || child.tag() == constants::DW_TAG_inheritance;
        if is_static || !(is_it || is_around) {
            continue;
        }
        let at = match child.die.attr_value(constants::DW_AT_data_member_location) {
            None => Some(0),
            Some(AttributeValue::Exprloc(_)) => None,
            Some(value) => value.udata_value(),
        };
        let Some(to) = entries.type_of(&child)? else {
            continue;
        };
        if is_it {
            let is_bits = child.number(constants::DW_AT_bit_size).is_some();
            return match at {
                Some(at) if !is_bits => Ok(Some((at, to))),
                _ => other(format!("`{name}` has no address of its own")),
            };
        }
        let inner = bare(entries, &to)?;
        if let Some(at) = at.filter(|_| is_class(&inner))
            && let Some((offset, found)) = member(entries, &inner, name, depth + 1)?
        {
            return Ok(Some((at.saturating_add(offset), found)));
        }
    }
    Ok(None)
}
