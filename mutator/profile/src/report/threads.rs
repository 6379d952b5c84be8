//! What threads of one name did together.

use super::human;
use crate::profile::{PathEntry, Total, printable};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The names of threads by their ids.
pub(super) type Names<'p> = HashMap<u32, &'p str>;

/// Threads of one name.
pub(super) struct Group {
    /// Their name, and how many they are.
    pub(super) title: String,
    pub(super) total: Total,
}

/// The threads of `paths` by name; none where they are not kept apart or none has a name.
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

/// `thread 4243 (worker)`.
pub(super) fn title(names: &Names<'_>, tid: u32) -> String {
    match names.get(&tid) {
        Some(name) => format!("thread {tid} ({})", printable(name)),
        None => format!("thread {tid}"),
    }
}
