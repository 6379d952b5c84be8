//! The columns of numbers, which blocks and paths have in common.

use ratatui::text::Span;

use crate::draw::style::heat;
use ipath_profile::Inside;
use ipath_profile::report::human;

/// The terminal columns of a count and of a count per second, with the gap before them.
pub(super) const NUMBER: usize = 10;

/// The activations, and the other arrivals if there are any.
pub(super) fn activations(inside: &Inside, address: u64) -> Vec<String> {
    let activations = inside.activations(address);
    let others = inside.arrivals().saturating_sub(activations);
    let mut parts = vec![human::count(activations, "activation")];
    if others > 0 {
        parts.push(human::count(others, "other arrival"));
    }
    parts
}

/// The length of the bars in terminal columns.
pub(super) fn bar_width(width: usize) -> usize {
    match width {
        ..50 => 0,
        50..100 => 10,
        100..160 => 16,
        _ => 24,
    }
}

/// A count, colored by its share, and the rate per second.
pub(super) fn numbers_of(count: u64, rate: Option<f64>, share: f64) -> [Span<'static>; 2] {
    let rate = rate.map_or("-".to_owned(), human::number);
    let count = match count {
        // As long as all digits fit.
        count @ ..100_000_000 => count.to_string(),
        count => human::number(count as f64),
    };
    [
        Span::styled(format!("{count:>NUMBER$}"), heat(share)),
        Span::raw(format!("{rate:>NUMBER$}")),
    ]
}
