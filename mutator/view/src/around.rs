//! The source around a call, as far as its file can be read here.

use std::path::Path;

use super::state::{Source, State};
use ipath_base::files::lines_of;

impl State {
    /// Reads the source file that is to be shown, if it is another one than before.
    pub(super) fn read_source(&mut self) {
        if let Some(file) = self.wanted_source() {
            let lines = lines_of(Path::new(&*file));
            self.source = Some(Source { file, lines });
        }
    }
}
