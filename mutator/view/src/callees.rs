//! What a function calls.

/// The functions that a function calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Callees {
    /// Their names.
    pub names: Vec<String>,
    /// Patterns that mean them.
    pub patterns: Vec<String>,
    /// Calls of what only the run tells.
    pub indirect: usize,
}
