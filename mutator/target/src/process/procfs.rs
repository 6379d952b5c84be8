//! Files of /proc as text.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Reads a text file, with replacement characters for invalid UTF-8. Kernel files are not always
/// UTF-8: thread names are arbitrary bytes and are cut after 15 bytes, even within a character.
///
/// # Errors
/// The file cannot be opened or read.
pub fn read_text(path: impl AsRef<Path>) -> io::Result<String> {
    const USUAL: usize = 8 << 10;
    let bytes = read_on(&mut File::open(path)?, USUAL)?;
    Ok(String::from_utf8(bytes)
        .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()))
}

/// Reads the rest of a kernel file. Such files do not report their length, so it is not queried. If
/// `usual` bytes suffice, this takes two reads.
///
/// # Errors
/// The file cannot be read.
pub fn read_on(file: &mut File, usual: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(usual);
    file.take(u64::MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The name of this machine. Empty if unknown.
pub fn host() -> String {
    let name = nix::unistd::gethostname();
    name.map_or_else(
        |_| String::new(),
        |name| name.to_string_lossy().into_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::read_text;

    #[test]
    fn names_that_are_no_text_are_read() {
        let name = c"abcdefghijklmn\xc3\xbc";
        let named = std::thread::spawn(move || {
            nix::sys::prctl::set_name(name).expect("a name");
            read_text("/proc/thread-self/stat").expect("a text")
        });
        let stat = named.join().expect("a thread");
        assert!(stat.contains("(abcdefghijklmn\u{fffd}) R"), "{stat}");
    }
}
