//! The memory of a process through /proc/PID/mem, which reads and writes regardless of page
//! protection.
//!
//! Reading needs no permission. Writing needs a value that represents the right to write. [`Text`]
//! exists only while every thread of the process is stopped. [`Own`] holds the ranges that a
//! session has mapped for itself and writes nowhere else.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use patcher::Avma;

use super::{Extent, Mapping, Tid};
use crate::fault_injection::{refuses_writes, step};

/// The memory of one address space, for reads.
#[derive(Debug)]
pub struct Memory(File);

impl Memory {
    pub(super) fn new(file: File) -> Self {
        Self(file)
    }

    /// Fills `buffer` with the bytes from `at` on.
    ///
    /// # Errors
    /// Not all of the bytes can be read.
    pub fn read(&self, at: Avma, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(buffer, at.0)
    }

    /// Reads `len` bytes from `at` on.
    ///
    /// # Errors
    /// Not all of the bytes can be read.
    pub fn read_vec(&self, at: Avma, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.read(at, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads the 8-byte word at `at`.
    ///
    /// # Errors
    /// The word cannot be read.
    pub fn read_word(&self, at: Avma) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.read(at, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Every write to /proc/PID/mem goes through this function.
    fn write(&self, at: Avma, bytes: &[u8]) -> io::Result<()> {
        if refuses_writes() {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        self.0.write_all_at(bytes, at.0)
    }
}

/// Keeps every thread of a process in ptrace-stop for the value's lifetime. Other crates can
/// neither implement this nor construct a [`Text`].
pub(crate) trait WholeProcess {
    /// One of the threads. `None` if there is none.
    fn any_thread(&self) -> Option<Tid>;
    /// The memory of the threads' address space.
    fn memory(&self) -> &Memory;
}

/// The right to write anywhere in a process, including its code, while the whole process is
/// stopped.
#[derive(Clone, Copy, Debug)]
pub struct Text<'s> {
    memory: &'s Memory,
    /// A thread for PTRACE_POKEDATA. `None` if there is none.
    thread: Option<Tid>,
}

impl<'s> Text<'s> {
    /// Returns the right to write for the duration of the stop.
    pub(crate) fn of(stopped: &'s impl WholeProcess) -> Self {
        Self {
            memory: stopped.memory(),
            thread: stopped.any_thread(),
        }
    }

    /// The memory to which this value writes.
    pub fn memory(&self) -> &'s Memory {
        self.memory
    }

    /// Writes `bytes` at `at`, regardless of page protection. If the kernel refuses that through
    /// /proc/PID/mem (`proc_mem.force_override`, fs/proc/base.c), PTRACE_POKEDATA is used.
    ///
    /// # Errors
    /// The bytes cannot be written either way.
    pub fn write(&self, at: Avma, bytes: &[u8]) -> io::Result<()> {
        let written = match self.memory.write(at, bytes) {
            Err(error) if is_refusal(&error) => match self.thread {
                Some(thread) => self.poke(thread, at, bytes).map_err(|_| error),
                None => Err(error),
            },
            other => other,
        };
        step("write memory");
        written
    }

    /// Writes `bytes` at `at` by PTRACE_POKEDATA, word by word.
    fn poke(&self, thread: Tid, at: Avma, bytes: &[u8]) -> io::Result<()> {
        const WORD: u64 = size_of::<u64>() as u64;
        let end = at.0 + bytes.len() as u64;
        let mut word_at = at.0 & !(WORD - 1);
        while word_at < end {
            let mut word = self.memory.read_word(Avma(word_at))?.to_le_bytes();
            for (index, byte) in word.iter_mut().enumerate() {
                let place = word_at + index as u64;
                if let Some(new) = place.checked_sub(at.0).and_then(|i| bytes.get(i as usize)) {
                    *byte = *new;
                }
            }
            poke_word(thread, Avma(word_at), u64::from_le_bytes(word))?;
            word_at += WORD;
        }
        Ok(())
    }
}

fn poke_word(thread: Tid, at: Avma, word: u64) -> io::Result<()> {
    // SAFETY: the request takes an address in the tracee and a number. The kernel checks both.
    let result = unsafe { libc::ptrace(libc::PTRACE_POKEDATA, thread.0, at.0, word) };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// True for the errors by which the kernel refuses a forced write: EIO, EPERM and EACCES. An
/// unmapped address gives EIO, too.
pub fn is_refusal(error: &io::Error) -> bool {
    let refusals = [libc::EIO, libc::EPERM, libc::EACCES];
    error.raw_os_error().is_some_and(|e| refusals.contains(&e))
}

/// The ranges that a session has mapped for itself in a process. Grants the right to write to these
/// ranges alone while the process runs.
#[derive(Clone, Debug, Default)]
pub struct Own(BTreeMap<Avma, Avma>);

impl Own {
    /// Adds a range if `maps` show it to be fully mapped without a file. Returns false otherwise.
    pub fn admit(&mut self, maps: &[Mapping], extent: Extent) -> bool {
        let seen = is_anonymous(maps, extent);
        if seen {
            let end = self.0.entry(extent.start).or_default();
            *end = extent.end().max(*end);
        }
        seen
    }

    /// Writes `bytes` at `at`.
    ///
    /// # Errors
    /// The range is not the session's, or the write fails.
    pub fn write(&self, memory: &Memory, at: Avma, bytes: &[u8]) -> io::Result<()> {
        let end = at.0.checked_add(bytes.len() as u64);
        let last = self.0.range(..=at).next_back();
        let is_inside = |end: u64| last.is_some_and(|(_, last)| end <= last.0);
        if !end.is_some_and(is_inside) {
            return Err(io::Error::other("not memory of the session"));
        }
        let written = memory.write(at, bytes);
        step("write memory");
        written
    }
}

/// The name of a perf event's page in maps.
const EVENT: &str = "anon_inode:[perf_event]";

/// True if every byte of the range is mapped, and none from a file. Pages of perf events may follow
/// the first page, since the runtime's threads map them there.
pub fn is_anonymous(maps: &[Mapping], extent: Extent) -> bool {
    let Extent { start, len } = extent;
    let Some(end) = start.0.checked_add(len) else {
        return false;
    };
    // The kernel merges neighbors of equal protection and splits a range at changes of protection.
    let first = maps.partition_point(|m| m.range.end <= start);
    let mut following = maps[first..].iter();
    let mut at = start.0;
    while at < end {
        let Some(mapping) = following.next().filter(|m| m.contains(Avma(at))) else {
            return false;
        };
        let is_event = at != start.0 && mapping.name == EVENT;
        if !is_event && (mapping.file.1 != 0 || !mapping.name.is_empty()) {
            return false;
        }
        at = mapping.range.end.0;
    }
    len > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::maps::parse;

    const MAPS: &str = "\
7f0000000000-7f0000010000 r-xp 00000000 00:00 0 
7f0000010000-7f0000020000 rw-p 00000000 00:00 0 
7f0000020000-7f0000030000 r-xp 00000000 fe:00 99                         /lib/x.so
7f0000040000-7f0000050000 rw-p 00000000 00:00 0                          [heap]
7f0000060000-7f0000061000 rw-p 00000000 00:00 0 
7f0000061000-7f0000062000 r--s 00000000 00:10 1038                       anon_inode:[perf_event]
";

    #[test]
    fn own_memory_is_mapped_whole_and_has_no_file() {
        let maps = parse(MAPS);
        let of = |start: u64, len: u64| is_anonymous(&maps, Extent::from((start, len)));
        assert!(of(0x7f00_0000_0000, 0x20000), "over two protections");
        assert!(of(0x7f00_0000_1000, 0x1000), "part of a mapping");
        assert!(!of(0x7f00_0000_0000, 0x20001), "ends in a file");
        assert!(!of(0x7f00_0002_0000, 0x1000), "a file");
        assert!(!of(0x7f00_0003_0000, 0x1000), "nothing");
        assert!(!of(0x7f00_0004_0000, 0x1000), "the program's heap");
        assert!(of(0x7f00_0006_0000, 0x2000), "with an event's page");
        assert!(!of(0x7f00_0006_1000, 0x1000), "an event's page alone");
        assert!(!of(0x7f00_0000_0000, 0), "nothing at all");
        assert!(!of(u64::MAX, 2), "beyond the end");
    }

    #[test]
    fn nothing_is_written_outside() {
        let file = File::open("/dev/null").expect("there");
        let memory = Memory::new(file);
        let mut own = Own::default();
        assert!(own.admit(&parse(MAPS), Extent::from((0x7f00_0000_0000, 0x1000))));
        assert!(!own.admit(&parse(MAPS), Extent::from((0x7f00_0002_0000, 0x1000))));
        for (at, len) in [(0x7f00_0000_0fff, 2), (0x7f00_0002_0000, 1), (u64::MAX, 2)] {
            let error = own
                .write(&memory, Avma(at), &vec![0; len])
                .expect_err("outside");
            assert_eq!(error.to_string(), "not memory of the session");
        }
    }
}
