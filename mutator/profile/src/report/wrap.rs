//! Text on lines of limited width.

use unicode_width::UnicodeWidthStr;

use crate::display_name::start_of;

/// Joins `words` with `gap` into lines of at most `width` columns. A word longer than a line is cut
/// into lines.
pub fn wrapped<'w>(
    words: impl IntoIterator<Item = &'w str>,
    gap: &str,
    width: usize,
) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        if let Some(line) = lines.last_mut()
            && line.width() + gap.width() + word.width() <= width
        {
            line.push_str(gap);
            line.push_str(word);
            continue;
        }
        let mut rest = word;
        loop {
            let start = start_of(rest, width.max(1));
            lines.push(start.to_owned());
            rest = &rest[start.len()..];
            if rest.is_empty() || start.is_empty() {
                break;
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_wrapped_at_gaps_and_within_long_words() {
        let lines = |text: &str, gap: &str| wrapped(text.split(gap), gap, 8);
        assert_eq!(
            lines("mean 1  p50 2  p99 3", "  "),
            ["mean 1", "p50 2", "p99 3"]
        );
        assert_eq!(lines("a b c", " "), ["a b c"]);
        assert_eq!(
            lines("work a::bcdefghijk x", " "),
            ["work", "a::bcdef", "ghijk x"]
        );
        assert_eq!(lines("", " "), [""]);
    }
}
