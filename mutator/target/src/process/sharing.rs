//! Processes that share memory without sharing a thread group: clone(2) with CLONE_VM and without
//! CLONE_THREAD. Writes to one change the other, which is not stopped.

use super::{Pid, Process, Tid, read_text, thread_state};
use crate::progress::{THREADS, over};

impl Process {
    /// The parent and children that currently share the process's memory, if the kernel permits the
    /// comparison. A child of vfork(2) shares it until it calls exec.
    pub fn sharing(&self) -> Vec<Pid> {
        let tids = self.tids().unwrap_or_default();
        let children = over(THREADS, tids).flat_map(|tid| self.children(tid));
        let mut others: Vec<Pid> = children.collect();
        others.extend(self.parent());
        others.retain(|&other| self.shares_with(other));
        others
    }

    /// True if one of its threads waits in vfork(2) for a child to end or to call exec. Such a
    /// thread cannot be stopped until then.
    pub fn waits_for_child(&self) -> bool {
        let is_shared = |tid| {
            self.children(tid)
                .iter()
                .any(|&child| self.shares_with(child))
        };
        let waits = |tid| thread_state(self.pid, tid) == Some('D') && is_shared(tid);
        over(THREADS, self.tids().unwrap_or_default()).any(waits)
    }

    /// True if the other process has the same memory (kcmp(2), KCMP_VM). False also if the kernel
    /// does not permit the comparison.
    pub fn shares_with(&self, other: Pid) -> bool {
        const KCMP_VM: i32 = 1;
        // SAFETY: takes only numbers.
        let order =
            unsafe { libc::syscall(libc::SYS_kcmp, self.entry().0, other.0, KCMP_VM, 0, 0) };
        order == 0
    }

    /// The process's parent: the process that started or adopted it. `None` if it cannot be read,
    /// or is outside ipath's pid namespace.
    pub fn parent(&self) -> Option<Pid> {
        let id = self.status("PPid")?.parse().ok()?;
        (id > 0).then_some(Pid(id))
    }

    /// The processes that the thread `tid` of the process has started. Empty if they cannot be
    /// read.
    pub fn children(&self, tid: Tid) -> Vec<Pid> {
        let list = read_text(format!("/proc/{}/task/{tid}/children", self.pid));
        let list = list.unwrap_or_default();
        let ids = list.split_whitespace();
        ids.filter_map(|id| id.parse().ok()).map(Pid).collect()
    }
}
