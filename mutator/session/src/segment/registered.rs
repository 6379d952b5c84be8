//! Published tables of code whose unwind entries the target has registered.

use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

use abi::segment::{AREA_TABLES, TABLE_OF_REGISTERED, TableHead, TableRow};
use patcher::Avma;

use super::Segment;

/// A table whose entries are still registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisteredTable {
    /// The table's offset in the area of tables, in bytes.
    at: u64,
    /// The address passed when the entries were registered.
    pub key: Avma,
    /// The first address of the code, and the first one after it.
    pub code: (Avma, Avma),
    /// The first address of each unwind rule, and the encoded rule.
    pub rows: Vec<(Avma, u64)>,
}

impl Segment {
    /// The tables of registered code that are valid.
    pub fn registered(&self) -> Vec<RegisteredTable> {
        const HEAD: u64 = size_of::<TableHead>() as u64;
        const ROW: u64 = size_of::<TableRow>() as u64;
        let end = self.header().tables_used.load(Acquire);
        let mut found = Vec::new();
        let mut at = 0;
        while at < end {
            let Some(head) = self.item::<TableHead>(AREA_TABLES, at, 1, 0) else {
                break;
            };
            let count = head.rows.load(Relaxed);
            let len = count.saturating_mul(ROW).saturating_add(HEAD);
            let next = at.saturating_add(len);
            if next > end {
                break;
            }
            let holds = head.seen_tsc.load(SeqCst) != 0;
            if head.kind.load(Relaxed) == TABLE_OF_REGISTERED && holds {
                let row = |number: u64| {
                    let at = at + HEAD + number * ROW;
                    let row: &TableRow = self.item(AREA_TABLES, at, 1, 0)?;
                    Some((Avma(row.start.load(Relaxed)), row.value.load(Relaxed)))
                };
                let of = |word: &std::sync::atomic::AtomicU64| Avma(word.load(Relaxed));
                found.push(RegisteredTable {
                    at,
                    key: of(&head.frames),
                    code: (of(&head.start), of(&head.end)),
                    rows: (0..count).map_while(row).collect(),
                });
            }
            at = next;
        }
        found
    }

    /// Marks a table as dropped.
    pub fn drop_registered(&self, table: &RegisteredTable) {
        if let Some(head) = self.item::<TableHead>(AREA_TABLES, table.at, 1, 0) {
            head.seen_tsc.store(0, SeqCst);
        }
    }

    /// The time of the target's last deregistration, in ticks of the time-stamp counter. 0 if there
    /// was none.
    pub fn taken_back(&self) -> u64 {
        self.header().taken_back.load(SeqCst)
    }
}
