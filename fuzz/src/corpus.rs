//! The kept inputs.

use std::fs;
use std::path::{Path, PathBuf};

/// The files of a folder below `corpus/`, by name.
///
/// # Panics
/// When there is none.
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

/// Keeps an input that has failed; where.
pub fn keep(target: &str, seed: u64, case: u64, input: &[u8]) -> PathBuf {
    let path = std::env::temp_dir().join(format!("ipath-fuzz-{target}-{seed}-{case}"));
    // What fails here fails a test already.
    let _ = fs::write(&path, input);
    path
}
