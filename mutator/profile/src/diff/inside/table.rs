//! The compared counts inside functions as text.

use super::paths::{OfPath, Paths};
use super::{OfFunction, compared};
use crate::diff::Diff;
use crate::display_name;
use crate::profile::{position, printable};
use crate::report::places::shortened;
use crate::report::{Table, human};
use std::cmp::Reverse;
use std::io::{self, Write};

/// The most terminal columns of a function's name.
const LONGEST: usize = 60;
/// The most terminal columns of a path.
const LONGEST_PATH: usize = 60;

/// Writes the lines and paths whose counts differ, at most `limit` of each for each function: those
/// with the largest change. Lines are in source order.
pub(in crate::diff) fn write(
    diff: &Diff<'_>,
    limit: usize,
    out: &mut impl Write,
) -> io::Result<()> {
    for function in compared(diff) {
        let lines = lines(&function, limit);
        let paths = function.paths.as_ref().and_then(|all| paths(all, limit));
        if lines.is_none() && paths.is_none() {
            continue;
        }
        let [was, now] = function.activations;
        writeln!(
            out,
            "\nInside {}: {} (were {was})",
            display_name::fit(&printable(function.function), LONGEST),
            human::count(now, "activation"),
        )?;
        for table in [lines, paths].into_iter().flatten() {
            table.write(out)?;
        }
    }
    Ok(())
}

/// The lines whose counts differ. `None` if there are none.
fn lines(function: &OfFunction<'_>, limit: usize) -> Option<Table> {
    let change = |counts: [u64; 2]| counts[0].abs_diff(counts[1]);
    let lines = function.lines.iter().enumerate();
    let mut lines: Vec<_> = lines.filter(|(_, line)| change(line.counts) > 0).collect();
    lines.sort_by_key(|(_, line)| Reverse(change(line.counts)));
    let hidden = lines.len().saturating_sub(limit);
    lines.truncate(limit);
    lines.sort_unstable_by_key(|&(index, _)| index);
    let mut table = Table::new(&["count", "were", "change", "line"]);
    for (_, line) in &lines {
        let place = position(Some(&line.file), Some(line.line)).unwrap_or_default();
        let mut cells = cells(line.counts);
        cells.push(place);
        table.row(cells, String::new());
    }
    hide(&mut table, hidden, "more line");
    (!lines.is_empty()).then_some(table)
}

/// The paths whose counts differ, and the paths that were not compared. `None` if there are none of
/// either.
fn paths(all: &Paths, limit: usize) -> Option<Table> {
    let is_changed = |path: &&OfPath| path.counts[0] != path.counts[1];
    let changed: Vec<&OfPath> = all.paths.iter().filter(is_changed).collect();
    let mut table = Table::new(&["count", "were", "change"]).with_remarks("path");
    for path in changed.iter().take(limit) {
        table.row(cells(path.counts), shortened(&path.path, LONGEST_PATH));
    }
    hide(&mut table, changed.len().saturating_sub(limit), "more path");
    for ([was, now], what, remark) in [
        (
            all.paths_without_lines,
            "paths through blocks without lines",
            ", not compared because the graphs differ",
        ),
        (all.paths_not_counted, "paths in no count", ""),
    ] {
        if [was, now] != [0, 0] {
            table.text(format!("{what}: {now} (were {was}){remark}"));
        }
    }
    let is_incomplete = all.paths_without_lines != [0, 0];
    (!changed.is_empty() || is_incomplete).then_some(table)
}

/// The counts of both sides, the new one first, and the change.
fn cells([old, new]: [u64; 2]) -> Vec<String> {
    let change = (old > 0).then(|| 100.0 * (new as f64 / old as f64 - 1.0));
    let change = change.map_or_else(|| "-".to_owned(), |change| format!("{change:+.1} %"));
    vec![new.to_string(), old.to_string(), change]
}

/// Adds a line about rows that are not shown, if there are any.
fn hide(table: &mut Table, hidden: usize, what: &str) {
    if hidden > 0 {
        let hidden = human::count(hidden as u64, what);
        table.text(format!("{hidden}, not shown; --limit 0 shows all"));
    }
}
