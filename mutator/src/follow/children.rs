//! Children of followed processes: each is stopped before it runs, and gets a session as its parent has.
//!
//! While the first session is made, children are held: a session of which a child has inherited a part
//! counts nothing in it.

use std::sync::Arc;

use super::family::{Family, Held, Unmeasured, unmeasured};
use super::letting::Letting;
use super::shared::{Newcomer, lock};
use crate::process::{Pid, Process, Space, Tid};
use crate::segment::SegmentError;
use crate::session::{Session, SessionError};
use crate::tracee::{Stopped, collect_stop, followed, go_on};

impl Family {
    /// Takes in an unknown thread at its first stop: another thread of a process, or a child.
    pub(super) fn begin(&mut self, tid: Tid, in_group: bool, by: Option<Pid>) {
        let Some(pid) = followed::enter(tid) else {
            return;
        };
        if pid.0 == tid.0
            && !self.has_let_go
            && let Some(parent) = self.begin_child(pid, by)
        {
            if let Some(held) = &mut self.held {
                // `waitid` must not report this stop again.
                collect_stop(tid);
                let child = Held {
                    tid,
                    in_group,
                    parent,
                };
                return held.push(child);
            }
            self.measure_child(pid, parent);
        }
        go_on(tid, in_group);
    }

    /// Measures the children that were held, and lets them run.
    pub(super) fn begin_held(&mut self) {
        for child in self.held.take().into_iter().flatten() {
            self.measure_child(Pid(child.tid.0), child.parent);
            go_on(child.tid, child.in_group);
        }
    }

    /// Takes in a child, which one that is followed has begun, if it is known which. Its parent, where it is to
    /// be measured as that is.
    fn begin_child(&mut self, pid: Pid, by: Option<Pid>) -> Option<Pid> {
        let process = Process::find(pid).ok()?;
        // The two differ where a child is to be its parent's sibling (CLONE_PARENT).
        let parent = by.or_else(|| process.parent());
        self.enter(process.clone(), parent);
        let Some(parent) = parent.filter(|&parent| self.known(parent)) else {
            lock(&self.shared).seen.orphans += 1;
            self.remark(pid, "not measured: what began it has been killed meanwhile");
            return None;
        };
        // It has no session of its own until it becomes another program.
        if process.shares_with(parent) {
            if let Some(member) = self.members.get_mut(&pid) {
                member.shares = Some(parent);
            }
            return None;
        }
        lock(&self.shared).seen.children += 1;
        Some(parent)
    }

    fn measure_child(&mut self, pid: Pid, parent: Pid) {
        let Some(child) = self.members.get(&pid).map(|m| m.process.clone()) else {
            return;
        };
        if let Err(why) = self.measure_as(&child, parent) {
            let why = format!("the child of {parent} is not measured: {why}");
            if self.remark(pid, &why) {
                lock(&self.shared).seen.unmeasured += 1;
            }
        }
    }

    /// Has a child measured as its parent is, if that is.
    fn measure_as(&mut self, child: &Process, parent: Pid) -> Result<(), Unmeasured> {
        let mut parent = parent;
        while let Some(other) = self.members.get(&parent).and_then(|m| m.shares) {
            parent = other;
        }
        let Some(member) = self.members.get_mut(&parent) else {
            return Ok(());
        };
        let text = |e: &dyn std::fmt::Display| e.to_string();
        if member.session.is_none() {
            member.session = match Session::open(&member.process) {
                Ok(session) => Some(session),
                Err(SessionError::Segment(SegmentError::Missing)) => return Ok(()),
                Err(error) => return Err(unmeasured(&error, &member.process)),
            };
        }
        let Some(of_parent) = member.session.as_mut() else {
            return Ok(());
        };
        let space = Arc::new(Space::open(child).map_err(|e| text(&e))?);
        if !of_parent.has_come_to(&space).map_err(|e| text(&e))? {
            // Its parent's was not in it yet when it was forked; or is out.
            return self.measure_unless_closed(child);
        }
        let mut stopped = Stopped::adopt(&space).map_err(|e| text(&e))?;
        let made = of_parent.of_child(child, &mut stopped);
        stopped.leave();
        let session = match made {
            Ok(Some(session)) => session,
            Ok(None) => return self.measure_unless_closed(child),
            // The session has been taken out meanwhile.
            Err(SessionError::Segment(SegmentError::Missing)) => {
                member.session = None;
                return Ok(());
            }
            Err(error) => return Err(unmeasured(&error, child)),
        };
        self.welcome(Newcomer::of(session, None, Letting::of(&self.shared)));
        Ok(())
    }

    /// Measures a process without a session, unless no more sessions are to be made.
    fn measure_unless_closed(&self, process: &Process) -> Result<(), Unmeasured> {
        match self.is_closed {
            true => Ok(()),
            false => self.measure_program(process),
        }
    }
}
