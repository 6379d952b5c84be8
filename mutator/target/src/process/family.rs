//! The processes that a process has started, and what they were started with.

use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use super::Process;
use crate::progress::{THREADS, over};

impl Process {
    /// Its id and its start time: no other process has both until the system is started again.
    pub fn id(&self) -> (i32, u64) {
        (self.pid.0, self.start_time)
    }

    /// All that it has started, and those that these have, in the order in which they were met: parents before their
    /// children. What begins or ends meanwhile may be missing.
    pub fn descendants(&self) -> Vec<Process> {
        let mut found = vec![self.clone()];
        // One whose parent ends meanwhile is met a second time.
        let mut known = HashSet::from([self.pid]);
        let mut next = 0;
        while let Some(process) = found.get(next).cloned() {
            next += 1;
            let tids = process.tids().unwrap_or_default();
            let children = over(THREADS, tids).flat_map(|tid| process.children(tid));
            // One that has ended is nobody's work any more.
            let children = children.filter_map(|pid| Process::find(pid).ok());
            let children = children.collect::<Vec<_>>().into_iter();
            found.extend(children.filter(|child| known.insert(child.pid)));
        }
        found.remove(0);
        found
    }

    /// How many of its descendants run the program that it runs, as a server's workers do: those that have for a while.
    pub fn alike_descendants(&self) -> usize {
        const A_WHILE: Duration = Duration::from_secs(1);
        let program = |process: &Process| {
            let file = process.exe_metadata()?;
            Some((file.dev(), file.ino()))
        };
        let Some(own) = program(self) else {
            return 0;
        };
        let descendants = self.descendants();
        let alike = descendants.iter().filter(|d| program(d) == Some(own));
        alike.filter(|d| d.age() > A_WHILE).count()
    }

    /// How long ago it was started; 0 where that cannot be told.
    fn age(&self) -> Duration {
        /// ms in a tick of proc(5): USER_HZ, asm-generic/param.h.
        const TICK: u64 = 10;
        let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME);
        let started = Duration::from_millis(self.start_time.saturating_mul(TICK));
        now.map_or(Duration::ZERO, |now| {
            Duration::from(now).saturating_sub(started)
        })
    }

    /// The variables that it was started with. It can have written others over them since.
    pub fn environment(&self) -> HashMap<String, String> {
        let bytes = std::fs::read(format!("/proc/{}/environ", self.pid)).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let pairs = text.split('\0').filter_map(|pair| pair.split_once('='));
        pairs
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }
}
