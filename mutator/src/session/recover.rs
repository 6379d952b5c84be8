//! What a command that was killed has left half done: completed, or taken back.
//!
//! Every change to a target is written down in the segment before it is made, and each state in
//! between is one the target can run on with. So whoever comes next under the session's lock can
//! tell what is there from what was meant to be.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::thread::sleep;
use std::time::Duration;

use abi::image::SYMBOL_FUNCTIONS;
use abi::segment::{JOURNAL_WRITTEN, STATE_LEAVING, STATE_SETUP};
use nix::errno::Errno;
use patcher::Avma;

use super::write::{read, write};
use super::{Session, SessionError};
use crate::faults::step;
use crate::process::{Mapping, Memory, Process};
use crate::segment::{Document, Journal, Segment, SegmentError};
use crate::tracee::{CallCode, Remote, Stopped, TraceeError};

/// First bytes of a mapping that is about to be taken out.
const MARK: usize = 16;
/// How long a thread may take to make a call it has been pointed at.
const SETTLED: Duration = Duration::from_millis(10);

impl Session {
    /// Clears away what a killed command has left of a session that was never finished, so that
    /// a new one can be made; an error where there is a whole one.
    pub(super) fn make_way(process: &Process) -> Result<(), SessionError> {
        let segment = match Segment::open(process) {
            Err(SegmentError::Missing) => return Ok(()),
            other => other?,
        };
        if !is_half(&segment) {
            return Err(SessionError::Exists);
        }
        let mut session = Self {
            process: process.clone(),
            document: Document::default(),
            segment,
        };
        session.segment.lock()?;
        session.refresh()?;
        let result = session.clear_half();
        session.segment.unlock();
        result
    }

    /// Whether a killed command has left the session half made or half taken out.
    pub(super) fn is_half(&self) -> bool {
        is_half(&self.segment)
    }

    /// Brings the session to a state that its document describes; an error where there is none.
    pub(super) fn recover(&mut self) -> Result<(), SessionError> {
        if self.is_half() {
            self.clear_half()?;
            return Err(SegmentError::Missing.into());
        }
        if !self.is_in_target() {
            return Ok(());
        }
        self.recover_regions()?;
        let memory = self.process.memory()?;
        let broken = self.broken(&memory)?;
        if broken.is_empty() {
            return Ok(());
        }
        self.take_out("recover", &memory, &broken)?;
        self.segment.write_document(&self.document)?;
        Ok(())
    }

    /// Functions that are neither wholly in nor wholly out.
    fn broken(&self, memory: &Memory) -> Result<Vec<usize>, SessionError> {
        let journal = Journal(&self.segment);
        let image = Self::image()?;
        let table = image
            .address(Avma(self.document.image.0), SYMBOL_FUNCTIONS)
            .map_err(SessionError::Image)?;
        let functions = &self.document.functions;
        let slots = read(memory, table, 8 * functions.len())?;
        let standing = journal.standing()?;
        let mut broken = Vec::new();
        for (id, function) in functions.iter().enumerate() {
            let slot = slots[8 * id..8 * id + 4].try_into();
            let generation = slot.map_or(0, u32::from_le_bytes);
            let patches = || function.sites.iter().flat_map(|s| &s.patches);
            let is_whole = if function.active {
                let mut written = true;
                for &patch in patches() {
                    written &= journal.state(patch)? == JOURNAL_WRITTEN;
                }
                written && generation == function.generation
            } else {
                generation == 0 && !patches().any(|p| standing.binary_search(p).is_ok())
            };
            if !is_whole {
                broken.push(id);
            }
        }
        Ok(broken)
    }

    /// Takes out regions for trampolines that were not finished, so that none is in use.
    pub(super) fn recover_regions(&mut self) -> Result<(), SessionError> {
        let unready = |session: &Self| {
            let regions = session.document.regions.iter();
            let unready = regions.filter(|r| !r.ready).map(|r| (r.start, r.len));
            unready.collect::<Vec<_>>()
        };
        let regions = unready(self);
        if regions.is_empty() {
            return Ok(());
        }
        sleep(SETTLED);
        let memory = self.process.memory()?;
        let maps = self.process.maps()?;
        let image = Self::image()?;
        let base = Avma(self.document.image.0);
        let cells = Self::cells(&image, base)?;
        let ours: Vec<(u64, u64)> = regions
            .into_iter()
            .filter(|&(start, len)| is_unused(&maps, &memory, start, len, &cells))
            .collect();
        self.unmap_now("recover", &memory, &ours)?;
        self.document.regions.retain(|r| r.ready);
        self.segment.write_document(&self.document)?;
        Ok(())
    }

    /// Takes out what there is of a session that was half made or half taken out.
    pub(super) fn clear_half(&mut self) -> Result<(), SessionError> {
        if self.process.is_alive() {
            // A call that a thread was to make when its tracer was killed is made soon after.
            sleep(SETTLED);
            let memory = self.process.memory()?;
            let maps = self.process.maps()?;
            let state = self.segment.header().state.load(Acquire);
            let mut ours = if state == STATE_SETUP {
                self.close_descriptors(&memory, &maps)?;
                let (start, len) = self.document.image;
                let image = Self::image()?;
                let mut first = image.writes(Avma(start)).into_iter();
                let first = first.next().map(|(_, bytes)| bytes).unwrap_or_default();
                let ours = is_unused(&maps, &memory, start, len, &first);
                ours.then_some((start, len)).into_iter().collect()
            } else {
                if self.document.leaving_mark.is_empty() {
                    // Nothing has been taken out yet.
                    self.write_marks(&memory)?;
                }
                self.marked(&memory)
            };
            // Last, because it is what tells of the others where it has no name.
            let (start, len) = self.document.segment;
            if maps
                .iter()
                .any(|m| m.range.start.0 == start && self.is_segment(m))
            {
                ours.push((start, len));
            }
            self.unmap_now("recover", &memory, &ours)?;
        }
        self.close();
        Ok(())
    }

    /// Says in the document and in the target what is about to be taken out of it. From then on
    /// the session is over, and what of it is still there can be told from what the program maps
    /// in its stead.
    pub(super) fn mark_leaving(
        &mut self,
        memory: &Memory,
        mappings: &[(u64, u64)],
    ) -> Result<(), SessionError> {
        self.document.leaving = mappings.to_vec();
        self.segment.write_document(&self.document)?;
        self.segment.header().state.store(STATE_LEAVING, Release);
        step("state leaving");
        self.write_marks(memory)
    }

    fn write_marks(&mut self, memory: &Memory) -> Result<(), SessionError> {
        let random = fs::read("/proc/sys/kernel/random/uuid").unwrap_or_default();
        let letters = random.into_iter().filter(u8::is_ascii_hexdigit).take(MARK);
        let mark: Vec<u8> = letters.collect();
        for &(start, _) in &self.document.leaving {
            write(memory, Avma(start), &mark)?;
        }
        self.document.leaving_mark = String::from_utf8_lossy(&mark).into_owned();
        self.segment.write_document(&self.document)?;
        Ok(())
    }

    /// Mappings of the session that are still there.
    fn marked(&self, memory: &Memory) -> Vec<(u64, u64)> {
        let mark = self.document.leaving_mark.as_bytes();
        let is_marked = |start: u64| {
            mark.len() == MARK && memory.read_vec(Avma(start), MARK).is_ok_and(|b| b == mark)
        };
        let mappings = self.document.leaving.iter().copied();
        mappings.filter(|m| is_marked(m.0)).collect()
    }

    fn is_segment(&self, mapping: &Mapping) -> bool {
        let own = self.segment.file().metadata().map(|m| m.ino());
        let named =
            own.is_ok_and(|inode| inode == mapping.file.1) && mapping.name.contains("ipath");
        named || mapping.name.starts_with("/memfd:ipath")
    }

    /// Closes descriptors through which the segment was to be mapped.
    fn close_descriptors(&self, memory: &Memory, maps: &[Mapping]) -> Result<(), SessionError> {
        let own = self.segment.file().metadata();
        let folder = format!("/proc/{}/fd", self.process.entry());
        let is_ours = |fd: &u64| {
            let path = format!("{folder}/{fd}");
            let same = match (fs::metadata(&path), &own) {
                (Ok(a), Ok(b)) => a.dev() == b.dev() && a.ino() == b.ino(),
                _ => false,
            };
            let link = fs::read_link(&path).unwrap_or_default();
            same || link.to_string_lossy().starts_with("/memfd:ipath")
        };
        let entries = fs::read_dir(&folder).into_iter().flatten();
        let left: Vec<u64> = entries
            .filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok())
            .filter(is_ours)
            .collect();
        if left.is_empty() {
            return Ok(());
        }
        let code = CallCode::find(&self.process, maps, memory)?;
        let mut stopped = self.stop_all()?;
        let mut remote = Remote::new(&code, memory, &mut stopped)?;
        for fd in left {
            match remote.call("close", libc::SYS_close, [fd, 0, 0, 0, 0, 0]) {
                // The thread that was asked to has closed it by now.
                Ok(_) | Err(TraceeError::Call(_, Errno::EBADF)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        drop(remote);
        stopped.resume()?;
        Ok(())
    }

    /// Stops the target and takes these mappings out.
    pub(super) fn unmap_now(
        &mut self,
        why: &str,
        memory: &Memory,
        mappings: &[(u64, u64)],
    ) -> Result<(), SessionError> {
        /// Mappings taken out in one stop.
        const BATCH: usize = 64;
        if mappings.is_empty() {
            return Ok(());
        }
        let maps = self.process.maps()?;
        let code = CallCode::find(&self.process, &maps, memory)?;
        for batch in mappings.chunks(BATCH) {
            // All threads, though one makes the calls: it would wait for a processor otherwise.
            let mut stopped = self.stop_all()?;
            let result = unmap(&code, memory, &mut stopped, batch);
            let duration = stopped.resume()?;
            self.note_stop(why, duration);
            result?;
        }
        Ok(())
    }
}

/// Takes mappings out of a stopped process.
pub(super) fn unmap(
    code: &CallCode,
    memory: &Memory,
    stopped: &mut Stopped,
    mappings: &[(u64, u64)],
) -> Result<(), SessionError> {
    let mut remote = Remote::new(code, memory, stopped)?;
    for &(start, len) in mappings {
        remote.unmap(Avma(start), len)?;
    }
    Ok(())
}

fn is_half(segment: &Segment) -> bool {
    let state = segment.header().state.load(Acquire);
    state == STATE_SETUP || state == STATE_LEAVING
}

/// Whether the range is mapped exactly, without a file, and holds nothing but, in part, `first`.
fn is_unused(maps: &[Mapping], memory: &Memory, start: u64, len: u64, first: &[u8]) -> bool {
    const LOOKED_AT: usize = 64;
    let end = start + len;
    let inside: Vec<&Mapping> = maps
        .iter()
        .filter(|m| m.range.start.0 < end && start < m.range.end.0)
        .collect();
    // Neighbours without a file of the same protection are one mapping to the kernel.
    let covers = |at: u64| inside.iter().any(|m| m.contains(Avma(at)));
    let anonymous = inside.iter().all(|m| m.file.1 == 0 && m.name.is_empty());
    let executable = inside
        .iter()
        .any(|m| m.contains(Avma(start)) && m.execute && !m.write);
    let Ok(now) = memory.read_vec(Avma(start), LOOKED_AT) else {
        return false;
    };
    let expected = first.iter().copied().chain(std::iter::repeat(0));
    let known = now.iter().zip(expected).all(|(&n, e)| n == 0 || n == e);
    covers(start) && covers(end - 1) && anonymous && executable && known
}
