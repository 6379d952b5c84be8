//! The guard that every change of a target needs: the session's lock is held, what the session is has been
//! read under it, and the target has been seen to map this very segment where the document says.

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

/// A session that nobody else changes, in a target that has been seen to have it. One value is one
/// transaction over the session's journal: what was left half done is finished before it begins, and
/// what it leaves half done the next one finishes.
pub(super) struct Locked<'s> {
    session: &'s mut Session,
    pub(super) space: Arc<Space>,
    /// What of the target's memory is the session's.
    pub(super) own: Own,
    /// What is to be said of functions that are found to be out, or that were taken out when that was found.
    pub(super) taken_out: Vec<String>,
    /// Given back last.
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

/// What a session turns out to be once its lock is held.
pub(super) enum Found<'s> {
    /// In its target, and whole.
    Here(Locked<'s>),
    /// Made or taken out half by a command that was killed.
    Half(Locked<'s>),
    /// Its target has ended or become another program; the session is nobody's but the reader's.
    Gone(Presence, Lock),
}

impl Session {
    /// Takes the lock and looks what there is; in the address space `space`, where one is given.
    pub(super) fn take(&mut self, space: Option<Arc<Space>>) -> Result<Found<'_>, SessionError> {
        let lock = self.segment.lock()?;
        // Another command may have taken the session out meanwhile, and another made a new one.
        if !self.segment.is_named() || self.has_ended() {
            return Err(SegmentError::Missing.into());
        }
        self.refresh()?;
        match self.process.life() {
            Presence::Here => {}
            Presence::Unknown(cause) => return Err(SessionError::Unknown(cause)),
            gone => return Ok(Found::Gone(gone, lock)),
        }
        let opened = match space {
            Some(space) => Ok(space),
            None => Space::open(&self.process).map(Arc::new),
        };
        let (space, maps) = match opened.and_then(|space| space.maps().map(|maps| (space, maps))) {
            Ok(opened) => opened,
            Err(error) => match error.loss() {
                Some(gone) => return Ok(Found::Gone(gone, lock)),
                None => return Err(error.into()),
            },
        };
        if matches!(state_of(&self.segment), STATE_SETUP | STATE_LEAVING) {
            return Ok(Found::Half(Locked::new(self, space, lock)));
        }
        let Some(mapping) = self.segment_in(&maps) else {
            return Ok(Found::Gone(Presence::OtherProgram, lock));
        };
        // All of it is taken out at that length in the end.
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
        Ok(Found::Here(locked))
    }

    /// What it means that the target's mappings are not as they were: they go one by one where it ends.
    fn corrupt_or_gone(&self, lock: Lock) -> Result<Found<'_>, SessionError> {
        match self.process.settled() {
            gone @ (Presence::Ended | Presence::OtherProgram) => Ok(Found::Gone(gone, lock)),
            _ => Err(SegmentError::Corrupt("mappings").into()),
        }
    }

    /// Publishes something under the lock, for the runtime to read. What another command has left half done stays so:
    /// who only looks changes nothing of a target.
    pub(super) fn locked_as_it_is<R>(
        &mut self,
        publish: impl FnOnce(&mut Locked<'_>) -> Result<R, SessionError>,
    ) -> Result<R, SessionError> {
        match self.take(None)? {
            Found::Here(mut locked) if state_of(&locked.segment) == STATE_ACTIVE => {
                publish(&mut locked)
            }
            Found::Here(_) | Found::Half(_) => Err(SegmentError::Missing.into()),
            Found::Gone(presence, _) => Err(SessionError::Gone(presence)),
        }
    }

    /// Does a change under the lock, on the session as it is by then; in the address space the change was
    /// planned for, where it was.
    pub(super) fn locked<R>(
        &mut self,
        space: Option<Arc<Space>>,
        change: impl FnOnce(&mut Locked<'_>) -> Result<R, SessionError>,
    ) -> Result<R, SessionError> {
        match self.take(space)? {
            Found::Here(locked) if state_of(&locked.segment) == STATE_ENDED => {
                Err(SegmentError::Missing.into())
            }
            Found::Here(mut locked) => {
                locked.recover()?;
                change(&mut locked)
            }
            Found::Half(mut locked) => {
                locked.clear_half()?;
                Err(SegmentError::Missing.into())
            }
            Found::Gone(presence, _) => Err(SessionError::Gone(presence)),
        }
    }
}

impl<'s> Locked<'s> {
    /// A session that is known to be under this lock. Nothing of the target's memory is its own yet.
    pub(super) fn new(session: &'s mut Session, space: Arc<Space>, lock: Lock) -> Self {
        // Whoever has it may change the document.
        session.reading = Reading::default();
        Self {
            session,
            space,
            own: Own::default(),
            taken_out: Vec::new(),
            lock,
        }
    }

    /// Writes into memory of the session's, while the target runs. Where the kernel refuses a forced write
    /// by a command that does not trace (`proc_mem.force_override`), the target is stopped for it.
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
            // `run` has it stopped, and this is not the place where that could be written by.
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

    pub(super) fn note_stop(&mut self, why: &str, stopped: Duration) {
        let ns = u64::try_from(stopped.as_nanos()).unwrap_or(u64::MAX);
        self.document.stops.push(StopDoc {
            why: why.to_owned(),
            ns,
        });
    }

    /// Stops all threads.
    pub(super) fn stop_all(&self) -> Result<Stopped, SessionError> {
        Ok(Stopped::all(&self.space)?)
    }

    /// The session, to look at.
    pub(super) fn view(&self) -> View<'_> {
        View {
            process: &self.process,
            segment: &self.segment,
            document: &self.document,
            space: &self.space,
        }
    }

    /// Marks the session as over and takes its name away.
    pub(super) fn close(&self) {
        close(&self.segment, &self.lock);
    }
}

/// Marks a session as over and takes its name away.
pub(super) fn close(segment: &Segment, _held: &Lock) {
    let header = segment.header();
    // Who watched may have seen its end before.
    let _ = header
        .ended_tsc
        .compare_exchange(0, clock::tsc(), Relaxed, Relaxed);
    header.state.store(STATE_ENDED, Relaxed);
    segment.remove_name();
}

fn is_own_thread(tid: i32) -> bool {
    std::fs::exists(format!("/proc/self/task/{tid}")).unwrap_or(false)
}

fn state_of(segment: &Segment) -> u32 {
    segment.header().state.load(Acquire)
}

/// Makes way for a new session: clears away one that a killed command has never finished, and one in a program
/// that has been replaced. It is an error where there is a whole one.
pub(super) fn make_way(process: &Process, space: &Arc<Space>) -> Result<(), SessionError> {
    /// Each is cleared away or belongs to a command that was faster.
    const TRIES: usize = 16;
    for _ in 0..TRIES {
        let Some(claim) = Claim::find(process, || space.maps().map_err(SessionError::from))? else {
            return Ok(());
        };
        let lock = claim.lock()?;
        // While this one was waited for, it may have been finished, taken out, or replaced.
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
            // Nobody uses it, and whoever made it could have left it whole.
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
            // Given up for gone, and there: all of it is still to be taken out.
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
    /// True if it is over: what is marked so and still in its target has been given up by mistake.
    fn has_ended(&self) -> bool {
        state_of(&self.segment) == STATE_ENDED && self.presence() != Presence::Here
    }

    /// Reads again what other commands may have changed.
    pub fn refresh(&mut self) -> Result<(), SessionError> {
        // Before the document: what is written meanwhile is read the next time.
        let turn = self.segment.document_turn();
        if self.reading.is_of(turn) {
            return Ok(self.segment.check_whole()?);
        }
        self.document = self.segment.read_document()?;
        self.reading = Reading::at(turn);
        Ok(())
    }

    /// A session of nothing yet, under the segment that has just been made for it.
    pub(super) fn begun(process: &Process, segment: Segment, document: Document) -> Self {
        Self {
            process: process.clone(),
            segment,
            document,
            reading: Reading::default(),
        }
    }
}
