//! Lines of /proc/thread-self/maps, read through a buffer: proc(5). The file of the process itself is
//! empty once its first thread has ended.

use crate::sys::File;

/// Longest line that is understood whole; of a longer one the end of the path is cut.
const LINE: usize = 512;
const BUFFER: usize = 4096;

/// One mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// May be read.
    pub read: bool,
    /// May be executed.
    pub execute: bool,
    /// Offset in the file, bytes.
    pub offset: u64,
    /// Device of the file, as [`abi::segment::device`] packs it.
    pub device: u32,
    /// Inode of the file; 0 without one.
    pub inode: u64,
}

/// Calls `each` for every mapping of the process with its path (empty for anonymous memory), until
/// it returns false. `None` when the maps cannot be read.
pub fn for_each(mut each: impl FnMut(Mapping, &[u8]) -> bool) -> Option<()> {
    let file = File::open(c"/proc/thread-self/maps")?;
    let mut buffer = [0u8; BUFFER];
    let mut line = [0u8; LINE];
    let mut len = 0;
    loop {
        let got = file.read(&mut buffer)?;
        if got == 0 {
            return Some(());
        }
        for &byte in buffer.iter().take(got) {
            if byte == b'\n' {
                if let Some((mapping, path)) = parse(line.get(..len)?)
                    && !each(mapping, path)
                {
                    return Some(());
                }
                len = 0;
            } else if let Some(slot) = line.get_mut(len) {
                *slot = byte;
                len += 1;
            }
        }
    }
}

/// A line without its line feed: `start-end perms offset dev inode path`.
fn parse(line: &[u8]) -> Option<(Mapping, &[u8])> {
    let (start, rest) = number(line, 16)?;
    let (end, rest) = number(rest.strip_prefix(b"-")?, 16)?;
    let rest = rest.strip_prefix(b" ")?;
    let (permissions, rest) = (rest.get(..4)?, rest.get(5..)?);
    let (offset, rest) = number(rest, 16)?;
    let (major, rest) = number(rest.strip_prefix(b" ")?, 16)?;
    let (minor, rest) = number(rest.strip_prefix(b":")?, 16)?;
    let (inode, mut path) = number(rest.strip_prefix(b" ")?, 10)?;
    while let Some(rest) = path.strip_prefix(b" ") {
        path = rest;
    }
    let has = |letter: u8| permissions.contains(&letter);
    Some((
        Mapping {
            start,
            end,
            read: has(b'r'),
            execute: has(b'x'),
            offset,
            device: abi::segment::device(major, minor),
            inode,
        },
        path,
    ))
}

fn number(text: &[u8], base: u32) -> Option<(u64, &[u8])> {
    let digits = text
        .iter()
        .take_while(|&&b| (b as char).is_digit(base))
        .count();
    let (digits, rest) = text.split_at_checked(digits)?;
    if digits.is_empty() {
        return None;
    }
    let mut value = 0u64;
    for &digit in digits {
        let digit = (digit as char).to_digit(base)?;
        value = value
            .wrapping_mul(u64::from(base))
            .wrapping_add(u64::from(digit));
    }
    Some((value, rest))
}

#[cfg(test)]
mod tests {
    use super::{Mapping, for_each, parse};
    use std::string::String;
    use std::vec::Vec;

    #[test]
    fn parses_what_the_kernel_prints() {
        let line =
            b"7f00deadb000-7f00deadc000 r-xp 00026000 fd:00 393485     /usr/lib/a b.so (deleted)";
        let (mapping, path) = parse(line).expect("a good line");
        let expected = Mapping {
            start: 0x7f00_dead_b000,
            end: 0x7f00_dead_c000,
            read: true,
            execute: true,
            offset: 0x26000,
            device: 0xfd << 20,
            inode: 393_485,
        };
        assert_eq!(mapping, expected);
        assert_eq!(path, b"/usr/lib/a b.so (deleted)");
        assert_eq!(parse(b"7f00-"), None);
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn sees_the_mappings_of_its_own_process() {
        let here = parse as *const () as u64;
        let mut paths = Vec::new();
        let found = for_each(|mapping, path| {
            if mapping.execute && mapping.start <= here && here < mapping.end {
                paths.push(String::from_utf8_lossy(path).into_owned());
            }
            true
        });
        assert_eq!(found, Some(()));
        let exe = std::env::current_exe().expect("has a path");
        assert_eq!(paths, [exe.to_string_lossy().into_owned()]);
    }
}
