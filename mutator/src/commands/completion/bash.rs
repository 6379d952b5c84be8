//! Bash, which splits words at colons and equals signs and shows nothing beside candidates.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::Path;

use clap::Command;
use clap_complete::engine::{CompletionCandidate, complete};
use clap_complete::env::{self, EnvCompleter};

use super::candidates::is_safe;

/// The script of `clap_complete`, with candidates that bash takes.
pub(super) struct Bash;

/// The environment variable in which the script passes the word at the cursor with its quotes. The
/// script of `clap_complete` passes the word without an opening quote.
const WORD: &str = "_IPATH_WORD";
/// The text of the script of `clap_complete` before which [`WORD`] is set.
const FIRST: &str = "_CLAP_IFS=\"$IFS\"";

/// The values of COMP_TYPE (bash(1)) for which bash inserts candidates: one after the other, or
/// all.
const INSERTED: [&str; 2] = ["37", "42"];

impl EnvCompleter for Bash {
    fn name(&self) -> &'static str {
        "bash"
    }

    fn is(&self, name: &str) -> bool {
        name == self.name()
    }

    fn write_registration(
        &self,
        var: &str,
        name: &str,
        bin: &str,
        completer: &str,
        buf: &mut dyn Write,
    ) -> io::Result<()> {
        let mut script = Vec::new();
        env::Bash.write_registration(var, name, bin, completer, &mut script)?;
        let script = String::from_utf8_lossy(&script);
        let (before, after) = script.split_once(FIRST).ok_or(io::ErrorKind::Unsupported)?;
        write!(
            buf,
            "{before}{WORD}=\"${{COMP_WORDS[COMP_CWORD]}}\" {FIRST}{after}"
        )
    }

    fn write_complete(
        &self,
        command: &mut Command,
        words: Vec<OsString>,
        here: Option<&Path>,
        buf: &mut dyn Write,
    ) -> io::Result<()> {
        let told = |name: &str| std::env::var(name).unwrap_or_default();
        let index = told("_CLAP_COMPLETE_INDEX").parse().unwrap_or(0);
        let (words, index) = joined(with_breaks(words, index, &told(WORD)), index);
        let current = words.get(index).cloned().unwrap_or_default();
        let current = current.to_string_lossy().into_owned();
        let found = complete(command, words, index, here)?;
        let is_shown = found.len() > 1 && !INSERTED.contains(&&*told("_CLAP_COMPLETE_COMP_TYPE"));
        let separator = told("_CLAP_IFS");
        let is_open = told(WORD).starts_with(['\'', '"']);
        let lines = found
            .iter()
            .map(|one| line(one, &current, is_shown, is_open));
        let lines: Vec<String> = lines.collect();
        buf.write_all(lines.join(&separator).as_bytes())
    }
}

/// Characters at which bash splits words (COMP_WORDBREAKS) and that are part of arguments.
const BREAKS: [char; 2] = [':', '='];

fn are_breaks(word: &OsStr) -> bool {
    let mut bytes = word.as_encoded_bytes().iter();
    !word.is_empty() && bytes.all(|&byte| BREAKS.contains(&char::from(byte)))
}

/// The words with the breaks at the cursor. `word` is bash's word at the cursor (`COMP_WORDS`). The
/// script passes the text that bash replaces, which is empty after breaks.
fn with_breaks(mut words: Vec<OsString>, index: usize, word: &str) -> Vec<OsString> {
    let is_break = are_breaks(OsStr::new(word));
    if let Some(empty) = words.get_mut(index).filter(|w| is_break && w.is_empty()) {
        *empty = word.into();
    }
    words
}

/// The words without the breaks at colons and behind options, and the new index of the word at
/// `index`.
fn joined(words: Vec<OsString>, index: usize) -> (Vec<OsString>, usize) {
    let is_option = |word: &OsString| word.as_encoded_bytes().starts_with(b"--");
    let mut all: Vec<OsString> = Vec::new();
    let mut place = index;
    let mut is_open = false;
    for (i, word) in words.into_iter().enumerate() {
        let is_colons = are_breaks(&word) && !word.as_encoded_bytes().contains(&b'=');
        let is_value = are_breaks(&word) && !is_colons && all.last().is_some_and(is_option);
        let goes_on = is_open || is_colons || is_value;
        is_open = is_colons || is_value;
        match all.last_mut().filter(|_| goes_on) {
            Some(last) => last.push(&word),
            None => all.push(word),
        }
        if i == index {
            place = all.len() - 1;
        }
    }
    (all, place)
}

/// The text to insert for a candidate, from the word's last break on, because bash replaces that
/// part. Behind an open quote bash replaces everything from the quote on, and no character needs a
/// backslash. If several candidates are listed, an id is followed by the name of its process: bash
/// then inserts only their common prefix.
fn line(candidate: &CompletionCandidate, current: &str, is_shown: bool, is_open: bool) -> String {
    let value = candidate.get_value().to_string_lossy();
    if is_open {
        let option = value.split_once('=').filter(|_| value.starts_with("--"));
        return option.map_or(&*value, |(_, argument)| argument).to_owned();
    }
    let before = current.rfind(BREAKS).map_or(0, |at| at + 1);
    let rest = value.get(before..).unwrap_or(&value);
    let is_id = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
    match candidate.get_help() {
        Some(help) if is_shown && is_id => format!("{rest}  ({help})"),
        _ => escaped(rest),
    }
}

/// Puts a backslash before each character that is special to a shell.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if !is_safe(c) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_joined_at_colons() {
        let of = |words: &[&str], index| {
            let words = words.iter().map(OsString::from).collect();
            let (words, index) = joined(words, index);
            let words: Vec<_> = words
                .into_iter()
                .map(|w| w.into_string().unwrap())
                .collect();
            (words.join(" "), index)
        };
        assert_eq!(
            of(&["a", "-f", "b", "::", "c"], 4),
            ("a -f b::c".to_owned(), 2)
        );
        assert_eq!(
            of(&["a", "-f", "b", "::", ""], 4),
            ("a -f b::".to_owned(), 2)
        );
        assert_eq!(of(&["a", "b", ""], 2), ("a b ".to_owned(), 2));
        let words = ["a", "b", ""].map(OsString::from).to_vec();
        assert_eq!(with_breaks(words.clone(), 2, "::")[2], "::");
        assert_eq!(with_breaks(words, 2, "")[2], "");
        assert_eq!(
            of(&["a", "--func", "=", "b", "::", ""], 5),
            ("a --func=b::".to_owned(), 1)
        );
        assert_eq!(of(&["a", "--func", "="], 2), ("a --func=".to_owned(), 1));
        // For the name of an operator, bash provides only the part behind the sign.
        assert_eq!(of(&["a", "operator", "=", "b"], 3).1, 3);
    }

    #[test]
    fn an_id_has_its_name_beside_it_in_a_list_alone() {
        let one = CompletionCandidate::new("42").help(Some("redis".into()));
        assert_eq!(line(&one, "4", true, false), "42  (redis)");
        assert_eq!(line(&one, "4", false, false), "42");
        let named = CompletionCandidate::new("a::b").help(Some("x".into()));
        assert_eq!(line(&named, "a::", true, false), "b");
        let option = CompletionCandidate::new("--func=a::b c");
        assert_eq!(line(&option, "--func=a::", false, false), r"b\ c");
        assert_eq!(line(&option, "--func=", false, false), r"a::b\ c");
        assert_eq!(line(&option, "--func=a::", false, true), "a::b c");
        let template = CompletionCandidate::new("a::b<int, c>");
        assert_eq!(line(&template, "a::", false, false), r"b\<int,\ c\>");
        assert_eq!(line(&template, "a::", false, true), "a::b<int, c>");
    }
}
