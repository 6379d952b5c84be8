//! The paths inside a function, as text: the lines or blocks of each, the hottest path first.

use std::collections::BTreeMap;

use unicode_width::UnicodeWidthStr;

use super::inside::{WIDTH, offset_in};
use super::table::Table;
use super::{Report, human};
use crate::profile::{Inside, PathEnd, PathStart, Profile, TakenPath, position};

/// The number of places at each end of a path that is shortened.
const KEPT: usize = 2;

impl Report<'_> {
    /// The table of the paths, the hottest first. `None` if paths were not counted.
    pub(super) fn routes(&self, inside: &Inside) -> Option<Table> {
        let totals = inside.path_totals?;
        let mut table = Table::new(&["count", "share"]);
        let counts = inside.paths.iter().map(|path| i128::from(path.count));
        let sum = counts.sum::<i128>();
        let mut hottest: Vec<&TakenPath> = inside.paths.iter().collect();
        hottest.sort_by_key(|path| (std::cmp::Reverse(path.count), path.number));
        let shown = &hottest[..hottest.len().min(self.limit())];
        let places = Places::of(self.profile, inside);
        let names = places.distinct(shown);
        for (path, name) in shown.iter().zip(names) {
            let cells = vec![path.count.to_string(), human::share(path.count.into(), sum)];
            let taken: usize = cells.iter().map(|cell| cell.width().max(5) + 2).sum();
            let room = WIDTH.saturating_sub(taken + 2);
            let name = if self.options.verbose {
                name.join(" ")
            } else {
                shortened(&name, room)
            };
            table.row(cells, name);
        }
        self.rest(&mut table, hottest.len() - shown.len(), "path");
        table.text(remark(inside, totals.possible));
        for (count, what) in [
            (
                inside.unfinished(),
                "did not end: left by an exception, longjmp or the end of a thread, or still running",
            ),
            (
                totals.unknown,
                "not known: their activations had begun before the counting",
            ),
            (totals.uncounted, "not counted: too many different ones"),
        ] {
            if count > 0 {
                table.text(format!("{} {what}", human::count(count, "path")));
            }
        }
        Some(table)
    }
}

/// `4 of 9 paths taken, in app.c`.
fn remark(inside: &Inside, possible: u64) -> String {
    let taken = inside.paths.len();
    let what = if possible == 1 { "path" } else { "paths" };
    let file = position(file_of(inside), None);
    let file = file.map_or_else(String::new, |file| format!(", lines of {file}"));
    format!("{taken} of {possible} {what} taken{file}")
}

/// The file of most blocks. `None` if no block has one.
fn file_of(inside: &Inside) -> Option<&str> {
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

/// The places of the blocks of one function.
struct Places {
    /// For each block, its line, with the file if that is not the function's, or its offset.
    lines: Vec<String>,
    /// For each block, its offset.
    offsets: Vec<String>,
}

impl Places {
    fn of(profile: &Profile, inside: &Inside) -> Self {
        let own = file_of(inside);
        let offsets = inside
            .blocks
            .iter()
            .map(|block| offset_in(profile, inside, block.address));
        let offsets: Vec<String> = offsets.collect();
        let lines =
            inside
                .blocks
                .iter()
                .zip(&offsets)
                .map(|(block, offset)| match block.source() {
                    Some((file, line)) if Some(file) == own => line.to_string(),
                    Some((file, line)) => position(Some(file), Some(line)).unwrap_or_default(),
                    None => offset.clone(),
                });
        Self {
            lines: lines.collect(),
            offsets,
        }
    }

    /// The words of each path: its start, its lines and its end. Paths on the same lines have the
    /// offsets of their blocks, so that all are different.
    fn distinct(&self, paths: &[&TakenPath]) -> Vec<Vec<String>> {
        let by_line: Vec<Vec<String>> = paths.iter().map(|p| words(p, &self.lines)).collect();
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
fn shortened(words: &[String], room: usize) -> String {
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
