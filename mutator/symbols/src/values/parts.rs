//! The numbers that make up a value, and their offsets: DWARF 5, sections 5.1 and 5.5 to 5.7.

use super::bare::{DEPTH, bare};
use super::entries::{Entries, Entry};
use super::reason::Reason;
use super::value::Kind;
use crate::arch::classes::{Class, Leaf, Number, Part};
use crate::lines::Reader;
use gimli::constants::{self, DwAte};
use gimli::{AttributeValue, Expression, Operation};

/// The maximum number of parts of a value.
const PARTS: usize = 1024;
/// The maximum number of types to look at in a value.
const STEPS: usize = 2048;

/// The size in bytes of a value of a type, and its parts. Fails if a part is not described or
/// cannot be read.
pub(super) fn parts<'d>(entries: &Entries<'d>, of: &Entry<'d>) -> Result<(u64, Vec<Part>), Reason> {
    let mut parts = Parts::new(entries);
    let size = parts.add(of, 0, DEPTH)?;
    Ok((size, parts.found))
}

/// Collects the parts of a value.
struct Parts<'e, 'd> {
    entries: &'e Entries<'d>,
    found: Vec<Part>,
    /// The number of types looked at.
    steps: usize,
}

impl<'e, 'd> Parts<'e, 'd> {
    fn new(entries: &'e Entries<'d>) -> Self {
        Self {
            entries,
            found: Vec::new(),
            steps: 0,
        }
    }

    /// Adds the parts of a type at an offset `at` in the value, in bytes. Returns the size of the
    /// type in bytes.
    fn add(&mut self, of: &Entry<'d>, at: u64, depth: usize) -> Result<u64, Reason> {
        let depth = depth.checked_sub(1).ok_or(Reason::NotDescribed)?;
        self.steps += 1;
        if self.steps > STEPS {
            return Err(Reason::NotDescribed);
        }
        let of = bare(self.entries, of)?;
        let given = of.number(constants::DW_AT_byte_size);
        let size = || given.ok_or(Reason::NotDescribed);
        match of.tag() {
            constants::DW_TAG_base_type => self.add_number(&of, at, size()?),
            constants::DW_TAG_pointer_type
            | constants::DW_TAG_reference_type
            | constants::DW_TAG_rvalue_reference_type => {
                self.add_address(at, given.unwrap_or(8), true)
            }
            constants::DW_TAG_unspecified_type if self.is_null(&of) => {
                self.add_address(at, 8, true)
            }
            constants::DW_TAG_ptr_to_member_type => {
                self.add_address(at, 8, false)?;
                let to = self.entries.type_of(&of)?.ok_or(Reason::NotDescribed)?;
                if bare(self.entries, &to)?.tag() != constants::DW_TAG_subroutine_type {
                    return Ok(8);
                }
                self.add_address(at + 8, 8, false)?;
                Ok(16)
            }
            constants::DW_TAG_enumeration_type => {
                let number = self.enumeration(&of, size()?)?;
                self.add_leaf(at, integer(size()?, number))
            }
            constants::DW_TAG_array_type => self.add_array(&of, at, given, depth),
            constants::DW_TAG_structure_type
            | constants::DW_TAG_class_type
            | constants::DW_TAG_union_type => {
                for child in self.entries.children(&of)? {
                    self.add_member(&child, at, depth)?;
                }
                size()
            }
            _ => Err(Reason::NotDescribed),
        }
    }

    fn add_leaf(&mut self, at: u64, leaf: Leaf) -> Result<u64, Reason> {
        self.push(Part::Leaf(at, leaf))?;
        Ok(leaf.size)
    }

    fn push(&mut self, part: Part) -> Result<(), Reason> {
        if self.found.len() == PARTS {
            return Err(Reason::NotDescribed);
        }
        self.found.push(part);
        Ok(())
    }

    fn add_address(&mut self, at: u64, size: u64, is_number: bool) -> Result<u64, Reason> {
        if size != 8 {
            return Err(Reason::NotDescribed);
        }
        let number = is_number.then_some(Kind::Unsigned);
        self.add_leaf(at, integer(size, number))
    }

    fn is_null(&self, of: &Entry<'d>) -> bool {
        let name = self.entries.text(of, constants::DW_AT_name);
        name.is_some_and(|name| name == "decltype(nullptr)" || name == "nullptr_t")
    }

    fn add_number(&mut self, of: &Entry<'d>, at: u64, size: u64) -> Result<u64, Reason> {
        let name = self.entries.text(of, constants::DW_AT_name);
        let name = name.unwrap_or_default();
        let bits = of.number(constants::DW_AT_bit_size);
        if bits.is_some_and(|bits| bits != size * 8) || name.contains("_BitInt") {
            // The padding bits of a _BitInt are undefined.
            return Err(Reason::NoNumber);
        }
        let encoding = of.encoding().ok_or(Reason::NotDescribed)?;
        match (encoding, size) {
            (constants::DW_ATE_complex_float, 32) if name.contains("long double") => {
                self.add_leaf(at, special([Class::ComplexX87, Class::None], size))
            }
            (constants::DW_ATE_complex_float, 4 | 8 | 16) => {
                let half = sse(size / 2, None);
                self.add_leaf(at, half)?;
                self.add_leaf(at + half.size, half)?;
                Ok(size)
            }
            _ => self.add_leaf(at, number(encoding, size, &name)?),
        }
    }

    /// The meaning of an enumeration's values. `None` if unknown.
    fn enumeration(&self, of: &Entry<'d>, size: u64) -> Result<Option<Kind>, Reason> {
        let encoding = match (of.encoding(), self.entries.type_of(of)?) {
            (Some(encoding), _) => Some(encoding),
            (None, Some(base)) => bare(self.entries, &base)?.encoding(),
            (None, None) => None,
        };
        Ok(encoding
            .and_then(integer_kind)
            .filter(|_| matches!(size, 1 | 2 | 4 | 8)))
    }

    fn add_array(
        &mut self,
        of: &Entry<'d>,
        at: u64,
        given: Option<u64>,
        depth: usize,
    ) -> Result<u64, Reason> {
        let element = self.entries.type_of(of)?.ok_or(Reason::NotDescribed)?;
        let mut count = 1u64;
        for child in self.entries.children(of)? {
            if child.tag() == constants::DW_TAG_subrange_type {
                count = count.saturating_mul(length(&child)?);
            }
        }
        if of.flag(constants::DW_AT_GNU_vector) {
            let mut one = Parts::new(self.entries);
            let size = one.add(&element, 0, depth)?.saturating_mul(count);
            let size = given.unwrap_or(size);
            // The registers of other enumerations depend on compilers and their options.
            return match size {
                16 => self.add_leaf(at, special([Class::Sse, Class::SseUp], size)),
                _ => Err(Reason::Vector),
            };
        }
        let mut size = 0u64;
        for _ in 0..count {
            let place = at.checked_add(size).ok_or(Reason::NotDescribed)?;
            let before = self.found.len();
            let one = self.add(&element, place, depth)?;
            if one == 0 || self.found.len() == before {
                // The elements are empty.
                return Ok(given.unwrap_or(one.saturating_mul(count)));
            }
            size = size.saturating_add(one);
        }
        Ok(size)
    }

    fn add_member(&mut self, of: &Entry<'d>, at: u64, depth: usize) -> Result<(), Reason> {
        let is_part = matches!(
            of.tag(),
            constants::DW_TAG_member | constants::DW_TAG_inheritance
        );
        // Static members are elsewhere.
        let is_static = of.flag(constants::DW_AT_external) || of.flag(constants::DW_AT_declaration);
        if of.tag() == constants::DW_TAG_variant_part {
            return Err(Reason::NotDescribed);
        }
        if !is_part || is_static {
            return Ok(());
        }
        if of.die.attr(constants::DW_AT_alignment).is_some() {
            // Compilers disagree about members that are less aligned than their type.
            self.check_alignment(of, depth)?;
        }
        let start = match of.die.attr_value(constants::DW_AT_data_member_location) {
            None => 0,
            Some(AttributeValue::Exprloc(how)) => constant(of, how)?,
            Some(value) => value.udata_value().ok_or(Reason::NotDescribed)?,
        };
        let start = at.checked_add(start).ok_or(Reason::NotDescribed)?;
        let to = self.entries.type_of(of)?.ok_or(Reason::NotDescribed)?;
        let Some(bits) = of.number(constants::DW_AT_bit_size) else {
            self.add(&to, start, depth)?;
            return Ok(());
        };
        if bits == 0 {
            return Ok(());
        }
        let (base, first) = match of.number(constants::DW_AT_data_bit_offset) {
            Some(first) => (at, first),
            // Up to DWARF 3, the offset counts from the highest bit of a unit.
            None => (start, self.bits_before(of, &to, bits)?),
        };
        let last = first.checked_add(bits - 1).ok_or(Reason::NotDescribed)?;
        let byte = |bit: u64| base.checked_add(bit / 8).ok_or(Reason::NotDescribed);
        self.push(Part::Bits(byte(first)?, byte(last)?))
    }

    fn bits_before(&self, of: &Entry<'d>, to: &Entry<'d>, bits: u64) -> Result<u64, Reason> {
        let offset = of.die.attr_value(constants::DW_AT_bit_offset);
        let Some(offset) = offset.and_then(|value| value.sdata_value()) else {
            return Ok(0);
        };
        let unit = match of.number(constants::DW_AT_byte_size) {
            Some(unit) => Some(unit),
            None => bare(self.entries, to)?.number(constants::DW_AT_byte_size),
        };
        let unit = unit.and_then(|unit| i64::try_from(unit.checked_mul(8)?).ok());
        let before = unit.and_then(|unit| {
            let before = unit.checked_sub(offset)?;
            before.checked_sub(i64::try_from(bits).ok()?)
        });
        before
            .and_then(|before| u64::try_from(before).ok())
            .ok_or(Reason::NotDescribed)
    }

    fn check_alignment(&self, of: &Entry<'d>, depth: usize) -> Result<(), Reason> {
        let to = self.entries.type_of(of)?.ok_or(Reason::NotDescribed)?;
        let mut one = Parts::new(self.entries);
        one.add(&to, 0, depth)?;
        let given = of.number(constants::DW_AT_alignment).unwrap_or(0);
        let is_less = |part: &Part| matches!(part, Part::Leaf(_, leaf) if leaf.align > given);
        if one.found.iter().any(is_less) {
            Err(Reason::NotDescribed)
        } else {
            Ok(())
        }
    }
}

/// The offset in bytes of a member in DWARF 2: an expression that adds a constant.
fn constant<'d>(of: &Entry<'d>, how: Expression<Reader<'d>>) -> Result<u64, Reason> {
    let mut operations = how.operations(of.unit.encoding());
    match (operations.next()?, operations.next()?) {
        (Some(Operation::PlusConstant { value }), None) => Ok(value),
        _ => Err(Reason::NotDescribed),
    }
}

/// The number of elements in a dimension of an array. 0 if it is open.
fn length(of: &Entry<'_>) -> Result<u64, Reason> {
    if of.die.attr(constants::DW_AT_lower_bound).is_some() {
        return Err(Reason::NotDescribed);
    }
    let number = |name| match of.die.attr_value(name) {
        None => Ok(None),
        Some(AttributeValue::Sdata(-1)) => Ok(Some(None)),
        Some(value) => match value.udata_value() {
            Some(number) => Ok(Some(Some(number))),
            None => Err(Reason::NotDescribed),
        },
    };
    if let Some(Some(count)) = number(constants::DW_AT_count)? {
        return Ok(count);
    }
    Ok(match number(constants::DW_AT_upper_bound)? {
        Some(Some(last)) => last.saturating_add(1),
        Some(None) | None => 0,
    })
}

fn number(encoding: DwAte, size: u64, name: &str) -> Result<Leaf, Reason> {
    let float = |is_read: bool| sse(size, is_read.then_some(Kind::Float));
    Ok(match (encoding, size) {
        (constants::DW_ATE_float, 2) => float(name == "_Float16"),
        (constants::DW_ATE_float, 4 | 8) => float(true),
        (constants::DW_ATE_float, 16) => match name {
            "long double" | "_Float64x" | "real(kind=10)" => {
                special([Class::X87, Class::X87Up], size)
            }
            "_Float128" | "__float128" | "real(kind=16)" => {
                special([Class::Sse, Class::SseUp], size)
            }
            _ => return Err(Reason::NoNumber),
        },
        (constants::DW_ATE_decimal_float, 4 | 8) => sse(size, None),
        (constants::DW_ATE_decimal_float, 16) => special([Class::Sse, Class::SseUp], size),
        (encoding, 1 | 2 | 4 | 8) => {
            let kind = integer_kind(encoding).ok_or(Reason::NoNumber)?;
            integer(size, Some(kind))
        }
        (constants::DW_ATE_signed | constants::DW_ATE_unsigned, 16) => {
            special([Class::Integer; 2], size)
        }
        _ => return Err(Reason::NoNumber),
    })
}

/// The meaning of a number's bits in an integer register. `None` if the encoding is not that of an
/// integer.
fn integer_kind(encoding: DwAte) -> Option<Kind> {
    match encoding {
        constants::DW_ATE_signed | constants::DW_ATE_signed_char => Some(Kind::Signed),
        constants::DW_ATE_unsigned
        | constants::DW_ATE_unsigned_char
        | constants::DW_ATE_boolean
        | constants::DW_ATE_UTF
        | constants::DW_ATE_address => Some(Kind::Unsigned),
        _ => None,
    }
}

fn leaf(class: Class, size: u64, kind: Option<Kind>) -> Leaf {
    let number = kind.map(|kind| Number {
        kind,
        width: size as u8,
    });
    Leaf {
        classes: [class, Class::None],
        size,
        align: size.max(1),
        number,
    }
}

fn integer(size: u64, kind: Option<Kind>) -> Leaf {
    leaf(Class::Integer, size, kind)
}

fn sse(size: u64, kind: Option<Kind>) -> Leaf {
    leaf(Class::Sse, size, kind)
}

/// A part that is aligned to 16 bytes and is no readable number.
fn special(classes: [Class; 2], size: u64) -> Leaf {
    Leaf {
        classes,
        size,
        align: 16,
        number: None,
    }
}
