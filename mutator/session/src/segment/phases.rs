//! The phases of a session.

use std::sync::atomic::Ordering::Relaxed;

use abi::segment::{AREA_PHASES, PhaseEntry};

use super::{Segment, SegmentError};

impl Segment {
    /// The number of phases, including the first one.
    pub fn phases(&self) -> u32 {
        let used = self.header().phases_used.load(Relaxed);
        self.used(AREA_PHASES, used) as u32
    }

    /// The entry of the phase with this index. `None` if the index is outside the area.
    pub fn phase(&self, index: u32) -> Option<&PhaseEntry> {
        let stride = size_of::<PhaseEntry>() as u64;
        self.item(AREA_PHASES, index.into(), stride, 0)
    }

    /// Writes `bytes` at offset `at`, in bytes, of an area of items. False if the system has no
    /// memory.
    ///
    /// # Errors
    /// As for [`Self::write_bytes`].
    pub fn write_items(&self, area: usize, at: u64, bytes: &[u8]) -> Result<bool, SegmentError> {
        let area = self.header().areas.get(area);
        let area = area.ok_or(SegmentError::Corrupt("areas"))?;
        self.write_at(area.offset().saturating_add(at), bytes)
    }
}
