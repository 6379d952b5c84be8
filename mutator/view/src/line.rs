//! A line of text that the user edits.

use super::Key;

/// The text and the cursor position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct EditLine {
    text: Vec<char>,
    /// The index in `text` of the character at the cursor, or its length at the end.
    cursor: usize,
}

impl EditLine {
    /// A line with initial text, and the cursor at its end.
    pub(super) fn of(text: &str) -> Self {
        let text: Vec<char> = text.chars().collect();
        let cursor = text.len();
        Self { text, cursor }
    }

    pub(super) fn text(&self) -> String {
        self.text.iter().collect()
    }

    /// The text before the cursor.
    pub(super) fn before_cursor(&self) -> String {
        self.text[..self.cursor].iter().collect()
    }

    /// Handles an editing key. Other keys change nothing.
    pub(super) fn press(&mut self, key: Key) {
        match key {
            Key::Char(c) if !c.is_control() => {
                self.text.insert(self.cursor, c);
                self.cursor += 1;
            }
            Key::Backspace if self.cursor > 0 => {
                self.cursor -= 1;
                self.text.remove(self.cursor);
            }
            Key::Delete if self.cursor < self.text.len() => {
                self.text.remove(self.cursor);
            }
            Key::Left => self.cursor = self.cursor.saturating_sub(1),
            Key::Right => self.cursor = self.text.len().min(self.cursor + 1),
            Key::Home | Key::Ctrl('a') => self.cursor = 0,
            Key::End | Key::Ctrl('e') => self.cursor = self.text.len(),
            Key::Ctrl('u') => {
                self.text.drain(..self.cursor);
                self.cursor = 0;
            }
            Key::Ctrl('w') => {
                let mut start = self.cursor;
                while start > 0 && self.text[start - 1] == ' ' {
                    start -= 1;
                }
                while start > 0 && self.text[start - 1] != ' ' {
                    start -= 1;
                }
                self.text.drain(start..self.cursor);
                self.cursor = start;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn editing_keys_do_what_they_do_in_a_shell() {
        let mut line = EditLine::default();
        let mut press = |keys: &[Key]| {
            keys.iter().for_each(|&key| line.press(key));
            format!(
                "{}|{}",
                line.before_cursor(),
                &line.text()[line.before_cursor().len()..]
            )
        };
        assert_eq!(
            press(&"añc".chars().map(Key::Char).collect::<Vec<_>>()),
            "añc|"
        );
        assert_eq!(press(&[Key::Left, Key::Char('b')]), "añb|c");
        assert_eq!(press(&[Key::Backspace, Key::Delete, Key::Delete]), "añ|");
        assert_eq!(press(&[Key::Home, Key::Left, Key::Backspace]), "|añ");
        assert_eq!(
            press(&[Key::End, Key::Right, Key::Char(' '), Key::Char('x')]),
            "añ x|"
        );
        assert_eq!(press(&[Key::Ctrl('w')]), "añ |");
        assert_eq!(press(&[Key::Ctrl('w'), Key::Ctrl('w')]), "|");
        assert_eq!(
            press(&[Key::Char('x'), Key::Char('y'), Key::Left, Key::Ctrl('u')]),
            "|y"
        );
        assert_eq!(press(&[Key::Up, Key::Ctrl('z'), Key::Char('\x1b')]), "|y");
    }
}
