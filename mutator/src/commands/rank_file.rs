//! `%r` in a file name: the rank of the process whose profile the file receives.

use std::path::{Path, PathBuf};

use super::remarks::warn;
use crate::cli::Show;
use crate::failure::Failure;
use ipath_base::destination::Destination;
use ipath_session::mpi;
use ipath_target::process::{Pid, Process};

const RANK: &str = "%r";

/// True if the file name contains `%r`.
pub(super) fn names_rank(path: &Path) -> bool {
    path.to_str().is_some_and(|text| text.contains(RANK))
}

/// The file name with `%r` replaced by the rank.
///
/// # Errors
/// The name contains `%r`, and there is no rank.
pub(super) fn with_rank(path: &Path, rank: Option<u32>) -> Result<PathBuf, Failure> {
    let Some(text) = path.to_str().filter(|_| names_rank(path)) else {
        return Ok(path.to_owned());
    };
    let rank = rank.ok_or_else(|| {
        let cause = "%r is the rank in an MPI job, and this process has none";
        Failure::new("write", path.display(), cause)
    })?;
    Ok(text.replace(RANK, &rank.to_string()).into())
}

/// The options with this process's rank in the output file name. Warns if all ranks would write to
/// the same file.
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
            "write {}: each rank replaces the file of the one before: put %r, the rank, into the \
            name",
            path.display()
        ));
    }
    Ok(of_rank)
}

/// The options with the rank of another process in the output file name. They are unchanged if the
/// process does not exist.
///
/// # Errors
/// The name contains `%r`, and the process has no rank.
pub(super) fn of_rank_of(pid: Pid, show: &Show) -> Result<Show, Failure> {
    let names_rank = show.output.as_deref().is_some_and(names_rank);
    let process = names_rank.then(|| Process::find(pid));
    match process {
        Some(Ok(process)) => of_rank(show, mpi::rank_of(&process)),
        // Callers that need the process report its absence.
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
