//! The source around a call, as far as its file can be read here.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::state::{Source, State};
use crate::printable::printable;

/// Larger files are not read.
const MOST: u64 = 4 << 20;

impl State {
    /// Reads the source file that is to be shown, if it is another one than before.
    pub(super) fn read_source(&mut self) {
        if let Some(file) = self.wanted_source() {
            let lines = lines_of(Path::new(&*file));
            self.source = Some(Source { file, lines });
        }
    }
}

/// The lines of a plain file, safe to show.
fn lines_of(path: &Path) -> Option<Vec<String>> {
    let mut options = File::options();
    // What debug information names may be anything: a pipe would be waited for.
    options
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    let file = options.open(path).ok()?;
    let metadata = file.metadata().ok()?;
    if !metadata.is_file() || metadata.len() > MOST {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(MOST).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let line = |line: &str| printable(&line.replace('\t', "    ")).into_owned();
    Some(text.lines().map(line).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_files_are_read() {
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/view/around.rs");
        assert!(lines_of(&own).unwrap()[0].contains("source around a call"));
        for other in ["/dev/zero", "/proc", "/nonexistent"] {
            assert_eq!(lines_of(Path::new(other)), None, "{other}");
        }
    }
}
