//! The presence of a process, or of memory found in it.

/// The presence of a process, or of memory found in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence {
    /// The process still runs the program, or still has the memory.
    Here,
    /// The process has ended.
    Ended,
    /// The process has executed another program (exec), or has unmapped the memory itself.
    OtherProgram,
    /// Unknown, for this reason. It need not be gone.
    Unknown(String),
}
