//! Counts the work of the analysis, so that tests can check that it grows linearly with its input.

use std::cell::Cell;

thread_local! {
    static LOOKS: Cell<usize> = const { Cell::new(0) };
}

/// Adds `more` to this thread's count of analysis work.
pub fn add(more: usize) {
    LOOKS.set(LOOKS.get() + more);
}

/// Returns this thread's count of analysis work since the last call, and resets the count to 0.
pub fn take() -> usize {
    LOOKS.take()
}
