//! /proc/PID/maps as a list: proc(5).

use std::ops::Range;
use std::path::PathBuf;

use abi::PAGE;
use patcher::{Avma, FileOffset};

/// A mapping of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The run-time addresses of the mapping.
    pub range: Range<Avma>,
    /// True if the mapping is readable.
    pub read: bool,
    /// True if the mapping is writable.
    pub write: bool,
    /// True if the mapping is executable.
    pub execute: bool,
    /// True if writes go to its file or to all processes that map it.
    pub shared: bool,
    /// The offset in the file of the mapping's first byte. 0 without a file.
    pub offset: FileOffset,
    /// Device and inode of the file. The inode is 0 without a file.
    pub file: (String, u64),
    /// The last field of the kernel's line: a path, a name such as `[stack]`, or nothing.
    pub name: String,
}

impl Mapping {
    /// True if the mapping contains the address.
    pub fn contains(&self, at: Avma) -> bool {
        self.range.contains(&at)
    }

    /// The file's path, without the mark of a deleted file. `None` if the mapping has no path.
    pub fn path(&self) -> Option<PathBuf> {
        let path = self.name.strip_suffix(" (deleted)").unwrap_or(&self.name);
        path.starts_with('/').then(|| PathBuf::from(path))
    }
}

/// Parses the kernel's text. Skips lines of another form.
pub fn parse(text: &str) -> Vec<Mapping> {
    text.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let permissions = fields.next()?;
    let offset = u64::from_str_radix(fields.next()?, 16).ok()?;
    let device = fields.next()?;
    let inode = fields.next()?.parse().ok()?;
    let name = fields.next().unwrap_or("").trim_start();
    let address = |text| u64::from_str_radix(text, 16).ok().map(Avma);
    Some(Mapping {
        range: address(start)?..address(end)?,
        read: permissions.contains('r'),
        write: permissions.contains('w'),
        execute: permissions.contains('x'),
        shared: permissions.ends_with('s'),
        offset: FileOffset(offset),
        file: (device.to_owned(), inode),
        name: name.to_owned(),
    })
}

/// Inserts an empty heap on the first page from `start` on. Does nothing if the list has a heap,
/// the page is mapped, or `start` is 0.
pub fn expect_heap(maps: &mut Vec<Mapping>, start: Avma) {
    let start = Avma(start.0.next_multiple_of(PAGE));
    let index = maps.partition_point(|m| m.range.start < start);
    let taken = maps[..index].last().is_some_and(|m| m.range.end > start);
    if start.0 == 0 || taken || maps.iter().any(|m| m.name == "[heap]") {
        return;
    }
    maps.insert(index, expected(start..start, "[heap]"));
}

/// Inserts a mapping that is going to be made in free space at `range`.
pub fn expect_mapping(maps: &mut Vec<Mapping>, range: Range<Avma>) {
    let index = maps.partition_point(|m| m.range.start < range.start);
    maps.insert(index, expected(range, ""));
}

fn expected(range: Range<Avma>, name: &str) -> Mapping {
    Mapping {
        range,
        read: true,
        write: true,
        execute: false,
        shared: false,
        offset: FileOffset(0),
        file: (String::new(), 0),
        name: name.to_owned(),
    }
}

/// The upper bound of all chosen addresses.
const HIGHEST: u64 = (1 << 47) - PAGE;

/// The lower bound of all chosen addresses: the usual vm.mmap_min_addr, or the system's setting if
/// it is higher.
fn lowest() -> u64 {
    const USUAL: u64 = 1 << 16;
    let setting = std::fs::read_to_string("/proc/sys/vm/mmap_min_addr");
    let setting = setting.ok().and_then(|s| s.trim().parse().ok());
    setting.unwrap_or(USUAL).max(USUAL).next_multiple_of(PAGE)
}

/// The gaps between the mappings, without the space into which the stack and the heap may grow.
fn gaps(maps: &[Mapping]) -> Vec<Range<u64>> {
    const STACK_GAP: u64 = 1 << 28;
    const HEAP_GAP: u64 = 1 << 28;
    let mut gaps = Vec::new();
    let mut free_from = lowest();
    for mapping in maps {
        let until = if mapping.name == "[stack]" {
            mapping.range.start.0.saturating_sub(STACK_GAP)
        } else {
            mapping.range.start.0.min(HIGHEST)
        };
        if until > free_from {
            gaps.push(free_from..until);
        }
        let end = match mapping.name.as_str() {
            "[heap]" => mapping.range.end.0 + HEAP_GAP,
            _ => mapping.range.end.0,
        };
        free_from = free_from.max(end);
    }
    if HIGHEST > free_from {
        gaps.push(free_from..HIGHEST);
    }
    gaps
}

/// The start of a free range of `len` bytes, at the upper end of the highest wide gap below a
/// mapping, or of the widest gap if none is wide. `None` if no gap is large enough.
///
/// A wide gap is below the existing mappings, where the kernel itself would place a new one. It is
/// far from programs and stacks, which may grow.
pub fn free_range(maps: &[Mapping], len: u64) -> Option<Avma> {
    const WIDE: u64 = 1 << 36;
    let gaps = gaps(maps);
    let size = |gap: &Range<u64>| gap.end - gap.start;
    let below_mapping = |gap: &Range<u64>| maps.iter().any(|m| m.range.start.0 == gap.end);
    let wide = |gap: &&Range<u64>| size(gap) >= WIDE.max(len) && below_mapping(gap);
    let widest = || gaps.iter().max_by_key(|gap| size(gap));
    let gap = gaps.iter().rev().find(wide).or_else(widest)?;
    (size(gap) >= len).then(|| Avma(gap.end - len))
}

/// The start of the free range of `len` bytes nearest to `near`, such that all bytes of both are
/// within 2 GiB of each other. `None` if there is none. `maps` are ordered by address.
pub fn free_range_near(maps: &[Mapping], near: &Range<Avma>, len: u64) -> Option<Avma> {
    const REACH: u64 = (1 << 31) - (1 << 20);
    let gaps = gaps(maps);
    // The heap grows upward from the program. So a gap below is used from its end, and one above
    // from its start.
    let candidates = gaps.iter().filter(|g| g.end - g.start >= len).map(|gap| {
        if gap.start >= near.end.0 {
            gap.start.max(near.end.0)
        } else {
            gap.end - len
        }
    });
    let fits = |&at: &u64| {
        let (low, high) = (at.min(near.start.0), (at + len).max(near.end.0));
        high - low < REACH
    };
    candidates
        .filter(fits)
        .min_by_key(|at| at.abs_diff(near.start.0))
        .map(Avma)
}

/// The lowest usable address in `targets` with `len` free bytes from it on and `head` free bytes
/// before it, on unused pages. `None` if there is none. If possible, `head` begins at the start of
/// a page.
pub fn free_place_in(maps: &[Mapping], targets: &Range<Avma>, head: u64, len: u64) -> Option<Avma> {
    gaps(maps).into_iter().find_map(|gap| {
        let low = targets.start.0.max(gap.start + head);
        let high = targets.end.0.min((gap.end + 1).saturating_sub(len));
        let aligned = (low - head).next_multiple_of(PAGE) + head;
        [aligned, low]
            .into_iter()
            .find(|&at| low <= at && at < high)
            .map(Avma)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
55d0c0a00000-55d0c0a01000 r--p 00000000 fe:00 1234                       /opt/a b/app
55d0c0a01000-55d0c0a03000 r-xp 00001000 fe:00 1234                       /opt/a b/app (deleted)
55d0c1000000-55d0c1021000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000200000 r-xp 00000000 fe:00 99                         /lib/x.so
";
    const SHARED: &str =
        "7f0000200000-7f0000300000 r-xs 00000000 fe:00 98                         /lib/y.so";

    #[test]
    fn parses_lines_with_spaces_and_deleted_files() {
        let maps = parse(TEXT);
        assert_eq!(maps.len(), 4);
        assert_eq!(maps[1].path(), Some(PathBuf::from("/opt/a b/app")));
        assert!(
            maps[1].name.ends_with(" (deleted)")
                && maps[1].execute
                && !maps[1].write
                && !maps[1].shared
        );
        assert_eq!(maps[1].offset, FileOffset(0x1000));
        assert_eq!(maps[2].path(), None);
        assert!(parse(SHARED)[0].shared);
    }

    #[test]
    fn free_ranges_are_free_and_in_reach() {
        let maps = parse(TEXT);
        for mapping in &maps {
            let at = free_range_near(&maps, &mapping.range, 1 << 20).expect("there is room");
            let taken = at.0..at.0 + (1 << 20);
            assert!(
                maps.iter()
                    .all(|m| taken.end <= m.range.start.0 || m.range.end.0 <= taken.start)
            );
            assert!(at.0.abs_diff(mapping.range.start.0) < 1 << 31);
        }
        let whole = Mapping {
            range: Avma(0)..Avma(1 << 47),
            ..maps[0].clone()
        };
        assert_eq!(free_range_near(&[whole], &maps[0].range, 4096), None);
    }

    #[test]
    fn places_are_free_with_what_is_before_them() {
        let maps = parse(TEXT);
        let place = |start, end| free_place_in(&maps, &(Avma(start)..Avma(end)), 16, 14);
        let at = 0x7f00_0020_0000;
        assert_eq!(place(at, at + 1), None, "no room before it");
        assert_eq!(place(at + 16, at + 17), Some(Avma(at + 16)));
        assert_eq!(place(at - 100, at + 1000), Some(Avma(at + 16)));
        assert_eq!(place(at + 20, at + 0x2000), Some(Avma(at + 0x1010)));
        let below = 0x7f00_0000_0000;
        assert_eq!(place(below - 14, below - 13), Some(Avma(below - 14)));
        assert_eq!(place(below - 13, below + 100), None);
        let heap = 0x55d0_c102_1000;
        assert_eq!(place(heap + 0x1000, heap + 0x2000), None, "it grows there");
        assert_eq!(place(0x1000, 0x1_0000), None);
    }

    #[test]
    fn the_heap_has_room_before_it_is_there() {
        let mut maps = parse(&TEXT.replace("[heap]", ""));
        let at = Avma(0x55d0_c200_0000);
        let targets = at.plus(0x1000)..at.plus(0x2000);
        assert!(free_place_in(&maps, &targets, 16, 14).is_some());
        expect_heap(&mut maps, at);
        assert_eq!(free_place_in(&maps, &targets, 16, 14), None);
        let known = maps.clone();
        expect_heap(&mut maps, at.plus(0x10_0000));
        assert_eq!(maps, known, "there is one");
    }
}
