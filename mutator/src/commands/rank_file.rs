//! `%r` in the name of a file: the rank of the process whose profile it gets.

use std::path::{Path, PathBuf};

use crate::error::Failure;

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
