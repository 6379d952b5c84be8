//! Threads grouped by name, and phases.

use super::human;
use crate::profile::{PathEntry, Profile, Total, printable};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Thread names by thread id.
pub(super) type Names<'p> = HashMap<u32, &'p str>;

/// The threads with the same name, or a phase.
pub(super) struct Group {
    /// The name of the threads and their number, or of the phase, as printed.
    pub(super) title: String,
    pub(super) total: Total,
}

/// The threads of `paths` by name. Empty if threads are not kept apart, or if none has a name.
pub(super) fn by_name(names: &Names<'_>, paths: &[&PathEntry]) -> Vec<Group> {
    if names.is_empty() {
        return Vec::new();
    }
    let mut groups: BTreeMap<Option<&str>, (BTreeSet<u32>, Total)> = BTreeMap::new();
    for path in paths {
        let Some(tid) = path.thread else { continue };
        let (threads, total) = groups.entry(names.get(&tid).copied()).or_default();
        threads.insert(tid);
        total.add(path);
    }
    let title = |name: Option<&str>, threads: &BTreeSet<u32>| match (name, threads.len()) {
        (Some(name), n) => format!("{}, {}", printable(name), human::count(n as u64, "thread")),
        (None, n) => format!("{} of unknown name", human::count(n as u64, "thread")),
    };
    let groups = groups.into_iter().map(|(name, (threads, total))| Group {
        title: title(name, &threads),
        total,
    });
    groups.collect()
}

/// The phases of `paths`. Empty if paths are not kept apart by phase.
pub(super) fn by_phase(profile: &Profile, paths: &[&PathEntry]) -> Vec<Group> {
    let mut groups: BTreeMap<usize, Total> = BTreeMap::new();
    for path in paths {
        if let Some(phase) = path.phase {
            groups.entry(phase).or_default().add(path);
        }
    }
    let title = |index: usize| match profile.session.phases.get(index) {
        Some(phase) => format!("phase {}", printable(&phase.name)),
        None => format!("phase {index}"),
    };
    let groups = groups.into_iter().map(|(index, total)| Group {
        title: title(index),
        total,
    });
    groups.collect()
}

/// The title of a thread: `thread 4243 (worker)`, or `thread 4243` if its name is not known.
pub(super) fn title(names: &Names<'_>, tid: u32) -> String {
    match names.get(&tid) {
        Some(name) => format!("thread {tid} ({})", printable(name)),
        None => format!("thread {tid}"),
    }
}
