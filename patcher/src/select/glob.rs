//! Globs: `*` for any text, `?` for any one character.

use regex::Regex;

use super::pattern::wildcards;

/// A compiled glob.
#[derive(Clone, Debug)]
pub(super) struct Glob(Regex);

impl Glob {
    /// Compiles a glob. Fails if it is too long.
    pub(super) fn new(glob: &str) -> Result<Self, regex::Error> {
        let mut text = r"(?s)\A".to_owned();
        let mut end = 0;
        for at in wildcards(glob) {
            text += &regex::escape(&glob[end..at]);
            end = at + 1;
            // A glob with many stars in a row compiles like one with a single star.
            match &glob[at..end] {
                "*" if text.ends_with(".*") => {}
                "*" => text += ".*",
                _ => text += ".",
            }
        }
        text += &regex::escape(&glob[end..]);
        Regex::new(&(text + r"\z")).map(Self)
    }

    /// True if the whole of `text` matches.
    pub(super) fn matches(&self, text: &str) -> bool {
        self.0.is_match(text)
    }
}
