//! What keeps calls of one path apart: values (`--by`) and long times (`--slower`).

use std::fmt;
use std::str::FromStr;

use abi::apart::By as Runtime;
use ipath_symbols::values::Item;

/// The value by which calls of one path are kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// An argument or the return value, as a number.
    Item(Item),
    /// The text that an argument with this number points to.
    Text(u8),
}

/// The ending of a text in place of a number: `arg2:str`.
const TEXT: &str = ":str";

impl By {
    /// The value of the call that must be located.
    pub fn item(self) -> Item {
        match self {
            Self::Item(item) => item,
            Self::Text(number) => Item::Argument(number),
        }
    }

    /// True if the value is known only when a call ends.
    pub fn needs_exits(self) -> bool {
        self == Self::Item(Item::Return)
    }

    /// True if the value is read by a system call.
    pub fn needs_system_calls(self) -> bool {
        matches!(self, Self::Text(_))
    }

    /// The value's encoding for the runtime.
    pub fn encode(self) -> u64 {
        let by = match self {
            Self::Item(Item::Argument(number)) => Runtime::Argument(number - 1),
            Self::Item(Item::Return) => Runtime::Return,
            Self::Text(number) => Runtime::Text(number - 1),
        };
        by.encode()
    }

    /// The value with this encoding. `None` if there is none.
    pub fn decode(word: u64) -> Option<Self> {
        let all = Item::all().map(Self::Item);
        let texts = (1..=Item::ARGUMENTS).map(Self::Text);
        all.chain(texts).find(|by| by.encode() == word)
    }
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Item(item) => item.fmt(f),
            Self::Text(number) => write!(f, "{}{TEXT}", Item::Argument(*number)),
        }
    }
}

/// The error for a text that names no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoValue;

impl fmt::Display for NoValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the value is arg1 to arg6, ret, arg1:str for a text, or tid")
    }
}

impl std::error::Error for NoValue {}

impl FromStr for By {
    type Err = NoValue;

    fn from_str(text: &str) -> Result<Self, NoValue> {
        let item = |name: &str| name.parse::<Item>().map_err(|_| NoValue);
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
    fn values_are_decoded_as_encoded() {
        for text in ["arg1", "arg6", "ret", "arg1:str", "arg6:str"] {
            let by: By = text.parse().expect("a value");
            assert_eq!(by.to_string(), text);
            assert_eq!(By::decode(by.encode()), Some(by));
        }
        for text in ["", "arg0", "arg7", "ret:str", "arg1:", "tid", ":str"] {
            assert_eq!(text.parse::<By>(), Err(NoValue), "{text}");
        }
        assert_eq!(By::decode(0), None);
    }
}
