//! The processes of a profile that sums several.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A process of a profile that sums several.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// The process id, in the pid namespace of the ipath that measured the process.
    pub pid: u32,
    /// The path of the process's executable.
    pub exe: String,
    /// The process's arguments, the program's name first.
    #[serde(default)]
    pub args: Vec<String>,
    /// The process id of the parent. `None` if it is not known.
    #[serde(default)]
    pub parent: Option<u32>,
    /// The machine that the process ran on.
    #[serde(default)]
    pub host: String,
    /// Labels that distinguish the process from its siblings, such as an MPI rank.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// The start of the measurement, in nanoseconds since the Unix epoch. 0 if it is not known.
    #[serde(default)]
    pub started_unix_ns: u64,
    /// The length of the measurement, in nanoseconds.
    #[serde(default)]
    pub elapsed_ns: u64,
    /// CLOCK_MONOTONIC at the start of the measurement, in nanoseconds, if single calls are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub monotonic_ns: Option<u64>,
}

impl Process {
    /// A key that does not depend on the order of the list: the process id and the start of the
    /// measurement.
    pub fn key(&self) -> (u32, u64) {
        (self.pid, self.started_unix_ns)
    }

    /// The file name of the process's program.
    pub fn program(&self) -> &str {
        ipath_base::files::file_name(&self.exe)
    }
}

/// True if every process except the one with the id `first` has a known parent, and at least one
/// process has one.
pub(super) fn are_tree_of(first: u32, processes: &[Process]) -> bool {
    let is_first = |process: &Process| process.pid == first;
    let has_parent = |process: &Process| process.parent.is_some();
    processes.iter().all(|p| has_parent(p) || is_first(p)) && processes.iter().any(has_parent)
}

/// The part of a function's totals that belongs to one process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InProcess {
    /// The process: an index into [`processes`](super::Profile::processes).
    pub process: usize,
    /// The number of calls that the process made of the function.
    pub count: u64,
    /// The sum of each other metric over these calls, by the metric's name, in the metric's unit.
    #[serde(default)]
    pub sums: BTreeMap<String, i128>,
}

/// The distribution of a number over the processes of a profile. A process without the function or
/// path counts as 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The number of processes with calls of the function, or on the path.
    pub present: u64,
    /// The smallest number of a process.
    pub min: i128,
    /// The sum divided by the number of processes.
    pub mean: f64,
    /// The largest number of a process.
    pub max: i128,
    /// (max - mean) / mean: 0 if all numbers are equal, or if the mean is not above 0. See Pearce
    /// and others, "Quantifying the Effectiveness of Load Balance Algorithms", ICS 2012.
    pub imbalance: f64,
    /// Index into [`processes`](super::Profile::processes) of the first process with the largest
    /// number.
    pub max_process: usize,
}

/// The spread of `count` and of the sum of each metric, by the metric's name.
pub type Spreads = BTreeMap<String, Spread>;
