//! Several processes in one profile.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One process of several.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its process id, in the pid namespace of the ipath that measured it.
    pub pid: u32,
    /// The path of its executable.
    pub exe: String,
    /// Its arguments, the program's name first.
    #[serde(default)]
    pub args: Vec<String>,
    /// The process id of the one that it comes from, where that is known.
    #[serde(default)]
    pub parent: Option<u32>,
    /// The machine it ran on.
    #[serde(default)]
    pub host: String,
    /// What tells it from its siblings, such as an MPI rank.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// When measuring began, in ns since the Unix epoch.
    #[serde(default)]
    pub started_unix_ns: u64,
    /// For how long it was measured, in ns.
    #[serde(default)]
    pub elapsed_ns: u64,
}

impl Process {
    /// What tells it from all others, wherever it stands in a list.
    pub fn key(&self) -> (u32, u64) {
        (self.pid, self.started_unix_ns)
    }

    /// The file name of its program.
    pub fn program(&self) -> &str {
        ipath_base::files::file_name(&self.exe)
    }
}

/// True if `first` is the only process without a parent, and there are others.
pub(super) fn are_tree_of(first: u32, processes: &[Process]) -> bool {
    let is_first = |process: &Process| process.pid == first;
    let has_parent = |process: &Process| process.parent.is_some();
    processes.iter().all(|p| has_parent(p) || is_first(p)) && processes.iter().any(has_parent)
}

/// What one process of several has of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InProcess {
    /// Index into [`processes`](super::Profile::processes).
    pub process: usize,
    /// Its calls.
    pub count: u64,
    /// The sum of each other metric, by its name.
    #[serde(default)]
    pub sums: BTreeMap<String, i128>,
}

/// How a number differs over the processes of a profile. One without the function or path counts as 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// How many processes have called the function, or on this path.
    pub present: u64,
    /// The smallest.
    pub min: i128,
    /// The sum, by the number of processes.
    pub mean: f64,
    /// The largest.
    pub max: i128,
    /// What the largest is above the mean, as a part of the mean (Pearce and others, "Quantifying the Effectiveness of Load
    /// Balance Algorithms", ICS 2012): 0 where all are equal; 0 of a mean that is not above 0.
    pub imbalance: f64,
    /// Index into [`processes`](super::Profile::processes) of the first with the largest.
    pub max_process: usize,
}

/// Of the count and the sum of each metric, by the metric's name.
pub type Spreads = BTreeMap<String, Spread>;
