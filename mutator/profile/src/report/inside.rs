//! The control flow inside functions, as text: the loops and the source lines with their counts.

use std::io::{self, Write};

use rustc_hash::FxHashMap;
use unicode_width::UnicodeWidthStr;

use super::loop_counts::{times_of, trips_at};
use super::table::{LONGEST, Table};
use super::{Report, human, more};
use crate::display_name::{self, start_of};
use crate::profile::{Inside, Loop, Profile, position, printable};

/// The terminal columns of a section, unless a number has very many digits.
pub(super) const WIDTH: usize = 80;
/// The length of the longest bar in terminal columns, if there is room for it.
const BAR: usize = 40;
/// The length of the longest bar in terminal columns, if there is no room.
const LEAST_BAR: usize = 8;
/// The most terminal columns of a source position.
const LONGEST_PLACE: usize = 28;
/// The most terminal columns of a source position, if there is no room.
const LEAST_PLACE: usize = 12;
/// The most loops for which a loop in them is indented further.
const DEEPEST: usize = 6;
/// The mark of the largest count.
const HOTTEST: &str = "  hottest";
/// The maximum number of functions on one screen.
const ON_SCREEN: usize = 3;

/// A source line, or a block without one, with its count.
struct Row {
    place: String,
    count: u64,
}

impl Report<'_> {
    /// Writes a section for each selected function whose control flow was counted, in sort order.
    pub(super) fn inside(&self, out: &mut impl Write) -> io::Result<()> {
        let all = self.insides();
        let shown = all.iter().take(self.limit());
        for (inside, name) in shown.zip(self.inside_names(&all, self.longest())) {
            self.write_inside(inside, &name, out)?;
        }
        match all.len().saturating_sub(self.limit()) {
            0 => Ok(()),
            hidden => {
                let hidden = more(hidden, "function");
                writeln!(out, "\n{hidden}, not shown; {}", self.options.all_by)
            }
        }
    }

    /// A line for each of the first functions whose control flow was counted: its activations, and
    /// its hottest loop or line.
    pub(super) fn inside_lines(&self) -> Vec<String> {
        let all = self.insides();
        let line = |(inside, name): (&&Inside, String)| {
            let activations = inside.activations(self.address(inside));
            let hottest = hottest_loop(self.profile, inside);
            let hottest = hottest.or_else(|| hottest_line(self.profile, inside));
            format!(
                "inside {}: {}{}",
                name,
                human::count(activations, "activation"),
                hottest.map_or_else(String::new, |hottest| format!(", {hottest}")),
            )
        };
        let shown = all.iter().take(ON_SCREEN);
        let lines = shown.zip(self.inside_names(&all, LONGEST)).map(line);
        let mut lines: Vec<String> = lines.collect();
        if let hidden @ 1.. = all.len().saturating_sub(ON_SCREEN) {
            let hidden = more(hidden, "function");
            lines.push(format!("inside {hidden}: `ipath report FILE` shows all"));
        }
        lines
    }

    /// The control flow inside the selected functions, in sort order.
    fn insides(&self) -> Vec<&Inside> {
        let mut by_function: FxHashMap<usize, Vec<&Inside>> = FxHashMap::default();
        for inside in &self.profile.inside {
            by_function.entry(inside.function).or_default().push(inside);
        }
        let of = |function| by_function.remove(function);
        self.insides.iter().filter_map(of).flatten().collect()
    }

    /// The start of the function.
    fn address(&self, inside: &Inside) -> u64 {
        self.profile.functions[inside.function].address
    }

    /// The names of the functions, each in at most about `width` columns. Different names stay
    /// different.
    fn inside_names(&self, all: &[&Inside], width: usize) -> Vec<String> {
        let functions = all.iter().map(|inside| inside.function);
        let parts = functions.map(|function| {
            let distinction = self.profile.distinction(function);
            let room = width.saturating_sub(distinction.width()).max(LONGEST / 2);
            let name = printable(&self.profile.functions[function].name);
            (name, room, distinction)
        });
        let parts: Vec<_> = parts.collect();
        let names = parts.iter().map(|(name, room, _)| (&**name, *room));
        let names = display_name::fit_each(&names.collect::<Vec<_>>()).into_iter();
        let whole = names
            .zip(&parts)
            .map(|(name, (_, _, distinction))| name + distinction);
        whole.collect()
    }

    fn write_inside(&self, inside: &Inside, name: &str, out: &mut impl Write) -> io::Result<()> {
        let title = format!("Inside {name}:");
        let numbers = graph_size(inside, self.address(inside));
        let fits = title.width() + 1 + numbers.width() <= WIDTH;
        let gap = if fits { " " } else { "\n  " };
        writeln!(out, "\n{title}{gap}{numbers}")?;
        if let Some(doubt) = inside.doubt() {
            writeln!(out, "  {doubt}")?;
        }
        self.loops(inside)
            .map_or(Ok(()), |loops| loops.write(out))?;
        self.lines_of(inside).write(out)?;
        self.routes(inside)
            .map_or(Ok(()), |routes| routes.write(out))
    }

    /// The table of the loops. `None` if there are none.
    fn loops(&self, inside: &Inside) -> Option<Table> {
        let has_trips = inside.loops.iter().any(|own| !own.trips.is_empty());
        let mut headings = vec!["entries", "iterations", "per entry"];
        headings.extend(["p50", "p99"].into_iter().filter(|_| has_trips));
        let is_timed = inside.loops.iter().any(|own| own.wall.is_some());
        let times = ["wall total", "an iteration"];
        headings.extend(times.into_iter().filter(|_| is_timed));
        let mut table = Table::new(&headings);
        let loops = nested(inside);
        let counts = loops.iter().map(|(own, _)| own.iterations);
        let is_shown = largest(&counts.collect::<Vec<u64>>(), self.limit());
        let shown = loops.iter().zip(&is_shown).filter(|(_, shown)| **shown);
        let shown = shown.map(|((own, depth), _)| {
            let per_entry = (own.entries > 0).then(|| own.iterations as f64 / own.entries as f64);
            let mut cells = vec![
                own.entries.to_string(),
                own.iterations.to_string(),
                human::average(per_entry, "iterations"),
            ];
            let percentiles = [50, 99].into_iter().filter(|_| has_trips);
            cells.extend(percentiles.map(|percent| trips_at(own, percent)));
            let times = times_of(self.profile, inside, own);
            cells.extend(times.into_iter().filter(|_| is_timed));
            let title = format!("{}loop at ", "  ".repeat((*depth).min(DEEPEST)));
            (cells, title, loop_place(self.profile, inside, own))
        });
        let shown: Vec<(Vec<String>, String, String)> = shown.collect();
        let taken = taken(&headings, shown.iter().map(|(cells, ..)| cells));
        for (cells, title, place) in shown {
            let room = WIDTH.saturating_sub(taken + 2 + title.width());
            let place = self.fitted(place, room.clamp(LEAST_PLACE, LONGEST_PLACE));
            table.row(cells, format!("{title}{place}"));
        }
        self.rest(&mut table, hidden(&is_shown), "loop");
        (!loops.is_empty()).then_some(table)
    }

    /// The table of the lines, in source order. Blocks without a line follow in address order.
    fn lines_of(&self, inside: &Inside) -> Table {
        let rows = rows(self.profile, inside);
        let counts: Vec<u64> = rows.iter().map(|row| row.count).collect();
        let sum = counts.iter().fold(0_i128, |sum, &n| sum + i128::from(n));
        let most = counts.iter().copied().max().unwrap_or(0);
        let is_shown = largest(&counts, self.limit());
        let shown = rows.iter().zip(&is_shown).filter(|(_, shown)| **shown);
        let shown = shown.map(|(row, _)| {
            let share = human::share(row.count.into(), sum);
            let place = self.fitted(row.place.clone(), LONGEST_PLACE);
            (row.count, vec![row.count.to_string(), share, place])
        });
        let shown: Vec<(u64, Vec<String>)> = shown.collect();
        let has_lines = inside.blocks.iter().any(|block| block.source().is_some());
        let what = if has_lines { "line" } else { "block" };
        let headings = ["count", "share", what];
        let taken = taken(&headings, shown.iter().map(|(_, cells)| cells)) + 2 + HOTTEST.width();
        let longest = WIDTH.saturating_sub(taken).clamp(LEAST_BAR, BAR) as u128;
        let mut table = Table::new(&headings);
        for (count, cells) in shown {
            // A count above 0 has at least one character.
            let bar = (u128::from(count) * longest).div_ceil(u128::from(most).max(1));
            let mut bar = "#".repeat(usize::try_from(bar).unwrap_or(0));
            if count == most && count > 0 {
                bar.push_str(HOTTEST);
            }
            table.row(cells, bar);
        }
        self.rest(&mut table, hidden(&is_shown), what);
        table
    }

    /// A source position in at most `longest` columns. Its end is kept, with the line.
    fn fitted(&self, place: String, longest: usize) -> String {
        if self.options.verbose || place.width() <= longest {
            return place;
        }
        let reversed: String = place.chars().rev().collect();
        let end = start_of(&reversed, longest - 1);
        format!("…{}", end.chars().rev().collect::<String>())
    }
}

/// The terminal columns of the cells of a table, with the gaps before them.
fn taken<'c>(headings: &[&str], rows: impl Iterator<Item = &'c Vec<String>>) -> usize {
    let mut widths: Vec<usize> = headings.iter().map(|heading| heading.width()).collect();
    for cells in rows {
        for (widest, cell) in widths.iter_mut().zip(cells) {
            *widest = cell.width().max(*widest);
        }
    }
    widths.iter().map(|width| 2 + width).sum()
}

/// The activations and the size of the graph.
pub(crate) fn graph_size(inside: &Inside, address: u64) -> String {
    let activations = inside.activations(address);
    let others = inside.arrivals().saturating_sub(activations);
    let others = (others > 0).then(|| human::count(others, "other arrival"));
    let size = [
        (inside.blocks.len(), "block"),
        (inside.edges.len(), "edge"),
        (inside.loops.len(), "loop"),
    ];
    let size = size.map(|(n, what)| human::count(n as u64, what));
    let all = std::iter::once(human::count(activations, "activation"));
    let all = all.chain(others).chain(size);
    all.collect::<Vec<String>>().join(", ")
}

/// The loops with their depths from 0, each loop before those in it. The headers of the loops in
/// one loop are in address order.
fn nested(inside: &Inside) -> Vec<(&Loop, usize)> {
    let mut within: FxHashMap<Option<usize>, Vec<usize>> = FxHashMap::default();
    for (index, own) in inside.loops.iter().enumerate() {
        within.entry(own.parent).or_default().push(index);
    }
    let address = |&index: &usize| inside.blocks[inside.loops[index].header].address;
    let mut all = Vec::new();
    // The next loop is at the end.
    let mut pending = vec![(None, 0)];
    while let Some((next, depth)) = pending.pop() {
        if let Some(index) = next {
            all.push((&inside.loops[index], depth - 1));
        }
        let mut inner = within.remove(&next).unwrap_or_default();
        inner.sort_by_key(address);
        pending.extend(
            inner
                .into_iter()
                .rev()
                .map(|index| (Some(index), depth + 1)),
        );
    }
    all
}

/// The source range of a loop, or the place of its header.
pub(crate) fn loop_place(profile: &Profile, inside: &Inside, own: &Loop) -> String {
    let header = &inside.blocks[own.header];
    let source = || {
        let (file, line) = header.source()?;
        position(Some(file), Some(line))
    };
    let place = own.range().or_else(source);
    place.unwrap_or_else(|| offset_in(profile, inside, header.address))
}

/// The place of an address as its distance from the start of the function: `+0x1f`.
pub(crate) fn offset_in(profile: &Profile, inside: &Inside, address: u64) -> String {
    let start = profile.functions[inside.function].address;
    match address.checked_sub(start) {
        Some(offset) => format!("+{offset:#x}"),
        None => format!("-{:#x}", start - address),
    }
}

/// The lines, those of the function's own file first, and then the blocks without a line.
fn rows(profile: &Profile, inside: &Inside) -> Vec<Row> {
    let own = profile.functions[inside.function].file.as_deref();
    let own = own.or_else(|| inside.blocks.iter().find_map(|block| block.file.as_deref()));
    let mut lines: Vec<_> = inside.lines().into_iter().collect();
    lines.sort_by_key(|((file, line), _)| (Some(*file) != own, *file, *line));
    let lines = lines.into_iter().map(|((file, line), count)| Row {
        place: position(Some(file), Some(line)).unwrap_or_default(),
        count,
    });
    let without = inside
        .blocks
        .iter()
        .filter(|block| block.source().is_none());
    let without = without.map(|block| Row {
        place: offset_in(profile, inside, block.address),
        count: block.count,
    });
    lines.chain(without).collect()
}

/// For each count, true if it is among the `limit` largest. Of equal counts the first ones are.
fn largest(counts: &[u64], limit: usize) -> Vec<bool> {
    let mut order: Vec<usize> = (0..counts.len()).collect();
    order.sort_by_key(|&index| std::cmp::Reverse(counts[index]));
    let mut is_shown = vec![false; counts.len()];
    for &index in order.iter().take(limit) {
        is_shown[index] = true;
    }
    is_shown
}

/// The number of rows that are not shown.
fn hidden(is_shown: &[bool]) -> usize {
    is_shown.iter().filter(|shown| !**shown).count()
}

/// The loop with the most iterations, as text. `None` if no loop was entered.
fn hottest_loop(profile: &Profile, inside: &Inside) -> Option<String> {
    let hottest = inside.loops.iter().max_by_key(|own| own.iterations)?;
    (hottest.iterations > 0).then(|| {
        format!(
            "{} of the loop at {} in {}",
            human::count(hottest.iterations, "iteration"),
            loop_place(profile, inside, hottest),
            entries(hottest.entries),
        )
    })
}

/// `1 entry`, `2 entries`.
fn entries(n: u64) -> String {
    format!("{n} entr{}", if n == 1 { "y" } else { "ies" })
}

/// The line or block with the largest count, as text. `None` if none was executed.
fn hottest_line(profile: &Profile, inside: &Inside) -> Option<String> {
    let rows = rows(profile, inside).into_iter();
    let hottest = rows.rev().max_by_key(|row| row.count)?;
    let times = human::count(hottest.count, "time");
    let what = if hottest.place.starts_with(['+', '-']) {
        "block"
    } else {
        "line"
    };
    (hottest.count > 0).then(|| format!("{what} {} executed {times}", hottest.place))
}
