//! Search for a function by part of its name, among all functions of a process.

use std::cmp::Reverse;

use patcher::select::MEANING;

use super::Key;
use super::fuzzy::score;
use super::line::EditLine;

/// The functions of a process that can be searched.
#[derive(Debug, Default)]
pub struct Names {
    /// The demangled names, as displayed.
    names: Vec<String>,
    /// The module number and the link-time address, for each function.
    places: Vec<(u32, u64)>,
    /// The file names of the modules, by number.
    modules: Vec<String>,
}

impl Names {
    /// Adds a module and returns its number.
    pub fn module(&mut self, name: &str) -> u32 {
        self.modules.push(name.to_owned());
        self.modules.len() as u32 - 1
    }

    /// Adds a function: its display name, its module's number and its address in the module's file.
    pub fn push(&mut self, name: String, module: u32, address: u64) {
        self.names.push(name);
        self.places.push((module, address));
    }

    /// The number of functions.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// True if no function is listed.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The names of a function and of its module, by the function's index. Empty without such a
    /// function.
    pub(super) fn get(&self, index: u32) -> (&str, &str) {
        let index = index as usize;
        let module = self
            .places
            .get(index)
            .and_then(|&(m, _)| self.modules.get(m as usize));
        let name = self.names.get(index).map_or("", String::as_str);
        (name, module.map_or("", String::as_str))
    }

    /// A pattern that matches only this function. `None` if there is no such index.
    fn pattern(&self, index: u32) -> Option<String> {
        let &(module, address) = self.places.get(index as usize)?;
        let module = self.modules.get(module as usize)?;
        Some(format!("{module}+{address:#x}"))
    }

    /// The indexes of at most `most` functions whose names match `text` in order, possibly with
    /// gaps. Best matches come first. An empty text matches all.
    fn matching(&self, text: &str, most: usize) -> Vec<u32> {
        if text.is_empty() {
            return (0..self.names.len().min(most) as u32).collect();
        }
        let names = self.names.iter().enumerate();
        let found = names.filter_map(|(index, name)| {
            // Among equal scores, the shortest name comes first, because the text is a larger part
            // of it.
            Some((Reverse(score(name, text)?), name.len(), index as u32))
        });
        let mut found: Vec<_> = found.collect();
        found.sort_unstable();
        found
            .iter()
            .take(most)
            .map(|&(_, _, index)| index)
            .collect()
    }
}

/// The state of the search for a function.
#[derive(Clone, Debug, Default)]
pub(super) struct Finder {
    /// The typed text.
    pub(super) line: EditLine,
    /// The indexes of the matches in [`Names`], the best first.
    pub(super) found: Vec<u32>,
    /// The index in `found` of the selected match.
    pub(super) at: usize,
    /// True if the text has changed since the last search.
    is_stale: bool,
}

impl Finder {
    /// A search without a text, which finds the first functions.
    pub(super) fn new() -> Self {
        Self {
            is_stale: true,
            ..Self::default()
        }
    }

    /// Searches, if the text has changed. Pasted text arrives key by key but is searched only once,
    /// because searching all names takes a while.
    pub(super) fn find(&mut self, names: Option<&Names>) {
        /// More matches are not useful.
        const MAX_NAMES: usize = 500;
        let Some(names) = names.filter(|_| self.is_stale) else {
            return;
        };
        self.is_stale = false;
        self.at = 0;
        self.found = if self.is_pattern() {
            Vec::new()
        } else {
            names.matching(self.line.text().trim(), MAX_NAMES)
        };
    }

    /// True if the text has a meaning as a pattern that it cannot have as a name.
    pub(super) fn is_pattern(&self) -> bool {
        let text = self.line.text();
        let text = text.trim();
        text.contains(MEANING) || text.starts_with("0x") || text.contains("+0x")
    }

    /// Handles a key: moves the selection, or edits the text.
    pub(super) fn press(&mut self, key: Key, names: Option<&Names>) {
        /// The rows that a page key skips.
        const PAGE: usize = 10;
        /// The maximum length of the text in bytes, longer than any typed name.
        const LONGEST: usize = 512;
        if matches!(key, Key::Up | Key::Down | Key::PageUp | Key::PageDown) {
            self.find(names);
        }
        let last = self.found.len().saturating_sub(1);
        match key {
            Key::Up => self.at = self.at.saturating_sub(1),
            Key::Down => self.at = (self.at + 1).min(last),
            Key::PageUp => self.at = self.at.saturating_sub(PAGE),
            Key::PageDown => self.at = (self.at + PAGE).min(last),
            Key::Char(c) if self.line.text().len() + c.len_utf8() > LONGEST => {}
            key => {
                self.line.press(key);
                self.is_stale = true;
            }
        }
    }

    /// The pattern to add: for the selected function, or the typed text if it is a pattern or
    /// matches no function. `None` if there is neither a text nor a selection.
    pub(super) fn pattern(&mut self, names: Option<&Names>) -> Option<String> {
        self.find(names);
        let text = self.line.text().trim().to_owned();
        let chosen = names.and_then(|names| names.pattern(*self.found.get(self.at)?));
        match (chosen, text.is_empty()) {
            // Without a text or a selection, there is nothing to add.
            (Some(_), true) if self.at == 0 => None,
            (Some(pattern), _) => Some(pattern),
            (None, true) => None,
            (None, false) => Some(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        let mut names = Names::default();
        let (app, lib) = (names.module("app"), names.module("libc.so.6"));
        for (n, name) in ["main", "Store::load(int)", "Store::save(int)", "lookup"]
            .iter()
            .enumerate()
        {
            names.push((*name).to_owned(), app, 0x1000 + n as u64);
        }
        names.push("malloc".to_owned(), lib, 0x2000);
        names
    }

    fn typed(text: &str) -> Finder {
        let mut finder = Finder::new();
        for c in text.chars() {
            finder.press(Key::Char(c), Some(&names()));
        }
        finder
    }

    #[test]
    fn part_of_a_name_finds_it() {
        for (text, expected) in [
            ("load", Some("app+0x1001")),
            ("stsave", Some("app+0x1002")),
            ("mloc", Some("libc.so.6+0x2000")),
            ("libc.so*!mal*", Some("libc.so*!mal*")),
            ("0x4711", Some("0x4711")),
            ("nosuch", Some("nosuch")),
            ("", None),
        ] {
            let pattern = typed(text).pattern(Some(&names()));
            assert_eq!(pattern.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn of_names_that_match_as_well_the_shortest_comes_first() {
        let mut names = Names::default();
        let lib = names.module("libc.so.6");
        for name in ["__pthread_mutex_lock_full", "__pthread_mutex_lock"] {
            names.push(name.to_owned(), lib, name.len() as u64);
        }
        let found = names.matching("pthread_mutex_lock", 10);
        let found: Vec<&str> = found.iter().map(|&index| names.get(index).0).collect();
        assert_eq!(found, ["__pthread_mutex_lock", "__pthread_mutex_lock_full"]);
    }

    #[test]
    fn what_is_pasted_is_looked_for_once_and_not_without_end() {
        let names = names();
        let mut finder = Finder::new();
        finder.find(Some(&names));
        assert_eq!(finder.found.len(), names.len());
        for c in "lookup".chars() {
            finder.press(Key::Char(c), Some(&names));
            assert_eq!(finder.found.len(), names.len(), "looked for {c} alone");
        }
        finder.find(Some(&names));
        assert_eq!(finder.found, [3]);
        let long = typed(&"ä".repeat(5000)).line.text();
        assert_eq!(long.len(), 512);
    }

    #[test]
    fn arrows_choose_among_what_is_found() {
        let mut finder = typed("store");
        finder.find(Some(&names()));
        assert_eq!(finder.found.len(), 2);
        finder.press(Key::Down, Some(&names()));
        finder.press(Key::Down, Some(&names()));
        let pattern = finder.pattern(Some(&names()));
        assert_eq!(pattern.as_deref(), Some("app+0x1002"));
    }
}
