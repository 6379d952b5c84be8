//! Names of values on the command line.

use std::fmt;
use std::str::FromStr;

/// A value of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Item {
    /// The argument with this number, from 1 to [`Item::ARGUMENTS`].
    Argument(u8),
    /// The return value.
    Return,
}

impl Item {
    /// The number of arguments that can be requested.
    pub const ARGUMENTS: u8 = 6;

    /// All values: the arguments in their order, then the return value.
    pub fn all() -> impl Iterator<Item = Self> {
        (1..=Self::ARGUMENTS)
            .map(Self::Argument)
            .chain([Self::Return])
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Argument(n) => write!(f, "arg{n}"),
            Self::Return => f.write_str("ret"),
        }
    }
}

/// The error for a name that is not one of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoItem;

impl FromStr for Item {
    type Err = NoItem;

    fn from_str(name: &str) -> Result<Self, NoItem> {
        Self::all()
            .find(|item| item.to_string() == name)
            .ok_or(NoItem)
    }
}
