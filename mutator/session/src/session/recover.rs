//! Recovery of a session that a killed command has left half done: completed or taken back.
//!
//! Every change to a target is recorded in the segment before it is made, and the target can run on
//! in each intermediate state. So the next command that holds the session's lock can compare the
//! actual state with the intended one.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Duration;

use abi::image::SYMBOL_PROBES;
use abi::segment::{JOURNAL_WRITTEN, STATE_LEAVING, STATE_SETUP};
use nix::errno::Errno;
use patcher::Avma;

use super::SessionError;
use super::locked::Locked;
use super::lost::note_lost;
use super::points::idle_carriers;
use super::runtime_memory::read;
use super::turn::recover_remeasured;
use super::view::View;
use crate::segment::{Claim, Journal, RegionDoc, SegmentError, is_segment_name, is_unnamed};
use ipath_target::fault_injection::step;
use ipath_target::process::identity::{FileId, file_id};
use ipath_target::process::memory::is_anonymous;
use ipath_target::process::{Extent, Mapping, Memory, Space};
use ipath_target::tracee::{CallCode, Remote, Stopped, TraceeError};

/// The number of mark bytes at the start of a mapping that is about to be unmapped.
const MARK: usize = 16;

impl Locked<'_> {
    /// Finishes or undoes changes that killed commands have left half done, and takes out functions
    /// whose text has changed. The target is then in the state that the document describes. Fails
    /// if the process cannot be read or changed.
    pub(super) fn recover(&mut self) -> Result<(), SessionError> {
        let lost = note_lost(self)?;
        recover_regions(self)?;
        recover_remeasured(self)?;
        let mut broken = self.view().broken()?;
        broken.extend(lost);
        broken = self.document.with_carried(&broken);
        broken.extend(idle_carriers(&self.document, &broken));
        broken.sort_unstable();
        broken.dedup();
        if broken.is_empty() {
            return Ok(());
        }
        self.take_out("recover", &broken)?;
        self.segment.write_document(&self.document)?;
        Ok(())
    }

    /// Removes the remains of a session that was half made or half taken out. Ends the session.
    /// Fails if the process cannot be read or changed.
    pub(super) fn clear_half(&mut self) -> Result<(), SessionError> {
        let image = self.document.image;
        let first = self.document.runtime.head.clone();
        let (segment, document) = (&self.segment, &self.document);
        let is_setup = segment.header().state.load(Acquire) == STATE_SETUP;
        let own = segment.file_id()?;
        // The mark is written to all mappings before the document has it. A mapping without a
        // recorded mark is the program's.
        let mark = document.leaving_mark.as_bytes();
        let unmarked = !is_setup && mark.is_empty();
        let space = Arc::clone(&self.space);
        self.view().settled(|memory, maps, code, stopped| {
            // The segment is unmapped last. Without it everything is gone, perhaps with the program
            // it was in.
            let is_segment_here = self.segment_in(maps).is_some();
            let is_left = |&extent: &Extent| {
                let here = is_anonymous(maps, extent);
                match is_setup {
                    true => is_unused(maps, memory, extent, &first),
                    // Without marks, nothing has been unmapped.
                    false if unmarked => here && is_segment_here,
                    false => here && is_marked(memory, extent.start, mark),
                }
            };
            let planned = if is_setup {
                vec![image]
            } else {
                document.leaving.clone()
            };
            let mut ours: Vec<Extent> = planned.into_iter().filter(is_left).collect();
            // Last, because an unnamed segment lists the other mappings.
            let is_segment =
                |m: &&Mapping| m.range == document.segment.range() && is_segment_name(&m.name);
            if maps
                .iter()
                .any(|m| is_segment(&m) && (m.file == own || is_setup))
            {
                ours.push(document.segment);
            }
            if is_setup {
                close_descriptors(&space, &own, code, stopped)?;
            }
            unmap(code, stopped, &ours)
        })?;
        self.close();
        self.view().remove_draft();
        Ok(())
    }
}

impl View<'_> {
    /// Ids of the functions that are neither wholly in nor wholly out. Fails if the target or the
    /// journal cannot be read.
    pub(super) fn broken(&self) -> Result<Vec<usize>, SessionError> {
        let journal = Journal(self.segment);
        let table = self.symbol(SYMBOL_PROBES)?;
        let functions = &self.document.functions;
        let states = read(self.space.memory(), table, 8 * functions.len())?;
        let standing = journal.standing()?;
        let mut broken = Vec::new();
        for (id, function) in functions.iter().enumerate() {
            let state = states[8 * id..8 * id + 4].try_into();
            let generation = state.map_or(0, u32::from_le_bytes);
            let patches = || function.sites.iter().flat_map(|s| &s.patches);
            let is_whole = if function.is_in() {
                let mut written = true;
                for &patch in function.sites_in().iter().flat_map(|s| &s.patches) {
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

    /// Removes the named segment that described this session while it was made, if this one is
    /// unnamed.
    pub(super) fn remove_draft(&self) {
        let named = || Claim::find::<SegmentError>(self.process, || Ok(Vec::new()));
        if self.segment.path().is_some() {
            return;
        }
        // A useless segment may stay if it cannot be read.
        if let Ok(Some(claim)) = named()
            && let Ok(_lock) = claim.try_lock()
            && claim.is_named()
        {
            claim.remove_name();
        }
    }

    /// Runs `work` in a stop. No thread is about to make a system call that a killed command
    /// prepared, so the mappings do not change. Returns the duration of the stop. Fails if the
    /// process cannot be stopped or read, or if `work` fails.
    pub(super) fn settled(
        &self,
        work: impl FnOnce(&Memory, &[Mapping], &CallCode, &mut Stopped) -> Result<(), SessionError>,
    ) -> Result<Duration, SessionError> {
        let space = self.space;
        // The search reads files and takes longer than a stop may last.
        let code = CallCode::find(space.process(), &space.maps()?, space.memory())?;
        let mut stopped = Stopped::all(self.space)?;
        stopped.lead_back()?;
        let maps = space.maps()?;
        let result = work(space.memory(), &maps, &code, &mut stopped);
        let duration = stopped.resume()?;
        result.map(|()| duration)
    }
}

/// Unmaps unfinished trampoline regions, so that none is in use. Fails if the process cannot be
/// read or changed.
pub(super) fn recover_regions(locked: &mut Locked<'_>) -> Result<(), SessionError> {
    let regions = locked.document.regions.iter();
    let unready = regions.filter(|r| !r.ready).map(RegionDoc::extent);
    let unready: Vec<Extent> = unready.collect();
    if unready.is_empty() {
        return Ok(());
    }
    let cells = locked.cells()?;
    let stop = locked.view().settled(|memory, maps, code, stopped| {
        let ours = unready
            .iter()
            .filter(|&&extent| is_unused(maps, memory, extent, &cells));
        unmap(code, stopped, ours)
    })?;
    locked.note_stop("recover", stop);
    locked.document.regions.retain(|r| r.ready);
    locked.segment.write_document(&locked.document)?;
    Ok(())
}

/// Records the mappings to be unmapped in the document and marks them in the target. From then on
/// the session is over, and its remaining mappings can be distinguished from the program's. Fails
/// if one of the mappings no longer exists, or if the marks cannot be written.
pub(super) fn mark_leaving(
    locked: &mut Locked<'_>,
    mappings: &[Extent],
) -> Result<(), SessionError> {
    locked.document.leaving = mappings.to_vec();
    locked.segment.write_document(&locked.document)?;
    locked.segment.header().state.store(STATE_LEAVING, Release);
    step("state leaving");
    let maps = locked.space.maps()?;
    for &extent in mappings {
        if !locked.own.admit(&maps, extent) {
            return Err(SessionError::Held(format!(
                "the mapping at {} no longer exists",
                extent.start
            )));
        }
    }
    let random = ipath_target::random::bytes::<{ MARK / 2 }>();
    let mark: Vec<u8> = random
        .iter()
        .flat_map(|b| format!("{b:02x}").into_bytes())
        .collect();
    let writes = mappings.iter().map(|m| (m.start, mark.clone()));
    locked.write_own(&writes.collect::<Vec<_>>())?;
    locked.document.leaving_mark = String::from_utf8_lossy(&mark).into_owned();
    locked.segment.write_document(&locked.document)?;
    Ok(())
}

/// Stops the target and unmaps these mappings. Fails if the target cannot be stopped, or if a call
/// fails.
pub(super) fn unmap_now(
    locked: &mut Locked<'_>,
    why: &str,
    mappings: &[Extent],
) -> Result<(), SessionError> {
    /// The most mappings unmapped in one stop.
    const BATCH: usize = 64;
    if mappings.is_empty() {
        return Ok(());
    }
    let space = Arc::clone(&locked.space);
    let code = CallCode::find(space.process(), &space.maps()?, space.memory())?;
    for batch in mappings.chunks(BATCH) {
        // All threads are stopped although one makes the calls. It would wait for a processor
        // otherwise.
        let mut stopped = locked.stop_all()?;
        let result = unmap(&code, &mut stopped, batch);
        let duration = stopped.resume()?;
        locked.note_stop(why, duration);
        result?;
    }
    Ok(())
}

/// True if the memory at `start` begins with `mark`. False for a mark of another length.
fn is_marked(memory: &Memory, start: Avma, mark: &[u8]) -> bool {
    mark.len() == MARK && memory.read_vec(start, MARK).is_ok_and(|b| b == mark)
}

/// Closes descriptors through which the segment was to be mapped.
fn close_descriptors(
    space: &Space,
    own: &FileId,
    code: &CallCode,
    stopped: &mut Stopped,
) -> Result<(), SessionError> {
    let folder = format!("/proc/{}/fd", space.process().entry());
    let is_ours = |fd: &u64| {
        let path = format!("{folder}/{fd}");
        let same = fs::metadata(&path).is_ok_and(|m| file_id(&m) == *own);
        same || fs::read_link(&path).is_ok_and(|link| is_unnamed(&link))
    };
    let entries = fs::read_dir(&folder).into_iter().flatten();
    let left: Vec<u64> = entries
        .filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok())
        .filter(is_ours)
        .collect();
    if left.is_empty() {
        return Ok(());
    }
    let mut remote = Remote::new(code, stopped)?;
    for fd in left {
        match remote.call("close", libc::SYS_close, [fd, 0, 0, 0, 0, 0]) {
            // The thread that was to close it has done so.
            Ok(_) | Err(TraceeError::Call(_, Errno::EBADF)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Unmaps mappings of a stopped process. Fails if a call fails.
pub(super) fn unmap<'m>(
    code: &CallCode,
    stopped: &mut Stopped,
    mappings: impl IntoIterator<Item = &'m Extent>,
) -> Result<(), SessionError> {
    let mut mappings = mappings.into_iter().peekable();
    if mappings.peek().is_none() {
        return Ok(());
    }
    let mut remote = Remote::new(code, stopped)?;
    for extent in mappings {
        remote.unmap(extent.start, extent.len)?;
    }
    Ok(())
}

/// True if the range is mapped without a file, and its beginning contains only bytes of `first` and
/// zeroes.
fn is_unused(maps: &[Mapping], memory: &Memory, extent: Extent, first: &[u8]) -> bool {
    const LOOKED_AT: usize = 64;
    let (start, end) = (extent.start, extent.end());
    let inside: Vec<&Mapping> = maps
        .iter()
        .filter(|m| m.range.start < end && start < m.range.end)
        .collect();
    // The kernel merges adjacent anonymous mappings of the same protection.
    let covers = |at: Avma| inside.iter().any(|m| m.contains(at));
    let anonymous = inside.iter().all(|m| m.file.1 == 0 && m.name.is_empty());
    let executable = inside
        .iter()
        .any(|m| m.contains(start) && m.execute && !m.write);
    let Ok(now) = memory.read_vec(start, LOOKED_AT) else {
        return false;
    };
    let expected = first.iter().copied().chain(std::iter::repeat(0));
    let known = now.iter().zip(expected).all(|(&n, e)| n == 0 || n == e);
    covers(start) && covers(Avma(end.0 - 1)) && anonymous && executable && known
}
