//! What keeps paths with the same call sites apart: phases of the program, values of calls, and
//! long times.

use serde::{Deserialize, Serialize};

use ipath_base::printable::printable;

/// A phase of the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phase {
    /// The name: that of a mark, or that of the function with the number of its call
    /// (`iterate#3`).
    pub name: String,
    /// The start, in nanoseconds since the start of the session.
    pub start_ns: u64,
    /// The end, in nanoseconds since the start of the session. `None` if the phase lasts.
    pub end_ns: Option<u64>,
}

/// The value by which a path is kept apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ByValue {
    /// A number.
    Number(i64),
    /// A text. Bytes that are not UTF-8 are escaped (`\xff`).
    Text(String),
    /// The beginning of a longer text.
    Cut {
        /// The beginning.
        cut: String,
    },
    /// All values for which there was no room.
    Others {
        /// True.
        others: bool,
    },
    /// Values that could not be read, such as texts at invalid addresses.
    Unread {
        /// True.
        unread: bool,
    },
}

impl ByValue {
    /// All values for which there was no room.
    pub const OTHERS: Self = Self::Others { others: true };
    /// Values that could not be read.
    pub const UNREAD: Self = Self::Unread { unread: true };

    /// The value as text.
    pub fn text(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => format!("\"{}\"", printable(text)),
            Self::Cut { cut } => format!("\"{}...\"", printable(cut)),
            Self::Others { .. } => "other".to_owned(),
            Self::Unread { .. } => "unknown".to_owned(),
        }
    }
}

/// What keeps a path apart from others with the same call sites.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Apart {
    /// The phase.
    pub phase: Option<usize>,
    /// The value.
    pub by: Option<ByValue>,
    /// True for calls that took at least as long as the limit of the session.
    pub slower: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_plain_in_profiles() {
        for (value, text) in [
            (ByValue::Number(-3), "-3"),
            (ByValue::Text("a".to_owned()), "\"a\""),
            (
                ByValue::Cut {
                    cut: "a".to_owned(),
                },
                "{\"cut\":\"a\"}",
            ),
            (ByValue::OTHERS, "{\"others\":true}"),
            (ByValue::UNREAD, "{\"unread\":true}"),
        ] {
            assert_eq!(serde_json::to_string(&value).expect("JSON"), text);
            let read: ByValue = serde_json::from_str(text).expect("a value");
            assert_eq!(read, value);
        }
    }
}
