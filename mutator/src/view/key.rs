//! The keys: one table maps them to commands and writes the help screen.

use std::fmt;

/// One key as the view knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "they are called what is printed on them")]
pub enum Key {
    Char(char),
    Ctrl(char),
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Esc,
    Backspace,
    Delete,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Char(' ') => f.write_str("Space"),
            Self::Char(c) => write!(f, "{c}"),
            Self::Ctrl(c) => write!(f, "Ctrl-{}", c.to_ascii_uppercase()),
            Self::PageUp => f.write_str("PgUp"),
            Self::PageDown => f.write_str("PgDn"),
            other => write!(f, "{other:?}"),
        }
    }
}

/// What a key does while the table is browsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
    Toggle,
    Expand,
    Collapse,
    Sort,
    Metric,
    Add,
    Change,
    Remove,
    Pause,
    Redraw,
    Suspend,
    Help,
    Quit,
}

/// One line of the table.
pub(super) struct Binding {
    pub(super) keys: &'static [Key],
    pub(super) command: Command,
    /// For the help screen.
    pub(super) does: &'static str,
    /// For the line at the bottom; empty where there is no room for it.
    pub(super) hint: &'static str,
}

const fn bind(
    keys: &'static [Key],
    command: Command,
    does: &'static str,
    hint: &'static str,
) -> Binding {
    Binding {
        keys,
        command,
        does,
        hint,
    }
}

/// All keys, in the order of the help screen.
pub(super) const BINDINGS: &[Binding] = &[
    bind(
        &[Key::Char('q'), Key::Esc, Key::Ctrl('c')],
        Command::Quit,
        "quit",
        "quit",
    ),
    bind(
        &[Key::Char('?'), Key::Char('h')],
        Command::Help,
        "this help",
        "help",
    ),
    bind(&[Key::Up, Key::Char('k')], Command::Up, "one line up", ""),
    bind(
        &[Key::Down, Key::Char('j')],
        Command::Down,
        "one line down",
        "",
    ),
    bind(
        &[Key::PageUp, Key::Ctrl('b')],
        Command::PageUp,
        "one page up",
        "",
    ),
    bind(
        &[Key::PageDown, Key::Ctrl('f')],
        Command::PageDown,
        "one page down",
        "",
    ),
    bind(
        &[Key::Home, Key::Char('g')],
        Command::First,
        "to the first line",
        "",
    ),
    bind(
        &[Key::End, Key::Char('G')],
        Command::Last,
        "to the last line",
        "",
    ),
    bind(
        &[Key::Enter, Key::Char(' ')],
        Command::Toggle,
        "show or hide the callers of this line",
        "callers",
    ),
    bind(
        &[Key::Right, Key::Char('l')],
        Command::Expand,
        "show the callers",
        "",
    ),
    bind(
        &[Key::Left],
        Command::Collapse,
        "hide the callers, or go back to the called",
        "",
    ),
    bind(
        &[Key::Char('s')],
        Command::Sort,
        "sort by the next column",
        "sort",
    ),
    bind(
        &[Key::Char('m')],
        Command::Metric,
        "show the next metric",
        "metric",
    ),
    bind(
        &[Key::Char('a')],
        Command::Add,
        "add functions by a pattern",
        "add",
    ),
    bind(
        &[Key::Char('c')],
        Command::Change,
        "change what this function measures",
        "change",
    ),
    bind(
        &[Key::Char('d')],
        Command::Remove,
        "remove this function's probes",
        "remove",
    ),
    bind(
        &[Key::Char('p')],
        Command::Pause,
        "hold the display; the measuring goes on",
        "pause",
    ),
    bind(
        &[Key::Ctrl('l')],
        Command::Redraw,
        "draw the whole screen again",
        "",
    ),
    bind(
        &[Key::Ctrl('z')],
        Command::Suspend,
        "stop; the measuring goes on, fg comes back",
        "",
    ),
];

/// The command of a key.
pub(super) fn command(key: Key) -> Option<Command> {
    BINDINGS
        .iter()
        .find(|b| b.keys.contains(&key))
        .map(|b| b.command)
}

/// The help screen's lines: the keys, and what they do.
pub(super) fn help() -> impl Iterator<Item = (String, &'static str)> {
    BINDINGS.iter().map(|b| {
        let keys: Vec<_> = b.keys.iter().map(Key::to_string).collect();
        (keys.join(" "), b.does)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_stands_twice() {
        let keys: Vec<Key> = BINDINGS.iter().flat_map(|b| b.keys).copied().collect();
        for (i, key) in keys.iter().enumerate() {
            assert!(!keys[..i].contains(key), "{key} is bound twice");
        }
    }
}
