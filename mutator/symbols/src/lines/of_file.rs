//! Source positions that own the file they are read from.

use self_cell::self_cell;

use super::{Lines, Places};
use ipath_base::files::FileBytes;

self_cell!(
    struct Cell {
        owner: FileBytes,
        #[not_covariant]
        dependent: Lines,
    }
);

/// The source positions of an open file.
pub struct FileLines(Cell);

impl FileLines {
    /// As [`Lines::load`].
    pub fn load(file: FileBytes, places: &Places) -> Option<Self> {
        let cell = Cell::try_new(file, |file| Lines::load(file.bytes(), places).ok_or(()));
        cell.ok().map(Self)
    }

    /// Calls `read` with the positions.
    pub fn with<T>(&self, read: impl FnOnce(&Lines<'_>) -> T) -> T {
        self.0.with_dependent(|_, lines| read(lines))
    }
}
