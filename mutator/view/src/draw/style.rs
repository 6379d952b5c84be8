//! Styles, and shortening of text.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

pub(crate) const DIM: Style = Style::new().add_modifier(Modifier::DIM);
pub(crate) const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
pub(crate) const WARN: Style = Style::new().fg(Color::Yellow);
pub(super) const ERROR: Style = Style::new().fg(Color::Red);

pub(crate) const SELECTED: Style = Style::new().add_modifier(Modifier::REVERSED);

/// `text` in at most `room` columns. An ellipsis replaces the part that is cut off.
pub(crate) fn fit(text: &str, room: usize) -> String {
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

/// Shortens a line with several styles to `room` columns, as [`fit`] does.
pub(super) fn fit_line(line: Line<'_>, room: usize) -> Line<'_> {
    if line.width() <= room {
        return line;
    }
    let mut left = room;
    let mut spans = Vec::new();
    for span in line.spans {
        let width = span.width();
        // A span that is cut has an ellipsis, and so does a span that ends where the next would
        // begin.
        if width < left {
            left -= width;
            spans.push(span);
            continue;
        }
        let cut = if width == left {
            fit(&format!("{}…", span.content), left)
        } else {
            fit(&span.content, left)
        };
        spans.push(Span::styled(cut, span.style));
        break;
    }
    Line {
        spans,
        style: line.style,
        alignment: line.alignment,
    }
}

/// `text` in at most `room` columns. The folders of a file's path are dropped first, then the end
/// of its name.
pub(super) fn fit_path(text: &str, room: usize) -> String {
    if text.width() <= room || !text.starts_with('/') {
        return fit(text, room);
    }
    let tails = text.match_indices('/').skip(1).map(|(at, _)| &text[at..]);
    match tails.clone().find(|tail| tail.width() < room) {
        Some(tail) => format!("…{tail}"),
        None => fit(tails.last().unwrap_or(text).trim_start_matches('/'), room),
    }
}

/// The style of a share of the whole: the larger, the warmer. Uses the terminal's own colors,
/// which are readable on light and on dark backgrounds.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_are_cut_end_with_an_ellipsis() {
        let line = || Line::from(vec![Span::styled("abc", BOLD), Span::raw("def")]);
        for (room, expected) in [
            (7, "abcdef"),
            (6, "abcdef"),
            (5, "abcd…"),
            (4, "abc…"),
            (3, "ab…"),
            (1, "…"),
            (0, ""),
        ] {
            assert_eq!(fit_line(line(), room).to_string(), expected, "{room}");
        }
    }

    #[test]
    fn folders_are_left_out_before_the_name() {
        for (room, expected) in [
            (16, "/srv/build/solve"),
            (15, "…/build/solve"),
            (12, "…/solve"),
            (7, "…/solve"),
            (6, "solve"),
            (4, "sol…"),
            (0, ""),
        ] {
            assert_eq!(fit_path("/srv/build/solve", room), expected, "{room}");
        }
        assert_eq!(fit_path("nginx (/usr/sbin/nginx)", 8), "nginx (…");
        assert_eq!(fit_path("/init", 3), "in…");
    }
}
