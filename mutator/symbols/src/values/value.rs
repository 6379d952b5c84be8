//! A value of a call that can be read: a number in a register.

/// The register of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueRegister {
    /// The general register of an argument, counted from 0 in the order of the calling convention.
    /// For a return value, the first return register, 0.
    Integer(u8),
    /// The vector register, counted in the same way.
    Vector(u8),
}

/// The meaning of a value's bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Two's complement.
    Signed,
    /// A non-negative number. Also an address, a character or a truth value.
    Unsigned,
    /// IEEE 754.
    Float,
}

/// A value that can be read from one register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// The register.
    pub place: ValueRegister,
    /// The number of the register's lowest bytes that are the value: 1, 2, 4 or 8. The other bytes
    /// are undefined.
    pub width: u8,
    /// The meaning of these bytes.
    pub kind: Kind,
    /// Its name in the source, if known.
    pub name: Option<String>,
    /// Its type in the source, if known.
    pub type_name: Option<String>,
}
