//! How much the analysis looks at, for tests that this grows no faster than what is analysed.

use std::cell::Cell;

thread_local! {
    static LOOKS: Cell<usize> = const { Cell::new(0) };
}

/// Counts `more`.
pub fn add(more: usize) {
    LOOKS.set(LOOKS.get() + more);
}

/// What has been counted since the last question.
pub fn take() -> usize {
    LOOKS.take()
}
