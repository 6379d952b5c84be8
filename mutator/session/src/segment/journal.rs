//! The journal: the original bytes of the target's text, recorded before they are changed.

use std::mem::size_of;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use abi::segment::{
    AREA_JOURNAL, JOURNAL_BYTES, JOURNAL_INTENT, JOURNAL_UNDONE, JOURNAL_WRITTEN, JournalEntry,
};
use patcher::Avma;
use patcher::emit::Patch;

use super::{Segment, SegmentError};
use ipath_target::fault_injection::step;

/// The journal of a segment.
pub struct Journal<'s>(pub &'s Segment);

impl Journal<'_> {
    /// The entry with this index. An error if there is none.
    fn entry(&self, index: u32) -> Result<&JournalEntry, SegmentError> {
        let stride = size_of::<JournalEntry>() as u64;
        self.0
            .item(AREA_JOURNAL, index.into(), stride, 0)
            .ok_or_else(|| self.0.full())
    }

    /// Records a planned patch, and returns its index.
    ///
    /// # Errors
    /// The journal has no room, or the patch is longer than an entry.
    pub fn add(&self, patch: &Patch) -> Result<u32, SegmentError> {
        let used = &self.0.header().journal_used;
        let index = u32::try_from(used.load(Relaxed)).map_err(|_| SegmentError::Full)?;
        if !self
            .0
            .clear_item::<JournalEntry>(AREA_JOURNAL, index.into())?
        {
            return Err(self.0.full());
        }
        let entry = self.entry(index)?;
        if patch.old.len() > JOURNAL_BYTES || patch.old.len() != patch.new.len() {
            return Err(SegmentError::Corrupt("patch length"));
        }
        entry.address.store(patch.at.0, Relaxed);
        entry.len.store(patch.old.len() as u32, Relaxed);
        for (words, bytes) in [(&entry.old, &patch.old), (&entry.new, &patch.new)] {
            for (word, chunk) in words.iter().zip(bytes.chunks(8)) {
                let mut whole = [0; 8];
                whole[..chunk.len()].copy_from_slice(chunk);
                word.store(u64::from_le_bytes(whole), Relaxed);
            }
        }
        entry.state.store(JOURNAL_UNDONE, Release);
        used.store(u64::from(index) + 1, Release);
        step("journal");
        Ok(index)
    }

    /// The patch at `index`.
    ///
    /// # Errors
    /// There is no such entry, or it is damaged.
    pub fn patch(&self, index: u32) -> Result<Patch, SegmentError> {
        let entry = self.entry(index)?;
        let len = entry.len.load(Relaxed) as usize;
        if len > JOURNAL_BYTES {
            return Err(SegmentError::Corrupt("patch length"));
        }
        let bytes = |words: &[std::sync::atomic::AtomicU64]| {
            let all = words.iter().flat_map(|w| w.load(Relaxed).to_le_bytes());
            all.take(len).collect::<Vec<u8>>()
        };
        let (old, new) = (bytes(&entry.old), bytes(&entry.new));
        Ok(Patch {
            at: Avma(entry.address.load(Relaxed)),
            old,
            new,
        })
    }

    /// The state of the patch at `index`, one of the `JOURNAL_*` values.
    ///
    /// # Errors
    /// There is no such entry.
    pub fn state(&self, index: u32) -> Result<u32, SegmentError> {
        Ok(self.entry(index)?.state.load(Acquire))
    }

    /// Records that from now on the text may have either the old or the new bytes of the patches at
    /// `indexes`.
    ///
    /// # Errors
    /// There is no such entry.
    pub fn intend(&self, indexes: impl IntoIterator<Item = u32>) -> Result<(), SegmentError> {
        for index in indexes {
            self.entry(index)?.state.store(JOURNAL_INTENT, Release);
        }
        step("journal state");
        Ok(())
    }

    /// Records that the new bytes of the patch at `index` have been written.
    ///
    /// # Errors
    /// There is no such entry.
    pub fn written(&self, index: u32) -> Result<(), SegmentError> {
        self.entry(index)?.state.store(JOURNAL_WRITTEN, Release);
        step("journal state");
        Ok(())
    }

    /// Records that the original bytes at the patch with this index have been restored.
    ///
    /// # Errors
    /// There is no such entry.
    pub fn undone(&self, index: u32) -> Result<(), SegmentError> {
        self.entry(index)?.state.store(JOURNAL_UNDONE, Release);
        step("journal state");
        Ok(())
    }

    /// The indexes of the entries whose new bytes may be in the target, ascending.
    ///
    /// # Errors
    /// The journal is damaged.
    pub fn standing(&self) -> Result<Vec<u32>, SegmentError> {
        let used = self.0.header().journal_used.load(Acquire);
        let capacity = self.0.header().areas[AREA_JOURNAL].capacity();
        let mut standing = Vec::new();
        for index in 0..used.min(capacity) as u32 {
            let state = self.entry(index)?.state.load(Acquire);
            if state == JOURNAL_INTENT || state == JOURNAL_WRITTEN {
                standing.push(index);
            }
        }
        Ok(standing)
    }
}
