//! The questions in a segment and what has been published for them, as docs/segment.md has them.

use crate::racing::segment_names;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Where in the header: bytes of tables, questions asked, questions dealt with, the areas.
const TABLES_USED: u64 = 15 * 8;
const ASKED_USED: u64 = 16 * 8;
const ASKED_DONE: u64 = 17 * 8;
const AREAS: u64 = 19 * 8;
/// The area of tables, and the kind of those with rules.
const TABLES: u64 = 8;
const RULES: u64 = 2;
/// Bytes of a table's head, and where in it the number of rows is; bytes of a row.
const HEAD: u64 = 7 * 8;
const ROWS: u64 = 5 * 8;
const ROW: u64 = 2 * 8;

/// The segment of a process.
pub struct Questions(File);

impl Questions {
    /// Of this process.
    ///
    /// # Panics
    /// When it has none with a name.
    pub fn of(pid: u32) -> Self {
        let names = segment_names(pid);
        let name = names.first().expect("a segment");
        Self(File::open(name).expect("readable"))
    }

    /// How many have been asked.
    pub fn asked(&self) -> u64 {
        self.word(ASKED_USED)
    }

    /// How many of the first of them have been dealt with.
    pub fn done(&self) -> u64 {
        self.word(ASKED_DONE)
    }

    /// Return addresses of each table of rules.
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

    fn word(&self, at: u64) -> u64 {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, at).expect("inside");
        u64::from_le_bytes(bytes)
    }
}
