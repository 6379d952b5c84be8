//! Errors of segments.

use std::io;
use std::path::PathBuf;

/// Why a segment cannot be used.
#[derive(Debug)]
pub enum SegmentError {
    /// There is no segment.
    Missing,
    /// The system reported an error for this file.
    Io(PathBuf, io::Error),
    /// The segment has this layout version, which this program does not support.
    Version(u32),
    /// The segment's contents are inconsistent. Contains the name of the wrong part.
    Corrupt(&'static str),
    /// Another command is changing the session.
    Busy,
    /// The data do not fit into the segment, or the system has no memory for it.
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
                    "the session has layout {version}, but this ipath supports layout {}",
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
