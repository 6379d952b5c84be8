//! The blocks of a function in address order, with their source lines, loops and edges.

use ratatui::text::{Line, Span};

use super::numbers::{NUMBER, bar_width, numbers_of};
use crate::State;
use crate::columns;
use crate::draw::style::{BOLD, DIM, fit, heat};
use crate::inside::{Counts, InsideRow, Way};
use ipath_profile::report::human;
use ipath_profile::report::loop_counts::{times_of, trip_range};
use ipath_profile::{Loop, Profile, printable};

/// The most loops for which a loop in them is indented further.
const DEEPEST: usize = 6;
/// From this width on, blocks have their distance from the start of the function.
const WIDE: usize = 120;

pub(super) fn titles(width: usize) -> Line<'static> {
    let bar = match bar_width(width) {
        0 => String::new(),
        bar => format!("  {:<bar$}", "OF HOTTEST"),
    };
    let text = format!("{:>NUMBER$}{:>NUMBER$}{bar}  BLOCK", "COUNT", "COUNT/S");
    Line::styled(text, BOLD)
}

pub(super) fn line(
    state: &State,
    profile: &Profile,
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
        InsideRow::Times { number, depth } => {
            let own = &counts.inside.loops[number];
            let text = match times_of(profile, counts.inside, own) {
                [sum, each] if each == "-" => sum,
                [sum, each] => format!("{sum}, {each} an iteration"),
            };
            Line::raw(indented(depth, format!("  time {text}")))
        }
        InsideRow::Trips { number, depth } => {
            let text = trips(&counts.inside.loops[number]);
            Line::raw(indented(depth, format!("  {text}")))
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
            let mut spans = numbers_of(block.count, counts.rate(number), share).to_vec();
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

/// The shares of the entries of a loop by their iterations: `trips 1: 25.0 %  2-3: 75.0 %`.
fn trips(own: &Loop) -> String {
    let counts = own.trips.iter().map(|&(_, count)| i128::from(count));
    let sum = counts.sum::<i128>();
    let parts = own.trips.iter().map(|&(power, count)| {
        let share = human::share(count.into(), sum);
        format!("{}: {share}", trip_range(power))
    });
    let unknown = (own.unknown_trips > 0).then(|| format!("{} not known", own.unknown_trips));
    let parts: Vec<String> = parts.chain(unknown).collect();
    format!("trips {}", parts.join("  "))
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
