//! Files of /proc as text.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The text of a file. The kernel's own are not always UTF-8: names of threads are any bytes, and are cut after the fifteenth,
/// also within a character.
pub fn read_text(path: impl AsRef<Path>) -> io::Result<String> {
    const USUAL: usize = 8 << 10;
    let bytes = read_on(&mut File::open(path)?, USUAL)?;
    Ok(String::from_utf8(bytes)
        .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()))
}

/// The rest of a file of the kernel's. None tells its length, so none is asked for it: with room for most of them it takes two reads.
pub fn read_on(file: &mut File, usual: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(usual);
    file.take(u64::MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What this machine is called; nothing where that cannot be told.
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
