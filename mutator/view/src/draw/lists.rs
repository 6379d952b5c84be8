//! The lists that replace the table: the help, functions to add, columns.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::style::{BOLD, DIM, SELECTED, fit};
use crate::State;
use crate::key::{self, HelpLine};
use crate::names::Finder;
use ipath_profile::printable;

/// The explanation of the numbers, below the keys.
const MEANING: [&str; 12] = [
    "Callers: below each function its callers, below these theirs, up to the root.",
    "A chain of calls without a fork is one line. [3 frames of the C runtime] stands for frames",
    "outside the program. A line without numbers has those of the line above.",
    "OF RUN: share of the elapsed time, of all threads together; 3.60x means 3.6 threads",
    "on average. OF FUNC: share of the function's total. In the flat and root views, OF ALL: share",
    "of all functions together. OF ABOVE: share of the line that it is below. SELF: without the",
    "measured callees. P50 to P99.9 are percentiles, from a histogram by powers of two.",
    "MIN and MAX are of the whole session, not of an interval. In searches and filters",
    "text is a regular expression, and lower-case letters also match upper-case ones.",
    "With the mouse: a click selects a line or opens the selected one; on a title it sorts. Shift",
    "keeps the terminal's own selection. With `attach --keep`, the session stays in after q;",
    "`ipath detach PID` takes it out.",
];

/// The help, from line `top` on.
pub(super) fn help(top: usize, frame: &mut Frame<'_>, area: Rect) {
    let mut lines: Vec<Line<'static>> = Vec::new();
    for line in key::help() {
        lines.push(match line {
            HelpLine::Section(name) => Line::styled(format!(" {name}"), DIM),
            HelpLine::Keys(keys, does) => Line::from(vec![
                Span::styled(format!("  {keys:<14}"), BOLD),
                Span::raw(does),
            ]),
        });
    }
    lines.push(Line::default());
    lines.extend(MEANING.map(|text| Line::from(format!("  {text}"))));
    // In two columns if there is room.
    const WIDE: u16 = 92;
    let height = usize::from(area.height);
    let pages = usize::from((area.width / WIDE).max(1));
    let all = lines.len();
    let is_cut = all > height * pages && height > 1;
    let (area, height) = if is_cut {
        let last = Rect {
            y: area.bottom() - 1,
            height: 1,
            ..area
        };
        let height = height - 1;
        let first = top.min(all.saturating_sub(height * pages));
        let shown = format!(
            " lines {} to {} of {all}: Up, Down, PgUp, PgDn",
            first + 1,
            (first + height * pages).min(all)
        );
        frame.render_widget(Line::styled(shown, BOLD), last);
        let area = Rect {
            height: area.height - 1,
            ..area
        };
        (area, height)
    } else {
        (area, height)
    };
    let most = all.saturating_sub(height * pages);
    let mut rest = lines.into_iter().skip(top.min(most));
    for page in 0..pages {
        let width = area.width / pages as u16;
        let column = Rect {
            x: area.x + page as u16 * width,
            width,
            ..area
        };
        for row in column.rows() {
            if let Some(line) = rest.next() {
                frame.render_widget(line, row);
            }
        }
    }
}

/// The functions that match the typed text.
pub(super) fn finder(state: &State, finder: &Finder, frame: &mut Frame<'_>, area: Rect) {
    let head = match &state.names {
        None => "reading the names of all functions ...".to_owned(),
        Some(_) if finder.is_pattern() => {
            "Enter adds all functions that match this pattern".to_owned()
        }
        Some(names) => format!(
            "{} functions; Up and Down choose, Enter adds, Esc goes back",
            names.len()
        ),
    };
    let mut rows = area.rows();
    if let Some(row) = rows.next() {
        frame.render_widget(Line::styled(head, DIM), row);
    }
    let Some(names) = &state.names else { return };
    let room = usize::from(area.height.saturating_sub(1)).max(1);
    let top = (finder.at + 1).saturating_sub(room);
    let found = finder.found.iter().enumerate().skip(top);
    for ((place, &index), row) in found.zip(rows) {
        let (name, module) = names.get(index);
        let (name, module) = (printable(name), printable(module));
        let width = usize::from(row.width);
        let module = fit(&module, width / 3);
        let name = fit(&name, width.saturating_sub(module.chars().count() + 4));
        let line = Line::from(vec![
            Span::raw(format!("  {name}")),
            Span::styled(format!("  {module}"), DIM),
        ]);
        frame.render_widget(line, row);
        mark(frame, row, place == finder.at);
    }
}

/// Draws the list of all columns, with a mark on those that are shown.
pub(super) fn columns(state: &State, at: usize, frame: &mut Frame<'_>, area: Rect) {
    let all = state.all_columns();
    let shown = state.columns_in(state.size.0.into());
    let chosen = state.columns.chosen.as_ref().unwrap_or(&shown);
    let room = usize::from(area.height).max(1);
    let top = (at + 1).saturating_sub(room);
    for ((place, &column), row) in all.iter().enumerate().skip(top).zip(area.rows()) {
        let is_shown = if chosen.contains(&column) {
            "[x]"
        } else {
            "[ ]"
        };
        let title = column.title(state);
        let text = format!(" {is_shown} {title:<9} {}", column.describe(state));
        frame.render_widget(Line::raw(text), row);
        mark(frame, row, place == at);
    }
}

fn mark(frame: &mut Frame<'_>, row: Rect, is_selected: bool) {
    if is_selected {
        frame.buffer_mut().set_style(row, SELECTED);
    }
}
