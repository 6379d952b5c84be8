//! The lines around calls, from source files.

use ipath_base::files::lines_of;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// Lines before and after one.
const AROUND: usize = 2;

/// Lines by `FILE:LINE`, the file by its number.
#[derive(Default)]
pub(super) struct Sources {
    files: HashMap<usize, Vec<String>>,
    lines: BTreeMap<String, String>,
}

impl Sources {
    /// Adds the lines around one, where its file is here.
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

    pub(super) fn lines(&self) -> &BTreeMap<String, String> {
        &self.lines
    }
}
