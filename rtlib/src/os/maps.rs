//! Lines of /proc/thread-self/maps, read through a buffer (proc(5)). /proc/self/maps is empty once
//! the first thread of the process has ended.

use super::shared;
use super::sys::{self, File};

/// Maximum length in bytes of a line that is kept whole. In a longer one the end of the path is cut
/// off.
const LINE: usize = 512;
/// Bytes of maps read at a time.
const BUFFER: usize = 4096;
/// Bytes in which the longest line of maps fits: PATH_MAX and the fields before the path.
const LONGEST: usize = 3 * BUFFER;

/// Most bytes that the kernel allocates for the open file and its lines (fs/seq_file.c). It charges
/// them to the process's memory cgroup, and kills a process that has no room for them.
const OF_KERNEL: u64 = 32 << 10;

/// One mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// First address of the mapping.
    pub start: u64,
    /// First address after the mapping.
    pub end: u64,
    /// True if the mapping is readable.
    pub read: bool,
    /// True if the mapping is executable.
    pub execute: bool,
    /// Offset of the mapping in its file, in bytes.
    pub offset: u64,
    /// Device of the file, as [`abi::segment::device`] packs it.
    pub device: u32,
    /// Inode of the file; 0 without a file.
    pub inode: u64,
}

/// Calls `each` for every mapping of the process with its path (empty for anonymous memory), in the
/// order of addresses, until `each` returns false. `None` if the maps cannot be read to the end,
/// perhaps after some calls of `each`, or if there is no memory for that. Without system calls, the
/// mappings are those that the command has published.
pub fn for_each(each: impl FnMut(Mapping, &[u8]) -> bool) -> Option<()> {
    if !sys::may_call() {
        return for_each_published(each);
    }
    shared::take_memory(OF_KERNEL).ok()?;
    let read = for_each_read(each);
    shared::give_back_memory(OF_KERNEL);
    read
}

/// Calls `each` for the mappings that /proc lists, as [`for_each`]. `None` if they cannot be read
/// to the end.
fn for_each_read(mut each: impl FnMut(Mapping, &[u8]) -> bool) -> Option<()> {
    let mut line = Line::new();
    let file = File::open(c"/proc/thread-self/maps")?;
    let mut buffer = [0u8; BUFFER];
    let mut longer = 0;
    loop {
        let got = file.read(&mut buffer)?;
        let text = buffer.get(..got)?;
        let is_wanted = got != 0 && line.lines_of(text, &mut each);
        if !is_wanted {
            return Some(());
        }
        // The program may have closed the descriptor and opened another file with the same number.
        longer = if text.contains(&b'\n') {
            0
        } else {
            longer + got
        };
        if longer > LONGEST {
            return None;
        }
    }
}

/// Calls `each` for the mappings that the command last published, until `each` returns false.
/// `None` if it has published none.
pub fn for_each_published(mut each: impl FnMut(Mapping, &[u8]) -> bool) -> Option<()> {
    Line::new().lines_of(shared::published_maps()?, &mut each);
    Some(())
}

/// A line that is being assembled.
struct Line {
    bytes: [u8; LINE],
    len: usize,
}

impl Line {
    fn new() -> Self {
        Self {
            bytes: [0; LINE],
            len: 0,
        }
    }

    /// Calls `each` for the lines that end in `text`, except malformed ones. False once `each` has
    /// returned false.
    fn lines_of(&mut self, text: &[u8], each: &mut impl FnMut(Mapping, &[u8]) -> bool) -> bool {
        for &byte in text {
            if byte == b'\n' {
                let line = self.bytes.get(..self.len).and_then(parse);
                self.len = 0;
                if line.is_some_and(|(mapping, path)| !each(mapping, path)) {
                    return false;
                }
            } else if let Some(place) = self.bytes.get_mut(self.len) {
                *place = byte;
                self.len += 1;
            }
        }
        true
    }
}

/// Parses a line without its line feed, `start-end perms offset dev inode path`, as a mapping and
/// its path. `None` if it is malformed.
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

/// The number in this base at the start of a text, modulo 2^64, and the text after it. `None` if
/// the text does not start with a digit.
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
    fn lines_come_in_pieces() {
        let text = b"1000-2000 r-xp 0 0:0 7 /a\n2000-3000 r--p 0 0:0 7 /b\n\n\n";
        for at in 0..text.len() {
            let mut starts = Vec::new();
            let mut each = |mapping: Mapping, _: &[u8]| {
                starts.push(mapping.start);
                true
            };
            let mut line = super::Line::new();
            assert!(line.lines_of(&text[..at], &mut each) && line.lines_of(&text[at..], &mut each));
            assert_eq!(starts, [0x1000, 0x2000]);
        }
    }

    #[test]
    fn sees_the_mappings_of_its_own_process() {
        let here = parse as *const () as u64;
        crate::os::parameters::ipath_parameters
            .system_calls
            .store(1, core::sync::atomic::Ordering::Relaxed);
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
