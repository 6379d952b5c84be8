//! `merge`: adds up profiles.

use std::path::{Path, PathBuf};

use super::target::load;
use super::watch::destination;
use crate::failure::Failure;
use ipath_base::error::io_text;
use ipath_profile::merge::{Merger, PathsOf};

const OPERATION: &str = "merge";

/// Adds up profiles, one after the other, and writes the sum to `output`.
pub(super) fn merge(files: &[PathBuf], paths_of: PathsOf, output: &Path) -> Result<(), Failure> {
    let into = destination(output)?;
    let mut merger = Merger::new(paths_of);
    for file in files {
        let profile = load(OPERATION, file)?;
        let added = merger.add(&profile);
        added.map_err(|e| Failure::new(OPERATION, file.display(), e))?;
    }
    // At least one file is given.
    let Some(sum) = merger.finish() else {
        return Ok(());
    };
    let saved = sum.save_to(&into);
    saved.map_err(|e| Failure::new("write", output.display(), io_text(&e)))
}
