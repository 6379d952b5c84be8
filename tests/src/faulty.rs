//! The command as it can be made to die, to stop, to panic, to be signalled and to fail at chosen moments.

use crate::command::Run;
use crate::place::{target_dir, workspace};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

/// That command, built when first asked for: `IPATH_DIE_AT=N` ends it at its N-th step, `IPATH_STOP_AT=N` stops it
/// there, N a number or the name of a kind of steps, `IPATH_SIGNAL_AT=N` sends it SIGINT from there on, `IPATH_PANIC_AT=WHAT` has it panic, and
/// `IPATH_REFUSE_WRITES=1` has forced writes refused. Or the one that `IPATH_FAULTS_BIN` names, as `IPATH_BIN` names the command.
pub fn faulty() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        if let Some(given) = std::env::var_os("IPATH_FAULTS_BIN") {
            return given.into();
        }
        // With the profile and in the folder of the command itself, whose dependencies it shares: most of its work is theirs.
        Run::new(env!("CARGO"))
            .args(["build", "--release", "--quiet", "--package", "ipath"])
            .arg("--config")
            .arg(workspace().join("tests/quick.toml"))
            .args(["--features", "ipath/faults", "--bin", "ipath-faults"])
            .arg("--manifest-path")
            .arg(workspace().join("Cargo.toml"))
            .arg("--target-dir")
            .arg(target_dir())
            // What cargo says to a test of its package, build scripts of dependencies look at (that of ring): all would be built anew.
            .without_env("CARGO_MANIFEST_")
            .without_env("CARGO_PKG_")
            .limit(Duration::from_secs(1200))
            .run()
            .expect(0);
        target_dir().join("release/ipath-faults")
    };
    BUILT.get_or_init(build).clone()
}
