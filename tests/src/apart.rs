//! Starting commands as a terminal starts them, wherever the tests themselves run.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

/// Has a command begin with the signals of a terminal's keys as a terminal gives them. A shell ignores them for
/// what it runs in the background (POSIX, Shell Command Language, 2.11): the tests may be run so, and the command
/// is not to inherit it.
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
    // SAFETY: calls nothing but what may be called between fork and exec.
    unsafe { command.pre_exec(reset) }
}

/// Starts a command in a process group of its own.
pub fn spawn(command: &mut Command) -> io::Result<Child> {
    reset_signals(command).process_group(0).spawn()
}
