//! Source code around a call, if its file is readable on this machine.

use std::path::Path;

use super::state::{Source, State};
use ipath_base::files::lines_of;

impl State {
    /// Reads the source file to show, unless it has already been read.
    pub(super) fn read_source(&mut self) {
        if let Some(file) = self.wanted_source() {
            let lines = lines_of(Path::new(&*file));
            self.source = Some(Source { file, lines });
        }
        while let Some(file) = self.wanted_inside_source() {
            let lines = lines_of(Path::new(&*file));
            self.inside_sources.push(Source { file, lines });
        }
    }
}
