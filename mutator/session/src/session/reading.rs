//! Detecting whether a session's document has changed.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// One reading of a document.
pub(super) struct Reading {
    number: u64,
    /// The turn at which the document was read. `None` if the document may have changed since
    /// without being written.
    turn: Option<u64>,
}

impl Default for Reading {
    /// The reading of a document whose turn is unknown.
    fn default() -> Self {
        Self::new(None)
    }
}

impl Reading {
    /// A reading at this turn.
    pub(super) fn at(turn: u64) -> Self {
        Self::new(Some(turn))
    }

    fn new(turn: Option<u64>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            number: NEXT.fetch_add(1, Relaxed),
            turn,
        }
    }

    /// The same reading by another session of this process.
    pub(super) fn again(&self) -> Self {
        Self::new(self.turn)
    }

    /// A number that no other reading in this process has.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// True if the document is the one of this turn.
    pub(super) fn is_of(&self, turn: u64) -> bool {
        self.turn == Some(turn)
    }
}
