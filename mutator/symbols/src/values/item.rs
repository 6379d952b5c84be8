//! Names of values on the command line.

use std::fmt;
use std::str::FromStr;

/// A value of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Item {
    /// The argument with this number, from 1 to [`Item::ARGUMENTS`].
    Argument(u8),
    /// What the function returns.
    Return,
}

impl Item {
    /// How many arguments can be asked for.
    pub const ARGUMENTS: u8 = 6;

    /// All of them.
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

/// A name is not that of a value.
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
