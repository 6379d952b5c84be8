//! Contexts that nothing runs: a signal handler that goes on on another stack leaves what it has interrupted
//! behind, with its program counter in a signal frame that no thread's stack pointer leads to, or in a copy of
//! one. Schedulers of user threads that preempt by signals do that.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use abi::PAGE;
use memchr::memmem::Finder;
use patcher::Avma;

use super::signal_frame::{AT_SEGMENTS, MOST, SEGMENTS, SignalFrame, word};
use crate::process::{Mapping, Memory, Process};

/// Bytes from the rip to the segments.
const BEFORE: u64 = 16;
/// Bytes that are read at once.
const PIECE: u64 = 1 << 20;
/// Mappings larger than this are taken for no stacks: it would take seconds to look through them.
const LARGEST: u64 = 64 << 30;

/// A saved program counter that `is_inside` holds for, in memory that is not in `passed_over`, of which so many bytes
/// at most are looked through; the process may run. Frames on an alternate stack are passed over, too: who is to
/// return over one has its stack pointer there.
pub(super) fn saved_inside<'m>(
    process: &Process,
    memory: &Memory,
    maps: impl Iterator<Item = &'m Mapping>,
    passed_over: &[Range<u64>],
    most: u64,
    is_inside: impl Fn(Avma) -> bool,
) -> Option<Avma> {
    let pages = Pages::open(process);
    let mut left = most;
    let is_large = |m: &Mapping| m.range.end.0 - m.range.start.0 > LARGEST;
    let could_hold = |m: &&Mapping| m.read && m.write && !m.shared && !is_large(m);
    let ranges = maps.filter(could_hold);
    let ranges = ranges.map(|m| m.range.start.0..m.range.end.0);
    // The kernel makes one mapping of two that touch, whoever has made them.
    let mut ranges = ranges.flat_map(|range| without(range, passed_over));
    ranges.find_map(|range| saved_in(&pages, memory, range, &mut left, &is_inside))
}

/// The same in a range of addresses.
fn saved_in(
    pages: &Pages,
    memory: &Memory,
    range: Range<u64>,
    left: &mut u64,
    is_inside: impl Fn(Avma) -> bool,
) -> Option<Avma> {
    let segments = Finder::new(&SEGMENTS);
    let mut at = range.start;
    while let Some(run) = pages.run(at..range.end) {
        *left = left.checked_sub(run.end - run.start)?;
        // What stands before the segments may be in the piece before.
        let goes_on = run.start == at && at > range.start;
        let from = run.start - if goes_on { BEFORE } else { 0 };
        // What is unmapped meanwhile holds nothing any more.
        let bytes = memory.read_vec(Avma(from), (run.end - from) as usize);
        let bytes = bytes.unwrap_or_default();
        let mut found = segments.find_iter(&bytes).filter_map(|index| {
            let pc = Avma(word(&bytes, index.checked_sub(BEFORE as usize)?)?);
            let is_it = is_inside(pc) && is_in_use(memory, from + index as u64, range.end);
            is_it.then_some(pc)
        });
        if let Some(pc) = found.next() {
            return Some(pc);
        }
        at = run.end;
    }
    None
}

/// What of a range is in none of `others`.
fn without(range: Range<u64>, others: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut left = vec![range];
    for other in others {
        let cut = |range: Range<u64>| {
            let before = range.start..range.end.min(other.start);
            let after = range.start.max(other.end)..range.end;
            [before, after].into_iter().filter(|r| !r.is_empty())
        };
        left = left.into_iter().flat_map(cut).collect();
    }
    left
}

/// Is the frame whose segments are at `at`, in memory until `end`, in use, or what may be a copy of one?
fn is_in_use(memory: &Memory, at: u64, end: u64) -> bool {
    let start = at.wrapping_sub(AT_SEGMENTS);
    let len = end.wrapping_sub(start).min(MOST);
    let Ok(bytes) = memory.read_vec(Avma(start), len as usize) else {
        return true;
    };
    let Some(frame) = SignalFrame::parse(&bytes, start, 0) else {
        return true;
    };
    let others = Finder::new(&SEGMENTS).find_iter(&bytes).collect::<Vec<_>>();
    let mut others = others.into_iter().filter_map(|at| {
        let at = at.checked_sub(AT_SEGMENTS as usize)?;
        SignalFrame::parse(&bytes, start, at)
    });
    !frame.is_on_alternate() && !others.any(|other| frame.is_overwritten_by(&other))
}

/// Which pages of a process have ever been written to: Documentation/admin-guide/mm/pagemap.rst.
struct Pages(io::Result<File>);

impl Pages {
    fn open(process: &Process) -> Self {
        Self(File::open(format!("/proc/{}/pagemap", process.entry())))
    }

    /// The first pages of the range that there are, a [`PIECE`] at most; all where the kernel does not tell.
    fn run(&self, range: Range<u64>) -> Option<Range<u64>> {
        const ENTRY: usize = size_of::<u64>();
        const AT_ONCE: u64 = 1 << 14;
        const PRESENT: u64 = 1 << 63;
        const SWAPPED: u64 = 1 << 62;
        let mut at = range.start;
        while at < range.end {
            let pages = ((range.end - at) / PAGE).min(AT_ONCE);
            let mut entries = vec![0; pages as usize * ENTRY];
            let is_read = |file: &File| {
                let read = file.read_exact_at(&mut entries, at / PAGE * ENTRY as u64);
                read.is_ok()
            };
            if !self.0.as_ref().is_ok_and(is_read) {
                return Some(at..range.end.min(at + PIECE));
            }
            let is_there =
                |entry: &[u8]| word(entry, 0).is_some_and(|entry| entry & (PRESENT | SWAPPED) != 0);
            let mut there = entries.chunks_exact(ENTRY).map(is_there);
            if let Some(first) = there.position(|is| is) {
                let more = there.take_while(|&is| is).count() as u64;
                let start = at + first as u64 * PAGE;
                return Some(start..(start + (1 + more) * PAGE).min(start + PIECE));
            }
            at += pages * PAGE;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_a_range() {
        let left = |start, end, others: &[(u64, u64)]| {
            let others: Vec<_> = others.iter().map(|o| o.0..o.1).collect();
            let left = without(start..end, &others).into_iter();
            left.map(|r| (r.start, r.end)).collect::<Vec<_>>()
        };
        assert_eq!(left(0, 9, &[]), [(0, 9)]);
        assert_eq!(left(0, 9, &[(3, 5), (8, 12), (20, 30)]), [(0, 3), (5, 8)]);
        assert_eq!(left(3, 5, &[(0, 9)]), []);
        assert_eq!(left(3, 5, &[(0, 3), (5, 9)]), [(3, 5)]);
    }

    #[test]
    fn pages_that_are_there_are_found() {
        let process = Process::find(crate::process::Pid(std::process::id() as i32));
        let pages = Pages::open(&process.expect("runs"));
        let len = 64 * PAGE as usize;
        let mut map = memmap2::MmapMut::map_anon(len).expect("memory");
        let start = map.as_ptr() as u64;
        let all = start..start + len as u64;
        assert_eq!(pages.run(all.clone()), None);
        map[3 * PAGE as usize] = 1;
        map[4 * PAGE as usize] = 1;
        assert_eq!(
            pages.run(all.clone()),
            Some(start + 3 * PAGE..start + 5 * PAGE)
        );
        assert_eq!(pages.run(start + 5 * PAGE..all.end), None);
    }
}
