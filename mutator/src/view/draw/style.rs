//! What text on the screen looks like.

use ratatui::style::{Color, Modifier, Style};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

pub(in crate::view) const DIM: Style = Style::new().add_modifier(Modifier::DIM);
pub(in crate::view) const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
pub(in crate::view) const WARN: Style = Style::new().fg(Color::Yellow);
pub(super) const ERROR: Style = Style::new().fg(Color::Red);

pub(in crate::view) const SELECTED: Style = Style::new().add_modifier(Modifier::REVERSED);

/// `text` in at most `room` columns; what is cut off is replaced by an ellipsis.
pub(in crate::view) fn fit(text: &str, room: usize) -> String {
    if text.width() <= room {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut width = 1;
    for c in text.chars() {
        width += c.width().unwrap_or(0);
        if width > room {
            break;
        }
        out.push(c);
    }
    if room > 0 {
        out.push('…');
    }
    out
}

/// The look of a share of the whole: the larger, the warmer. The terminal's own colours, which are readable on light and
/// on dark.
pub(super) fn heat(share: f64) -> Style {
    const LEVELS: [(f64, Style); 3] = [
        (
            0.5,
            Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
        ),
        (0.2, Style::new().fg(Color::Yellow)),
        (0.01, Style::new()),
    ];
    let level = LEVELS.iter().find(|(least, _)| share >= *least);
    level.map_or(DIM, |(_, style)| *style)
}
