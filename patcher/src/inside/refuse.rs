//! Reasons why the control flow inside a function cannot be measured.

use std::fmt;

/// A reason why a function has no control-flow graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Refusal {
    /// The targets of an indirect jump are not known.
    IndirectJump,
    /// The function has several jump tables, and the table of one of its jumps is not known.
    UnknownTable,
    /// The function's bytes are not instructions from start to end.
    DataInCode,
    /// Two instructions share bytes, or a branch leads into the middle of an instruction.
    Overlapping,
    /// The function has more blocks or edges than the analysis accepts.
    TooLarge,
    /// No instruction of the function can be reached.
    Empty,
}

impl Refusal {
    /// The reason in words, to stand after a colon.
    pub fn reason(self) -> &'static str {
        match self {
            Self::IndirectJump => "the targets of an indirect jump are not known",
            Self::UnknownTable => "the jump table of an indirect jump is not known",
            Self::DataInCode => "the function may contain data between its instructions",
            Self::Overlapping => "two instructions of the function share bytes",
            Self::TooLarge => "the function has too many blocks or edges",
            Self::Empty => "no instruction of the function can be reached",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

impl std::error::Error for Refusal {}
