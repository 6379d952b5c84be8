//! `jit-PID.dump`: records of code that was loaded and moved, each with its time
//! (tools/perf/Documentation/jitdump-specification.txt of the kernel).

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::sync::Arc;

use patcher::Avma;

use super::ranges::Ranges;
use crate::arch::MACHINE;

/// The most records of a file to read.
const MAX_RECORDS: u64 = 1 << 22;
/// The most bytes of a name. Longer names are truncated.
const LONGEST: usize = 4096;

/// `JiTD`, as an x86-64 program writes it.
const MAGIC: u32 = 0x4a69_5444;
/// The size of a file's header, in bytes.
const HEADER: usize = 40;
/// The size of a record's prefix, in bytes.
const PREFIX: usize = 16;
/// The kind of a record of code that was loaded.
const CODE_LOAD: u32 = 0;
/// The bytes of a record of loaded code between its prefix and its name.
const OF_LOAD: usize = 40;
/// The kind of a record of code that was moved.
const CODE_MOVE: u32 = 1;
/// The bytes of a record of moved code after its prefix.
const OF_MOVE: usize = 48;

/// The progress in reading a file.
#[derive(Debug, Default)]
pub(super) struct Dump {
    /// The number of bytes read so far. 0 before the header has been read.
    done: u64,
    /// The number of records read so far.
    records: u64,
    /// True once the file has turned out to have another format or too many records. No more is
    /// read then.
    is_broken: bool,
}

impl Dump {
    /// Adds the complete records that were added to the file of `pid` to `names`. `len` is the
    /// file's length. A file of another format gives no names.
    pub(super) fn read(
        &mut self,
        file: &File,
        len: u64,
        pid: i32,
        names: &mut Ranges,
    ) -> io::Result<()> {
        if self.is_broken || self.done >= len {
            return Ok(());
        }
        let mut from = BufReader::with_capacity(1 << 16, file);
        if self.done == 0 {
            let mut header = [0; HEADER];
            if len < HEADER as u64 {
                return Ok(());
            }
            from.seek(SeekFrom::Start(0))?;
            from.read_exact(&mut header)?;
            let size = number(&header, 8);
            let is_ours = number(&header, 0) == MAGIC
                && number(&header, 12) == MACHINE
                && number(&header, 20) == pid as u32
                && size as usize >= HEADER;
            self.is_broken = !is_ours;
            self.done = u64::from(size);
        }
        from.seek(SeekFrom::Start(self.done))?;
        while !self.is_broken && self.done.saturating_add(PREFIX as u64) <= len {
            let mut prefix = [0; PREFIX];
            from.read_exact(&mut prefix)?;
            let size = u64::from(number(&prefix, 4));
            if self.done.saturating_add(size) > len {
                // The record is not complete yet.
                break;
            }
            self.records += 1;
            self.is_broken = size < PREFIX as u64 || self.records > MAX_RECORDS;
            let rest = size.saturating_sub(PREFIX as u64);
            let mut body = vec![0; rest.min((OF_LOAD + LONGEST) as u64) as usize];
            from.read_exact(&mut body)?;
            from.seek_relative((rest - body.len() as u64) as i64)?;
            take(number(&prefix, 0), word(&prefix, 8), &body, names);
            self.done += size;
        }
        Ok(())
    }
}

/// Adds a record to `names`. `body` follows its prefix. Other kinds and truncated records are
/// skipped.
fn take(kind: u32, time: u64, body: &[u8], names: &mut Ranges) {
    match kind {
        CODE_LOAD if body.len() > OF_LOAD => {
            let (start, size) = (word(body, 16), word(body, 24));
            let name = body[OF_LOAD..].split(|&b| b == 0).next().unwrap_or(&[]);
            let name = String::from_utf8_lossy(name);
            let end = Avma(start.saturating_add(size));
            names.insert(Avma(start)..end, time, &name.trim().into());
        }
        CODE_MOVE if body.len() >= OF_MOVE => {
            let (before, start, size) = (word(body, 16), word(body, 24), word(body, 32));
            let moved = names.at(Avma(before)).map(|named| Arc::clone(&named.name));
            if let Some(name) = moved {
                let end = Avma(start.saturating_add(size));
                names.insert(Avma(start)..end, time, &name);
            }
        }
        _ => {}
    }
}

/// The 32-bit number at an offset within bounds.
fn number(bytes: &[u8], at: usize) -> u32 {
    word(bytes, at) as u32
}

/// Up to eight bytes at an offset, as a little-endian number.
fn word(bytes: &[u8], at: usize) -> u64 {
    let of = bytes.iter().skip(at).take(8).rev();
    of.fold(0, |number, &byte| number << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const PID: i32 = 4242;

    fn header() -> Vec<u8> {
        let mut bytes = Vec::new();
        for number in [MAGIC, 1, HEADER as u32, MACHINE, 0, PID as u32] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.resize(HEADER, 0);
        bytes
    }

    fn record(kind: u32, time: u64, words: &[u64], name: &str) -> Vec<u8> {
        let mut body = vec![0; 8];
        body.extend(words.iter().flat_map(|w| w.to_le_bytes()));
        if kind == CODE_LOAD {
            body.extend(name.bytes());
            body.extend([0, 0x90, 0x90, 0x90]);
        }
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend(((PREFIX + body.len()) as u32).to_le_bytes());
        bytes.extend(time.to_le_bytes());
        bytes.extend(body);
        bytes
    }

    fn load(time: u64, at: u64, name: &str) -> Vec<u8> {
        record(CODE_LOAD, time, &[at, at, 16, 1], name)
    }

    /// The names after each of these parts was written to a file.
    fn read(parts: &[Vec<u8>]) -> Ranges {
        let mut file = crate::jit::tests::own_file();
        let (mut dump, mut names) = (Dump::default(), Ranges::default());
        for part in parts {
            file.seek(SeekFrom::End(0)).expect("a file");
            file.write_all(part).expect("there is room");
            let len = file.metadata().expect("open").len();
            dump.read(&file, len, PID, &mut names).expect("readable");
        }
        names
    }

    fn name(names: &Ranges, at: u64) -> Option<String> {
        names.at(Avma(at)).map(|n| n.name.to_string())
    }

    #[test]
    fn later_loads_and_moves_count() {
        let moved = record(CODE_MOVE, 9, &[0x3000, 0x1000, 0x3000, 16, 1], "");
        let whole = [
            load(5, 0x1000, "first"),
            load(7, 0x2000, "later"),
            load(6, 0x2000, "earlier, written after it"),
            record(2, 8, &[1, 2, 3], ""),
            moved,
        ]
        .concat();
        // In pieces that end within a record.
        let bytes = [header(), whole].concat();
        let parts: Vec<Vec<u8>> = bytes.chunks(37).map(<[u8]>::to_vec).collect();
        for parts in [vec![bytes], parts] {
            let names = read(&parts);
            assert_eq!(name(&names, 0x100f).as_deref(), Some("first"));
            assert_eq!(name(&names, 0x1010), None);
            assert_eq!(name(&names, 0x2000).as_deref(), Some("later"));
            assert_eq!(name(&names, 0x3008).as_deref(), Some("first"));
        }
    }

    #[test]
    fn what_is_no_such_file_says_nothing() {
        let mut other = header();
        other[20] ^= 1;
        let after = load(1, 0x1000, "f");
        assert_eq!(name(&read(&[other, after.clone()]), 0x1000), None);
        assert_eq!(
            name(&read(&[b"JiTD".to_vec(), after.clone()]), 0x1000),
            None
        );
        let without_end = vec![0; 100];
        assert_eq!(
            name(&read(&[header(), without_end, after.clone()]), 0x1000),
            None
        );
        let short = record(CODE_LOAD, 1, &[0x1000], "");
        assert_eq!(
            name(&read(&[header(), short, after]), 0x1000).as_deref(),
            Some("f")
        );
    }
}
