//! Errors of starting a program.

use std::io;

use ipath_target::process::ProcessError;
use ipath_target::tracee::TraceeError;

/// Why a program could not be brought to its start.
#[derive(Debug)]
pub enum LaunchError {
    /// The program cannot be executed.
    Exec(io::Error),
    /// The program ended while it was being loaded, with this exit status. Its loader reports why.
    Ended(i32),
    /// The process cannot be inspected.
    Process(ProcessError),
    /// The process cannot be traced.
    Tracee(TraceeError),
}

impl std::fmt::Display for LaunchError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exec(error) => ipath_base::error::io_text(error).fmt(f),
            Self::Ended(status) => write!(
                f,
                "it ended while it was being loaded, with status \
                {status}"
            ),
            Self::Process(error) => error.fmt(f),
            Self::Tracee(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for LaunchError {}

impl From<ProcessError> for LaunchError {
    fn from(error: ProcessError) -> Self {
        Self::Process(error)
    }
}

impl From<TraceeError> for LaunchError {
    fn from(error: TraceeError) -> Self {
        Self::Tracee(error)
    }
}
