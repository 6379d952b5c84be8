//! The guard for changes of a target. While it exists, the session's lock is held and the session
//! has been read under it. The target is known to map this very segment at the address in the
//! document.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;

use abi::segment::{STATE_ACTIVE, STATE_ENDED, STATE_LEAVING, STATE_SETUP};
use patcher::Avma;

use super::reading::Reading;
use super::view::View;
use super::{Session, SessionError};
use crate::segment::{Claim, Document, Lock, RegionDoc, Segment, SegmentError, StopDoc};
use ipath_profile::clock;
use ipath_target::process::memory::is_refusal;
use ipath_target::process::{Own, Presence, Process, Space};
use ipath_target::tracee::Stopped;

/// A session that no other command changes, in a target that is known to have it. One value is one
/// transaction over the session's journal. It begins by finishing half-done work of its
/// predecessor, and its successor finishes its own.
pub(super) struct Locked<'s> {
    session: &'s mut Session,
    pub(super) space: Arc<Space>,
    /// The parts of the target's memory that belong to the session.
    pub(super) own: Own,
    /// Messages about functions found to be out, or taken out because of that.
    pub(super) taken_out: Vec<String>,
    /// Dropped last.
    lock: Lock,
}

impl Deref for Locked<'_> {
    type Target = Session;

    fn deref(&self) -> &Session {
        self.session
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Session {
        self.session
    }
}

/// The state of a session once its lock is held.
pub(super) enum LockedSession<'s> {
    /// In its target and complete.
    Here(Locked<'s>),
    /// Half made or half taken out by a command that was killed.
    Half(Locked<'s>),
    /// The session's target has ended or become another program. Only readers still use the
    /// session.
    Gone(Presence, Lock),
}

impl Session {
    /// Takes the lock and determines the state, in the address space `space` if one is given. Fails
    /// with [`SegmentError::Missing`] if the session has been removed.
    pub(super) fn take(
        &mut self,
        space: Option<Arc<Space>>,
    ) -> Result<LockedSession<'_>, SessionError> {
        let lock = self.segment.lock()?;
        // While this waited for the lock, the session may have been removed and another one
        // created.
        if !self.segment.is_named() || self.has_ended() {
            return Err(SegmentError::Missing.into());
        }
        self.refresh()?;
        match self.process.life() {
            Presence::Here => {}
            Presence::Unknown(cause) => return Err(SessionError::Unknown(cause)),
            gone => return Ok(LockedSession::Gone(gone, lock)),
        }
        let opened = match space {
            Some(space) => Ok(space),
            None => Space::open(&self.process).map(Arc::new),
        };
        let (space, maps) = match opened.and_then(|space| space.maps().map(|maps| (space, maps))) {
            Ok(opened) => opened,
            Err(error) => match error.loss() {
                Some(gone) => return Ok(LockedSession::Gone(gone, lock)),
                None => return Err(error.into()),
            },
        };
        if matches!(state_of(&self.segment), STATE_SETUP | STATE_LEAVING) {
            return Ok(LockedSession::Half(Locked::new(self, space, lock)));
        }
        let Some(mapping) = self.segment_in(&maps) else {
            return Ok(LockedSession::Gone(Presence::OtherProgram, lock));
        };
        // The segment will be unmapped at the length in the document.
        if mapping.range.end != self.document.segment.end() {
            return self.corrupt_or_gone(lock);
        }
        let mut locked = Locked::new(self, space, lock);
        let (image, regions) = (locked.document.image, locked.document.regions.clone());
        let ready = regions.iter().filter(|r| r.ready).map(RegionDoc::extent);
        for extent in std::iter::once(image).chain(ready) {
            if !locked.own.admit(&maps, extent) {
                let Locked { session, lock, .. } = locked;
                return session.corrupt_or_gone(lock);
            }
        }
        Ok(LockedSession::Here(locked))
    }

    /// Handles mappings that have changed. In a process that is ending, they go one by one.
    fn corrupt_or_gone(&self, lock: Lock) -> Result<LockedSession<'_>, SessionError> {
        match self.process.settled() {
            gone @ (Presence::Ended | Presence::OtherProgram) => {
                Ok(LockedSession::Gone(gone, lock))
            }
            _ => Err(SegmentError::Corrupt("mappings").into()),
        }
    }

    /// Publishes data for the runtime under the lock. Does not finish work that another command
    /// left half done: a command that only looks changes nothing in a target. Fails with
    /// [`SegmentError::Missing`] for a session that is not complete.
    pub(super) fn locked_as_it_is<R>(
        &mut self,
        publish: impl FnOnce(&mut Locked<'_>) -> Result<R, SessionError>,
    ) -> Result<R, SessionError> {
        match self.take(None)? {
            LockedSession::Here(mut locked) if state_of(&locked.segment) == STATE_ACTIVE => {
                publish(&mut locked)
            }
            LockedSession::Here(_) | LockedSession::Half(_) => Err(SegmentError::Missing.into()),
            LockedSession::Gone(presence, _) => Err(SessionError::Gone(presence)),
        }
    }

    /// Makes a change under the lock, on the session as read under it. Uses the address space in
    /// which the change was planned, if one is given. Finishes work that another command left half
    /// done. Fails with [`SegmentError::Missing`] if that removes the session, or if the session
    /// has ended.
    pub(super) fn locked<R>(
        &mut self,
        space: Option<Arc<Space>>,
        change: impl FnOnce(&mut Locked<'_>) -> Result<R, SessionError>,
    ) -> Result<R, SessionError> {
        match self.take(space)? {
            LockedSession::Here(locked) if state_of(&locked.segment) == STATE_ENDED => {
                Err(SegmentError::Missing.into())
            }
            LockedSession::Here(mut locked) => {
                locked.recover()?;
                change(&mut locked)
            }
            LockedSession::Half(mut locked) => {
                locked.clear_half()?;
                Err(SegmentError::Missing.into())
            }
            LockedSession::Gone(presence, _) => Err(SessionError::Gone(presence)),
        }
    }
}

impl<'s> Locked<'s> {
    /// A session whose lock is known to be held. No memory of the target is admitted as its own
    /// yet.
    pub(super) fn new(session: &'s mut Session, space: Arc<Space>, lock: Lock) -> Self {
        // A holder of the lock may change the document.
        session.reading = Reading::default();
        Self {
            session,
            space,
            own: Own::default(),
            taken_out: Vec::new(),
            lock,
        }
    }

    /// Writes into the session's own memory while the target runs. If the kernel refuses a forced
    /// write by a command that does not trace (`proc_mem.force_override`), stops the target for it.
    /// Fails if the memory cannot be written.
    pub(super) fn write_own(&mut self, writes: &[(Avma, Vec<u8>)]) -> Result<(), SessionError> {
        let mut rest = writes.iter();
        let refused = loop {
            let Some((at, bytes)) = rest.clone().next() else {
                return Ok(());
            };
            match self.own.write(self.space.memory(), *at, bytes) {
                Ok(()) => drop(rest.next()),
                Err(error) if is_refusal(&error) => break rest,
                Err(error) => return Err(SessionError::Memory("write", *at, error)),
            }
        };
        if self
            .space
            .process()
            .tracer()
            .is_some_and(|(_, by)| is_own_thread(by))
        {
            // `run` has the process stopped, and its `Stopped` is not available here.
            let why = "the kernel refuses writes into its code (proc_mem.force_override): start it by itself and \
                       attach to it";
            return Err(SessionError::Held(why.to_owned()));
        }
        let mut stopped = Stopped::all(&self.space)?;
        let text = stopped.text();
        let written = refused.into_iter().try_for_each(|(at, bytes)| {
            text.write(*at, bytes)
                .map_err(|e| SessionError::Memory("write", *at, e))
        });
        let duration = stopped.resume()?;
        self.note_stop("write", duration);
        written
    }

    /// Adds a stop of the target to the document, with its reason and length.
    pub(super) fn note_stop(&mut self, why: &str, stopped: Duration) {
        let ns = u64::try_from(stopped.as_nanos()).unwrap_or(u64::MAX);
        self.document.stops.push(StopDoc {
            why: why.to_owned(),
            ns,
        });
    }

    /// Writes the document at the end of a change. This session need not read it again.
    pub(super) fn write_last(&mut self) -> Result<(), SessionError> {
        self.segment.write_document(&self.document)?;
        self.note_written();
        Ok(())
    }

    /// Notes that the document has not changed since it was written. This session need not read it
    /// again.
    pub(super) fn note_written(&mut self) {
        self.session.reading = Reading::at(self.segment.document_turn());
    }

    /// Stops all threads. Fails if the process cannot be traced.
    pub(super) fn stop_all(&self) -> Result<Stopped, SessionError> {
        Ok(Stopped::all(&self.space)?)
    }

    /// A read-only view of the session.
    pub(super) fn view(&self) -> View<'_> {
        View {
            process: &self.process,
            segment: &self.segment,
            document: &self.document,
            space: &self.space,
        }
    }

    /// Marks the session as ended and removes its name.
    pub(super) fn close(&self) {
        close(&self.segment, &self.lock);
    }
}

/// Marks a session as ended and removes its name.
pub(super) fn close(segment: &Segment, _held: &Lock) {
    let header = segment.header();
    // A watching command may have recorded the end before.
    let _ = header
        .ended_tsc
        .compare_exchange(0, clock::tsc(), Relaxed, Relaxed);
    header.state.store(STATE_ENDED, Relaxed);
    segment.remove_name();
}

/// True if a thread of this process has the id `tid`.
fn is_own_thread(tid: i32) -> bool {
    std::fs::exists(format!("/proc/self/task/{tid}")).unwrap_or(false)
}

/// The state in the segment's header, one of the `STATE_*` values.
fn state_of(segment: &Segment) -> u32 {
    segment.header().state.load(Acquire)
}

/// Makes way for a new session. Clears one that a killed command left half made, and removes the
/// name of one whose program has been replaced.
///
/// # Errors
/// [`SessionError::Exists`] if the process has a complete session. Otherwise an old session cannot
/// be read or cleared.
pub(super) fn make_way(process: &Process, space: &Arc<Space>) -> Result<(), SessionError> {
    /// The most old sessions to deal with. Each one is cleared or belongs to a command that was
    /// faster.
    const TRIES: usize = 16;
    for _ in 0..TRIES {
        let Some(claim) = Claim::find(process, || space.maps().map_err(SessionError::from))? else {
            return Ok(());
        };
        let lock = claim.lock()?;
        // While this waited for the lock, the session may have been completed, removed, or
        // replaced.
        let maps = space.maps()?;
        let is_mapped = |segment: &Segment| maps.iter().any(|m| segment.is_in(m));
        if !claim.is_named() {
            continue;
        }
        if !claim.is_begun()? {
            claim.remove_name();
            continue;
        }
        let (is_claimed, name) = (claim.mapped, claim.path().map(std::path::Path::to_owned));
        let segment = match Segment::of(claim, process) {
            Ok(segment) => segment,
            // No process uses it, and its creator could have left it intact.
            Err(SegmentError::Corrupt(_)) if !is_claimed && name.is_some() => {
                name.into_iter()
                    .for_each(|name| drop(std::fs::remove_file(name)));
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        match state_of(&segment) {
            STATE_SETUP | STATE_LEAVING => {
                let document = segment.read_document()?;
                let mut session = Session::begun(process, segment, document);
                Locked::new(&mut session, Arc::clone(space), lock).clear_half()?;
            }
            STATE_ACTIVE if is_mapped(&segment) => return Err(SessionError::Exists),
            // Marked as ended but still mapped: all of it must still be removed.
            STATE_ENDED if is_mapped(&segment) => {
                drop(lock);
                let document = segment.read_document()?;
                Session::begun(process, segment, document).detach()?;
            }
            STATE_ACTIVE | STATE_ENDED => segment.remove_name(),
            _ => return Err(SegmentError::Corrupt("state").into()),
        }
    }
    Err(SegmentError::Busy.into())
}

impl Session {
    /// True if the session has ended. One that is marked so but still in its target was given up by
    /// mistake.
    fn has_ended(&self) -> bool {
        state_of(&self.segment) == STATE_ENDED && self.presence() != Presence::Here
    }

    /// Reads the document again if another command may have changed it.
    ///
    /// # Errors
    /// The segment or the document is damaged.
    pub fn refresh(&mut self) -> Result<(), SessionError> {
        // Before the document: a change during the read is then noticed the next time.
        let turn = self.segment.document_turn();
        if self.reading.is_of(turn) {
            return Ok(self.segment.check_whole()?);
        }
        self.document = self.segment.read_document()?;
        self.reading = Reading::at(turn);
        Ok(())
    }

    /// A session on a segment that has just been made for it.
    pub(super) fn begun(process: &Process, segment: Segment, document: Document) -> Self {
        Self {
            process: process.clone(),
            segment,
            document,
            reading: Reading::default(),
        }
    }
}
