//! The descendants of a process, and its initial environment.

use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use super::Process;
use crate::progress::{THREADS, over};

impl Process {
    /// The process id and start time. No other process has both until the next boot.
    pub fn id(&self) -> (i32, u64) {
        (self.pid.0, self.start_time)
    }

    /// All processes that it or its descendants have started. Parents come before their children.
    /// Processes that start or end meanwhile may be missing.
    pub fn descendants(&self) -> Vec<Process> {
        let mut found = vec![self.clone()];
        // A process whose parent ends meanwhile is found a second time.
        let mut known = HashSet::from([self.pid]);
        let mut next = 0;
        while let Some(process) = found.get(next).cloned() {
            next += 1;
            let tids = process.tids().unwrap_or_default();
            let children = over(THREADS, tids).flat_map(|tid| process.children(tid));
            // Ended processes are left out.
            let children = children.filter_map(|pid| Process::find(pid).ok());
            let children = children.collect::<Vec<_>>().into_iter();
            found.extend(children.filter(|child| known.insert(child.pid)));
        }
        found.remove(0);
        found
    }

    /// The number of descendants that run the same program file, such as a server's workers. 0 if
    /// the process's own program is unknown. Only those older than one second count.
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

    /// The time since the process started. 0 if unknown.
    fn age(&self) -> Duration {
        /// Milliseconds per tick in proc(5): USER_HZ, asm-generic/param.h.
        const TICK: u64 = 10;
        let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME);
        let started = Duration::from_millis(self.start_time.saturating_mul(TICK));
        now.map_or(Duration::ZERO, |now| {
            Duration::from(now).saturating_sub(started)
        })
    }

    /// The process's environment at the start, by name. Empty if it cannot be read. The program can
    /// have overwritten the text since.
    pub fn environment(&self) -> HashMap<String, String> {
        let bytes = std::fs::read(format!("/proc/{}/environ", self.pid)).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let pairs = text.split('\0').filter_map(|pair| pair.split_once('='));
        pairs
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }
}
