//! What a look at a profile finds changed.

/// Which paths of a profile are not as they were at the look before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    /// All of it: indexes may mean other things.
    All,
    /// Those of these indexes alone, ascending; those after the former end are new. Functions, frames, modules, metrics and
    /// paths that were there have kept their indexes.
    Paths(Vec<u32>),
}
