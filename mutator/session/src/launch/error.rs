//! Why a program does not begin.

use std::io;

use ipath_target::process::ProcessError;
use ipath_target::tracee::TraceeError;

/// Why a program did not come to its start.
#[derive(Debug)]
pub enum LaunchError {
    /// It cannot be executed.
    Exec(io::Error),
    /// It ended while it was loaded, with this status: its loader says why.
    Ended(i32),
    /// It cannot be worked on.
    Process(ProcessError),
    /// It cannot be traced.
    Tracee(TraceeError),
}

impl std::fmt::Display for LaunchError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exec(error) => ipath_base::error::io_text(error).fmt(f),
            Self::Ended(status) => write!(f, "it ended while it was loaded, with status {status}"),
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
