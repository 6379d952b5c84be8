//! Errors as the user sees them: one line, and a hint if there is one.

use std::fmt;

use ipath_base::hint::{Cause, Hint, hint};

/// The line `OPERATION SUBJECT: CAUSE`, with an optional hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    line: String,
    hint: Option<Hint>,
    is_internal: bool,
    /// The exit status of the command.
    status: u8,
}

/// The exit status after a failure.
const FAILED: u8 = 1;
/// The exit status after a wrong command line, equal to the one of clap.
pub const USAGE: u8 = 2;

impl Failure {
    /// A failure of an operation on a subject.
    pub fn new(operation: &str, subject: impl fmt::Display, cause: impl fmt::Display) -> Self {
        Self {
            line: one_line(&format!("{operation} {subject}: {cause}")),
            hint: None,
            is_internal: false,
            status: FAILED,
        }
    }

    /// A failure of an operation. The cause names the subject, and may begin with the operation.
    pub fn of(operation: &str, cause: impl fmt::Display) -> Self {
        let cause = cause.to_string();
        let rest = cause.strip_prefix(operation).unwrap_or(&cause);
        Self {
            line: one_line(&format!("{operation} {rest}")),
            hint: None,
            is_internal: false,
            status: FAILED,
        }
    }

    /// A failure caused by a bug in this program.
    pub fn internal(operation: &str, cause: impl fmt::Display) -> Self {
        Self {
            is_internal: true,
            ..Self::new("internal error in", operation, cause)
        }
    }

    /// Replaces the subject, if the line is about `subject`.
    pub fn about(self, subject: impl fmt::Display, other: impl fmt::Display) -> Self {
        let (subject, other) = (format!(" {subject}: "), format!(" {other}: "));
        Self {
            line: self.line.replacen(&subject, &other, 1),
            ..self
        }
    }

    /// Marks the failure as an invalid command line, which sets the exit status.
    pub fn usage(self) -> Self {
        self.with_status(USAGE)
    }

    /// Sets the exit status, for example to that of the program that was to be measured.
    pub fn with_status(self, status: u8) -> Self {
        Self { status, ..self }
    }

    /// The exit status of the command.
    pub fn status(&self) -> u8 {
        self.status
    }

    /// True for a bug in this program.
    pub fn is_internal(&self) -> bool {
        self.is_internal
    }

    /// Sets a hint for the user, in place of the present one.
    pub fn hint(mut self, hint: impl Into<Hint>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Inserts a hint before the present one.
    pub fn hint_first(mut self, first: Hint) -> Self {
        self.hint = Some(match self.hint {
            Some(second) => hint!("{}; {}", first, second),
            None => first,
        });
        self
    }

    /// Like [`hint`](Self::hint). `None` changes nothing.
    pub fn maybe_hint(self, hint: Option<Hint>) -> Self {
        match hint {
            Some(hint) => self.hint(hint),
            None => self,
        }
    }

    /// The line with the hint in brackets, for lists of failures.
    pub fn in_one_line(&self) -> String {
        match &self.hint {
            Some(hint) => format!("{} ({hint})", self.line),
            None => self.line.clone(),
        }
    }

    /// The hint on what to do about the failure. `None` if there is none.
    pub fn hint_text(&self) -> Option<&str> {
        self.hint.as_ref().map(Hint::as_str)
    }
}

/// Makes untrusted text safe for a terminal and puts it on one line.
fn one_line(text: &str) -> String {
    Cause(text).to_string()
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;
    use ipath_base::hint::hint;

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
        assert!(
            !failure
                .to_string()
                .contains(ipath_base::printable::is_active)
        );
    }
}
