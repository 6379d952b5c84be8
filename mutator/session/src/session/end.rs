//! Taking a session out of its target.

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use abi::image::SYMBOL_COROUTINES;
use patcher::Avma;

use super::locked::{Locked, LockedSession, close};
use super::parked::{IN_STOP, saved_inside};
use super::pending::{let_loads_go, tell_whether_awaited};
use super::recover::{mark_leaving, unmap, unmap_now};
use super::rows::follows_goroutines;
use super::runtime_memory::{own_mappings, read};
use super::stack_scan::Stacks;
use super::traps::{after_traps, unhandle_traps};
use super::view::View;
use super::write::{leave_trampolines, move_back};
use super::{Session, SessionError};
use crate::segment::{
    Document, Forking, FunctionDoc, Journal, PairDoc, RegionDoc, Role, SegmentError, SiteDoc,
    Witness,
};
use ipath_target::priority::Priority;
use ipath_target::process::{Activity, Extent, Memory, Presence, Text, Tid, thread_state};
use ipath_target::progress::Step;
use ipath_target::tracee::{CallCode, Stopped, StoppedThread, pause, tracing};

/// The state of the target after the end of its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The target runs on, without any part of the session.
    Detached,
    /// The target had ended or become another program before.
    TargetGone,
}

/// How long to wait for threads to leave the runtime's code.
#[derive(Clone, Copy)]
struct Patience {
    time: Duration,
    /// Additional time for each thread of the process: thousands of turns take minutes.
    each: Duration,
    /// The most threads inside for each processor. The more there are, the longer each waits for
    /// its turn.
    threads: usize,
}

/// For unmapping the runtime.
const TO_UNMAP: Patience = Patience {
    time: Duration::from_secs(30),
    each: Duration::from_millis(10),
    threads: usize::MAX,
};

/// For a session that continues even if threads stay inside.
const TO_GO_ON: Patience = Patience {
    time: Duration::from_secs(1),
    each: Duration::ZERO,
    threads: 8,
};

impl Session {
    /// Takes everything out of the target and ends the session. This value can still read the
    /// segment.
    ///
    /// # Errors
    /// The session cannot be locked, or the process cannot be changed.
    pub fn detach(&mut self) -> Result<Ended, SessionError> {
        tracing(|| {
            let _priority = Priority::raise();
            match self.take(None)? {
                LockedSession::Half(mut locked) => {
                    let cleared = locked.clear_half().map(|()| Ended::Detached);
                    locked.or_gone(cleared)
                }
                LockedSession::Here(mut locked) => {
                    let ended = locked.recover().and_then(|()| locked.end());
                    locked.or_gone(ended)
                }
                LockedSession::Gone(_, lock) => {
                    close(&self.segment, &lock);
                    Ok(Ended::TargetGone)
                }
            }
        })
    }
}

impl Session {
    /// Ends a session whose process has ended or become another program. Its segment loses its name
    /// and stays readable here.
    ///
    /// # Errors
    /// The session is still in its process, or its state cannot be determined.
    pub fn give_up(&mut self) -> Result<(), SessionError> {
        match self.take(None) {
            Ok(LockedSession::Gone(_, lock)) => {
                close(&self.segment, &lock);
                Ok(())
            }
            Ok(LockedSession::Here(_) | LockedSession::Half(_)) => Err(SessionError::Unknown(
                "its process has not ended".to_owned(),
            )),
            // Another command has done it already.
            Err(SessionError::Segment(SegmentError::Missing)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl Locked<'_> {
    /// Takes everything out of the target, closes the session, and writes the final document. After
    /// an error, parts of the session may still be in the target.
    pub(super) fn end(&mut self) -> Result<Ended, SessionError> {
        // Threads that wait for libraries to be inspected are in the runtime.
        let_loads_go(self)?;
        if let Err(error) = take_everything_out(self) {
            // Some of the session is still in the target. The caller gets that error, not this one.
            let _ = tell_whether_awaited(self);
            return Err(error);
        }
        self.close();
        // For readers that still have the segment. If there is no room, the old document stays.
        match self.segment.write_document(&self.document) {
            Ok(()) | Err(SegmentError::Full) => Ok(Ended::Detached),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns `TargetGone` instead of an error if the target has ended or become another program.
    pub(super) fn or_gone(
        &self,
        ended: Result<Ended, SessionError>,
    ) -> Result<Ended, SessionError> {
        let is_gone = || {
            let presence = match self.process.settled() {
                Presence::Here => self.presence(),
                other => other,
            };
            matches!(presence, Presence::Ended | Presence::OtherProgram)
        };
        if ended.is_err() && is_gone() {
            self.close();
            return Ok(Ended::TargetGone);
        }
        ended
    }
}

impl View<'_> {
    /// Rereads the stacks that may have changed before this thread was stopped. Fails if the
    /// process cannot be read.
    pub(super) fn renew(
        &self,
        memory: &Memory,
        stacks: &mut Stacks,
        thread: &StoppedThread,
    ) -> Result<(), SessionError> {
        let in_runtime = self.document.image.contains(thread.pc());
        if stacks.are_stale(thread.sp()) {
            *stacks = self.stacks(memory)?;
        } else if in_runtime && stacks.may_lack(thread.sp()) {
            // The thread has just entered the runtime or is in the fast path, on a stack of its
            // own.
            stacks.renew_own(self.own_mappings(memory)?);
        }
        Ok(())
    }

    /// Restores the original bytes of the patches `left` of these sites, except those in
    /// [`View::kept_patches`]. Returns the address of a landing that is kept. Fails if the process
    /// cannot be read or changed.
    pub(super) fn restore_left(
        &self,
        stopped: &mut Stopped,
        stacks: &mut Stacks,
        (sites, left): (&[&SiteDoc], &[u32]),
    ) -> Result<Option<Avma>, SessionError> {
        let awaited = self.kept_patches(stopped, stacks, sites)?;
        let left = left.iter().copied();
        let left: Vec<u32> = left.filter(|patch| !awaited.contains_key(patch)).collect();
        let landings = self.landings_of(sites.iter().copied())?;
        self.restore_entries(stopped.text(), &left)?;
        let is_back = |pair: &&PairDoc| landings.values().any(|&at| at == pair.trampoline);
        let starts = sites.iter().flat_map(|site| &site.hook_starts);
        move_back(stopped, starts.filter(is_back), std::iter::empty())?;
        Ok(awaited.into_values().next())
    }

    /// Writes the original bytes of the journal entries at `indexes` to the text. Fails if the
    /// journal is damaged or the text cannot be written.
    pub(super) fn restore_entries(
        &self,
        text: Text<'_>,
        indexes: &[u32],
    ) -> Result<(), SessionError> {
        let journal = Journal(self.segment);
        let patches: Result<Vec<_>, _> = indexes
            .iter()
            .map(|&i| journal.patch(i).map(|p| (i, p)))
            .collect();
        self.restore_patches(text, &patches?)
    }

    /// All mappings of the session except the segment, including those that the runtime made for
    /// itself. Fails if the target's memory cannot be read.
    pub(super) fn mappings(&self, memory: &Memory) -> Result<Vec<Extent>, SessionError> {
        let mut mappings = self.own_mappings(memory)?;
        // Mappings inside the image's range are removed with it.
        let image = self.document.image;
        mappings.retain(|m| !image.contains(m.start));
        mappings.extend(self.document.regions.iter().map(RegionDoc::extent));
        mappings.push(self.document.image);
        Ok(mappings)
    }

    /// The stacks of the target as they are now. Fails if the process cannot be read.
    pub(super) fn stacks(&self, memory: &Memory) -> Result<Stacks, SessionError> {
        // The maps come first. If a thread maps a stack in between, only the list contains it, and
        // the maps are read again. In the other order, it could be missing from the list unnoticed.
        let maps = self.space.maps()?;
        Ok(Stacks::of(maps, self.own_mappings(memory)?))
    }

    /// True if signal handlers may have left contexts inside the runtime. That requires threads
    /// with several stacks. Go programs are exempt: Go's runtime handles signals on separate stacks
    /// and returns over them.
    pub(super) fn may_be_parked(&self, memory: &Memory) -> bool {
        let flag = self.symbol(SYMBOL_COROUTINES);
        let have_been = flag.and_then(|at| read(memory, at, size_of::<u32>()));
        !follows_goroutines(self.document) && have_been.is_ok_and(|flag| flag != [0; 4])
    }

    /// The program counter inside the session's code that a context of a signal handler has saved.
    /// `None` if none is found in the first `most` bytes. Fails if the process cannot be read.
    pub(super) fn parked_inside(
        &self,
        memory: &Memory,
        most: u64,
    ) -> Result<Option<Avma>, SessionError> {
        if !self.may_be_parked(memory) {
            return Ok(None);
        }
        let maps = self.space.maps()?;
        let mut ours = self.mappings(memory)?;
        ours.push(self.document.segment);
        let ours: Vec<_> = ours.into_iter().map(Extent::range).collect();
        let code = code_of(self.document);
        let is_inside = |pc| is_in(&code, pc);
        let maps = maps.iter();
        Ok(saved_inside(
            self.process,
            memory,
            maps,
            &ours,
            most,
            is_inside,
        ))
    }

    /// Waits until each of these threads has run for longer than it takes to leave the runtime,
    /// while all other threads run as well. Returns false if a thread has not had a processor by
    /// `until`, or if a signal has stopped its process.
    pub(super) fn let_leave(&self, inside: &[Tid], until: Instant) -> bool {
        /// A walk of a deep stack takes tens of microseconds.
        const ENOUGH_NS: u64 = 200_000;
        /// The first pause. Each one is twice as long as the one before: each wakeup of this thread
        /// preempts another, which may hold the lock that the others wait for.
        const FIRST: Duration = Duration::from_millis(2);
        const LONGEST: Duration = Duration::from_millis(100);
        let pid = self.process.pid;
        let ran = |tid| Some(Activity::of(pid, tid)?.ran);
        let enough = |&tid: &Tid| Some((tid, ran(tid)? + ENOUGH_NS));
        let waiting: Vec<(Tid, u64)> = inside.iter().filter_map(enough).collect();
        let mut rest = FIRST;
        // One thread after the other: checking thousands at a time would take the processor from
        // them.
        for (tid, enough) in waiting {
            while ran(tid).is_some_and(|now| now < enough) {
                match thread_state(pid, tid) {
                    Some('T') => return false,
                    Some('R') if Instant::now() > until => return false,
                    _ if Instant::now() > until => break,
                    _ => {}
                }
                pause(rest);
                rest = (rest * 2).min(LONGEST);
            }
        }
        true
    }

    /// The threads that are in a trampoline or the runtime, or will return to one. Threads at
    /// copied instructions whose originals are restored are first moved to those, and do not count.
    /// Fails if the process cannot be read.
    pub(super) fn threads_inside(
        &self,
        memory: &Memory,
        stopped: &mut Stopped,
        stacks: &mut Stacks,
    ) -> Result<Vec<Tid>, SessionError> {
        let code = code_of(self.document);
        let trapped = after_traps(self.document);
        let is_inside = |pc: Avma| is_in(&code, pc) || trapped.contains(&pc);
        // Threads at copied instructions continue at the originals if those have been restored.
        let functions = &self.document.functions;
        let sites = functions.iter().flat_map(FunctionDoc::sites_restored);
        leave_trampolines(stopped, sites)?;
        let mut inside = Vec::new();
        for thread in stopped.threads() {
            self.renew(memory, stacks, thread)?;
            let mut saved = || stacks.interrupted(memory, thread.sp());
            if is_inside(thread.pc()) || saved().into_iter().any(is_inside) {
                inside.push(thread.tid());
            }
        }
        Ok(inside)
    }
}

/// Takes out all probes, waits until no thread is in the runtime, and unmaps everything.
fn take_everything_out(locked: &mut Locked<'_>) -> Result<(), SessionError> {
    let for_children = witnesses_of_children(&locked.document);
    let functions = &locked.document.functions;
    let others =
        (0..functions.len()).filter(|i| functions[*i].is_in() && !for_children.contains(i));
    let others: Vec<usize> = others.collect();
    locked.take_out("detach", &others)?;
    let functions = &locked.document.functions;
    let sites = for_children.iter().flat_map(|&i| &functions[i].sites);
    let staying: Vec<u32> = sites.flat_map(|site| site.patches.clone()).collect();
    // Patches that remain after a command was killed, and landings to which signal handlers return.
    restore_standing(locked, |patch| !staying.contains(patch))?;
    let space = Arc::clone(&locked.space);
    let memory = space.memory();
    // The runtime maps memory for itself, so its list is complete only when no thread is in it.
    wait_until_left(locked, "detach", memory, TO_UNMAP)?;
    if !for_children.is_empty() {
        // Last: a signal handler that interrupted the recording of a call may have forked
        // meanwhile.
        locked.take_out("detach", &for_children)?;
        restore_standing(locked, |_| true)?;
        wait_until_left(locked, "detach", memory, TO_UNMAP)?;
    }
    if unhandle_traps(locked)? {
        wait_until_left(locked, "detach", memory, TO_UNMAP)?;
    }
    let mappings = locked.view().mappings(memory)?;
    locked.document.cpu_ended_ns = locked.process.cpu_time();
    mark_leaving(locked, &mappings)?;
    unmap_now(locked, "detach", &in_order(&locked.document, &mappings))
}

/// Restores the original bytes of the remaining patches for which `is_meant` is true. Waits until
/// no signal handler will return to them.
fn restore_standing(
    locked: &mut Locked<'_>,
    is_meant: impl Fn(&u32) -> bool,
) -> Result<(), SessionError> {
    const FIRST: Duration = Duration::from_millis(1);
    const LONGEST: Duration = Duration::from_millis(100);
    let deadline = Instant::now() + TO_UNMAP.time;
    let mut rest = FIRST;
    loop {
        let mut left = Journal(&locked.segment).standing()?;
        left.retain(&is_meant);
        if left.is_empty() {
            return Ok(());
        }
        let mut kept = None;
        locked.in_stop("detach", |locked, stopped, stacks| {
            let functions = locked.document.functions.iter();
            let sites: Vec<&SiteDoc> = functions.flat_map(|f| &f.sites).collect();
            kept = locked
                .view()
                .restore_left(stopped, stacks, (&sites, &left))?;
            Ok(())
        })?;
        let Some(at) = kept else {
            return Ok(());
        };
        if Instant::now() > deadline {
            return Err(stays(format_args!("{INTERRUPTED} {at}")));
        }
        let _step = Step::begin("waiting for signal handlers to return");
        pause(rest);
        rest = (rest * 2).min(LONGEST);
    }
}

/// The ids of the witnesses that are in and that handle children forked while a call is being
/// recorded.
fn witnesses_of_children(document: &Document) -> Vec<usize> {
    let functions = document.functions.iter().enumerate();
    let of_children = functions
        .filter(|(_, f)| f.is_in() && f.role == Role::Witness(Witness::Forks(Forking::Copies)));
    of_children.map(|(id, _)| id).collect()
}

/// Removes the witnesses of fork if no function is in or awaited, once no thread is in the runtime.
/// They stay in if a thread stays inside or many threads are. Fails if the process cannot be read
/// or changed.
pub(super) fn take_out_last(locked: &mut Locked<'_>, why: &str) -> Result<(), SessionError> {
    let witnesses = witnesses_of_children(&locked.document);
    let functions = &locked.document.functions;
    let is_needed = functions.iter().any(|f| f.is_in() && f.role.is_shown());
    if witnesses.is_empty() || is_needed || !locked.document.pending.is_empty() {
        return Ok(());
    }
    let space = Arc::clone(&locked.space);
    match wait_until_left(locked, why, space.memory(), TO_GO_ON) {
        Ok(()) => locked.take_out(why, &witnesses),
        Err(SessionError::Held(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The mappings in the order of unmapping. The segment is last because it lists the others.
fn in_order(document: &Document, mappings: &[Extent]) -> Vec<Extent> {
    let mut order = adjoined(mappings);
    order.push(document.segment);
    order
}

/// Waits until no thread is in a trampoline or the runtime, or will return to one. Contexts that
/// signal handlers have left count too. No new thread can enter. Fails with [`SessionError::Held`]
/// if `patience` is exceeded.
fn wait_until_left(
    locked: &mut Locked<'_>,
    why: &str,
    memory: &Memory,
    patience: Patience,
) -> Result<(), SessionError> {
    /// How long threads may leave by themselves at first.
    const BY_THEMSELVES: Duration = Duration::from_secs(5);
    /// How long threads may leave by themselves after turns.
    const AGAIN: Duration = Duration::from_millis(200);
    const UNTIL_ITS_TURN: Duration = Duration::from_millis(10);
    let all = locked.process.tids().map_or(0, |tids| tids.len());
    let each = u32::try_from(all).map_or(Duration::MAX, |all| patience.each.saturating_mul(all));
    let deadline = Instant::now() + patience.time.saturating_add(each);
    let step = Step::begin("waiting for threads to leave the runtime");
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let most = patience.threads.saturating_mul(processors);
    let mut late: Vec<Tid> = Vec::new();
    // True if no thread was inside in the previous stop.
    let mut was_left = !locked.view().may_be_parked(memory);
    loop {
        if !late.is_empty() {
            let code = code_of(&locked.document);
            let is_inside = |pc| is_in(&code, pc);
            let duration = locked.stop_all()?.give_turns(&late, is_inside)?;
            locked.note_stop(why, duration);
        }
        let mut stacks = locked.view().stacks(memory)?;
        let parked = locked.view().parked_inside(memory, u64::MAX)?;
        let mut stopped = locked.stop_all()?;
        let inside = locked
            .view()
            .threads_inside(memory, &mut stopped, &mut stacks);
        // A context may be left after the scan before the stop. The scan in the stop finds it,
        // within its limit.
        let parked = parked.map_or_else(
            || locked.view().parked_inside(memory, IN_STOP),
            |p| Ok(Some(p)),
        );
        let threads = stopped.threads().count();
        let duration = stopped.resume()?;
        locked.note_stop(why, duration);
        let inside = inside?;
        step.at(threads - inside.len(), threads);
        let who = match (inside.first(), parked?) {
            (Some(first), _) => format!("thread {first}"),
            (None, Some(at)) => format!("{INTERRUPTED} {at}"),
            (None, None) if was_left => return Ok(()),
            (None, None) => {
                // A thread that was inside may have left a context after the scan.
                was_left = true;
                continue;
            }
        };
        was_left = !locked.view().may_be_parked(memory);
        if Instant::now() > deadline || inside.len() > most {
            return Err(stays(format_args!("{who}")));
        }
        if inside.is_empty() {
            pause(UNTIL_ITS_TURN);
        }
        let patience = if late.is_empty() {
            BY_THEMSELVES
        } else {
            AGAIN
        };
        let has_left = locked
            .view()
            .let_leave(&inside, deadline.min(Instant::now() + patience));
        // Any of these threads may hold the lock that the others wait for.
        late = if has_left { Vec::new() } else { inside };
    }
}

/// The trampolines and the runtime.
fn code_of(document: &Document) -> Vec<Extent> {
    let regions = document.regions.iter().map(RegionDoc::extent);
    regions.chain([document.image]).collect()
}

/// Unmaps a session whose target is stopped and has not run since it was mapped. Fails if the
/// target cannot be changed.
pub(super) fn unmap_in(locked: &mut Locked<'_>, stopped: &mut Stopped) -> Result<(), SessionError> {
    let space = Arc::clone(&locked.space);
    let left = Journal(&locked.segment).standing()?;
    locked.view().restore_entries(stopped.text(), &left)?;
    let mappings = locked.view().mappings(space.memory())?;
    let code = CallCode::find(&locked.process, &space.maps()?, space.memory())?;
    unmap(&code, stopped, &in_order(&locked.document, &mappings))?;
    locked.close();
    Ok(())
}

impl Session {
    /// The mappings that the runtime has made for itself. Fails if the target's memory cannot be
    /// read.
    pub(super) fn own_mappings(&self, memory: &Memory) -> Result<Vec<Extent>, SessionError> {
        own_mappings(&self.document, memory)
    }
}

/// The subject of the error if a saved context, not a thread, keeps the runtime mapped.
const INTERRUPTED: &str = "code interrupted by a signal handler at";

/// The error for a runtime that stays mapped.
fn stays(who: fmt::Arguments<'_>) -> SessionError {
    SessionError::Held(format!(
        "the probes are out, but {who} is still in the runtime, which stays mapped; try again \
        later"
    ))
}

fn is_in(extents: &[Extent], at: Avma) -> bool {
    extents.iter().any(|extent| extent.contains(at))
}

/// Returns the mappings in order, with adjacent ones joined.
fn adjoined(mappings: &[Extent]) -> Vec<Extent> {
    let mut sorted = mappings.to_vec();
    sorted.sort_unstable();
    let mut joined: Vec<Extent> = Vec::new();
    for mapping in sorted {
        match joined.last_mut() {
            Some(last) if last.end() == mapping.start => last.len += mapping.len,
            _ => joined.push(mapping),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::{Extent, adjoined};

    #[test]
    fn mappings_that_touch_become_one() {
        let adjoined = |mappings: &[(u64, u64)]| {
            let mappings: Vec<Extent> = mappings.iter().copied().map(Extent::from).collect();
            let joined = adjoined(&mappings).into_iter().map(<(u64, u64)>::from);
            joined.collect::<Vec<_>>()
        };
        assert_eq!(adjoined(&[(30, 5), (10, 10), (20, 10)]), [(10, 25)]);
        assert_eq!(adjoined(&[(10, 10), (21, 10)]), [(10, 10), (21, 10)]);
        assert!(adjoined(&[]).is_empty());
    }
}
