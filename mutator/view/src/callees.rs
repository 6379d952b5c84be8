//! The callees of a function.

/// The functions that a function calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Callees {
    /// The display names of the callees.
    pub names: Vec<String>,
    /// Patterns that match the callees.
    pub patterns: Vec<String>,
    /// The number of indirect calls, whose targets are only known at run time.
    pub indirect: usize,
}
