//! Globs: `*` for any text, `?` for any one character.

use regex::Regex;

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

/// True if a name is followed by a complete argument list, and no wildcard by that: `f(char*)`,
/// but not `f(ch*` and `f(char*)*`.
pub(super) fn is_signature(text: &str) -> bool {
    let text = without_words(text);
    let is_open = text.matches('(').count() > text.matches(')').count();
    let after = text.rsplit_once(')').map(|(_, after)| after);
    !is_open && after.is_some_and(|after| !after.contains(['*', '?']))
}

/// The offsets of the wildcards in a glob. In a [signature](is_signature), a `*` that belongs to a
/// type or to the name of an operator is none. In brackets, only one that stands for a whole
/// parameter is a wildcard: `f(int, *)`.
pub(super) fn wildcards(glob: &str) -> Vec<usize> {
    let all = glob.match_indices(['*', '?']).map(|(at, _)| at);
    if !is_signature(glob) {
        return all.collect();
    }
    let is_wildcard = |&at: &usize| {
        let (before, after) = (&glob[..at], &glob[at + 1..]);
        let is_in_brackets = [('(', ')'), ('<', '>')].iter().any(|&(opening, closing)| {
            before.matches(opening).count() > before.matches(closing).count()
        });
        if is_in_brackets {
            // ` (` begins a pointer to a function: `f(void (*)(int))`.
            let begins = before.ends_with([',', '<']) || before.ends_with(", ");
            let begins = begins || before.ends_with('(') && !before.ends_with(" (");
            return begins && after.starts_with([',', ')', '>']);
        }
        // A result such as `int*` ends in a space.
        let is_operator = before
            .trim_end_matches(['*', '-', '>'])
            .ends_with("operator");
        !is_operator && !after.trim_start_matches('*').starts_with([' ', '&'])
    };
    all.filter(is_wildcard).collect()
}

/// `text` without the names that contain parentheses.
pub(super) fn without_words(text: &str) -> String {
    text.replace("(anonymous namespace)", "")
        .replace("operator()", "")
}
