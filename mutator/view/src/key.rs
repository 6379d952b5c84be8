//! The key bindings. A single table maps keys to commands and produces the help screen.

use std::fmt;

/// A key.
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

/// The command of a key in the table view.
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
    Fold,
    HotPath,
    ExpandAll,
    CollapseAll,
    NextView,
    Span,
    Mark,
    Metric,
    Sort,
    Reverse,
    Columns,
    Detail,
    Pause,
    Search,
    SearchNext,
    SearchPrevious,
    Filter,
    Zoom,
    Unfilter,
    Compare,
    Add,
    AddCaller,
    AddCallees,
    Change,
    Remove,
    Edges,
    Inside,
    Estimate,
    Copy,
    Write,
    Edit,
    Redraw,
    Suspend,
    Help,
    Cancel,
    Quit,
}

/// An entry of the table.
pub(super) struct Binding {
    /// The section of the help screen.
    pub(super) section: &'static str,
    pub(super) keys: &'static [Key],
    pub(super) command: Command,
    /// The text for the help screen.
    pub(super) does: &'static str,
    /// The text for the bottom line. Empty if the key is not shown there.
    pub(super) hint: &'static str,
}

/// The key bindings, in the order of the help screen.
#[rustfmt::skip]
pub(super) const BINDINGS: &[Binding] = &[
    Binding { section: "moving", keys: &[Key::Up, Key::Char('k')], command: Command::Up, does: "one line up", hint: "" },
    Binding { section: "moving", keys: &[Key::Down, Key::Char('j')], command: Command::Down, does: "one line down", hint: "" },
    Binding { section: "moving", keys: &[Key::PageUp, Key::Ctrl('b')], command: Command::PageUp, does: "one page up", hint: "" },
    Binding { section: "moving", keys: &[Key::PageDown, Key::Ctrl('f')], command: Command::PageDown, does: "one page down", hint: "" },
    Binding { section: "moving", keys: &[Key::Home, Key::Char('g')], command: Command::First, does: "to the first line", hint: "" },
    Binding { section: "moving", keys: &[Key::End, Key::Char('G')], command: Command::Last, does: "to the last line", hint: "" },
    Binding { section: "tree", keys: &[Key::Enter, Key::Char(' ')], command: Command::Toggle, does: "show or hide the lines below this line", hint: "open" },
    Binding { section: "tree", keys: &[Key::Right, Key::Char('l')], command: Command::Expand, does: "show them, then the single calls of a chain", hint: "" },
    Binding { section: "tree", keys: &[Key::Left], command: Command::Collapse, does: "hide them, or go to the line that this one is below", hint: "" },
    Binding { section: "tree", keys: &[Key::Char('o')], command: Command::Fold, does: "a line for each call of a chain, or one for all", hint: "" },
    Binding { section: "tree", keys: &[Key::Char('x')], command: Command::HotPath, does: "open the costliest path below this line", hint: "hot path" },
    Binding { section: "tree", keys: &[Key::Char('+')], command: Command::ExpandAll, does: "show all lines", hint: "" },
    Binding { section: "tree", keys: &[Key::Char('-')], command: Command::CollapseAll, does: "hide all but the first ones", hint: "" },
    Binding { section: "display", keys: &[Key::Char('v')], command: Command::NextView, does: "callers, from the root, flat, threads or processes", hint: "view" },
    Binding { section: "display", keys: &[Key::Char('t')], command: Command::Span, does: "total, interval, since the mark", hint: "time" },
    Binding { section: "display", keys: &[Key::Char('b')], command: Command::Mark, does: "set the mark: restart counting here", hint: "" },
    Binding { section: "display", keys: &[Key::Char('m')], command: Command::Metric, does: "the next metric", hint: "metric" },
    Binding { section: "display", keys: &[Key::Char('s')], command: Command::Sort, does: "sort by the next column", hint: "sort" },
    Binding { section: "display", keys: &[Key::Char('r')], command: Command::Reverse, does: "reverse the order", hint: "" },
    Binding { section: "display", keys: &[Key::Char('C')], command: Command::Columns, does: "choose columns", hint: "" },
    Binding { section: "display", keys: &[Key::Char('D')], command: Command::Detail, does: "more or less about this line", hint: "" },
    Binding { section: "display", keys: &[Key::Char('p')], command: Command::Pause, does: "pause the display; measuring continues", hint: "pause" },
    Binding { section: "finding", keys: &[Key::Char('/')], command: Command::Search, does: "find a name (regular expression)", hint: "search" },
    Binding { section: "finding", keys: &[Key::Char('n')], command: Command::SearchNext, does: "the next one", hint: "" },
    Binding { section: "finding", keys: &[Key::Char('N')], command: Command::SearchPrevious, does: "the one before", hint: "" },
    Binding { section: "finding", keys: &[Key::Char('f')], command: Command::Filter, does: "show less: NAME, module:NAME, thread:NAME, process:NAME, share:1%", hint: "filter" },
    Binding { section: "finding", keys: &[Key::Char('z')], command: Command::Zoom, does: "show only the lines below this line", hint: "" },
    Binding { section: "finding", keys: &[Key::Backspace], command: Command::Unfilter, does: "remove the last filter", hint: "" },
    Binding { section: "finding", keys: &[Key::Char('=')], command: Command::Compare, does: "compare other lines with this one", hint: "" },
    Binding { section: "measuring", keys: &[Key::Char('a')], command: Command::Add, does: "add functions: type part of a name, or a pattern", hint: "add" },
    Binding { section: "measuring", keys: &[Key::Char('u')], command: Command::AddCaller, does: "add the function of this call site", hint: "" },
    Binding { section: "measuring", keys: &[Key::Char('i')], command: Command::AddCallees, does: "add the functions that this one calls", hint: "" },
    Binding { section: "measuring", keys: &[Key::Char('c')], command: Command::Change, does: "change what this function measures", hint: "" },
    Binding { section: "measuring", keys: &[Key::Char('d')], command: Command::Remove, does: "remove this function's probes", hint: "remove" },
    Binding { section: "measuring", keys: &[Key::Char('e')], command: Command::Edges, does: "count the edges inside this function, or stop that", hint: "edges" },
    Binding { section: "measuring", keys: &[Key::Char('I')], command: Command::Inside, does: "show the counts inside: blocks, loops, edges; v shows paths", hint: "" },
    Binding { section: "measuring", keys: &[Key::Char('S')], command: Command::Estimate, does: "sample where time goes, to choose more functions", hint: "" },
    Binding { section: "the rest", keys: &[Key::Char('y')], command: Command::Copy, does: "copy this path to the clipboard", hint: "" },
    Binding { section: "the rest", keys: &[Key::Char('w')], command: Command::Write, does: "write the profile to a file", hint: "" },
    Binding { section: "the rest", keys: &[Key::Char('E')], command: Command::Edit, does: "open $EDITOR at this call", hint: "" },
    Binding { section: "the rest", keys: &[Key::Ctrl('l')], command: Command::Redraw, does: "redraw the screen", hint: "" },
    Binding { section: "the rest", keys: &[Key::Ctrl('z')], command: Command::Suspend, does: "suspend; measuring continues, fg resumes the view", hint: "" },
    Binding { section: "the rest", keys: &[Key::Char('?'), Key::Char('h')], command: Command::Help, does: "this help", hint: "help" },
    Binding { section: "the rest", keys: &[Key::Esc], command: Command::Cancel, does: "leave a question, or forget the searched name", hint: "" },
    Binding { section: "the rest", keys: &[Key::Char('q'), Key::Ctrl('c')], command: Command::Quit, does: "quit", hint: "quit" },
];

/// The command of a key. `None` if the key has none.
pub(super) fn command(key: Key) -> Option<Command> {
    BINDINGS
        .iter()
        .find(|b| b.keys.contains(&key))
        .map(|b| b.command)
}

/// A line of the help screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HelpLine {
    Section(&'static str),
    /// Keys and their description.
    Keys(String, &'static str),
}

/// The help screen's lines.
pub(super) fn help() -> Vec<HelpLine> {
    let mut lines = Vec::new();
    let mut section = "";
    for binding in BINDINGS {
        if binding.section != section {
            section = binding.section;
            lines.push(HelpLine::Section(section));
        }
        let keys: Vec<_> = binding.keys.iter().map(Key::to_string).collect();
        lines.push(HelpLine::Keys(keys.join(" "), binding.does));
    }
    lines
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
