//! Inlined copies of functions that are measured by themselves.

use serde::{Deserialize, Serialize};

use super::position::position;

/// An inlined copy of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InlinedCopy {
    /// The offset of the copy's entry in the section `.debug_info`.
    pub entry: u64,
    /// The linkage name of the inlined function, or its name in the source if it has none.
    pub linkage: String,
    /// The display name of the containing function.
    pub within: String,
    /// The source file of the call. `None` if it is not known.
    #[serde(default)]
    pub file: Option<String>,
    /// The line of the call. `None` if it is not known.
    #[serde(default)]
    pub line: Option<u32>,
    /// The number of instructions of other code that are measured with the copy.
    #[serde(default)]
    pub gaps: u64,
    /// The number of the copy's instructions that are not measured.
    #[serde(default)]
    pub outside: u64,
}

impl InlinedCopy {
    /// The place as `inlined in FUNCTION, FILE:LINE`, without the file's directory.
    pub(super) fn place(&self) -> String {
        match position(self.file.as_deref(), self.line) {
            Some(position) => format!("inlined in {}, {position}", self.within),
            None => format!("inlined in {}", self.within),
        }
    }
}
