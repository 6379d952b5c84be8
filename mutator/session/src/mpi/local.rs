//! All ranks of a job on this machine, for an ipath that the job's own launcher starts once per
//! machine.

use std::collections::{BTreeMap, BTreeSet};

use super::found::{Candidate, has_mpi};
use super::rank::{Rank, rank_of};
use ipath_target::process::{Pid, Process};

/// The process that has started the ranks of a job on this machine: their nearest ancestor that is
/// not a rank, such as mpirun, orted, hydra_pmi_proxy or slurmstepd.
pub(super) type Starter = Pid;

/// The ranks on this machine by their starters, except those of the job that this process belongs
/// to. The flag is true if a library of MPI is loaded in the rank.
pub(super) fn ranks_by_starter() -> BTreeMap<Starter, Vec<(Rank, bool)>> {
    let own = Process::find(Pid(std::process::id() as i32)).ok();
    let own_starter = own.as_ref().map(starter);
    // An allocation may have several steps, and a machine several allocations.
    let allocation = std::env::var(ALLOCATION).ok();
    let is_of_it = |process: &Process| match &allocation {
        Some(wanted) => process.environment().get(ALLOCATION) == Some(wanted),
        None => true,
    };
    let mut found: BTreeMap<Starter, Vec<(Rank, bool)>> = BTreeMap::new();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|e| e.file_name().to_str()?.parse().ok());
    for process in pids.filter_map(|pid| Process::find(Pid(pid)).ok()) {
        let Some(number) = rank_of(&process) else {
            continue;
        };
        let starter = starter(&process);
        if Some(starter) == own_starter || !is_of_it(&process) {
            continue;
        }
        let is_mpi = has_mpi(&process);
        let rank = Rank { number, process };
        found.entry(starter).or_default().push((rank, is_mpi));
    }
    // Tools and scripts may have inherited a number.
    found.retain(|_, ranks| ranks.iter().any(|(_, is_mpi)| *is_mpi));
    found
}

/// The starters of ranks with the same number, which therefore belong to several jobs.
pub(super) fn starters(candidates: &[Candidate]) -> Vec<Starter> {
    let mut of_numbers: BTreeMap<u32, BTreeSet<Starter>> = BTreeMap::new();
    for candidate in candidates.iter().filter(|candidate| candidate.is_mpi) {
        let of_number = of_numbers.entry(candidate.number).or_default();
        of_number.insert(starter(&candidate.process));
    }
    let several = of_numbers.into_values().filter(|of| of.len() > 1);
    let starters: BTreeSet<Starter> = several.flatten().collect();
    starters.into_iter().collect()
}

/// The variable with the number of an allocation of SLURM.
const ALLOCATION: &str = "SLURM_JOB_ID";

/// The nearest ancestor of a rank that is not a rank. If there is none, the topmost rank.
fn starter(process: &Process) -> Starter {
    let mut at = process.clone();
    while let Some(parent) = at.parent().and_then(|pid| Process::find(pid).ok()) {
        if rank_of(&parent).is_none() {
            return parent.pid;
        }
        at = parent;
    }
    at.pid
}
