//! To which side a window may grow.

/// Which way a window grows from the instruction that must be in it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Grow {
    /// Over the instructions after it, for an entry.
    Forward,
    /// Over the instructions before it, for an exit.
    Backward,
    /// Over those after it, before it or both, for a point.
    Around,
}
