//! To which side a window may grow.

/// Which way a window grows from the instruction that must be in it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Grow {
    /// Over the instructions behind, for an entry.
    Forward,
    /// Over the instructions before, for an exit.
    Backward,
    /// Over those behind or before or both, for a point.
    Around,
}
