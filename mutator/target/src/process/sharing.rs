//! Processes that have their memory in common without being one process: clone(2) with CLONE_VM and without
//! CLONE_THREAD. What is written into one is written into the other, which nobody has stopped.

use super::{Pid, Process, Tid, read_text, thread_state};
use crate::progress::{THREADS, over};

impl Process {
    /// Processes next to it that share its memory at this moment: its parent and its children, as far as the kernel
    /// lets them be compared. A child of vfork(2) is one until it executes something.
    pub fn sharing(&self) -> Vec<Pid> {
        let tids = self.tids().unwrap_or_default();
        let children = over(THREADS, tids).flat_map(|tid| self.children(tid));
        let mut others: Vec<Pid> = children.collect();
        others.extend(self.parent());
        others.retain(|&other| self.shares_with(other));
        others
    }

    /// True if a thread of it waits in vfork(2) for a child to end or to execute a program. Until then it
    /// cannot be stopped.
    pub fn waits_for_child(&self) -> bool {
        let is_shared = |tid| {
            self.children(tid)
                .iter()
                .any(|&child| self.shares_with(child))
        };
        let waits = |tid| thread_state(self.pid, tid) == Some('D') && is_shared(tid);
        over(THREADS, self.tids().unwrap_or_default()).any(waits)
    }

    /// True if another process has the same memory: kcmp(2), KCMP_VM.
    pub fn shares_with(&self, other: Pid) -> bool {
        const KCMP_VM: i32 = 1;
        // SAFETY: takes numbers only.
        let order =
            unsafe { libc::syscall(libc::SYS_kcmp, self.entry().0, other.0, KCMP_VM, 0, 0) };
        order == 0
    }

    /// The process that has started it, or taken it over.
    pub fn parent(&self) -> Option<Pid> {
        let id = self.status("PPid")?.parse().ok()?;
        (id > 0).then_some(Pid(id))
    }

    /// The processes that a thread of it has started.
    pub fn children(&self, tid: Tid) -> Vec<Pid> {
        let list = read_text(format!("/proc/{}/task/{tid}/children", self.pid));
        let list = list.unwrap_or_default();
        let ids = list.split_whitespace();
        ids.filter_map(|id| id.parse().ok()).map(Pid).collect()
    }
}
