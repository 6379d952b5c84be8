//! Errors as a user meets them: one line, and where useful a hint.

use std::fmt;
use std::io;

use crate::hint::{Cause, Hint, hint};

/// `OPERATION SUBJECT: CAUSE`, with a hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    line: String,
    hint: Option<Hint>,
    is_internal: bool,
    is_usage: bool,
}

/// The exit status after a failure.
const FAILED: u8 = 1;
/// The exit status after a wrong command line, equal to the one of clap.
pub const USAGE: u8 = 2;

impl Failure {
    /// An operation on a subject failed for a cause.
    pub fn new(operation: &str, subject: impl fmt::Display, cause: impl fmt::Display) -> Self {
        Self {
            line: one_line(&format!("{operation} {subject}: {cause}")),
            hint: None,
            is_internal: false,
            is_usage: false,
        }
    }

    /// An operation failed, its subject being named in the cause, and maybe the operation too.
    pub fn of(operation: &str, cause: impl fmt::Display) -> Self {
        let cause = cause.to_string();
        let rest = cause.strip_prefix(operation).unwrap_or(&cause);
        Self {
            line: one_line(&format!("{operation} {rest}")),
            hint: None,
            is_internal: false,
            is_usage: false,
        }
    }

    /// A defect of this program showed in an operation.
    pub fn internal(operation: &str, cause: impl fmt::Display) -> Self {
        Self {
            is_internal: true,
            ..Self::new("internal error in", operation, cause)
        }
    }

    /// The same of another subject, where its line begins with an operation on this one.
    pub fn about(self, subject: impl fmt::Display, other: impl fmt::Display) -> Self {
        let (subject, other) = (format!(" {subject}: "), format!(" {other}: "));
        Self {
            line: self.line.replacen(&subject, &other, 1),
            ..self
        }
    }

    /// The command line itself is wrong, whatever it is about.
    pub fn usage(self) -> Self {
        Self {
            is_usage: true,
            ..self
        }
    }

    /// The exit status of the command.
    pub fn status(&self) -> u8 {
        if self.is_usage { USAGE } else { FAILED }
    }

    /// True for a defect of this program.
    pub fn is_internal(&self) -> bool {
        self.is_internal
    }

    /// With what the user can do.
    pub fn hint(mut self, hint: impl Into<Hint>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds a hint before the present one.
    pub fn hint_first(mut self, first: Hint) -> Self {
        self.hint = Some(match self.hint {
            Some(second) => hint!("{}; {}", first, second),
            None => first,
        });
        self
    }

    /// With what the user can do, if there is something.
    pub fn maybe_hint(self, hint: Option<Hint>) -> Self {
        match hint {
            Some(hint) => self.hint(hint),
            None => self,
        }
    }

    /// The line and the hint in one, for where it is one of several.
    pub fn in_one_line(&self) -> String {
        match &self.hint {
            Some(hint) => format!("{} ({hint})", self.line),
            None => self.line.clone(),
        }
    }

    /// The hint.
    pub fn hint_text(&self) -> Option<&str> {
        self.hint.as_ref().map(Hint::as_str)
    }
}

/// Text that may be anybody's, on one line and harmless to a terminal.
fn one_line(text: &str) -> String {
    Cause(text).to_string()
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

impl std::error::Error for Failure {}

/// Where a shorter or plainer word than that of strerror(3) is shown.
const WORDS: [(i32, &str); 5] = [
    (libc::EAGAIN, "try again"),
    (libc::EBADF, "bad file number"),
    (libc::EIO, "i/o error"),
    (libc::ELOOP, "too many symbolic links encountered"),
    (libc::ENOMEM, "out of memory"),
];

/// An I/O error in words, those of strerror(3) but for some, without Rust's "(os error N)".
pub fn io_text(error: &io::Error) -> String {
    let number = error.raw_os_error();
    if let Some((_, words)) = WORDS.iter().find(|(known, _)| Some(*known) == number) {
        return (*words).to_owned();
    }
    let text = error.to_string();
    let words = text.split_once(" (os error ").filter(|_| number.is_some());
    words.map_or(text.clone(), |(words, _)| words.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hint::hint;

    #[test]
    fn a_failure_is_one_line_that_no_terminal_obeys() {
        let name = "ev\x1b]0;il\x07\nipath: all is well";
        let failure =
            Failure::new("attach", name, "no \u{202e}such thing").hint(hint!("{}", Cause(name)));
        let line = "attach ev\\x1b]0;il\\x07 ipath: all is well: no \\u{202e}such thing";
        assert_eq!(failure.to_string(), line);
        assert_eq!(
            failure.hint_text(),
            Some("ev\\x1b]0;il\\x07 ipath: all is well")
        );
        let both = format!("{line} (ev\\x1b]0;il\\x07 ipath: all is well)");
        assert_eq!(failure.in_one_line(), both);
        let failure = Failure::of("attach", format!("attach {name}: gone"));
        assert!(!failure.to_string().contains(crate::printable::is_active));
    }
}
