//! What is read of a call: a number in a register.

/// The register that has a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Of an argument: the general register that has it by the calling convention, counted from 0. Of a return value:
    /// the first that has one, which is 0.
    Integer(u8),
    /// The vector register, counted in the same way.
    Vector(u8),
}

/// What the bits of a value mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Two's complement.
    Signed,
    /// A number that is not negative: also of addresses, characters and truth values.
    Unsigned,
    /// IEEE 754.
    Float,
}

/// A value that can be read from one register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// The register.
    pub place: Place,
    /// How many of its lowest bytes are the value: 1, 2, 4 or 8. The others may be anything.
    pub width: u8,
    /// What they mean.
    pub kind: Kind,
    /// Its name in the source, where that is known.
    pub name: Option<String>,
    /// Its type in the source, where that is known.
    pub type_name: Option<String>,
}
