//! Globs: `*` for any text, `?` for any one character.

use regex::Regex;

/// A compiled glob.
#[derive(Clone, Debug)]
pub(super) struct Glob(Regex);

impl Glob {
    /// Compiles a glob. Fails if it is too long.
    pub(super) fn new(glob: &str) -> Result<Self, regex::Error> {
        let mut text = r"(?s)\A".to_owned();
        for piece in glob.split_inclusive(['*', '?']) {
            let letters = piece.trim_end_matches(['*', '?']);
            text += &regex::escape(letters);
            text += match &piece[letters.len()..] {
                "*" => ".*",
                "?" => ".",
                _ => "",
            };
        }
        Regex::new(&(text + r"\z")).map(Self)
    }

    /// True if the whole of `text` matches.
    pub(super) fn matches(&self, text: &str) -> bool {
        self.0.is_match(text)
    }
}
