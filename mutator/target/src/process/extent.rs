//! Memory ranges of a process by start and length.

use std::ops::Range;

use patcher::Avma;
use serde::{Deserialize, Serialize};

/// Contiguous bytes of a process. A document stores them as two numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "(u64, u64)", into = "(u64, u64)")]
pub struct Extent {
    /// The address of the first byte.
    pub start: Avma,
    /// The length in bytes.
    pub len: u64,
}

impl Extent {
    /// The address after the last byte of the extent.
    pub fn end(self) -> Avma {
        Avma(self.start.0.saturating_add(self.len))
    }

    /// The addresses of the extent, from the first byte up to the end.
    pub fn range(self) -> Range<Avma> {
        self.start..self.end()
    }

    /// True if the extent contains the byte at `at`.
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
