//! The parts of the processes in a function's totals.

use super::human;
use crate::profile::{COUNT, Function, InProcess, PathEntry, Process, Profile, printable};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// The part of one process, or of all processes of one program.
#[derive(Default)]
pub(super) struct Group {
    /// The number of calls.
    pub(super) count: u64,
    /// The sum of each other metric, by the metric's name.
    pub(super) sums: BTreeMap<String, i128>,
    /// The index of one of the group's processes.
    first: usize,
    /// The number of processes in the group.
    processes: u64,
    /// True if the group contains all processes of a program.
    is_program: bool,
}

impl Group {
    fn add(&mut self, of: &InProcess) {
        self.count = self.count.saturating_add(of.count);
        for (name, sum) in &of.sums {
            let known = self.sums.entry(name.clone()).or_default();
            *known = known.saturating_add(*sum);
        }
    }

    /// The title of the process, or the program and its number of processes.
    pub(super) fn title(&self, titles: &Titles<'_>) -> String {
        if !self.is_program {
            return titles.title(self.first).unwrap_or_default();
        }
        let program = titles.processes.get(self.first).map(Process::program);
        let program = printable(program.unwrap_or_default());
        format!("{program}, {}", human::processes(self.processes))
    }

    /// The sum of the metric, or the number of calls for `count`. 0 if the metric is not known.
    pub(super) fn by(&self, metric: &str) -> i128 {
        match metric {
            COUNT => self.count.into(),
            name => self.sums.get(name).copied().unwrap_or(0),
        }
    }
}

/// The number of processes, as text. A process that has executed another program is listed once for
/// each program.
pub(super) fn number(profile: &Profile) -> String {
    let programs = profile.processes.len();
    let of = profile.processes.iter().map(|p| (&p.host, p.pid));
    let processes = of.collect::<BTreeSet<_>>().len();
    if processes == programs {
        human::processes(programs as u64)
    } else {
        format!(
            "{} in {}",
            human::count(programs as u64, "program"),
            human::processes(processes as u64)
        )
    }
}

/// The part of each process in the shown paths of a function, which have `calls` calls. Empty if it
/// is not known.
pub(super) fn parts<'f>(
    function: &'f Function,
    paths: &[&PathEntry],
    calls: u64,
) -> Cow<'f, [InProcess]> {
    let apart = paths.iter().map(|path| Some((path.process?, *path)));
    if let Some(apart) = apart.collect::<Option<Vec<_>>>()
        && !apart.is_empty()
    {
        return Cow::Owned(added_up(&apart));
    }
    let known = function.processes.iter().map(|of| of.count);
    if known.fold(0, u64::saturating_add) == calls {
        Cow::Borrowed(&function.processes)
    } else {
        Cow::Borrowed(&[])
    }
}

/// The sums of the paths of each process. Each path comes with the index of its process.
fn added_up(paths: &[(usize, &PathEntry)]) -> Vec<InProcess> {
    let mut parts: BTreeMap<usize, InProcess> = BTreeMap::new();
    for &(process, path) in paths {
        let part = parts.entry(process).or_default();
        part.process = process;
        part.count = part.count.saturating_add(path.metrics.count);
        for (name, stats) in path.metrics.timers.iter() {
            let sum = part.sums.entry(name.to_owned()).or_default();
            *sum = sum.saturating_add(stats.sum);
        }
    }
    parts.into_values().collect()
}

/// Groups by program if there are several programs, else by process. The costliest by `metric` come
/// first.
pub(super) fn groups(profile: &Profile, parts: &[InProcess], metric: &str) -> Vec<Group> {
    let known = parts
        .iter()
        .filter_map(|part| Some((profile.processes.get(part.process)?, part)));
    let programs: BTreeSet<_> = known.clone().map(|(process, _)| &process.exe).collect();
    let mut groups: BTreeMap<(&str, usize), Group> = BTreeMap::new();
    for (process, part) in known {
        let key = match programs.len() {
            0 | 1 => ("", part.process),
            _ => (process.exe.as_str(), 0),
        };
        let group = groups.entry(key).or_default();
        group.first = part.process;
        group.is_program = programs.len() > 1;
        group.processes += 1;
        group.add(part);
    }
    let mut groups: Vec<Group> = groups.into_values().collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.by(metric)));
    groups
}

/// Unique titles for the processes of a profile.
pub struct Titles<'p> {
    processes: &'p [Process],
    /// True if the processes ran on several hosts.
    with_host: bool,
    /// True if the processes ran several programs.
    with_program: bool,
}

impl<'p> Titles<'p> {
    /// The titles of the processes of `profile`.
    pub fn of(profile: &'p Profile) -> Self {
        let processes = &profile.processes;
        let differ = |of: fn(&Process) -> &str| {
            let mut all = processes.iter().map(of);
            let first = all.next();
            all.any(|other| Some(other) != first)
        };
        Self {
            processes,
            with_host: differ(|process| &process.host),
            with_program: differ(|process| &process.exe),
        }
    }

    /// The title of the process with this index: `rank 3, pid 4711 on n2 (cc1)`. The host is given
    /// if there are several hosts, the program if there are several programs. `None` if there is no
    /// such process.
    pub fn title(&self, index: usize) -> Option<String> {
        let process = self.processes.get(index)?;
        let labels = process.labels.iter();
        let labels: String = labels.map(|(k, v)| format!("{k} {v}, ")).collect();
        let mut title = format!("{}pid {}", printable(&labels), process.pid);
        if self.with_host {
            title.push_str(&format!(" on {}", printable(&process.host)));
        }
        if self.with_program {
            title.push_str(&format!(" ({})", printable(process.program())));
        }
        Some(title)
    }
}
