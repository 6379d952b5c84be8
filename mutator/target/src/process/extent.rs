//! Memory of a process by where it starts and how long it is.

use std::ops::Range;

use patcher::Avma;
use serde::{Deserialize, Serialize};

/// Bytes of a process that follow one another. In a document these are two numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "(u64, u64)", into = "(u64, u64)")]
pub struct Extent {
    /// The first one's address.
    pub start: Avma,
    /// How many.
    pub len: u64,
}

impl Extent {
    /// The address after the last one.
    pub fn end(self) -> Avma {
        Avma(self.start.0.saturating_add(self.len))
    }

    /// From the first one's address to the one after the last.
    pub fn range(self) -> Range<Avma> {
        self.start..self.end()
    }

    /// True if the byte at `at` is among them.
    pub fn contains(self, at: Avma) -> bool {
        self.range().contains(&at)
    }
}

impl From<(u64, u64)> for Extent {
    fn from((start, len): (u64, u64)) -> Self {
        Self {
            start: Avma(start),
            len,
        }
    }
}

impl From<Extent> for (u64, u64) {
    fn from(extent: Extent) -> Self {
        (extent.start.0, extent.len)
    }
}
