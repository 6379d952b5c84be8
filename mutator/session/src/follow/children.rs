//! Children of followed processes. Each is stopped before it runs, and gets a session like its
//! parent's.
//!
//! While the first session is made, children are held: a partly inherited session counts nothing.

use std::sync::Arc;

use super::family::{Family, Held, Unmeasured};
use super::letting::Letting;
use super::shared::{Newcomer, lock};
use crate::segment::SegmentError;
use crate::session::{Session, SessionError};
use ipath_target::process::{Pid, Process, Space, Tid};
use ipath_target::tracee::{Stopped, collect_stop, followed, go_on};

impl Family {
    /// Takes in an unknown thread at its first stop: another thread of a process, or a child. A
    /// child is measured first. The thread is then resumed, except for a child that is held while
    /// the first session is made.
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

    /// Measures the children that were held, and resumes them.
    pub(super) fn begin_held(&mut self) {
        for child in self.held.take().into_iter().flatten() {
            self.measure_child(Pid(child.tid.0), child.parent);
            go_on(child.tid, child.in_group);
        }
    }

    /// Adds a child of a followed process. `by` is the process that forked it, if known. Returns
    /// the parent if the child gets a session like the parent's. `None` if the child has ended or
    /// shares the parent's memory, or if the parent is unknown or not followed.
    fn begin_child(&mut self, pid: Pid, by: Option<Pid>) -> Option<Pid> {
        let process = Process::find(pid).ok()?;
        // The two differ with CLONE_PARENT, which makes the child a sibling of its creator.
        let parent = by.or_else(|| process.parent());
        self.enter(process.clone(), parent);
        let Some(parent) = parent.filter(|&parent| self.known(parent)) else {
            lock(&self.shared).seen.orphans += 1;
            self.remark(
                pid,
                "not measured: the process that started it was killed meanwhile",
            );
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
            let said = format!("the child of {parent} is not measured: {why}");
            let cause = format!("a child is not measured: {why}");
            if self.remark_by(pid, &cause, &said) {
                lock(&self.shared).seen.unmeasured += 1;
            }
        }
    }

    /// Measures a child like its parent, if the parent has a session.
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
                Err(error) => return Err((self.wanted.why)(&error, &member.process)),
            };
        }
        let Some(of_parent) = member.session.as_mut() else {
            return Ok(());
        };
        let space = Arc::new(Space::open(child).map_err(|e| text(&e))?);
        if !of_parent.has_come_to(&space).map_err(|e| text(&e))? {
            // It was forked before its parent's session began, or after it ended.
            return self.measure_unless_closed(child);
        }
        let mut stopped = Stopped::adopt(&space).map_err(|e| text(&e))?;
        let made = of_parent.of_child(child, &mut stopped);
        stopped.leave();
        let session = match made {
            Ok(Some(session)) => session,
            Ok(None) => return self.measure_unless_closed(child),
            // The session has been removed in the meantime.
            Err(SessionError::Segment(SegmentError::Missing)) => {
                member.session = None;
                return Ok(());
            }
            Err(error) => return Err((self.wanted.why)(&error, child)),
        };
        self.welcome(Newcomer::of(session, None, Letting::of(&self.shared)));
        Ok(())
    }

    /// Begins a session in a process without one, unless no more sessions may begin.
    fn measure_unless_closed(&self, process: &Process) -> Result<(), Unmeasured> {
        if self.is_closed {
            Ok(())
        } else {
            self.measure_program(process)
        }
    }
}
