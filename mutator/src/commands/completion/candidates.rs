//! Candidates for the word at the cursor.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use clap_complete::engine::CompletionCandidate;
use patcher::function::demangle_without_arguments;

use crate::cli::Subject;
use crate::commands::named;
use ipath_base::files::FileBytes;
use ipath_base::printable::printable;
use ipath_profile::Profile;
use ipath_session::metric::Metric;
use ipath_symbols::images;
use ipath_target::process::modules::{VDSO, modules};
use ipath_target::process::{Pid, Process};

/// The most candidates to show.
const MAX_CANDIDATES: usize = 1000;
/// Files of at least this size are not searched, since that would delay the prompt. In bytes.
const LARGE: u64 = 256 << 20;

/// The words of the command line, from the name of the program on, without their quotes.
#[derive(Clone, Debug, Default)]
pub(super) struct Words {
    words: Vec<OsString>,
    /// True if the shell's script quotes candidates that need it.
    quotes: bool,
}

impl Words {
    /// The words after `--` in the arguments from a shell's script.
    pub(super) fn of(args: &[OsString], quotes: bool) -> Self {
        let words = args.iter().skip_while(|word| *word != "--").skip(1);
        let words = words.cloned().collect();
        Self { words, quotes }
    }

    /// True if a name can be a candidate.
    fn takes(&self, name: &str) -> bool {
        if self.quotes {
            !name.is_empty() && !name.contains(char::is_control)
        } else {
            is_plain(name)
        }
    }

    /// The name of the command. Empty if there is none.
    fn command(&self) -> &str {
        self.words
            .get(1)
            .and_then(|word| word.to_str())
            .unwrap_or_default()
    }

    /// The process on the command line: given by `-p`, or the first argument that names one. `None`
    /// if no argument names exactly one process.
    fn process(&self) -> Option<Pid> {
        let words = self.words.iter().skip(2).filter_map(|word| word.to_str());
        let mut named = words.filter_map(|word| word.parse::<Subject>().ok());
        named.find_map(|subject| named::pid_of("complete", &subject).ok())
    }

    /// The file of the program that `run` would start. `None` if none is given or found.
    fn program(&self) -> Option<PathBuf> {
        let program = self.words.iter().skip_while(|word| *word != "--").nth(1)?;
        let program = Path::new(program);
        if program.components().count() > 1 {
            return Some(program.to_owned());
        }
        let path = std::env::var_os("PATH")?;
        let mut all = std::env::split_paths(&path).map(|folder| folder.join(program));
        all.find(|file| file.is_file())
    }

    /// The first argument that is an existing file. `None` if there is none.
    fn file(&self) -> Option<PathBuf> {
        let mut words = self.words.iter().skip(2).map(PathBuf::from);
        words.find(|path| path.is_file())
    }

    /// The profile in the first file on the command line. `None` without one that can be read.
    fn profile(&self) -> Option<Profile> {
        Profile::load(&self.file()?).ok()
    }
}

/// The running processes whose ids or names begin with `current`: first ids, with names and
/// arguments beside them, then names.
pub(super) fn processes(current: &OsStr) -> Vec<CompletionCandidate> {
    let current = current.to_string_lossy();
    let running = named::all();
    let names: BTreeSet<String> = running
        .iter()
        .filter_map(|(pid, _)| named::of(*pid))
        .collect();
    let ids = running.iter().map(|(pid, line)| {
        // The name comes first because paths are long.
        let name = named::of(*pid).unwrap_or_default();
        let arguments = line.split_once(' ').map_or("", |(_, arguments)| arguments);
        let shown = printable(format!("{name} {arguments}").trim_end()).into_owned();
        CompletionCandidate::new(pid.to_string()).help(Some(shown.into()))
    });
    // Any user can give a process a name that a shell would execute.
    let names = names.into_iter().filter(|name| is_plain(name));
    let all = ids.chain(names.map(CompletionCandidate::new));
    all.filter(|one| one.get_value().to_string_lossy().starts_with(&*current))
        .take(MAX_CANDIDATES)
        .collect()
}

/// The metrics whose names begin with `current`: those that can be measured here, or those of the
/// profile on the command line.
pub(super) fn metrics(words: &Words, current: &OsStr) -> Vec<CompletionCandidate> {
    let measures = matches!(words.command(), "attach" | "run" | "add" | "remove");
    let of_profile = (!measures).then(|| words.profile()).flatten();
    let names: Vec<String> = match of_profile {
        Some(profile) => profile
            .metrics
            .into_iter()
            .map(|metric| metric.name)
            .collect(),
        None => Metric::all_here(),
    };
    beginning(names, current)
}

/// The functions of the process, the program or the profile that the command line names.
///
/// `-f a,b` completes what follows the last comma.
pub(super) fn functions(words: &Words, current: &OsStr) -> Vec<CompletionCandidate> {
    let current = current.to_string_lossy();
    let (before, last) = current.split_at(last_pattern(&current));
    let mut names = match words.command() {
        "run" => words.program().map(|file| of_file(&file, last)),
        "list" => match words.process() {
            Some(pid) => Some(of_process(pid, last)),
            None => words.file().map(|file| of_file(&file, last)),
        },
        "report" | "diff" => words.profile().map(|profile| of_profile(&profile, last)),
        _ => words.process().map(|pid| of_process(pid, last)),
    }
    .unwrap_or_default();
    names.retain(|name| words.takes(name));
    let names = names.into_iter().take(MAX_CANDIDATES);
    names
        .map(|name| CompletionCandidate::new(format!("{before}{name}")))
        .collect()
}

/// The offset in bytes at which the last pattern in a list begins. A comma inside brackets is part
/// of a name.
fn last_pattern(list: &str) -> usize {
    let (mut start, mut depth) = (0, 0_usize);
    for (at, c) in list.char_indices() {
        match c {
            '<' | '(' | '[' | '{' => depth += 1,
            '>' if list[..at].ends_with('-') => {}
            '>' | ')' | ']' | '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => start = at + 1,
            _ => {}
        }
    }
    start
}

/// A word of the command line without its quotes.
pub(super) fn unquoted(word: &str) -> String {
    let mut text = String::with_capacity(word.len());
    let mut open = None;
    let mut chars = word.chars();
    while let Some(c) = chars.next() {
        match (c, open) {
            ('\\', None | Some('"')) => text.extend(chars.next()),
            ('"' | '\'', None) => open = Some(c),
            (_, Some(quote)) if c == quote => open = None,
            _ => text.push(c),
        }
    }
    text
}

/// True if a shell takes the name literally.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.chars().all(is_safe)
}

/// True if a character is not special to a shell.
pub(super) fn is_safe(c: char) -> bool {
    c.is_alphanumeric() || "_.:@~+-,/".contains(c)
}

fn of_file(path: &Path, start: &str) -> BTreeSet<String> {
    let is_small = fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() < LARGE);
    let bytes = is_small.then(|| FileBytes::open(path).ok()).flatten();
    let image = bytes.and_then(|bytes| images::open(&bytes, path).ok());
    let functions = image.map(|image| image.image().functions().with_name(|_| true));
    let functions = functions.unwrap_or_default();
    let names = functions
        .iter()
        .map(|function| demangle_without_arguments(&function.linkage));
    names.filter(|name| name.starts_with(start)).collect()
}

/// The functions of the program, and of its libraries once a prefix is typed.
fn of_process(pid: Pid, start: &str) -> BTreeSet<String> {
    let Ok(process) = Process::find(pid) else {
        return BTreeSet::new();
    };
    let maps = process.maps().unwrap_or_default();
    let root = PathBuf::from(format!("/proc/{pid}/root"));
    let exe = PathBuf::from(format!("/proc/{pid}/exe"));
    let mut names = of_file(&exe, start);
    if start.is_empty() {
        return names;
    }
    for module in modules(&process, &maps) {
        if module.path != VDSO && names.len() < MAX_CANDIDATES {
            let path = root.join(module.path.trim_start_matches('/'));
            names.extend(of_file(&path, start));
        }
    }
    names
}

fn of_profile(profile: &Profile, start: &str) -> BTreeSet<String> {
    let measured = profile.functions.iter().map(|function| &function.linkage);
    let passed = profile
        .frames
        .iter()
        .filter_map(|frame| frame.function.as_ref());
    let names = measured
        .chain(passed)
        .map(|linkage| demangle_without_arguments(linkage));
    names.filter(|name| name.starts_with(start)).collect()
}

fn beginning(names: Vec<String>, current: &OsStr) -> Vec<CompletionCandidate> {
    let current = current.to_string_lossy();
    let is_it = |name: &String| is_plain(name) && name.starts_with(&*current);
    let names = names.into_iter().filter(is_it);
    names.map(CompletionCandidate::new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_lose_their_quotes() {
        for (word, expected) in [
            ("plain::name", "plain::name"),
            (r"a\<b\,\ c\>", "a<b, c>"),
            ("'a<b, c>'::get", "a<b, c>::get"),
            ("'a<b, ", "a<b, "),
            (r#""a \"b"#, r#"a "b"#),
        ] {
            assert_eq!(unquoted(word), expected);
        }
    }

    #[test]
    fn a_comma_in_brackets_is_part_of_a_name() {
        for (list, last) in [
            ("a,b", "b"),
            ("a<b,c", "a<b,c"),
            ("a<b,c>,d", "d"),
            ("a::operator->,d(e, f", "d(e, f"),
        ] {
            assert_eq!(&list[last_pattern(list)..], last);
        }
    }
}
