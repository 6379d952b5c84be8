//! Directions in which a window can grow.

/// The direction in which a window grows from the instruction that it must contain.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Grow {
    /// Over the instructions after it, for an entry.
    Forward,
    /// Over the instructions before it, for an exit.
    Backward,
    /// Over the instructions after it, before it or both, for a point.
    Around,
}
