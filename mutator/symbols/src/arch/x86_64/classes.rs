//! Classes of values and their registers: System V psABI for x86-64, section 3.2.3, "Parameter
//! Passing".

use crate::values::reason::Reason;
use crate::values::value::{Kind, ValueRegister};

/// A number in the lowest bytes of one register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    pub kind: Kind,
    /// 1, 2, 4 or 8 bytes.
    pub width: u8,
}

impl Number {
    /// True for a float. A caller without a prototype passes it as a double.
    pub fn is_single(self) -> bool {
        self.kind == Kind::Float && self.width == 4
    }
}

/// The class of an eightbyte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    None,
    Integer,
    Sse,
    SseUp,
    X87,
    X87Up,
    ComplexX87,
    Memory,
}

/// A value without parts: a number, a pointer, or a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// The classes of its eightbytes. The second is [`Class::None`] if there is only one, or for
    /// [`Class::ComplexX87`].
    pub classes: [Class; 2],
    /// In bytes.
    pub size: u64,
    /// The alignment in bytes. A value with a misaligned part is passed in memory.
    pub align: u64,
    /// `None` if it is not a single number of a readable format.
    pub number: Option<Number>,
}

/// A part of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The offset from the start of the value, in bytes, and the leaf there.
    Leaf(u64, Leaf),
    /// The offsets of the first and the last byte of a bit field from the start of the value.
    Bits(u64, u64),
}

/// The facts about a value that determine its registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The size in bytes, and the parts.
    Value(u64, Vec<Part>),
    /// A class that is copied by code. Its address is passed. To return it, the caller passes the
    /// address of the result.
    ByReference,
    /// Its registers are unknown.
    Unknown(Reason),
}

/// The registers that a value takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Registers {
    /// The number of registers of each kind, at most two together, and the number if the value is
    /// one.
    Some {
        integer: u8,
        vector: u8,
        number: Result<Number, Reason>,
    },
    Memory,
    /// Returned in a register of the x87.
    X87,
    Unknown(Reason),
}

const ADDRESS: Number = Number {
    kind: Kind::Unsigned,
    width: 8,
};

impl Shape {
    fn registers(&self) -> Registers {
        let (size, parts) = match self {
            Self::Value(size, parts) => (*size, parts),
            Self::ByReference => {
                return Registers::Some {
                    integer: 1,
                    vector: 0,
                    number: Ok(ADDRESS),
                };
            }
            Self::Unknown(reason) => return Registers::Unknown(reason.clone()),
        };
        if let [Part::Leaf(0, leaf)] = parts[..]
            && leaf.classes[0] == Class::ComplexX87
        {
            return Registers::X87;
        }
        let Some(classes) = classes(size, parts) else {
            return Registers::Memory;
        };
        if classes[0] == Class::X87 {
            return Registers::X87;
        }
        let count = |class| classes.iter().filter(|&&c| c == class).count() as u8;
        Registers::Some {
            integer: count(Class::Integer),
            vector: count(Class::Sse),
            number: number(size, parts, classes),
        }
    }
}

/// The classes of the eightbytes of a value of `size` bytes. `None` if it is passed in memory.
fn classes(size: u64, parts: &[Part]) -> Option<[Class; 2]> {
    const EIGHTBYTES: u64 = 2;
    if size > EIGHTBYTES * 8 {
        return None;
    }
    let mut all = [Class::None; 2];
    let mut merge = |eightbyte: u64, class: Class| {
        let known = all.get_mut(usize::try_from(eightbyte).ok()?)?;
        *known = merged(*known, class);
        Some(())
    };
    for part in parts {
        match *part {
            Part::Leaf(at, leaf) => {
                if !at.is_multiple_of(leaf.align) {
                    return None;
                }
                merge(at / 8, leaf.classes[0])?;
                if leaf.classes[1] != Class::None {
                    merge(at / 8 + 1, leaf.classes[1])?;
                }
            }
            Part::Bits(first, last) => {
                merge(first / 8, Class::Integer)?;
                merge(last / 8, Class::Integer)?;
            }
        }
    }
    // The post-merger cleanup.
    let [first, second] = all;
    let alone = second == Class::X87Up && first != Class::X87;
    if all.contains(&Class::Memory) || first == Class::X87Up || alone {
        return None;
    }
    if second == Class::SseUp && first != Class::Sse {
        all[1] = Class::Sse;
    }
    Some(all)
}

fn merged(one: Class, other: Class) -> Class {
    match (one, other) {
        (Class::None, class) | (class, Class::None) => class,
        (one, other) if one == other => one,
        (Class::Memory, _) | (_, Class::Memory) => Class::Memory,
        (Class::Integer, _) | (_, Class::Integer) => Class::Integer,
        (Class::Sse | Class::SseUp, Class::Sse | Class::SseUp) => Class::Sse,
        _ => Class::Memory,
    }
}

/// The single number that a value in registers is, or the reason why it is none.
fn number(size: u64, parts: &[Part], classes: [Class; 2]) -> Result<Number, Reason> {
    match (parts, classes) {
        ([], _) | (_, [Class::None, Class::None]) => Err(Reason::Empty),
        (_, [first, second])
            if first != Class::None && !matches!(second, Class::None | Class::SseUp) =>
        {
            Err(Reason::SeveralRegisters)
        }
        ([Part::Leaf(0, leaf)], _) if leaf.size == size => leaf.number.ok_or(Reason::NoNumber),
        (_, [Class::Integer, Class::None]) if matches!(size, 1 | 2 | 4 | 8) => Ok(Number {
            kind: Kind::Unsigned,
            width: size as u8,
        }),
        _ => Err(Reason::NoNumber),
    }
}

/// The number of integer registers for arguments.
const INTEGERS: u8 = 6;
/// The number of vector registers for arguments.
const VECTORS: u8 = 8;

/// A number and its register, or the reason why the value is no number in a register.
pub type Placed = Result<(Number, ValueRegister), Reason>;

/// The places of the arguments, in their order, and of the return value of a function with these
/// shapes. `returned` is `None` if the function returns nothing.
pub fn place(returned: Option<&Shape>, arguments: &[Shape]) -> (Vec<Placed>, Placed) {
    // The numbers of registers used so far. `None` if unknown.
    let (mut integers, mut vectors) = (Some(0), Some(0));
    let returned = match returned.map(|shape| (shape, shape.registers())) {
        None => Err(Reason::ReturnsNothing),
        Some((Shape::ByReference, _) | (_, Registers::Memory)) => {
            // The caller passes the address of the result.
            integers = Some(1);
            Err(Reason::InMemory)
        }
        Some((_, Registers::X87)) => Err(Reason::X87),
        Some((_, Registers::Unknown(reason))) => {
            integers = None;
            Err(reason)
        }
        Some((_, Registers::Some { number, vector, .. })) => number.map(|number| {
            let place = if vector > 0 {
                ValueRegister::Vector(0)
            } else {
                ValueRegister::Integer(0)
            };
            (number, place)
        }),
    };
    let place = |argument: &Shape| match argument.registers() {
        Registers::Memory | Registers::X87 => Err(Reason::InMemory),
        Registers::Unknown(reason) => {
            (integers, vectors) = (None, None);
            Err(reason)
        }
        Registers::Some {
            integer,
            vector,
            number,
        } => {
            let lacks = |given: Option<u8>, wanted: u8, all: u8| {
                wanted > 0 && given.is_some_and(|n| n + wanted > all)
            };
            // A value is in registers as a whole, or not at all.
            if lacks(integers, integer, INTEGERS) || lacks(vectors, vector, VECTORS) {
                return Err(Reason::InMemory);
            }
            let (first_integer, first_vector) = (integers, vectors);
            let is_known =
                (integer == 0 || integers.is_some()) && (vector == 0 || vectors.is_some());
            let give = |given: &mut Option<u8>, wanted: u8| {
                *given = given
                    .filter(|_| is_known || wanted == 0)
                    .map(|n| n + wanted);
            };
            give(&mut integers, integer);
            give(&mut vectors, vector);
            let number = number?;
            let place = match vector {
                0 => first_integer.map(ValueRegister::Integer),
                _ => first_vector.map(ValueRegister::Vector),
            };
            Ok((number, place.ok_or(Reason::AfterUnknown)?))
        }
    };
    (arguments.iter().map(place).collect(), returned)
}
