//! Whether what was seen of a process is still there.

/// Whether something that a process was found to have is still there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It is.
    Here,
    /// The process has ended.
    Ended,
    /// The process has become another program (exec), or has itself unmapped what there was.
    OtherProgram,
    /// It cannot be told, for this cause. That is not the same as gone.
    Unknown(String),
}
