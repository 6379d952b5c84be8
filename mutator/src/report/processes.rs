//! What the processes of a profile have of a function.

use super::human;
use crate::profile::{COUNT, Function, InProcess, Process, Profile, printable};
use std::collections::{BTreeMap, BTreeSet};

/// What a group is shown with.
pub(super) struct Group {
    /// Which process, or which program and how many processes of it.
    pub(super) title: String,
    pub(super) count: u64,
    /// The sum of each other metric, by its name.
    pub(super) sums: BTreeMap<String, i128>,
}

impl Group {
    fn add(&mut self, of: &InProcess) {
        self.count = self.count.saturating_add(of.count);
        for (name, sum) in &of.sums {
            let known = self.sums.entry(name.clone()).or_default();
            *known = known.saturating_add(*sum);
        }
    }

    fn by(&self, metric: &str) -> i128 {
        match metric {
            COUNT => self.count.into(),
            name => self.sums.get(name).copied().unwrap_or(0),
        }
    }
}

/// By program where those that have called a function are of several, otherwise each; the costliest by this metric first.
pub(super) fn groups(profile: &Profile, function: &Function, metric: &str) -> Vec<Group> {
    let known = |of: &InProcess| profile.processes.get(of.process);
    let programs: BTreeSet<_> = function
        .processes
        .iter()
        .filter_map(|of| known(of).map(|p| &p.exe))
        .collect();
    let mut groups = match programs.len() {
        0 | 1 => each(profile, function),
        _ => by_program(profile, function),
    };
    groups.sort_by_key(|group| std::cmp::Reverse(group.by(metric)));
    groups
}

fn each(profile: &Profile, function: &Function) -> Vec<Group> {
    let group = |of: &InProcess| {
        let mut group = Group {
            title: title(profile, of.process)?,
            count: 0,
            sums: BTreeMap::new(),
        };
        group.add(of);
        Some(group)
    };
    function.processes.iter().filter_map(group).collect()
}

fn by_program(profile: &Profile, function: &Function) -> Vec<Group> {
    let mut groups: BTreeMap<&str, (u64, Group)> = BTreeMap::new();
    for of in &function.processes {
        let Some(process) = profile.processes.get(of.process) else {
            continue;
        };
        let (number, group) = groups.entry(&process.exe).or_insert_with(|| {
            let group = Group {
                title: name(process),
                count: 0,
                sums: BTreeMap::new(),
            };
            (0, group)
        });
        *number += 1;
        group.add(of);
    }
    let titled = |(number, mut group): (u64, Group)| {
        let processes = human::processes(number);
        group.title = format!("{}, {processes}", group.title);
        group
    };
    groups.into_values().map(titled).collect()
}

/// `rank 3, pid 4711 on n2 (cc1)`: the host and the program where there are several.
pub(super) fn title(profile: &Profile, index: usize) -> Option<String> {
    let process = profile.processes.get(index)?;
    let is_told = |of: fn(&Process) -> &str| {
        let mut all = profile.processes.iter().map(of);
        let first = all.next();
        all.any(|other| Some(other) != first)
    };
    let labels = process.labels.iter();
    let labels: String = labels.map(|(k, v)| format!("{k} {v}, ")).collect();
    let mut title = format!("{}pid {}", printable(&labels), process.pid);
    if is_told(|process| &process.host) {
        title.push_str(&format!(" on {}", printable(&process.host)));
    }
    if is_told(|process| &process.exe) {
        title.push_str(&format!(" ({})", name(process)));
    }
    Some(title)
}

fn name(process: &Process) -> String {
    let exe = &process.exe;
    printable(exe.rsplit('/').next().unwrap_or(exe)).into_owned()
}
