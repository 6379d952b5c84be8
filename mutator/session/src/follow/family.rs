//! The state of the tracing thread: the processes that it follows.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::gathering::Over;
use super::letting::Letting;
use super::shared::{Newcomer, Shared, Wanted, lock, program_of};
use crate::launch::{Arrived, Loader};
use crate::session::{
    Changed, Options, Session, SessionError, Where, has_leak_check, select_stopped,
};
use ipath_profile::clock;
use ipath_symbols::images;
use ipath_target::process::{Pid, Presence, Process, Space, Tid};
use ipath_target::tracee::{
    Change, Follow, Stopped, TraceeError, begun, change, collect_stop, cont, followed, go_on,
    leave_exec, let_go_on, mend, next, pause, trace_all,
};

/// A followed process.
pub(super) struct Member {
    pub(super) process: Process,
    /// The process that created this one. `None` for the first process, or if it is unknown.
    parent: Option<Pid>,
    /// The process's session, which its children get too. `None` if it is not measured.
    pub(super) session: Option<Session>,
    /// The process's loader, while that loads libraries. Otherwise `None`.
    loading: Option<Loader>,
    /// The process whose memory this one shares. `None` if it shares none.
    pub(super) shares: Option<Pid>,
}

/// A child that is stopped until the first session is created.
pub(super) struct Held {
    pub(super) tid: Tid,
    /// True if the child is in a group stop (ptrace(2)).
    pub(super) in_group: bool,
    pub(super) parent: Pid,
}

/// The followed processes.
pub(super) struct Family {
    pub(super) wanted: Wanted,
    pub(super) shared: Arc<Mutex<Shared>>,
    /// Takes the sessions of processes that have ended before these were handed out.
    over: Over,
    pub(super) members: BTreeMap<Pid, Member>,
    /// The process that following began with. `None` until there is one.
    first: Option<Process>,
    /// True once no more sessions are created in programs that are executed.
    pub(super) is_closed: bool,
    /// Children that are stopped until the first session is created. `None` once it is created or
    /// has failed.
    pub(super) held: Option<Vec<Held>>,
    /// True once all processes have been detached. Children that they create after that are not
    /// followed.
    pub(super) has_let_go: bool,
}

/// The note on a program that cannot be detached before its leak check.
const NO_LEAK_CHECK: &str = "LeakSanitizer does not work in it while it is followed: \
    ASAN_OPTIONS=detect_leaks=0 turns it off";

/// Why a process is not measured, with a remedy if there is one.
pub(super) type Unmeasured = String;

impl Family {
    pub(super) fn new(wanted: Wanted, shared: Arc<Mutex<Shared>>, over: Over) -> Self {
        Self {
            wanted,
            shared,
            over,
            members: BTreeMap::new(),
            first: None,
            is_closed: false,
            held: None,
            has_let_go: false,
        }
    }

    /// Creates no more sessions in programs that are executed from now on.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
    }

    /// Begins to trace each thread of a running process, without stopping it. From now on its
    /// children are held. Fails if the process cannot be traced.
    pub(super) fn follow(
        &mut self,
        process: &Process,
        parent: Option<Pid>,
    ) -> Result<(), TraceeError> {
        self.held.get_or_insert_default();
        trace_all(process)?;
        self.enter(process.clone(), parent);
        Ok(())
    }

    /// Adds a process that the tracing thread has started, and that it traces already.
    pub(super) fn adopt(&mut self, process: &Process) {
        self.known(process.pid);
    }

    /// True if a process is followed. Adds the first process, whose first event leads here.
    pub(super) fn known(&mut self, pid: Pid) -> bool {
        let is_followed = followed::process_of(Tid(pid.0)).is_some();
        if is_followed
            && !self.members.contains_key(&pid)
            && let Ok(process) = Process::find(pid)
        {
            self.enter(process, None);
        }
        is_followed
    }

    /// Adds a process, or replaces the one with the same id.
    pub(super) fn enter(&mut self, process: Process, parent: Option<Pid>) {
        let member = Member {
            process,
            parent,
            session: None,
            loading: None,
            shares: None,
        };
        if member.parent.is_none() {
            self.first.get_or_insert(member.process.clone());
        }
        self.members.insert(member.process.pid, member);
        lock(&self.shared).seen.living = self.members.len() as u64;
    }

    /// Removes a process, and ends its session.
    fn remove(&mut self, pid: Pid) {
        self.retire(pid);
        self.members.remove(&pid);
        let mut shared = lock(&self.shared);
        shared.let_go.remove(&pid);
        shared.seen.living = self.members.len() as u64;
    }

    /// Removes processes that have ended, including those whose end caused no event.
    pub(super) fn remove_ended(&mut self) {
        let has_ended = |m: &&Member| m.process.life() == Presence::Ended;
        let ended = self.members.values().filter(has_ended);
        let ended: Vec<Pid> = ended.map(|m| m.process.pid).collect();
        ended.into_iter().for_each(|pid| self.remove(pid));
    }

    /// Waits until all followed programs have loaded their libraries, but no longer than 5 seconds.
    /// Until then their loaders contain our system call or breakpoint.
    fn finish_loading(&mut self) {
        const PATIENCE: Duration = Duration::from_secs(5);
        const PAUSE: Duration = Duration::from_micros(200);
        let until = Instant::now() + PATIENCE;
        loop {
            let loading = self.members.values().filter(|m| m.loading.is_some());
            let pids: Vec<Pid> = loading.map(|m| m.process.pid).collect();
            if pids.is_empty() || Instant::now() > until {
                return;
            }
            for pid in pids {
                let tid = Tid(pid.0);
                match change(tid) {
                    Ok(Change::None) => {}
                    Ok(Change::Ended) | Err(_) => self.remove(pid),
                    Ok(change) => self.happened(tid, change),
                }
            }
            pause(PAUSE);
        }
    }

    /// Detaches from all processes, whatever they are doing.
    pub(super) fn let_go(&mut self) {
        self.is_closed = true;
        self.begin_held();
        self.finish_loading();
        self.has_let_go = true;
        for (pid, member) in std::mem::take(&mut self.members) {
            let Ok(space) = Space::open(&member.process).map(Arc::new) else {
                followed::let_go(pid);
                continue;
            };
            let stopped = Stopped::all(&space);
            // They continue untraced. A process that cannot be stopped is detached when this thread
            // ends.
            followed::let_go(pid);
            let _ = stopped.and_then(|mut stopped| {
                let mut loading = member.loading.iter();
                let disarmed = loading.try_for_each(|one| one.disarm_stopped(&mut stopped));
                stopped.resume().and(disarmed)
            });
        }
        lock(&self.shared).seen.living = 0;
    }

    /// Ends the session of a process. A session that was not handed out is added up. Otherwise, and
    /// if the process has no session, the end of its program is reported.
    fn retire(&self, pid: Pid) {
        let now = clock::tsc();
        let mut shared = lock(&self.shared);
        let newcomer = shared.newcomers.remove(&pid);
        match newcomer {
            Some(Newcomer { session, .. }) => {
                drop(shared);
                session.note_end_at(now);
                self.over.take(session);
            }
            None => shared.over.push((pid, now)),
        }
    }

    /// Reports why a process is not measured. Returns false, and reports nothing, if it has ended.
    pub(super) fn remark(&self, pid: Pid, why: &str) -> bool {
        self.remark_by(pid, why, why)
    }

    /// Like [`Self::remark`], with a text that contains the cause. Returns false, and reports
    /// nothing, if the process has ended.
    pub(super) fn remark_by(&self, pid: Pid, cause: &str, text: &str) -> bool {
        let member = self.members.get(&pid);
        if member.is_some_and(|m| m.process.settled() == Presence::Ended) {
            return false;
        }
        let program = member.and_then(|m| program_of(&m.process));
        lock(&self.shared).remarks.say(pid, program, cause, text);
        true
    }

    /// Adds and counts a session that is to be handed out.
    pub(super) fn welcome(&self, newcomer: Newcomer) {
        let pid = newcomer.session.process().pid;
        let mut shared = lock(&self.shared);
        shared.seen.measured += 1;
        shared.newcomers.insert(pid, newcomer);
    }

    /// Handles an exec: the process is at the very beginning of another program.
    fn replaced(&mut self, tid: Tid) {
        let pid = Pid(tid.0);
        collect_stop(tid);
        followed::replace(pid);
        self.retire(pid);
        match Process::find(pid) {
            Ok(process) if !self.members.contains_key(&pid) => {
                let parent = process.parent();
                self.enter(process, parent);
            }
            _ => {}
        }
        lock(&self.shared).seen.programs += 1;
        let Some(member) = self.members.get_mut(&pid) else {
            go_on(tid, false);
            return;
        };
        (member.session, member.loading, member.shares) = (None, None, None);
        let loading = if self.is_closed {
            Ok(Loading::Loaded)
        } else {
            load(&member.process)
        };
        match loading {
            Ok(Loading::By(loader)) => member.loading = Some(loader),
            Ok(Loading::Loaded) => return self.begin_at_once(pid),
            Err(why) => {
                if self.remark(pid, &format!("not measured: {why}")) {
                    lock(&self.shared).seen.unmeasured_programs += 1;
                }
            }
        }
        go_on(tid, false);
    }

    /// Measures a program that loads no libraries.
    fn begin_at_once(&mut self, pid: Pid) {
        let tid = Tid(pid.0);
        match leave_exec(tid) {
            Ok(Change::Stopped(in_group)) => {
                self.begin_program(pid);
                go_on(tid, in_group);
            }
            // The program gets the signal before it has done anything.
            Ok(Change::Signal(signal)) => {
                self.begin_program(pid);
                let _ = cont(tid, signal);
            }
            Ok(Change::Ended) => {}
            other => {
                let why = other.map_or_else(|e| e.to_string(), |change| format!("{change:?}"));
                self.remark(
                    pid,
                    &format!("not measured: {why} at its first instruction"),
                );
                go_on(tid, false);
            }
        }
    }

    /// Handles a trap in a program that is loading its libraries. Returns the signal to deliver, 0
    /// for none.
    fn trapped(&mut self, pid: Pid) -> i32 {
        let Some(member) = self.members.get_mut(&pid) else {
            return libc::SIGTRAP;
        };
        let Some(loader) = &member.loading else {
            return libc::SIGTRAP;
        };
        let (is_over, signal) = match loader.arrived() {
            Ok(Arrived::Loading) => (loader.pass().is_err(), 0),
            Ok(Arrived::Loaded) => (true, 0),
            Ok(Arrived::Elsewhere) => (true, libc::SIGTRAP),
            Err(_) => (true, 0),
        };
        if is_over {
            member.loading = None;
            self.begin_program(pid);
        }
        signal
    }

    /// Handles a stop at a system call of a program that is loading its libraries.
    fn called(&mut self, pid: Pid) {
        let Some(member) = self.members.get_mut(&pid) else {
            return;
        };
        let Some(loader) = &member.loading else {
            return;
        };
        match loader.arrived_by_call() {
            Ok(Some(Arrived::Loaded)) => {
                member.loading = None;
                self.begin_program(pid);
            }
            Ok(Some(Arrived::Loading | Arrived::Elsewhere) | None) | Err(_) => {}
        }
    }

    /// Measures a program whose libraries are loaded and that has not begun.
    fn begin_program(&mut self, pid: Pid) {
        if self.is_closed {
            return;
        }
        let Some(member) = self.members.get(&pid) else {
            return;
        };
        if let Err(why) = self.measure_program(&member.process) {
            self.remark_program(&member.process, &why);
        }
    }

    /// Measures a stopped program that contains no session. Also succeeds if there is nothing to
    /// measure, or if too many functions match.
    pub(super) fn measure_program(&self, process: &Process) -> Result<(), Unmeasured> {
        match measure(process, &self.wanted, self.first.as_ref())? {
            Measured::By(made) => {
                let (session, changed) = *made;
                let sees_exits = session.document().sees_exits();
                if session.document().tells_of_exits && !sees_exits {
                    self.remark(process.pid, NO_LEAK_CHECK);
                }
                let letting = Letting::of(&self.shared);
                self.welcome(Newcomer::of(session, Some(changed), letting));
            }
            Measured::Nothing => {}
            Measured::TooMany(count) => {
                lock(&self.shared).seen.with_too_many += 1;
                let why = format!("{count} functions match; --yes instruments them all");
                self.say_unmeasured(process, &why);
            }
        }
        Ok(())
    }

    /// Reports why an executed program is not measured, and counts it, unless it has ended.
    fn remark_program(&self, process: &Process, why: &str) {
        if self.say_unmeasured(process, why) {
            lock(&self.shared).seen.unmeasured_programs += 1;
        }
    }

    /// Reports why a program is not measured, unless it has ended. Returns true if this was
    /// reported.
    fn say_unmeasured(&self, process: &Process, why: &str) -> bool {
        let said = match program_of(process) {
            Some(program) => format!("{program} is not measured: {why}"),
            None => format!("not measured: {why}"),
        };
        self.remark_by(process.pid, why, &said)
    }
}

/// The result of searching a program for functions to measure.
enum Measured {
    /// The session that was created, and its changes.
    By(Box<(Session, Changed)>),
    /// There is nothing to measure.
    Nothing,
    /// This number of functions match, which is too many.
    TooMany(usize),
}

/// The way in which a program gets its libraries.
enum Loading {
    /// The program has all its libraries.
    Loaded,
    /// This loader loads them, and will stop the program when they are loaded.
    By(Loader),
}

/// Makes a program that has just been executed stop when its libraries are loaded.
fn load(process: &Process) -> Result<Loading, Unmeasured> {
    process.check_program().map_err(|e| e.to_string())?;
    let space = Space::open(process).map_err(|e| e.to_string())?;
    let loader = Loader::of(&Arc::new(space)).map_err(|e| e.to_string())?;
    match loader {
        Some(loader) => {
            loader.arm().map_err(|e| e.to_string())?;
            Ok(Loading::By(loader))
        }
        None => Ok(Loading::Loaded),
    }
}

/// Creates a session in a stopped program, if there is something to measure.
fn measure(
    process: &Process,
    wanted: &Wanted,
    first: Option<&Process>,
) -> Result<Measured, Unmeasured> {
    let space = Space::open(process).map_err(|e| e.to_string())?;
    let mut stopped = Stopped::adopt(&Arc::new(space)).map_err(|e| e.to_string())?;
    let made = measure_stopped(process, wanted, first, &mut stopped);
    stopped.leave();
    match made {
        // The command has created a session in this program when it began to follow.
        Err(SessionError::Exists) => Ok(Measured::Nothing),
        made => made.map_err(|e| (wanted.why)(&e, process)),
    }
}

/// Selects the functions to measure, and creates the session.
fn measure_stopped(
    process: &Process,
    wanted: &Wanted,
    first: Option<&Process>,
    stopped: &mut Stopped,
) -> Result<Measured, SessionError> {
    let Wanted {
        patterns,
        spots,
        options,
        ..
    } = wanted;
    let space = Arc::clone(stopped.space());
    let mut selected = select_stopped(space, patterns, options.wanted(), Some(stopped), true)?;
    selected.find_points(spots);
    wanted.note(&selected.selection);
    let count = selected.selection.count();
    let may_come =
        !options.pending.is_empty() && images::loader(process, &selected.modules).is_some();
    let tells_of_exits = has_leak_check(&selected.modules);
    if count == 0 && !may_come && !tells_of_exits {
        return Ok(Measured::Nothing);
    }
    if count > wanted.most {
        return Ok(Measured::TooMany(count));
    }
    if wanted.allows_traps {
        selected.selection.allow_traps();
    }
    selected.find_values(&options.items());
    let parent = process.parent().map(|pid| pid.0);
    let options = Options {
        parent,
        family: first.cloned(),
        tells_of_exits,
        ..options.clone()
    };
    let (session, changed) = Session::create(process, &options, selected, Where::Stopped(stopped))?;
    session.note_begin();
    Ok(Measured::By(Box::new((session, changed))))
}

impl Follow for Family {
    fn happened(&mut self, tid: Tid, change: Change) {
        if let_go_on(tid, change) {
            return;
        }
        let known = followed::process_of(tid);
        match change {
            Change::Stopped(in_group) => self.begin(tid, in_group, None),
            Change::Replaced => self.replaced(tid),
            Change::Signal(libc::SIGTRAP) => {
                mend(tid);
                let signal = known.map_or(libc::SIGTRAP, |pid| self.trapped(pid));
                let _: Result<(), Errno> = cont(tid, signal);
            }
            Change::Other(_) => {
                // Do this before the parent continues, so that the child's parent is known.
                if let Ok(child) = begun(tid)
                    && followed::process_of(child).is_none()
                    && let Ok(Change::Stopped(in_group)) = next(child)
                {
                    self.begin(child, in_group, known);
                }
                let _ = cont(tid, 0);
            }
            Change::Signal(signal) => drop(cont(tid, signal)),
            Change::Call => {
                known.into_iter().for_each(|pid| self.called(pid));
                let _ = cont(tid, 0);
            }
            Change::None | Change::Ended => {}
        }
    }

    fn ended(&mut self, tid: Tid, status: i32) {
        let pid = Pid(tid.0);
        if self.first.as_ref().is_none_or(|first| first.pid == pid) {
            lock(&self.shared).status = Some(status);
        }
        if followed::process_of(tid) == Some(pid) || self.members.contains_key(&pid) {
            self.remove(pid);
        }
        followed::end(tid);
    }

    fn idle(&mut self) {
        self.remove_ended();
    }
}
