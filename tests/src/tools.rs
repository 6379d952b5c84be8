//! Third-party readers of exports: packages that tests/run installs in the target folder.

use crate::place::target_dir;
use std::path::PathBuf;

/// The folder of the packages from npm.
///
/// # Panics
/// If it is missing.
pub fn node_modules() -> PathBuf {
    installed("node_modules")
}

/// A Python with the packages from PyPI.
///
/// # Panics
/// If it is missing.
pub fn python() -> PathBuf {
    installed("python/bin/python")
}

/// A newer Go than Debian's, from PyPI.
///
/// # Panics
/// If it is missing.
pub fn newest_go() -> PathBuf {
    installed("python/bin/go")
}

/// The folder of the sources of a crate, which contain those of the C library of another project.
///
/// # Panics
/// If it is missing.
pub fn sources(name: &str) -> PathBuf {
    installed("sources").join(name)
}

fn installed(name: &str) -> PathBuf {
    let path = target_dir().join("tools").join(name);
    assert!(
        path.exists(),
        "{} is missing: tests/run installs it",
        path.display()
    );
    path
}
