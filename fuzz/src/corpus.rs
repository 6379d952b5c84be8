//! The corpus of inputs.

use std::fs;
use std::path::{Path, PathBuf};

/// Reads the files in a folder of `corpus/`, sorted by name.
///
/// # Panics
/// If the folder has no file or cannot be read.
pub fn load(folder: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(folder);
    let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    let read =
        |path: &PathBuf| fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    files.iter().map(read).collect()
}

/// Saves an input that failed, and returns its path.
pub fn keep(target: &str, seed: u64, case: u64, input: &[u8]) -> PathBuf {
    let path = std::env::temp_dir().join(format!("ipath-fuzz-{target}-{seed}-{case}"));
    // The test has already failed, so an error here is ignored.
    let _ = fs::write(&path, input);
    path
}
