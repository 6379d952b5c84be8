//! The counts inside a function: its blocks in address order with their source lines, loops and
//! edges.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use super::style::{BOLD, DIM, WARN, fit, fit_line, heat};
use crate::State;
use crate::columns;
use crate::inside::{Counts, HEAD, InsideRow, Way};
use crate::tree::SiteId;
use ipath_profile::display_name;
use ipath_profile::report::human;
use ipath_profile::{Inside, Loop, printable};

/// The terminal columns of a count and of a count per second, with the gap before them.
const NUMBER: usize = 10;
/// The most loops for which a loop in them is indented further.
const DEEPEST: usize = 6;
/// From this width on, blocks have their distance from the start of the function.
const WIDE: usize = 120;

/// Draws the counts inside a function, from line `top` on.
pub(super) fn draw(state: &State, (site, top): (SiteId, usize), frame: &mut Frame<'_>, area: Rect) {
    let width = usize::from(area.width);
    let Some((address, counts)) = state.counts_inside(site) else {
        let text = "  the counts inside this function come with the next sample";
        frame.render_widget(Line::styled(text, DIM), area);
        return;
    };
    let name = &state.tree.site(site).lines[0].name;
    let head = head(name, counts.inside, address, width);
    let head = head.into_iter().chain([titles(width)]);
    let rows = counts.rows().into_iter().skip(top);
    let rows = rows.map(|row| line(state, &counts, row, address, width));
    // On the smallest screens, the counts are more important than the head.
    let skipped = HEAD.saturating_sub(usize::from(area.height / 2));
    let lines = head.skip(skipped).chain(rows);
    for (line, row) in lines.zip(area.rows()) {
        frame.render_widget(fit_line(line, width), row);
    }
}

/// The name, and the numbers of the whole function.
fn head(name: &str, inside: &Inside, address: u64, width: usize) -> [Line<'static>; 2] {
    let before = "Inside ";
    let name = display_name::fit(name, width.saturating_sub(before.width()));
    let title = vec![Span::styled(before, DIM), Span::styled(name, BOLD)];
    let activations = inside.activations(address);
    let others = inside.arrivals().saturating_sub(activations);
    let mut parts = vec![human::count(activations, "activation")];
    if others > 0 {
        parts.push(human::count(others, "other arrival"));
    }
    parts.push(human::count(inside.blocks.len() as u64, "block"));
    parts.push(human::count(inside.loops.len() as u64, "loop"));
    let mut numbers = vec![Span::raw(parts.join(", "))];
    if inside.uncertain > 0 {
        let text = format!("  may be off by {}", inside.uncertain);
        numbers.push(Span::styled(text, WARN));
    }
    [Line::from(title), Line::from(numbers)]
}

/// The length of the bars in terminal columns.
fn bar_width(width: usize) -> usize {
    match width {
        ..50 => 0,
        50..100 => 10,
        100..160 => 16,
        _ => 24,
    }
}

fn titles(width: usize) -> Line<'static> {
    let bar = match bar_width(width) {
        0 => String::new(),
        bar => format!("  {:<bar$}", "OF HOTTEST"),
    };
    let text = format!("{:>NUMBER$}{:>NUMBER$}{bar}  BLOCK", "COUNT", "COUNT/S");
    Line::styled(text, BOLD)
}

fn line(
    state: &State,
    counts: &Counts<'_>,
    row: InsideRow,
    address: u64,
    width: usize,
) -> Line<'static> {
    let bar = bar_width(width);
    let numbers = 2 * NUMBER + if bar > 0 { bar + 2 } else { 0 };
    let indented = |depth: usize, text: String| {
        let gap = numbers + 2 + 2 * depth.min(DEEPEST);
        format!("{:gap$}{text}", "")
    };
    match row {
        InsideRow::Loop { number, depth } => {
            let text = of_loop(number, &counts.inside.loops[number]);
            Line::styled(indented(depth, text), BOLD)
        }
        InsideRow::Edges { block, depth } => {
            let ways = counts.ways(block).iter().map(way).collect::<Vec<_>>();
            Line::styled(indented(depth, format!("  {}", ways.join("  "))), DIM)
        }
        InsideRow::Block {
            number,
            depth,
            begins,
        } => {
            let block = &counts.inside.blocks[number];
            let share = counts.share(number);
            let rate = counts.rate(number).map_or("-".to_owned(), human::number);
            let count = match block.count {
                // As long as all digits fit.
                count @ ..100_000_000 => count.to_string(),
                count => human::number(count as f64),
            };
            let mut spans = vec![
                Span::styled(format!("{count:>NUMBER$}"), heat(share)),
                Span::raw(format!("{rate:>NUMBER$}")),
            ];
            if bar > 0 {
                spans.push(Span::styled(
                    format!("  {}", columns::bar(share, bar)),
                    heat(share),
                ));
            }
            let gap = 2 + 2 * depth.min(DEEPEST);
            let mut text = format!("{:gap$}block{number}", "");
            if width >= WIDE || block.source().is_none() {
                text.push_str(&format!("  {}", offset(block.address, address)));
            }
            spans.push(Span::raw(text));
            if let Some((file, line)) = block.source().filter(|_| begins) {
                let name = file.rsplit('/').next().unwrap_or(file);
                let name = fit(&printable(name), width / 4);
                spans.push(Span::raw(format!("  {name}:{line}")));
                let source = state.source_line(file, line);
                spans.extend(source.map(|text| Span::styled(format!("  {text}"), DIM)));
            }
            Line::from(spans)
        }
    }
}

/// A loop with its iterations.
fn of_loop(number: usize, own: &Loop) -> String {
    let entries = match own.entries {
        0 => "not entered".to_owned(),
        n => {
            let mean = human::number(own.iterations as f64 / n as f64);
            let entries = if n == 1 { "entry" } else { "entries" };
            format!("{mean} iterations per entry, {n} {entries}")
        }
    };
    let range = own.range().map_or_else(String::new, |at| format!(", {at}"));
    format!("loop{number}: {entries}{range}")
}

/// An edge at the end of a block, with its share.
fn way(way: &Way) -> String {
    let to = match (way.to, way.in_call) {
        (Some(block), _) => format!("→ block{block}"),
        (None, true) => "left in a call".to_owned(),
        (None, false) => "→ exit".to_owned(),
    };
    match way.share {
        Some(share) => format!("{to} {}", human::percent(share)),
        None => to,
    }
}

/// The distance from the start of the function, such as `+0x1f`.
fn offset(block: u64, function: u64) -> String {
    match block.checked_sub(function) {
        Some(offset) => format!("+{offset:#x}"),
        None => format!("-{:#x}", function - block),
    }
}
