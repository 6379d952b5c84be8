//! The counts inside a function: its blocks in address order with their source lines, loops and
//! edges, or its paths.

mod blocks;
mod numbers;
mod paths;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use super::style::{BOLD, DIM, WARN, fit_line};
use crate::State;
use crate::inside::{HEAD, List, Panel};
use ipath_profile::Inside;
use ipath_profile::display_name;
use ipath_profile::report::human;

/// The keys of the panel.
pub(super) fn hints(state: &State, panel: Panel) -> String {
    let other = match panel.list {
        List::Paths => {
            let keys = "Up Down PgUp PgDn Left Right scroll  v blocks  e counts or stops";
            return format!("{keys}  Esc goes back");
        }
        List::Blocks if state.has_paths(panel.site) => "v paths  ",
        List::Blocks => "",
    };
    format!("Up Down PgUp PgDn scroll  {other}e starts or stops counting  Esc goes back")
}

/// Draws the counts inside a function.
pub(super) fn draw(state: &State, panel: Panel, frame: &mut Frame<'_>, area: Rect) {
    let Panel {
        site,
        list,
        top,
        along,
    } = panel;
    let width = usize::from(area.width);
    let counted = state.profile().zip(state.counts_inside(site));
    let Some((profile, (address, counts))) = counted else {
        let text = "  the counts inside this function come with the next sample";
        frame.render_widget(Line::styled(text, DIM), area);
        return;
    };
    let name = &state.tree.site(site).lines[0].name;
    let [name, numbers] = head(name, counts.inside, address, width);
    let height = usize::from(area.height);
    let (head, rows): (_, Vec<_>) = match list {
        List::Blocks => {
            let rows = counts.rows().into_iter().skip(top).take(height);
            let rows = rows.map(|row| blocks::line(state, profile, &counts, row, address, width));
            ([name, numbers, blocks::titles(width)], rows.collect())
        }
        List::Paths => {
            let numbers = paths::numbers(counts.inside, address);
            let range = top..top.saturating_add(height);
            let rows = paths::rows(profile, &counts, (range, along), width);
            (
                [
                    name,
                    numbers,
                    paths::titles(width, counts.are_paths_timed()),
                ],
                rows,
            )
        }
    };
    // On the smallest screens, the counts are more important than the head.
    let skipped = HEAD.saturating_sub(usize::from(area.height / 2));
    let lines = head.into_iter().skip(skipped).chain(rows);
    for (line, row) in lines.zip(area.rows()) {
        frame.render_widget(fit_line(line, width), row);
    }
}

/// The name, and the numbers of the whole function.
fn head(name: &str, inside: &Inside, address: u64, width: usize) -> [Line<'static>; 2] {
    let before = "Inside ";
    let name = display_name::fit(name, width.saturating_sub(before.width()));
    let title = vec![Span::styled(before, DIM), Span::styled(name, BOLD)];
    let mut parts = numbers::activations(inside, address);
    parts.push(human::count(inside.blocks.len() as u64, "block"));
    parts.push(human::count(inside.loops.len() as u64, "loop"));
    let mut numbers = vec![Span::raw(parts.join(", "))];
    if inside.uncertain > 0 {
        let text = format!("  may be off by {}", inside.uncertain);
        numbers.push(Span::styled(text, WARN));
    }
    [Line::from(title), Line::from(numbers)]
}
