//! The paths inside a function, the hottest first, as in a report.

use std::ops::Range;

use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use super::numbers::{NUMBER, activations, bar_width, numbers_of};
use crate::columns;
use crate::draw::style::{BOLD, DIM, WARN, heat};
use crate::inside::Counts;
use ipath_profile::report::human;
use ipath_profile::report::places::{Places, paths_taken, shortened};
use ipath_profile::report::routes::times_of;
use ipath_profile::{Inside, Profile};

/// The terminal columns of a share in percent, with the gap before it.
const SHARE: usize = 9;

/// The number of paths, and of those in no count.
pub(super) fn numbers(inside: &Inside, address: u64) -> Line<'static> {
    let totals = inside.path_totals.unwrap_or_default();
    let mut parts = activations(inside, address);
    parts.push(paths_taken(inside, totals.possible));
    let mut spans = vec![Span::raw(parts.join(", "))];
    let in_none = [inside.unfinished(), totals.unknown, totals.uncounted];
    let in_none = in_none.into_iter().map(u128::from).sum::<u128>();
    if in_none > 0 {
        spans.push(Span::styled(format!("  {in_none} in no count"), WARN));
    }
    Line::from(spans)
}

pub(super) fn titles(width: usize, is_timed: bool) -> Line<'static> {
    let times = if is_timed {
        format!("{:>NUMBER$}{:>NUMBER$}", "WALL", "MEAN")
    } else {
        String::new()
    };
    let bar = match bar_beside(width, is_timed) {
        0 => String::new(),
        bar => format!("  {:bar$}", ""),
    };
    let text = format!(
        "{:>NUMBER$}{:>NUMBER$}{:>SHARE$}{times}{bar}  PATH",
        "COUNT", "COUNT/S", "SHARE"
    );
    Line::styled(text, BOLD)
}

/// The length of the bars in terminal columns. On narrow screens, times take their place.
fn bar_beside(width: usize, is_timed: bool) -> usize {
    if is_timed && width < 100 {
        return 0;
    }
    bar_width(width)
}

/// The lines of the list in a range. The first `along` places of long paths are left out.
pub(super) fn rows(
    profile: &Profile,
    counts: &Counts<'_>,
    (range, along): (Range<usize>, usize),
    width: usize,
) -> Vec<Line<'static>> {
    let paths = counts.paths();
    let bar = bar_beside(width, counts.are_paths_timed());
    let is_timed = counts.are_paths_timed();
    let times = if is_timed { 2 * NUMBER } else { 0 };
    let taken = 2 * NUMBER + SHARE + times + if bar > 0 { bar + 2 } else { 0 } + 2;
    // Of all paths, so that a path has the same name on each page.
    let names = Places::of(profile, counts.inside).distinct(&paths);
    let sum = counts.path_sum();
    let visible = paths.iter().zip(&names).skip(range.start);
    let rows = visible.map(|(path, name)| {
        let share = if sum == 0 {
            0.0
        } else {
            path.count as f64 / sum as f64
        };
        let mut spans = numbers_of(path.count, counts.path_rate(path), share).to_vec();
        spans.push(Span::raw(format!("{:>SHARE$}", human::percent(share))));
        if is_timed {
            let [sum, mean] = times_of(path);
            spans.push(Span::raw(format!("{sum:>NUMBER$}{mean:>NUMBER$}")));
        }
        if bar > 0 {
            let text = format!("  {}", columns::bar(share, bar));
            spans.push(Span::styled(text, heat(share)));
        }
        let name = shown(name, along, width.saturating_sub(taken));
        spans.push(Span::raw(format!("  {name}")));
        Line::from(spans)
    });
    let none = paths.is_empty().then(|| {
        let text = "no path has been taken to its end yet";
        Line::styled(format!("  {text}"), DIM)
    });
    let remarks = counts.remarks().into_iter();
    let remarks = remarks.map(|text| Line::styled(format!("  {text}"), WARN));
    let below = none.into_iter().chain(remarks);
    let below = below.skip(range.start.saturating_sub(paths.len()));
    rows.chain(below).take(range.len()).collect()
}

/// A path in at most about `room` columns. If it is longer, its first `along` places are left out,
/// but not the last one.
fn shown(words: &[String], along: usize, room: usize) -> String {
    let whole = shortened(words, usize::MAX);
    // The start and the end of a path are no places.
    let hidden = along.min(words.len().saturating_sub(3));
    if whole.width() <= room || hidden == 0 {
        return shortened(words, room);
    }
    let start = std::iter::once("…".to_owned());
    let rest: Vec<String> = start.chain(words[1 + hidden..].iter().cloned()).collect();
    shortened(&rest, room)
}
