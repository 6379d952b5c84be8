//! Selects the ranks among the processes that were started as ranks, or finds out why there are
//! none.

use std::collections::BTreeMap;
use std::fmt;

use super::rank::Rank;
use ipath_target::process::modules::modules;
use ipath_target::process::{Pid, Process};

/// Why the ranks of a job cannot be determined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoRanks {
    /// This process has started no rank.
    None(Pid),
    /// There is no job on this machine, except the one that this process belongs to.
    NoneHere,
    /// There are several jobs, started by the processes in the list: below the given process, or
    /// anywhere on this machine if none is given.
    Several(Option<Pid>, Vec<Pid>),
    /// The requested ranks in the first list are missing. The second list has the existing ones.
    Missing(Vec<u32>, Vec<u32>),
}

impl fmt::Display for NoRanks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// A range may name thousands of missing ranks.
        const SHOWN: usize = 16;
        let list = |numbers: &[u32]| {
            let shown = numbers.iter().take(SHOWN).map(u32::to_string);
            let shown = shown.collect::<Vec<_>>().join(", ");
            match numbers.len().checked_sub(SHOWN) {
                None | Some(0) => shown,
                Some(others) => format!("{shown} and {others} others"),
            }
        };
        match self {
            Self::None(pid) => {
                write!(
                    f,
                    "{pid}: it has started no rank of an MPI job on this machine"
                )
            }
            Self::NoneHere => {
                f.write_str("this machine: it has no rank of an MPI job that ipath may look at")
            }
            Self::Several(below, starters) => {
                match below {
                    Some(pid) => write!(f, "{pid}: there are several MPI jobs below it")?,
                    None => f.write_str("this machine: it has several MPI jobs")?,
                }
                let starters: Vec<String> = starters.iter().map(Pid::to_string).collect();
                write!(f, ", started by {}", starters.join(", "))
            }
            Self::Missing(missing, there) => write!(
                f,
                "no rank {} on this machine: there are {}",
                list(missing),
                list(there)
            ),
        }
    }
}

impl std::error::Error for NoRanks {}

/// A process that was started as a rank, or by one.
pub(super) struct Candidate {
    /// The rank's number in the job.
    pub(super) number: u32,
    pub(super) process: Process,
    /// True if a library of MPI is loaded in it.
    pub(super) is_mpi: bool,
}

/// For each number, the first process that has MPI, or if there is none, the last process: a script
/// comes before the program that it starts.
pub(super) fn chosen(candidates: impl Iterator<Item = Candidate>) -> Vec<Rank> {
    let mut by_number: BTreeMap<u32, Candidate> = BTreeMap::new();
    for candidate in candidates {
        let known = by_number.get(&candidate.number);
        if known.is_none_or(|known| !known.is_mpi) {
            by_number.insert(candidate.number, candidate);
        }
    }
    let ranks = by_number.into_values();
    ranks
        .map(
            |Candidate {
                 number, process, ..
             }| Rank { number, process },
        )
        .collect()
}

/// True if a library of MPI is loaded: libmpi.so of Open MPI and Intel MPI, libmpich.so,
/// libmpi_cray.so.
pub(super) fn has_mpi(process: &Process) -> bool {
    let maps = process.maps().unwrap_or_default();
    let modules = modules(process, &maps);
    modules.iter().any(|m| m.file_name().starts_with("libmpi"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_script_and_its_program_the_program_is_the_rank() {
        let candidate = |number, pid, is_mpi| Candidate {
            number,
            process: Process {
                pid: Pid(pid),
                start_time: 0,
            },
            is_mpi,
        };
        let pids = |candidates: Vec<Candidate>| -> Vec<(u32, i32)> {
            let ranks = chosen(candidates.into_iter());
            ranks.iter().map(|r| (r.number, r.process.pid.0)).collect()
        };
        let script = vec![
            candidate(1, 20, false),
            candidate(0, 10, false),
            candidate(0, 11, true),
            // A child of the program has inherited the number, and may load MPI.
            candidate(0, 12, true),
            candidate(1, 21, true),
            candidate(1, 22, false),
        ];
        assert_eq!(pids(script), [(0, 11), (1, 21)]);
        // MPI may be linked into the program.
        let without = vec![candidate(0, 10, false), candidate(0, 11, false)];
        assert_eq!(pids(without), [(0, 11)]);
    }
}
