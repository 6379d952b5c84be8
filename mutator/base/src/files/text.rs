//! Source files as text.

use std::io::Read;
use std::path::Path;

use super::open_regular;
use crate::printable::printable;

/// The size in bytes of the largest file that is read.
const MAX_BYTES: u64 = 4 << 20;

/// The lines of a regular file, safe to display: control characters are escaped, and a tab becomes
/// four spaces. `None` if the file is not regular, cannot be read or is larger than 4 MiB.
pub fn lines_of(path: &Path) -> Option<Vec<String>> {
    // Debug information may name anything, and reading a pipe would block.
    let file = open_regular(path).ok()?;
    if file.metadata().ok()?.len() > MAX_BYTES {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
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
