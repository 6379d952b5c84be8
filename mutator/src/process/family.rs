//! The processes that a process has started, and what they were started with.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;

use super::Process;

impl Process {
    /// All that it has started, and those that these have, in the order in which they were met: parents before their
    /// children. What begins or ends meanwhile may be missing.
    pub fn descendants(&self) -> Vec<Process> {
        let mut found = vec![self.clone()];
        let mut next = 0;
        while let Some(process) = found.get(next).cloned() {
            next += 1;
            let tids = process.tids().unwrap_or_default();
            let children = tids.into_iter().flat_map(|tid| process.children(tid));
            // One that has ended is nobody's work any more.
            let children = children.filter_map(|pid| Process::find(pid).ok());
            found.extend(children.collect::<Vec<_>>());
        }
        found.remove(0);
        found
    }

    /// How many of its descendants run the program that it runs, as a server's workers do.
    pub fn alike_descendants(&self) -> usize {
        let program = |process: &Process| {
            let file = process.exe_metadata()?;
            Some((file.dev(), file.ino()))
        };
        let Some(own) = program(self) else {
            return 0;
        };
        let descendants = self.descendants();
        let alike = descendants.iter().filter(|d| program(d) == Some(own));
        alike.count()
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
