//! The ranks of an MPI job on this machine, found without stopping anything.
//!
//! Launchers pass each rank its number in its environment: Open MPI and its PRRTE
//! `OMPI_COMM_WORLD_RANK`, PMIx `PMIX_RANK`, hydra (MPICH, Intel MPI, MVAPICH) `PMI_RANK`, SLURM
//! `SLURM_PROCID`. The ranks are the processes below the launcher that have such a variable. If a
//! script starts the program, the program is the rank. If daemons have started the ranks, none of
//! them is below the launcher. They are then in the table that launchers have for debuggers:
//! `MPIR_proctable` (MPI Forum, The MPIR Process Acquisition Interface, Version 1.0).

mod found;
mod local;
mod rank;
mod table;

pub use found::NoRanks;
pub use rank::{Rank, own_job_size, own_rank, rank_of};

use found::{Candidate, chosen, has_mpi};
use ipath_target::process::Process;

/// The ranks that a launcher has started on this machine, by number. Only the `wanted` ones, if any
/// are named.
///
/// # Errors
/// There are no ranks, or several jobs, or a wanted rank is missing.
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
    let candidates: Vec<Candidate> = candidates.collect();
    let starters = local::starters(&candidates);
    if starters.len() > 1 {
        return Err(NoRanks::Several(Some(launcher.pid), starters));
    }
    let mut ranks = chosen(candidates.into_iter());
    if ranks.is_empty() {
        ranks = table::ranks(launcher);
    }
    if ranks.is_empty() {
        return Err(NoRanks::None(launcher.pid));
    }
    of_these(ranks, wanted)
}

/// The ranks of the only job on this machine, not counting the one that this process belongs to.
/// Only the `wanted` ones, if any are named. In an allocation of SLURM, only its jobs count.
///
/// # Errors
/// There are no ranks, or several jobs, or a wanted rank is missing.
pub fn local_ranks(wanted: &[u32]) -> Result<Vec<Rank>, NoRanks> {
    let mut jobs = local::ranks_by_starter();
    if jobs.len() > 1 {
        return Err(NoRanks::Several(None, jobs.into_keys().collect()));
    }
    let (_, ranks) = jobs.pop_first().ok_or(NoRanks::NoneHere)?;
    let candidates = ranks.into_iter().map(|(rank, is_mpi)| Candidate {
        number: rank.number,
        process: rank.process,
        is_mpi,
    });
    of_these(chosen(candidates), wanted)
}

/// The wanted ones among these ranks; all of them if none is named.
fn of_these(mut ranks: Vec<Rank>, wanted: &[u32]) -> Result<Vec<Rank>, NoRanks> {
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
