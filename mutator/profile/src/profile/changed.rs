//! The difference between two successive looks at a profile.

/// The paths of a profile that differ from the previous look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    /// All paths differ. Indexes may have another meaning.
    All,
    /// The paths at these indexes differ, in ascending order. Indexes beyond the former length are
    /// new paths. Functions, frames, modules, metrics and earlier paths have kept their indexes.
    Paths(Vec<u32>),
}
