//! The number that a launcher has given a process.

use ipath_target::process::Process;

/// Variables with a rank's number, the most specific first.
const RANKS: [&str; 4] = [
    "OMPI_COMM_WORLD_RANK",
    "PMI_RANK",
    "PMIX_RANK",
    "SLURM_PROCID",
];

/// Variables with the number of ranks, the most specific first.
const SIZES: [&str; 3] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"];

/// A process of an MPI job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rank {
    /// The process's number (rank) in the job.
    pub number: u32,
    /// The process of the rank.
    pub process: Process,
}

/// The number (rank) of a process in its job, from the environment that its launcher has set.
/// `None` if that has none.
pub fn rank_of(process: &Process) -> Option<u32> {
    let environment = process.environment();
    let told = RANKS.iter().find_map(|name| environment.get(*name))?;
    told.parse().ok()
}

/// The number (rank) of this process in its job. `None` if it is not in a job.
pub fn own_rank() -> Option<u32> {
    own(&RANKS)
}

/// The number of ranks in the job of this process. `None` if it is not in a job.
pub fn own_job_size() -> Option<u32> {
    own(&SIZES)
}

/// The number in the first of these variables that this process has. `None` if it has none of them,
/// or if the first is not a number.
fn own(names: &[&str]) -> Option<u32> {
    let told = names.iter().find_map(|name| std::env::var(name).ok())?;
    told.parse().ok()
}
