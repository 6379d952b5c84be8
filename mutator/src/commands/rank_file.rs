//! `%r` in the name of a file: the rank of the process whose profile it gets.

use std::path::{Path, PathBuf};

use super::remarks::warn;
use crate::cli::Show;
use ipath_base::destination::Destination;
use ipath_base::error::Failure;
use ipath_session::mpi;
use ipath_target::process::{Pid, Process};

const RANK: &str = "%r";

/// True if the name of a file has the rank in it.
pub(super) fn names_rank(path: &Path) -> bool {
    path.to_str().is_some_and(|text| text.contains(RANK))
}

/// The name with the rank in it, where it names that.
///
/// # Errors
/// There is no rank.
pub(super) fn with_rank(path: &Path, rank: Option<u32>) -> Result<PathBuf, Failure> {
    let Some(text) = path.to_str().filter(|_| names_rank(path)) else {
        return Ok(path.to_owned());
    };
    let rank = rank.ok_or_else(|| {
        let cause = "%r is the rank of an MPI job, and this is none";
        Failure::new("write", path.display(), cause)
    })?;
    Ok(text.replace(RANK, &rank.to_string()).into())
}

/// The options with this very process's rank in the name of the file to write. Says so where all ranks would write one file.
pub(super) fn of_own_rank(show: &Show) -> Result<Show, Failure> {
    let rank = mpi::own_rank();
    let of_rank = of_rank(show, rank).map_err(|failure| {
        failure.hint("a launcher such as mpirun starts one: `mpirun -n 2 ipath run ...`")
    })?;
    let is_one_of_many = rank == Some(0) && mpi::own_job_size() > Some(1);
    let one_file = show.output.iter().find(|path| {
        let to = Destination::of(path);
        !names_rank(path) && matches!(to, Ok(Destination::File(_)))
    });
    if let Some(path) = one_file.filter(|_| is_one_of_many) {
        warn(&format!(
            "write {}: each rank that does so replaces what the one before has written: %r in the name is the rank",
            path.display()
        ));
    }
    Ok(of_rank)
}

/// The same with the rank of another process.
pub(super) fn of_rank_of(pid: Pid, show: &Show) -> Result<Show, Failure> {
    let names_rank = show.output.as_deref().is_some_and(names_rank);
    let process = names_rank.then(|| Process::find(pid));
    match process {
        Some(Ok(process)) => of_rank(show, mpi::rank_of(&process)),
        // Whoever needs it says why it is not there.
        Some(Err(_)) | None => Ok(show.clone()),
    }
}

fn of_rank(show: &Show, rank: Option<u32>) -> Result<Show, Failure> {
    let mut show = show.clone();
    if let Some(output) = &mut show.output {
        *output = with_rank(output, rank)?;
    }
    Ok(show)
}
