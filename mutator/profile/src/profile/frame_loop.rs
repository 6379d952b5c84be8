//! Loops, as paths and functions show them.

use serde::{Deserialize, Serialize};

use super::position::position;

/// A loop around a call site, or one that is timed by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameLoop {
    /// The link-time address of the first instruction of its header.
    pub header: u64,
    /// The source file. `None` if it is not known.
    #[serde(default)]
    pub file: Option<String>,
    /// The first line. `None` if it is not known.
    #[serde(default)]
    pub line: Option<u32>,
    /// The last line. `None` if it is not known.
    #[serde(default)]
    pub end_line: Option<u32>,
    /// The number of functions in [`Frame::inlined`](super::Frame::inlined) that contain the loop,
    /// from the last one on. 0 if the loop is in the function itself.
    #[serde(default)]
    pub inlined: usize,
}

impl FrameLoop {
    /// The lines of the loop as `FILE:LINE-LINE`, without the file's directory. `None` without a
    /// file.
    pub(super) fn lines(&self) -> Option<String> {
        let place = position(self.file.as_deref(), self.line)?;
        Some(match self.end_line.filter(|&end| Some(end) > self.line) {
            Some(end) => format!("{place}-{end}"),
            None => place,
        })
    }
}
