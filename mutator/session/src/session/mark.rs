//! Marks: phases of the program that a command begins.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use abi::schema::way;
use abi::segment::{AREA_PHASES, FURTHER, MARKED, OUTSIDE, PhaseEntry, is_apart};

use super::locked::Locked;
use super::tables::begin_epoch;
use super::{Session, SessionError};
use crate::segment::Segment;
use ipath_profile::clock;

impl Session {
    /// Begins a phase with this name, and ends the one that the last mark has begun. Calls that
    /// begin from now on are kept apart. The target is not stopped. Returns the name of the phase:
    /// if there has been one of this name, it has a number. `None` if there is no room for another
    /// phase: all further ones share one.
    ///
    /// # Errors
    /// The session cannot be changed, or there is no memory.
    pub fn mark(&mut self, name: &str) -> Result<Option<String>, SessionError> {
        self.locked(None, |locked| locked.mark(name))
    }
}

impl Locked<'_> {
    fn mark(&mut self, name: &str) -> Result<Option<String>, SessionError> {
        let index = take(&self.segment)?;
        let header = self.segment.header();
        let now = clock::tsc();
        let before = header.phase_marked.load(Relaxed) as u32;
        let ended = self.segment.phase(before).filter(|_| before != OUTSIDE);
        if let Some(ended) = ended.filter(|phase| phase.ended.load(Relaxed) == 0) {
            ended.ended.store(now, Relaxed);
        }
        let is_first = header.phases_kept.load(Relaxed) == 0;
        let title = index.map(|_| self.title(name));
        if let (Some(index), Some(title)) = (index, &title) {
            if let Some(entry) = self.segment.phase(index) {
                entry.tid.store(0, Relaxed);
                entry.function.store(MARKED, Relaxed);
                entry.begun.store(now, Release);
            }
            self.document.marks.insert(index, title.clone());
        }
        let index = index.unwrap_or(FURTHER);
        self.segment
            .header()
            .phase_marked
            .store(index.into(), Relaxed);
        // This makes the runtime keep phases apart.
        let document = &self.document;
        self.segment.write_document(document)?;
        if is_first {
            begin_epoch(self)?;
            divert(&self.segment);
        }
        Ok(title)
    }

    /// The name of a new phase: with a number, if there has been one of this name.
    fn title(&self, name: &str) -> String {
        let marks = &self.document.marks;
        let is_known = |title: &String| marks.values().any(|known| known == title);
        let numbered = (2..).map(|number| format!("{name}#{number}"));
        let mut titles = std::iter::once(name.to_owned()).chain(numbered);
        titles.find(|title| !is_known(title)).unwrap_or_default()
    }
}

/// Allocates the entry of a phase. `None` if there is no room for another one.
fn take(segment: &Segment) -> Result<Option<u32>, SessionError> {
    let header = segment.header();
    let used = &header.phases_used;
    let mut index = used.load(Acquire);
    loop {
        let at = index.saturating_mul(size_of::<PhaseEntry>() as u64);
        if index >= header.areas[AREA_PHASES].capacity() {
            header.phases_further.fetch_add(1, Relaxed);
            return Ok(None);
        }
        // Only written memory may be touched.
        if !segment.write_items(AREA_PHASES, at, &[0; size_of::<PhaseEntry>()])? {
            return Err(segment.full().into());
        }
        match used.compare_exchange(index, index + 1, AcqRel, Acquire) {
            Ok(_) => return Ok(u32::try_from(index).ok()),
            Err(now) => index = now,
        }
    }
}

/// Makes the calls of all records take the way that keeps phases apart. Threads may be making
/// records meanwhile, so it looks again.
fn divert(segment: &Segment) {
    const LOOKS: usize = 3;
    let mut from = 0;
    for look in 0..LOOKS {
        if look > 0 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let used = segment.header().records_used.load(Acquire);
        for number in from..used {
            let Some(record) = segment.record(number) else {
                break;
            };
            if !has_part(segment, record.path.load(Acquire)) {
                record.way.store(way::COMPILED, Relaxed);
            }
        }
        from = used.saturating_sub(1 << 12);
    }
}

/// True if the innermost site of the path that ends in the node `path` is a part.
fn has_part(segment: &Segment, path: u32) -> bool {
    let site = segment.node(path);
    let site = site.and_then(|leaf| segment.node(leaf.parent.load(Relaxed)));
    site.is_some_and(|site| is_apart(site.key.load(Relaxed)))
}
