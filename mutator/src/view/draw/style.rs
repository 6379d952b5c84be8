//! What text on the screen looks like.

use ratatui::style::{Color, Modifier, Style};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

pub(in crate::view) const DIM: Style = Style::new().add_modifier(Modifier::DIM);
pub(in crate::view) const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
pub(in crate::view) const WARN: Style = Style::new().fg(Color::Yellow);
pub(super) const ERROR: Style = Style::new().fg(Color::Red);

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
