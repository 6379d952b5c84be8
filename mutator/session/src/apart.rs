//! What keeps calls of one path apart: values (`--by`) and long times (`--slower`).

use std::fmt;
use std::str::FromStr;

use abi::apart::By as Runtime;
use ipath_symbols::values::{Field, Item};

/// The value by which calls of one path are kept apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum By {
    /// An argument or the return value, as a number.
    Item(Item),
    /// The text that an argument with this number points to.
    Text(u8),
    /// A field of what an argument with this number points to: `len` or `head.len`.
    Field(u8, String),
}

/// The sign between an argument and a field: `arg1->len`.
const ARROW: &str = "->";

/// The ending of a text in place of a number: `arg2:str`.
const TEXT: &str = ":str";

impl By {
    /// The value of the call that must be located.
    pub fn item(&self) -> Item {
        match self {
            Self::Item(item) => *item,
            Self::Text(number) | Self::Field(number, _) => Item::Argument(*number),
        }
    }

    /// True if the value is known only when a call ends.
    pub fn needs_exits(&self) -> bool {
        *self == Self::Item(Item::Return)
    }

    /// True if the value is read by a system call.
    pub fn needs_system_calls(&self) -> bool {
        matches!(self, Self::Text(_) | Self::Field(..))
    }

    /// The value's encoding for the runtime, with a field at `field`. For a field whose place is
    /// not known yet, an encoding that no function is measured with.
    pub fn encode(&self, field: Option<Field>) -> u64 {
        let by = match self {
            Self::Item(Item::Argument(number)) => Runtime::Argument(number - 1),
            Self::Item(Item::Return) => Runtime::Return,
            Self::Text(number) => Runtime::Text(number - 1),
            Self::Field(number, _) => Runtime::Field {
                argument: number - 1,
                width: field.map_or(0, |field| field.width),
                is_signed: field.is_some_and(|field| field.is_signed),
                offset: field.map_or(0, |field| field.offset),
            },
        };
        by.encode()
    }
}

/// The value of a call that must be located for this encoding of [`By`]. `None` for 0.
pub fn item_of(word: u64) -> Option<Item> {
    Some(match Runtime::decode(word)? {
        Runtime::Argument(number)
        | Runtime::Text(number)
        | Runtime::Field {
            argument: number, ..
        } => Item::Argument(number + 1),
        Runtime::Return => Item::Return,
    })
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Item(item) => item.fmt(f),
            Self::Text(number) => write!(f, "{}{TEXT}", Item::Argument(*number)),
            Self::Field(number, path) => {
                write!(f, "{}{ARROW}{path}", Item::Argument(*number))
            }
        }
    }
}

/// The error for a text that names no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoValue;

impl fmt::Display for NoValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the value is arg1 to arg6, ret, arg1:str for a text, arg1->FIELD, or tid")
    }
}

impl std::error::Error for NoValue {}

impl FromStr for By {
    type Err = NoValue;

    fn from_str(text: &str) -> Result<Self, NoValue> {
        let item = |name: &str| name.parse::<Item>().map_err(|_| NoValue);
        if let Some((name, path)) = text.split_once(ARROW) {
            let is_name = |name: &str| {
                let mut chars = name.chars();
                chars.next().is_some_and(|c| c == '_' || c.is_alphabetic())
                    && chars.all(|c| c == '_' || c.is_alphanumeric())
            };
            return match item(name)? {
                Item::Argument(number) if path.split('.').all(is_name) => {
                    Ok(Self::Field(number, path.to_owned()))
                }
                _ => Err(NoValue),
            };
        }
        match text.strip_suffix(TEXT) {
            None => item(text).map(Self::Item),
            Some(name) => match item(name)? {
                Item::Argument(number) => Ok(Self::Text(number)),
                Item::Return => Err(NoValue),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_parsed_and_located() {
        for (text, item) in [
            ("arg1", Item::Argument(1)),
            ("arg6", Item::Argument(6)),
            ("ret", Item::Return),
            ("arg1:str", Item::Argument(1)),
            ("arg6:str", Item::Argument(6)),
            ("arg2->len", Item::Argument(2)),
            ("arg2->head.len_2", Item::Argument(2)),
        ] {
            let by: By = text.parse().expect("a value");
            assert_eq!(by.to_string(), text);
            assert_eq!(by.item(), item);
            assert_eq!(item_of(by.encode(None)), Some(item));
        }
        for text in [
            "",
            "arg0",
            "arg7",
            "ret:str",
            "arg1:",
            "tid",
            ":str",
            "arg1->",
            "ret->a",
            "arg1->a.",
            "arg1->a->b",
            "arg1->1",
        ] {
            assert_eq!(text.parse::<By>(), Err(NoValue), "{text}");
        }
        assert_eq!(item_of(0), None);
    }
}
