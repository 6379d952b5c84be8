//! Source files as text.

use std::io::Read;
use std::path::Path;

use super::open_regular;
use crate::printable::printable;

/// Larger files are not read.
const MOST: u64 = 4 << 20;

/// The lines of a plain file, safe to show; none where it cannot be read.
pub fn lines_of(path: &Path) -> Option<Vec<String>> {
    // What debug information names may be anything: a pipe would be waited for.
    let file = open_regular(path).ok()?;
    if file.metadata().ok()?.len() > MOST {
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
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/files/text.rs");
        assert!(lines_of(&own).unwrap()[0].contains("Source files as text"));
        for other in ["/dev/zero", "/proc", "/nonexistent"] {
            assert_eq!(lines_of(Path::new(other)), None, "{other}");
        }
    }
}
