//! Starts commands as a terminal does, no matter how the tests themselves are run.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

/// Resets the dispositions of SIGINT and SIGQUIT in a command to the default, as a terminal starts
/// it. A shell ignores them in background commands (POSIX, Shell Command Language, 2.11). If the
/// tests run in the background, the command must not inherit that.
pub fn reset_signals(command: &mut Command) -> &mut Command {
    let reset = || {
        for signal in [libc::SIGINT, libc::SIGQUIT] {
            // SAFETY: takes no pointer.
            if unsafe { libc::signal(signal, libc::SIG_DFL) } == libc::SIG_ERR {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: calls only functions that are allowed between fork and exec.
    unsafe { command.pre_exec(reset) }
}

/// Starts a command in its own process group, with the dispositions of [`reset_signals`].
///
/// # Errors
/// The errors of [`Command::spawn`].
pub fn spawn(command: &mut Command) -> io::Result<Child> {
    reset_signals(command).process_group(0).spawn()
}
