//! What can go wrong with a segment.

use std::io;
use std::path::PathBuf;

/// Why there is no segment to work on.
#[derive(Debug)]
pub enum SegmentError {
    /// There is none.
    Missing,
    /// The system refuses.
    Io(PathBuf, io::Error),
    /// Written by another version.
    Version(u32),
    /// Its contents contradict each other.
    Corrupt(&'static str),
    /// Another command is changing the session.
    Busy,
    /// The document does not fit.
    Full,
}

impl std::fmt::Display for SegmentError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Missing => write!(f, "no session"),
            Self::Io(path, error) => {
                write!(
                    f,
                    "{}: {}",
                    path.display(),
                    ipath_base::error::io_text(error)
                )
            }
            Self::Version(version) => {
                write!(
                    f,
                    "the session is of layout {version}, this ipath knows {}",
                    abi::ABI_VERSION
                )
            }
            Self::Corrupt(what) => write!(f, "the session's segment is corrupt: {what}"),
            Self::Busy => write!(f, "another ipath is changing the session"),
            Self::Full => write!(
                f,
                "there is no room for more functions in the session, or no memory in /dev/shm"
            ),
        }
    }
}

impl std::error::Error for SegmentError {}
