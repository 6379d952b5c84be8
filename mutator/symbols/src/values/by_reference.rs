//! The C++ classes that are passed by reference: those that are not trivial for the purposes of
//! calls, Itanium C++ ABI, section 1.1.
//!
//! clang records this (DWARF 5, section 5.7.1, `DW_AT_calling_convention`). GCC does not, but lists
//! the member functions.

use super::bare::{bare, is_class};
use super::entries::{Entries, Entry, convention};
use super::reason::Reason;

use gimli::AttributeValue;
use gimli::constants;

/// The maximum number of classes and arrays to look at in one class.
const CLASSES: usize = 256;

/// The way that objects of a class are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copies {
    /// As bytes.
    Plain,
    /// By code of the class.
    ByCode,
    /// The debug information does not say.
    Unknown,
}

impl Copies {
    /// Combines the ways of two parts of a class.
    fn with(self, other: Self) -> Self {
        match (self, other) {
            (Self::ByCode, _) | (_, Self::ByCode) => Self::ByCode,
            (Self::Unknown, _) | (_, Self::Unknown) => Self::Unknown,
            (Self::Plain, Self::Plain) => Self::Plain,
        }
    }
}

/// The way that objects of a class, structure or union are copied. The unit of `user` has values of
/// it.
pub(super) fn copies<'d>(
    entries: &Entries<'d>,
    class: &Entry<'d>,
    user: &Entry<'d>,
) -> Result<Copies, Reason> {
    copies_of(entries, class, user, &mut 0)
}

fn copies_of<'d>(
    entries: &Entries<'d>,
    class: &Entry<'d>,
    user: &Entry<'d>,
    seen: &mut usize,
) -> Result<Copies, Reason> {
    *seen += 1;
    if *seen > CLASSES || class.flag(constants::DW_AT_declaration) {
        return Err(Reason::NotDescribed);
    }
    match convention(class) {
        Some(constants::DW_CC_pass_by_value) => return Ok(Copies::Plain),
        Some(constants::DW_CC_pass_by_reference) => return Ok(Copies::ByCode),
        _ => {}
    }
    let is_told = tells_defaults(entries, class, user)?;
    let mut all = Copies::Plain;
    let (mut is_assigned, mut is_deleted, mut is_defaulted) = (false, false, false);
    for child in entries.children(class)? {
        let one = match child.tag() {
            constants::DW_TAG_subprogram => match role(entries, class, &child)? {
                Role::Virtual => Copies::ByCode,
                Role::Assignment => {
                    is_assigned = true;
                    Copies::Plain
                }
                Role::Copy if is_in_class(&child) => {
                    is_defaulted = true;
                    Copies::Plain
                }
                Role::Destructor if is_in_class(&child) => Copies::Plain,
                Role::Copy if child.flag(constants::DW_AT_deleted) => {
                    is_deleted = true;
                    Copies::Plain
                }
                Role::Destructor if child.flag(constants::DW_AT_deleted) => Copies::Unknown,
                Role::Copy | Role::Destructor if is_told => Copies::ByCode,
                Role::Copy | Role::Destructor => Copies::Unknown,
                Role::Other => Copies::Plain,
            },
            constants::DW_TAG_member | constants::DW_TAG_inheritance => {
                of_part(entries, &child, user, seen)?
            }
            _ => Copies::Plain,
        };
        all = all.with(one);
    }
    // If no copy function is known to exist, there may be none, which counts as code.
    let may_lack_copies = (is_assigned || is_deleted) && !is_defaulted;
    Ok(if may_lack_copies {
        all.with(Copies::Unknown)
    } else {
        all
    })
}

/// True if a function is defaulted at its declaration.
fn is_in_class(function: &Entry<'_>) -> bool {
    let defaulted = function.number(constants::DW_AT_defaulted);
    defaulted == Some(constants::DW_DEFAULTED_in_class.0.into())
}

/// True if the compiler records that a function is defaulted in its class: GCC since version 7.
fn tells_defaults<'d>(
    entries: &Entries<'d>,
    class: &Entry<'d>,
    user: &Entry<'d>,
) -> Result<bool, Reason> {
    let producer = |of| -> Result<Option<String>, Reason> {
        let root = entries.root(of)?;
        Ok(entries.text(&root, constants::DW_AT_producer))
    };
    // Type units do not name their compiler.
    let producer = producer(class)?.map_or_else(|| producer(user), |own| Ok(Some(own)))?;
    let Some(producer) = producer.as_deref().and_then(|p| p.strip_prefix("GNU ")) else {
        return Ok(false);
    };
    let version = producer
        .split_whitespace()
        .find_map(|word| word.split_once('.')?.0.parse::<u32>().ok());
    let is_strict = producer.contains("-gstrict-dwarf");
    Ok(version.is_some_and(|version| version >= 7) && !is_strict)
}

fn of_part<'d>(
    entries: &Entries<'d>,
    part: &Entry<'d>,
    user: &Entry<'d>,
    seen: &mut usize,
) -> Result<Copies, Reason> {
    if part.flag(constants::DW_AT_external) || part.flag(constants::DW_AT_declaration) {
        return Ok(Copies::Plain);
    }
    let is_virtual = part.tag() == constants::DW_TAG_inheritance && is_virtual(part);
    let name = entries.text(part, constants::DW_AT_name);
    if is_virtual || name.is_some_and(|name| name.starts_with("_vptr")) {
        return Ok(Copies::ByCode);
    }
    let mut of = entries.type_of(part)?.ok_or(Reason::NotDescribed)?;
    loop {
        of = bare(entries, &of)?;
        if of.tag() != constants::DW_TAG_array_type {
            break;
        }
        of = entries.type_of(&of)?.ok_or(Reason::NotDescribed)?;
        *seen += 1;
        if *seen > CLASSES {
            return Err(Reason::NotDescribed);
        }
    }
    if !is_class(&of) {
        return Ok(Copies::Plain);
    }
    copies_of(entries, &of, user, seen)
}

fn is_virtual(entry: &Entry<'_>) -> bool {
    match entry.die.attr_value(constants::DW_AT_virtuality) {
        None | Some(AttributeValue::Virtuality(constants::DW_VIRTUALITY_none)) => false,
        Some(_) => true,
    }
}

/// The purpose of a member function.
enum Role {
    Virtual,
    /// Copies or moves an object into a new one.
    Copy,
    Destructor,
    /// Moves an object into an existing one. Then only declared copy functions exist.
    Assignment,
    Other,
}

fn role<'d>(
    entries: &Entries<'d>,
    class: &Entry<'d>,
    function: &Entry<'d>,
) -> Result<Role, Reason> {
    if is_virtual(function) {
        return Ok(Role::Virtual);
    }
    // A compiler-generated function does the same as those of bases and members.
    if function.flag(constants::DW_AT_artificial) {
        return Ok(Role::Other);
    }
    let text = |of| entries.text(of, constants::DW_AT_name).unwrap_or_default();
    let (name, of_class) = (text(function), text(class));
    if name.starts_with('~') {
        return Ok(Role::Destructor);
    }
    // A function template neither copies nor moves. Its name has arguments.
    let is_constructor = of_class.split('<').next() == Some(name.as_str());
    if !is_constructor && name != "operator=" {
        return Ok(Role::Other);
    }
    Ok(match source(entries, function, &of_class)? {
        Some(_) if is_constructor => Role::Copy,
        Some(constants::DW_TAG_rvalue_reference_type) => Role::Assignment,
        _ => Role::Other,
    })
}

/// The kind of the first parameter of a function, by its tag, if it is a reference to an object of
/// the class. `None` for any other parameter or without one.
fn source<'d>(
    entries: &Entries<'d>,
    function: &Entry<'d>,
    class: &str,
) -> Result<Option<constants::DwTag>, Reason> {
    let first = entries.children(function)?.into_iter().find(|child| {
        child.tag() == constants::DW_TAG_formal_parameter
            && !child.flag(constants::DW_AT_artificial)
    });
    let Some(first) = first else {
        return Ok(None);
    };
    let of = entries.type_of(&first)?.ok_or(Reason::NotDescribed)?;
    let of = bare(entries, &of)?;
    let references = [
        constants::DW_TAG_reference_type,
        constants::DW_TAG_rvalue_reference_type,
    ];
    if !references.contains(&of.tag()) {
        return Ok(None);
    }
    let to = entries.type_of(&of)?.ok_or(Reason::NotDescribed)?;
    let to = bare(entries, &to)?;
    let is_own =
        is_class(&to) && entries.text(&to, constants::DW_AT_name).unwrap_or_default() == class;
    Ok(is_own.then_some(of.tag()))
}
