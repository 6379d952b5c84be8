//! The original bytes of patched program text, from the journal in the segment.

use core::sync::atomic::Ordering;

use abi::segment::{AREA_JOURNAL, JOURNAL_INTENT, JOURNAL_WRITTEN, JournalEntry};

use super::shared;

/// Restores in `bytes`, read from `at`, the original bytes of all patches in that range.
pub fn undo(at: u64, bytes: &mut [u8]) {
    if !shared::is_mapped() {
        return;
    }
    let used = shared::header().journal_used.load(Ordering::Acquire);
    for index in 0..used {
        // SAFETY: the command has written this many entries, which are atomics.
        let entry: &JournalEntry =
            unsafe { shared::item(AREA_JOURNAL, index, size_of::<JournalEntry>() as u64) };
        let is_in =
            [JOURNAL_INTENT, JOURNAL_WRITTEN].contains(&entry.state.load(Ordering::Relaxed));
        let from = entry.address.load(Ordering::Relaxed);
        let len = u64::from(entry.len.load(Ordering::Relaxed));
        if !is_in || from >= at + bytes.len() as u64 || from + len <= at {
            continue;
        }
        for (address, byte) in (at..).zip(bytes.iter_mut()) {
            let place = address.wrapping_sub(from);
            let word = entry.old.get(place as usize / size_of::<u64>());
            if let Some(word) = word.filter(|_| place < len) {
                let old = word.load(Ordering::Relaxed).to_le_bytes();
                *byte = old[place as usize % size_of::<u64>()];
            }
        }
    }
}
