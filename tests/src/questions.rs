//! The questions in a segment and the tables published for them, laid out as in
//! docs/internals/segment-areas.md.

use crate::racing::segment_names;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Offsets in the segment's header, in this order: bytes of tables, questions asked, questions
/// answered, the areas.
const TABLES_USED: u64 = 15 * 8;
const ASKED_USED: u64 = 16 * 8;
const ASKED_DONE: u64 = 17 * 8;
const AREAS: u64 = 19 * 8;
/// The index of the area with tables.
const TABLES: u64 = 8;
/// The kind of tables with rules.
const RULES: u64 = 2;
/// In bytes and in this order: the size of a table's head, the offset of its number of rows, and
/// the size of a row.
const HEAD: u64 = 7 * 8;
const ROWS: u64 = 5 * 8;
const ROW: u64 = 2 * 8;

/// The segment of a process.
pub struct Questions(File);

impl Questions {
    /// Opens the segment of this process; the first by name if it has several.
    ///
    /// # Panics
    /// If it has no segment with a name.
    pub fn of(pid: u32) -> Self {
        let names = segment_names(pid);
        let name = names.first().expect("a segment");
        Self(File::open(name).expect("readable"))
    }

    /// The number of questions asked.
    pub fn asked(&self) -> u64 {
        self.word(ASKED_USED)
    }

    /// The number of questions answered, in the order asked.
    pub fn done(&self) -> u64 {
        self.word(ASKED_DONE)
    }

    /// The return addresses of each table of rules.
    pub fn published(&self) -> Vec<Vec<u64>> {
        let start = self.word(AREAS + 16 * TABLES);
        let end = start + self.word(TABLES_USED);
        let mut found = Vec::new();
        let mut at = start;
        while at < end {
            let rows = self.word(at + ROWS);
            if self.word(at) == RULES {
                let row = |index| self.word(at + HEAD + ROW * index);
                found.push((0..rows).map(row).collect());
            }
            at += HEAD + ROW * rows;
        }
        found
    }

    /// The 64-bit number at an offset in the segment.
    fn word(&self, at: u64) -> u64 {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, at).expect("inside");
        u64::from_le_bytes(bytes)
    }
}
