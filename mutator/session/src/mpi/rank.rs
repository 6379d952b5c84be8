//! The number that a launcher has told a process.

use ipath_target::process::Process;

/// Variables that have a rank's number, the most particular first.
const RANKS: [&str; 4] = [
    "OMPI_COMM_WORLD_RANK",
    "PMI_RANK",
    "PMIX_RANK",
    "SLURM_PROCID",
];

/// Variables that have how many there are, the most particular first.
const SIZES: [&str; 3] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"];

/// A process of an MPI job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rank {
    /// Its number in the job.
    pub number: u32,
    /// The process.
    pub process: Process,
}

/// The number of a process in its job, as its launcher has told it.
pub fn rank_of(process: &Process) -> Option<u32> {
    let environment = process.environment();
    let told = RANKS.iter().find_map(|name| environment.get(*name))?;
    told.parse().ok()
}

/// The number of this very process in its job.
pub fn own_rank() -> Option<u32> {
    own(&RANKS)
}

/// How many ranks the job of this very process has.
pub fn own_job_size() -> Option<u32> {
    own(&SIZES)
}

fn own(names: &[&str]) -> Option<u32> {
    let told = names.iter().find_map(|name| std::env::var(name).ok())?;
    told.parse().ok()
}
