//! Paths of the workspace, its target folder, the `ipath` binary and scratch folders.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// The workspace's root folder.
pub fn workspace() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest
        .parent()
        .expect("the tests crate lies in the workspace")
        .to_path_buf()
}

/// Cargo's target folder: the one this test binary was built into.
pub fn target_dir() -> PathBuf {
    let exe = std::env::current_exe().expect("the test binary has a path");
    let found = exe
        .ancestors()
        .find(|dir| dir.join("CACHEDIR.TAG").exists());
    found
        .expect("the test binary lies in a target folder")
        .to_path_buf()
}

/// The `ipath` command: `IPATH_BIN`, or the release build in the target folder.
///
/// # Panics
/// If there is no such file.
pub fn ipath() -> PathBuf {
    let path = match std::env::var_os("IPATH_BIN") {
        Some(path) => PathBuf::from(path),
        None => target_dir().join("release/ipath"),
    };
    assert!(
        path.is_file(),
        "{} is missing: run `cargo build --release` first, or set IPATH_BIN",
        path.display()
    );
    path
}

/// The folder `ipath-tests/NAME` of the target folder, for files that the tests write. Created if
/// missing.
pub fn work_dir(name: &str) -> PathBuf {
    let dir = target_dir().join("ipath-tests").join(name);
    fs::create_dir_all(&dir).unwrap_or_else(|e| panic!("create {}: {e}", dir.display()));
    dir
}

/// A folder for one test, removed at the end unless the test fails.
pub struct Scratch(PathBuf);

impl Scratch {
    /// A fresh folder whose name starts with `name`, in the target folder.
    pub fn new(name: &str) -> Self {
        Self::within(&work_dir("scratch"), name)
    }

    /// A fresh folder below /tmp: a path short enough for a socket, and open to every user.
    pub fn public(name: &str) -> Self {
        use std::os::unix::fs::PermissionsExt;
        let scratch = Self::within(&std::env::temp_dir(), &format!("ipath-{name}"));
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(scratch.path(), open).expect("chmod of an own folder");
        scratch
    }

    fn within(parent: &Path, name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = parent.join(format!("{name}-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&dir); // left by an earlier process with this id
        fs::create_dir_all(&dir).unwrap_or_else(|e| panic!("create {}: {e}", dir.display()));
        Self(dir)
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The path of a file in the folder. Does not create it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}
