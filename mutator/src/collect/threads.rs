//! The names of threads.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::process::Process;
use crate::profile::Thread;

/// The names that threads have had, by their ids: those that have ended since keep theirs.
#[derive(Default)]
pub(super) struct Names(BTreeMap<u32, String>);

impl Names {
    /// Learns the names of the threads that there are. Records have ids as the process sees them: those of another pid
    /// namespace are not looked for.
    pub(super) fn learn(&mut self, process: &Process) {
        if process.inner_pid() != process.pid.0 {
            return;
        }
        for tid in process.list_tids().unwrap_or_default() {
            let path = format!("/proc/{}/task/{tid}/comm", process.pid);
            if let Ok(name) = fs::read(path) {
                let name = String::from_utf8_lossy(&name);
                self.0
                    .insert(tid.0 as u32, name.trim_end_matches('\n').to_owned());
            }
        }
    }

    /// Of these threads, those whose names are known.
    pub(super) fn of(&self, tids: &BTreeSet<u32>) -> Vec<Thread> {
        let known = |&tid: &u32| {
            let name = self.0.get(&tid)?.clone();
            Some(Thread { tid, name })
        };
        tids.iter().filter_map(known).collect()
    }
}
