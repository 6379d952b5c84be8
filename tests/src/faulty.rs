//! A build of the command with fault injection: it dies, stops, panics or fails at chosen moments.

use crate::command::Run;
use crate::place::{target_dir, workspace};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

/// The path of the command with fault injection, built on first use, or the file that
/// `IPATH_FAULTS_BIN` names.
///
/// - `IPATH_DIE_AT=N` ends it at its N-th step. N is a number or the name of a kind of steps.
/// - `IPATH_STOP_AT=N` stops it at its N-th step.
/// - `IPATH_SIGNAL_AT=N` sends it SIGINT from its N-th step on.
/// - `IPATH_PANIC_AT=WHAT` makes it panic.
/// - `IPATH_REFUSE_WRITES=1` refuses forced writes.
pub fn faulty() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        if let Some(given) = std::env::var_os("IPATH_FAULTS_BIN") {
            return given.into();
        }
        // Built with the command's profile in the command's folder. The two share dependencies,
        // which take most of the build time.
        Run::new(env!("CARGO"))
            .args(["build", "--release", "--quiet", "--package", "ipath"])
            .arg("--config")
            .arg(workspace().join("tests/quick.toml"))
            .args(["--features", "ipath/faults", "--bin", "ipath-faults"])
            .arg("--manifest-path")
            .arg(workspace().join("Cargo.toml"))
            .arg("--target-dir")
            .arg(target_dir())
            // Build scripts of dependencies (ring's) read the variables that cargo sets for this
            // test. With them, all dependencies would be rebuilt.
            .without_env("CARGO_MANIFEST_")
            .without_env("CARGO_PKG_")
            .limit(Duration::from_secs(1200))
            .run()
            .expect(0);
        target_dir().join("release/ipath-faults")
    };
    BUILT.get_or_init(build).clone()
}
