//! The names of threads.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::atomic::Ordering::Relaxed;

use crate::segment::Segment;
use ipath_profile::Thread;
use ipath_target::process::Process;

/// The names of threads, by thread id. Threads that have ended keep their names.
#[derive(Default)]
pub(super) struct Names {
    /// Names when the threads were last looked at.
    seen: BTreeMap<u32, String>,
    /// Names when the threads were last on a new path.
    told: BTreeMap<u32, String>,
    /// The name of the process, which is the initial name of each of its threads.
    of_process: String,
}

impl Names {
    /// Learns the names of the running threads. Skips a process in another pid namespace, because
    /// records contain thread ids as the process sees them.
    pub(super) fn learn(&mut self, process: &Process) {
        if process.inner_pid() != process.pid.0 {
            return;
        }
        for tid in process.list_tids().unwrap_or_default() {
            let path = format!("/proc/{}/task/{tid}/comm", process.pid);
            if let Ok(name) = fs::read(path) {
                let name = text(name.strip_suffix(b"\n").unwrap_or(&name));
                if tid.0 == process.pid.0 {
                    self.of_process.clone_from(&name);
                }
                self.seen.insert(tid.0 as u32, name);
            }
        }
    }

    /// Learns the names that threads have recorded themselves.
    pub(super) fn learn_told(&mut self, segment: &Segment) {
        let used = segment.header().threads_used.load(Relaxed);
        let used = used.min(abi::MAX_THREADS as u64) as u32;
        for thread in (0..used).filter_map(|index| segment.thread(index)) {
            let name: Vec<u8> = thread
                .name
                .iter()
                .flat_map(|word| word.load(Relaxed).to_le_bytes())
                .take_while(|&byte| byte != 0)
                .collect();
            if !name.is_empty() {
                self.told.insert(thread.tid.load(Relaxed), text(&name));
            }
        }
    }

    /// The threads among these whose names are known.
    pub(super) fn of(&self, tids: &BTreeSet<u32>) -> Vec<Thread> {
        let known = |&tid: &u32| {
            let (seen, told) = (self.seen.get(&tid), self.told.get(&tid));
            // A thread that was seen with its initial name may have ended before the next look.
            let name = seen
                .filter(|&name| *name != self.of_process)
                .or(told)
                .or(seen)?
                .clone();
            Some(Thread { tid, name })
        };
        tids.iter().filter_map(known).collect()
    }
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_that_a_thread_has_given_itself_is_its_name() {
        let all = |names: &[(u32, &str)]| -> BTreeMap<u32, String> {
            names.iter().map(|&(tid, n)| (tid, n.to_owned())).collect()
        };
        let names = Names {
            seen: all(&[(1, "app"), (2, "app"), (3, "late"), (4, "app"), (6, "app")]),
            told: all(&[(2, "worker"), (3, "app"), (5, "short"), (6, "app")]),
            of_process: "app".to_owned(),
        };
        let of = names.of(&(1..=7).collect());
        let of: Vec<(u32, &str)> = of.iter().map(|t| (t.tid, t.name.as_str())).collect();
        let right = [
            (1, "app"),
            (2, "worker"),
            (3, "late"),
            (4, "app"),
            (5, "short"),
            (6, "app"),
        ];
        assert_eq!(of, right);
    }
}
