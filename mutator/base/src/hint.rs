//! Hints: advice to the user, often with a command to paste.
//!
//! Names in a hint come from files that anyone can write. So [`hint!`] takes a literal and values
//! of types that escape their contents. `String` is not one of these types.

use std::fmt::{self, Write};

use crate::printable::printable;

/// Advice to the user, on one line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hint(String);

/// `hint!("take it out: `{}`", command)`: a [`Hint`] of a literal and [`Part`]s.
///
/// `{name}` does not compile: a captured variable would bypass the type check.
#[macro_export]
macro_rules! made_hint {
    ($text:literal $(, $part:expr)* $(,)?) => {
        // A format string made by a macro cannot capture variables.
        $crate::hint::Hint::of_parts(format_args!(concat!($text) $(, $crate::hint::checked(&$part))*))
    };
}
pub use crate::made_hint as hint;

/// A value that is safe in a hint, whatever the source of its text.
pub trait Part: fmt::Display {}

impl Part for Hint {}
impl Part for CommandLine {}
impl Part for Word<'_> {}
impl Part for Words<'_> {}
impl Part for Cause<'_> {}
impl Part for i32 {}
impl Part for usize {}

/// Returns its argument; compiles for a [`Part`] only.
pub fn checked<P: Part>(part: &P) -> &P {
    part
}

impl Hint {
    /// The function that [`hint!`] expands to.
    pub fn of_parts(parts: fmt::Arguments<'_>) -> Self {
        Self(parts.to_string())
    }

    /// The first `most` of these names, and the number of the others.
    pub fn some_of(names: &[String], most: usize) -> Self {
        let (shown, more) = names.split_at(names.len().min(most));
        match more.len() {
            0 => hint!("{}", Words(shown)),
            more => hint!("{} and {} more", Words(shown), more),
        }
    }

    /// The text of the hint.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&'static str> for Hint {
    fn from(text: &'static str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A command to paste into a shell. Each argument reaches the program as it was given here, except
/// that control characters are escaped as in all output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine(String);

impl CommandLine {
    /// `ipath` with words that need no quoting, for example a subcommand and a placeholder.
    pub fn ipath(words: &'static str) -> Self {
        Self(format!("ipath {words}"))
    }

    /// Appends the id of a process.
    pub fn pid(self, pid: impl Into<i32>) -> Self {
        Self(format!("{} {}", self.0, pid.into()))
    }

    /// Appends words that need no quoting.
    pub fn with(self, words: &'static str) -> Self {
        Self(format!("{} {words}", self.0))
    }

    /// Appends an option whose value is a share, as a percentage.
    pub fn share(self, option: &'static str, share: f64) -> Self {
        // Multiplying by 100 alone would show the inexact digits of 0.07.
        let percent = (share * 1e8).round() / 1e6;
        Self(format!("{} {option} {percent}%", self.0))
    }

    /// Appends a file's name.
    pub fn file(self, name: &str) -> Self {
        // clap reads a name that begins with `-` as an option.
        let folder = if name.starts_with('-') { "./" } else { "" };
        Self(format!("{} {}", self.0, Word(&format!("{folder}{name}"))))
    }

    /// Appends a program and its arguments.
    pub fn program(self, exe: &str, args: &[String]) -> Self {
        let args = args.iter().map(|arg| format!(" {}", Word(arg)));
        Self(format!(
            "{} {}{}",
            self.0,
            Word(exe),
            args.collect::<String>()
        ))
    }

    /// Appends `-f` and a pattern.
    pub fn func(self, pattern: &str) -> Self {
        // clap reads `-f -x` as two options.
        let separator = if pattern.starts_with('-') { '=' } else { ' ' };
        Self(format!("{} -f{separator}{}", self.0, quoted(pattern)))
    }
}

impl fmt::Display for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A name as one shell word, quoted unless it is plain.
#[derive(Clone, Copy, Debug)]
pub struct Word<'t>(pub &'t str);

impl fmt::Display for Word<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:,+@".contains(c);
        if !self.0.is_empty() && self.0.chars().all(is_plain) {
            f.write_str(self.0)
        } else {
            f.write_str(&quoted(self.0))
        }
    }
}

/// Names separated by commas, each shown as a [`Word`].
#[derive(Clone, Copy, Debug)]
pub struct Words<'t>(pub &'t [String]);

impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, name) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{}", Word(name))?;
        }
        Ok(())
    }
}

/// Text of another program or library on one line, for example an error message.
#[derive(Clone, Copy, Debug)]
pub struct Cause<'t>(pub &'t str);

impl fmt::Display for Cause<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<_> = self.0.split_whitespace().collect();
        f.write_str(&printable(&words.join(" ")))
    }
}

/// `text` in single quotes. A POSIX shell expands nothing between them, and an interactive bash
/// performs no history expansion (`!`) there.
fn quoted(text: &str) -> String {
    let mut word = String::from("'");
    for c in printable(text).chars() {
        // Writing to a string cannot fail.
        let _ = match c {
            '\'' => word.write_str("'\\''"),
            c => word.write_char(c),
        };
    }
    word.push('\'');
    word
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::process::Command;

    /// The arguments that a shell passes to a command.
    fn arguments(line: &str) -> Vec<String> {
        let script = format!("ipath() {{ printf '%s\\0' \"$@\"; }}; {line}");
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        assert!(output.status.success(), "{line}");
        let text = String::from_utf8(output.stdout).unwrap();
        text.split_terminator('\0').map(str::to_owned).collect()
    }

    #[test]
    fn a_pasted_command_has_one_argument_for_a_name() {
        for name in [
            "x'; touch SHELLPWN; echo '",
            "$(id)`id`\\",
            "a b\tc\nd",
            "!! *?[a] ~ {a,b} # &| <>",
            "--yes",
            "",
            "\u{202e}x\x1b]0;y\x07",
        ] {
            let line = CommandLine::ipath("attach").pid(7).func(name);
            let given = arguments(&line.to_string());
            assert_eq!(&given[..2], ["attach", "7"]);
            let shown = printable(name);
            if name.starts_with('-') {
                assert_eq!(&given[2..], [format!("-f={shown}")])
            } else {
                assert_eq!(&given[2..], ["-f", &shown])
            }
        }
    }

    #[test]
    fn plain_names_are_shown_as_they_are() {
        let names = ["std::vec::f", "libc.so.6", "f(long)", "a!b"].map(str::to_owned);
        let hint = hint!("did you mean {}?", Words(&names));
        assert_eq!(
            hint.as_str(),
            "did you mean std::vec::f, libc.so.6, 'f(long)', 'a!b'?"
        );
    }

    #[test]
    fn a_cause_is_one_line() {
        let hint = hint!("{}: {}", Word("/a b"), Cause("no\nsuch\x1b  file"));
        assert_eq!(hint.as_str(), "'/a b': no such\\x1b file");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn any_name_is_one_word(name in any::<String>()) {
            let line = format!("ipath {}", Word(&name));
            prop_assert!(!line.contains(crate::printable::is_active));
            prop_assert_eq!(arguments(&line), [printable(&name).into_owned()]);
        }
    }
}
