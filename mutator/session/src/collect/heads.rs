//! Finds the records that have changed since the last look.
//!
//! The columns of a record change only between two changes of its sequence number, and its counts
//! are in its head. So a record has nothing new if its head is as it was before its columns were
//! last read.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use abi::segment::{AREA_RECORDS, RecordHead};

use crate::segment::Segment;

/// The head of a record, as it was read before its columns. The fields are those of [`RecordHead`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    sequence: u32,
    pub(super) path: u32,
    thread: u16,
    schema: u8,
    pub(super) tid: u32,
    entered: u64,
    closed: u64,
    unwound: u64,
    tail: u64,
    moved_in: u64,
    moved_out: u64,
}

impl Head {
    fn read(head: &RecordHead) -> Self {
        Self {
            sequence: head.sequence.load(Acquire),
            path: head.path.load(Acquire),
            thread: head.thread.load(Relaxed),
            schema: head.schema.load(Relaxed),
            tid: head.tid.load(Relaxed),
            entered: head.entered.load(Relaxed),
            closed: head.closed.load(Relaxed),
            unwound: head.unwound.load(Relaxed),
            tail: head.tail.load(Relaxed),
            moved_in: head.moved_in.load(Relaxed),
            // Acquire, since the columns are read afterwards.
            moved_out: head.moved_out.load(Acquire),
        }
    }

    /// True if the record's writer has stopped in the middle of an update, or once left one
    /// unfinished.
    fn is_odd(&self) -> bool {
        self.sequence % 2 == 1
    }

    /// True if the record has no calls, or if all of them have moved to others.
    pub(super) fn is_without_calls(&self) -> bool {
        let come = self.entered.wrapping_add(self.moved_in);
        come == self.moved_out && [self.closed, self.unwound] == [0; 2]
    }

    /// True if path, thread, thread id and schema are the same. They never change while a record is
    /// in use.
    fn is_of_same(&self, other: &Self) -> bool {
        let of = |head: &Self| (head.path, head.thread, head.schema, head.tid);
        of(self) == of(other)
    }
}

/// The heads of all records.
#[derive(Default)]
pub(super) struct Heads {
    all: Vec<Head>,
    /// Records in use that have changed or may have, ascending.
    changed: Vec<u32>,
    /// The records in `changed` whose writers have stood still since the previous look, ascending.
    still: Vec<u32>,
}

impl Heads {
    /// Reads all heads. False if a record has become another one, or if there are fewer records
    /// than before. The runtime never causes either.
    pub(super) fn look(&mut self, segment: &Segment) -> bool {
        let header = segment.header();
        let used = header.records_used.load(Acquire);
        // The target can write to the header at any time. Do not read more than there is memory
        // for.
        let used = segment.used(AREA_RECORDS, used);
        let used = u32::try_from(used).unwrap_or(u32::MAX);
        self.changed.clear();
        self.still.clear();
        let known = self.all.len();
        for index in 0..used {
            let Some(head) = segment.record(index.into()).map(Head::read) else {
                return index as usize >= known;
            };
            match self.all.get_mut(index as usize) {
                None => self.all.push(head),
                Some(before) if *before == head => {
                    if head.is_odd() {
                        self.still.push(index)
                    } else {
                        continue;
                    }
                }
                Some(before) if before.path != 0 && !before.is_of_same(&head) => return false,
                Some(before) => *before = head,
            }
            // A record is in use once it has a path.
            if head.path != 0 {
                self.changed.push(index);
            }
        }
        used as usize >= known
    }

    /// Records in use that have changed or may have, ascending.
    pub(super) fn changed(&self) -> &[u32] {
        &self.changed
    }

    /// The head of a record that has been read. `None` for other records.
    pub(super) fn of(&self, record: u32) -> Option<&Head> {
        self.all.get(record as usize)
    }

    /// True if the writer of `record` had stopped in the middle of an update at the previous look,
    /// and has not continued.
    pub(super) fn is_still(&self, record: u32) -> bool {
        self.still.binary_search(&record).is_ok()
    }
}
