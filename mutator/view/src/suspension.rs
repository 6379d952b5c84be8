//! Stopping the job of this process.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Stops the whole job, as the terminal does for Ctrl-Z. This process holds the signal and handles
/// it as a request.
pub(super) fn stop_job() {
    // Signaling the own process group cannot fail.
    let _ = kill(Pid::from_raw(0), Signal::SIGTSTP);
}
