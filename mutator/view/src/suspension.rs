//! The job that this process belongs to.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Stops the whole job, as the terminal does by itself where it is not held back. This process takes its own part as a
/// signal that it has got.
pub(super) fn stop_job() {
    // A signal to one's own group cannot fail.
    let _ = kill(Pid::from_raw(0), Signal::SIGTSTP);
}
