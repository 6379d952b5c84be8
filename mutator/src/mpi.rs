//! The ranks of an MPI job on this machine, found without stopping anything.
//!
//! Launchers tell each rank its number in its environment: Open MPI and its PRRTE `OMPI_COMM_WORLD_RANK`, PMIx `PMIX_RANK`,
//! hydra (MPICH, Intel MPI, MVAPICH) `PMI_RANK`, SLURM `SLURM_PROCID`. The processes below the launcher that have one are its
//! ranks; of a script and the program that it starts it is the program. Where none is below it, as its daemons have started them,
//! the table tells that launchers have for debuggers: `MPIR_proctable` (MPI Forum, The MPIR Process Acquisition Interface,
//! Version 1.0).

mod rank;
mod table;

use std::collections::BTreeMap;
use std::fmt;

pub use rank::{Rank, own_rank, rank_of};

use crate::process::modules::modules;
use crate::process::{Pid, Process};

/// Why there are no ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoRanks {
    /// Nothing that it has started has a rank.
    None(Pid),
    /// Those that were asked for are not among those that there are.
    Missing(Vec<u32>, Vec<u32>),
}

impl fmt::Display for NoRanks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |numbers: &[u32]| {
            let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
            numbers.join(", ")
        };
        match self {
            Self::None(pid) => {
                write!(
                    f,
                    "{pid}: it has started no rank of an MPI job on this machine"
                )
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

/// The ranks that a launcher has started here, in their order; `wanted` of them, where any are named.
///
/// # Errors
/// There is none, or not all that are wanted.
pub fn ranks(launcher: &Process, wanted: &[u32]) -> Result<Vec<Rank>, NoRanks> {
    let candidates = launcher.descendants().into_iter().filter_map(|process| {
        let number = rank_of(&process)?;
        let is_mpi = has_mpi(&process);
        Some(Candidate {
            number,
            process,
            is_mpi,
        })
    });
    let mut ranks = chosen(candidates);
    if ranks.is_empty() {
        ranks = table::ranks(launcher);
    }
    if ranks.is_empty() {
        return Err(NoRanks::None(launcher.pid));
    }
    let there: Vec<u32> = ranks.iter().map(|rank| rank.number).collect();
    let missing: Vec<u32> = wanted
        .iter()
        .copied()
        .filter(|number| !there.contains(number))
        .collect();
    if !missing.is_empty() {
        return Err(NoRanks::Missing(missing, there));
    }
    ranks.retain(|rank| wanted.is_empty() || wanted.contains(&rank.number));
    Ok(ranks)
}

/// A process that was started as a rank, or by one.
struct Candidate {
    number: u32,
    process: Process,
    /// True if a library of MPI's is loaded in it.
    is_mpi: bool,
}

/// Of the processes with one number the first that has MPI, or where none has, the last: a script comes before the program
/// that it starts.
fn chosen(candidates: impl Iterator<Item = Candidate>) -> Vec<Rank> {
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

/// True if a library of MPI's is loaded: libmpi.so of Open MPI and Intel MPI, libmpich.so, libmpi_cray.so.
fn has_mpi(process: &Process) -> bool {
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
            // What the program starts itself has inherited the number, and perhaps loads MPI.
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
