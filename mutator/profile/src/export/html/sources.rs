//! Source lines around calls.

use ipath_base::files::lines_of;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// The number of lines before and after a call.
const AROUND: usize = 2;

/// Lines by `FILE:LINE`, where FILE is the number of the file.
#[derive(Default)]
pub(super) struct Sources {
    /// The lines of each file by its number. Empty if it cannot be read.
    files: HashMap<usize, Vec<String>>,
    /// The text around each call by `FILE:LINE`.
    lines: BTreeMap<String, String>,
}

impl Sources {
    /// Adds the lines around a call. Adds nothing if `path` cannot be read on this machine or has
    /// no such line. `file` is the number of the file, and `line` counts from 1.
    pub(super) fn add(&mut self, path: &str, file: usize, line: u32) {
        let lines = self
            .files
            .entry(file)
            .or_insert_with(|| lines_of(Path::new(path)).unwrap_or_default());
        let Some(at) = (line as usize)
            .checked_sub(1)
            .filter(|&at| at < lines.len())
        else {
            return;
        };
        let first = at.saturating_sub(AROUND);
        let shown = lines
            .iter()
            .enumerate()
            .skip(first)
            .take(at - first + AROUND + 1);
        let shown = shown.map(|(i, text)| {
            let mark = if i == at { '>' } else { ' ' };
            format!("{mark}{:5}  {text}\n", i + 1)
        });
        self.lines.insert(format!("{file}:{line}"), shown.collect());
    }

    /// The text around each call by `FILE:LINE`.
    pub(super) fn lines(&self) -> &BTreeMap<String, String> {
        &self.lines
    }
}
