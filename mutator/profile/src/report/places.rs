//! The places along the paths inside a function: the source lines of their blocks, or the offsets.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use unicode_width::UnicodeWidthStr;

use super::human;
use super::inside::offset_in;
use crate::profile::{Block, Inside, PathEnd, PathStart, Profile, TakenPath, position};

/// The number of places at each end of a path that is shortened.
const KEPT: usize = 2;

/// The places of the blocks of one function.
pub struct Places {
    /// For each block, its line, with the file if that is not the function's, or its offset.
    lines: Vec<String>,
    /// For each block, its offset.
    offsets: Vec<String>,
}

impl Places {
    /// The places of the blocks of a function. Lines of the file of most blocks have no file name.
    pub fn of(profile: &Profile, inside: &Inside) -> Self {
        Self::in_file(profile, inside, file_of(inside))
    }

    /// The places of the blocks of a function. Lines of the file `own` have no file name.
    pub(crate) fn in_file(profile: &Profile, inside: &Inside, own: Option<&str>) -> Self {
        let offset = |block: &Block| {
            let offset = offset_in(profile, inside, block.address);
            match block.size {
                0 => format!("jumps as at {offset}"),
                _ => offset,
            }
        };
        let offsets: Vec<String> = inside.blocks.iter().map(offset).collect();
        let line = |(block, offset): (&Block, &String)| match block.source() {
            Some((file, line)) if Some(file) == own => line.to_string(),
            Some((file, line)) => position(Some(file), Some(line)).unwrap_or_default(),
            None => offset.clone(),
        };
        let lines = inside.blocks.iter().zip(&offsets).map(line);
        Self {
            lines: lines.collect(),
            offsets,
        }
    }

    /// The words of a path: its start, its lines and its end. Blocks without a line have their
    /// offsets.
    pub(crate) fn words(&self, path: &TakenPath) -> Vec<String> {
        words(path, &self.lines)
    }

    /// The words of each path: its start, its lines and its end. Paths on the same lines have the
    /// offsets of their blocks, so that all are different.
    pub fn distinct(&self, paths: &[&TakenPath]) -> Vec<Vec<String>> {
        let by_line: Vec<Vec<String>> = paths.iter().map(|path| self.words(path)).collect();
        let mut uses: BTreeMap<&[String], usize> = BTreeMap::new();
        for words in &by_line {
            *uses.entry(words).or_default() += 1;
        }
        let whole = paths
            .iter()
            .zip(&by_line)
            .map(|(path, line)| match uses.get(&line[..]) {
                Some(1) => line.clone(),
                _ => words(path, &self.offsets),
            });
        whole.collect()
    }
}

/// A name for a path inside a function: `path 3: entry 12 15 exit`.
pub fn path_name(profile: &Profile, inside: &Inside, path: &TakenPath) -> String {
    /// The columns for the places, about.
    const ROOM: usize = 60;
    let words = Places::of(profile, inside).words(path);
    format!("path {}: {}", path.number, shortened(&words, ROOM))
}

/// The paths that were taken, the hottest first: by their times if these were measured, then by
/// their counts.
pub fn hottest_paths(inside: &Inside) -> Vec<&TakenPath> {
    let mut hottest: Vec<&TakenPath> = inside.paths.iter().collect();
    hottest.sort_by_cached_key(|path| {
        let wall = path.wall().map_or(0, |(sum, _)| sum);
        (Reverse(wall), Reverse(path.count), path.number)
    });
    hottest
}

/// `4 of 9 paths taken, lines of app.c`.
pub fn paths_taken(inside: &Inside, possible: u64) -> String {
    let taken = inside.paths.len();
    let what = if possible == 1 { "path" } else { "paths" };
    let file = position(file_of(inside), None);
    let file = file.map_or_else(String::new, |file| format!(", lines of {file}"));
    let is_split = inside.path_totals.is_some_and(|totals| totals.split);
    let split = if is_split {
        "; paths end where a loop is entered"
    } else {
        ""
    };
    format!("{taken} of {possible} {what} taken{file}{split}")
}

/// The paths that are in no count, with the reasons. Empty if there are none, or if paths were not
/// counted.
pub fn paths_not_counted(inside: &Inside) -> Vec<String> {
    let Some(totals) = inside.path_totals else {
        return Vec::new();
    };
    let all = [
        (
            inside.unfinished(),
            "did not end: left by an exception, longjmp or the end of a thread, or still running",
        ),
        (
            totals.unknown,
            "not known: their activations had begun before the counting",
        ),
        (totals.uncounted, "not counted: too many different ones"),
    ];
    let all = all.into_iter().filter(|&(count, _)| count > 0);
    let all = all.map(|(count, what)| format!("{} {what}", human::count(count, "path")));
    all.collect()
}

/// The file of most blocks. `None` if no block has one.
pub(crate) fn file_of(inside: &Inside) -> Option<&str> {
    let mut files: BTreeMap<&str, usize> = BTreeMap::new();
    for file in inside
        .blocks
        .iter()
        .filter_map(|block| block.file.as_deref())
    {
        *files.entry(file).or_default() += 1;
    }
    files
        .into_iter()
        .max_by_key(|&(_, n)| n)
        .map(|(file, _)| file)
}

/// The words of a path. Blocks one after the other at the same place are one word.
fn words(path: &TakenPath, places: &[String]) -> Vec<String> {
    let start = match path.start {
        Some(PathStart::Entry) => "entry",
        Some(PathStart::Loop) => "loop",
        None => "…",
    };
    let end = match path.end {
        Some(PathEnd::Exit) => "exit",
        Some(PathEnd::Loop) => "again",
        Some(PathEnd::Enter) => "loop",
        None => "…",
    };
    let mut all = vec![start.to_owned()];
    for &block in &path.blocks {
        if all.last() != Some(&places[block]) {
            all.push(places[block].clone());
        }
    }
    all.push(end.to_owned());
    all
}

/// The words in at most about `room` columns: words in the middle give way.
pub fn shortened(words: &[String], room: usize) -> String {
    let whole = words.join(" ");
    if whole.width() <= room || words.len() <= 2 * KEPT {
        return whole;
    }
    let (first, rest) = words.split_at(KEPT);
    let last = &rest[rest.len() - KEPT..];
    let ends = first
        .iter()
        .chain(last)
        .map(|word| word.width() + 1)
        .sum::<usize>();
    let mut left = room.saturating_sub(ends + 2);
    let middle = rest[..rest.len() - KEPT].iter().take_while(|word| {
        let fits = word.width() < left;
        left = left.saturating_sub(word.width() + 1);
        fits
    });
    let start = first.iter().chain(middle).cloned();
    let all = start.chain(["…".to_owned()]).chain(last.iter().cloned());
    all.collect::<Vec<String>>().join(" ")
}
