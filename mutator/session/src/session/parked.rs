//! Contexts that no thread runs. A signal handler may switch to another stack and leave the
//! interrupted context behind. Its program counter is in a signal frame that no thread's stack
//! pointer leads to, or in a copy of one. Schedulers of user threads that preempt by signals do
//! that.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use abi::PAGE;
use memchr::memmem::Finder;
use patcher::Avma;

use super::stack_scan::is_restorer;
use crate::arch::signal_frame::{AT_MARK, FRAME, MARK, PC_TO_MARK, SignalFrame, word};
use ipath_target::process::{Mapping, Memory, Process};

/// Bytes to read at once.
const PIECE: u64 = 1 << 20;
/// Size in bytes of the address range whose pages are looked up at once.
const CHUNK: u64 = 64 << 20;
/// Size of a page's entry in bytes.
const ENTRY: u64 = size_of::<u64>() as u64;
/// The most bytes to scan while a process is stopped, which takes some milliseconds.
pub(super) const IN_STOP: u64 = 32 << 20;
/// Larger mappings, in bytes, are not taken for stacks: scanning them would take seconds.
const LARGEST: u64 = 64 << 30;

/// Returns a saved program counter for which `is_inside` is true. Scans at most `most` bytes of
/// writable memory outside `passed_over`; the process may run. Frames on an alternate stack are
/// skipped: a thread that will return over one has its stack pointer there. `None` if none is
/// found.
pub(super) fn saved_inside<'m>(
    process: &Process,
    memory: &Memory,
    maps: impl Iterator<Item = &'m Mapping>,
    passed_over: &[Range<Avma>],
    most: u64,
    is_inside: impl Fn(Avma) -> bool,
) -> Option<Avma> {
    let pages = Pages::open(process);
    let mut left = most;
    let is_large = |m: &Mapping| m.range.end.0 - m.range.start.0 > LARGEST;
    let could_hold = |m: &&Mapping| m.read && m.write && !m.shared && !is_large(m);
    let ranges = maps.filter(could_hold);
    let ranges = ranges.map(|m| m.range.clone());
    // The kernel merges adjacent mappings, also those of the program and of the session.
    let mut ranges = ranges.flat_map(|range| without(range, passed_over));
    ranges.find_map(|range| saved_in(&pages, memory, range, &mut left, &is_inside))
}

/// Scans a range of addresses like [`saved_inside`]. `None` if none is found, or if no more bytes
/// may be scanned.
fn saved_in(
    pages: &Pages,
    memory: &Memory,
    range: Range<Avma>,
    left: &mut u64,
    is_inside: impl Fn(Avma) -> bool,
) -> Option<Avma> {
    let marks = Finder::new(&MARK);
    let (mut at, mut read_to) = (range.start, Avma(0));
    while at < range.end {
        let chunk = at..range.end.min(at.plus(CHUNK));
        *left = left.checked_sub((chunk.end.0 - chunk.start.0) / PAGE * ENTRY)?;
        for run in pages.runs(chunk.clone()) {
            *left = left.checked_sub(run.end.0 - run.start.0)?;
            // The words before the mark may be in the previous run. Absent pages are never touched:
            // the program may have to fill them (userfaultfd(2)).
            let from = if run.start == read_to {
                Avma(run.start.0 - PC_TO_MARK)
            } else {
                run.start
            };
            read_to = run.end;
            let bytes = read_through(memory, from..run.end);
            let mut found = marks.find_iter(&bytes).filter_map(|index| {
                let pc = Avma(word(&bytes, index.checked_sub(PC_TO_MARK as usize)?)?);
                let at = from.plus(index as u64);
                let is_it = is_inside(pc) && is_in_use(pages, memory, at, &range);
                is_it.then_some(pc)
            });
            if let Some(pc) = found.next() {
                return Some(pc);
            }
        }
        at = chunk.end;
    }
    None
}

/// Reads these addresses. Pages that cannot be read are zero.
fn read_through(memory: &Memory, range: Range<Avma>) -> Vec<u8> {
    let mut bytes = vec![0; (range.end.0 - range.start.0) as usize];
    if memory.read(range.start, &mut bytes).is_ok() {
        return bytes;
    }
    let mut at = range.start;
    while at < range.end {
        let end = range.end.min(Avma((at.0 / PAGE + 1) * PAGE));
        let index = |at: Avma| (at.0 - range.start.0) as usize;
        let piece = &mut bytes[index(at)..index(end)];
        if memory.read(at, piece).is_err() {
            piece.fill(0);
        }
        at = end;
    }
    bytes
}

/// The parts of a range that are in none of `others`.
fn without(range: Range<Avma>, others: &[Range<Avma>]) -> Vec<Range<Avma>> {
    let mut left = vec![range];
    for other in others {
        let cut = |range: Range<Avma>| {
            let before = range.start..range.end.min(other.start);
            let after = range.start.max(other.end)..range.end;
            [before, after].into_iter().filter(|r| !r.is_empty())
        };
        if other.is_empty() {
            continue;
        }
        left = left.into_iter().flat_map(cut).collect();
    }
    left
}

/// True if the frame whose mark is at `at` is in use, or may be a copy of one in use.
fn is_in_use(pages: &Pages, memory: &Memory, at: Avma, range: &Range<Avma>) -> bool {
    let start = Avma(at.0.wrapping_sub(AT_MARK));
    // Includes frames that may overlap it, if their pages are present.
    let from = Avma(start.0.saturating_sub(FRAME) / PAGE * PAGE).max(range.start);
    let near = from..range.end.min(start.plus(2 * FRAME));
    let runs = pages.runs(near);
    let Some(run) = runs.into_iter().find(|run| run.contains(&at)) else {
        return true;
    };
    let bytes = read_through(memory, run.clone());
    let parse = |at: u64| SignalFrame::parse(&bytes, run.start, at as usize);
    let Some(frame) = start.0.checked_sub(run.start.0).and_then(parse) else {
        return true;
    };
    if frame.returns_on_alternate() {
        return false;
    }
    let marks = Finder::new(&MARK);
    let mut others = marks
        .find_iter(&bytes)
        .filter_map(|at| parse((at as u64).checked_sub(AT_MARK)?));
    let is_restorer = |at| is_restorer(memory, at);
    !others.any(|other| frame.is_overwritten_by(&other, is_restorer))
}

/// The pages of a process that have ever been written to
/// (Documentation/admin-guide/mm/pagemap.rst).
struct Pages(io::Result<File>);

impl Pages {
    fn open(process: &Process) -> Self {
        Self(File::open(format!("/proc/{}/pagemap", process.entry())))
    }

    /// Runs of present pages in the range, each at most a [`PIECE`]. Includes all pages if the
    /// kernel does not provide the information.
    fn runs(&self, range: Range<Avma>) -> Vec<Range<Avma>> {
        const PRESENT: u64 = 1 << 63;
        const SWAPPED: u64 = 1 << 62;
        let pages = (range.end.0 - range.start.0).div_ceil(PAGE);
        let mut entries = vec![0; (pages * ENTRY) as usize];
        let mut read = |file: &File| file.read_exact_at(&mut entries, range.start.0 / PAGE * ENTRY);
        let is_told = self.0.as_ref().is_ok_and(|file| read(file).is_ok());
        let is_there =
            |entry: &[u8]| word(entry, 0).is_some_and(|entry| entry & (PRESENT | SWAPPED) != 0);
        let mut runs: Vec<Range<Avma>> = Vec::new();
        for (at, entry) in (range.start.0..)
            .step_by(PAGE as usize)
            .zip(entries.chunks_exact(ENTRY as usize))
        {
            if is_told && !is_there(entry) {
                continue;
            }
            let at = Avma(at);
            let end = range.end.min(at.plus(PAGE));
            match runs.last_mut() {
                Some(run) if run.end == at && end.0 - run.start.0 <= PIECE => run.end = end,
                _ => runs.push(at..end),
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_a_range() {
        let left = |start, end, others: &[(u64, u64)]| {
            let others: Vec<_> = others.iter().map(|o| Avma(o.0)..Avma(o.1)).collect();
            let left = without(Avma(start)..Avma(end), &others).into_iter();
            left.map(|r| (r.start.0, r.end.0)).collect::<Vec<_>>()
        };
        assert_eq!(left(0, 9, &[]), [(0, 9)]);
        assert_eq!(left(0, 9, &[(3, 5), (8, 12), (20, 30)]), [(0, 3), (5, 8)]);
        assert_eq!(left(3, 5, &[(0, 9)]), []);
        assert_eq!(left(3, 5, &[(0, 3), (5, 9)]), [(3, 5)]);
    }

    #[test]
    fn pages_that_are_there_are_found() {
        let process = Process::find(ipath_target::process::Pid(std::process::id() as i32));
        let pages = Pages::open(&process.expect("runs"));
        let len = 64 * PAGE as usize;
        let mut map = memmap2::MmapMut::map_anon(len).expect("memory");
        let start = Avma(map.as_ptr() as u64);
        let all = start..start.plus(len as u64);
        assert_eq!(pages.runs(all.clone()), []);
        map[3 * PAGE as usize] = 1;
        map[4 * PAGE as usize] = 1;
        let there = start.plus(3 * PAGE)..start.plus(5 * PAGE);
        assert_eq!(
            pages.runs(all.clone()).as_slice(),
            std::slice::from_ref(&there)
        );
        assert_eq!(pages.runs(there.end..all.end), []);
    }
}
