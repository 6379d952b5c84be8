//! Errors as a user meets them: one line, and where useful a hint.

use std::fmt;
use std::io;

/// `OPERATION SUBJECT: CAUSE`, with a hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    line: String,
    hint: Option<String>,
}

impl Failure {
    /// An operation on a subject failed for a cause.
    pub fn new(operation: &str, subject: impl fmt::Display, cause: impl fmt::Display) -> Self {
        Self {
            line: one_line(&format!("{operation} {subject}: {cause}")),
            hint: None,
        }
    }

    /// An operation failed, its subject being named in the cause, and maybe the operation too.
    pub fn of(operation: &str, cause: impl fmt::Display) -> Self {
        let cause = cause.to_string();
        let rest = cause.strip_prefix(operation).unwrap_or(&cause);
        Self {
            line: one_line(&format!("{operation} {rest}")),
            hint: None,
        }
    }

    /// With what the user can do.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(one_line(&hint.into()));
        self
    }

    /// With what the user can do, if there is something.
    pub fn maybe_hint(self, hint: Option<String>) -> Self {
        match hint {
            Some(hint) => self.hint(hint),
            None => self,
        }
    }

    /// The hint.
    pub fn hint_text(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

impl std::error::Error for Failure {}

/// An I/O error in the words of strerror(3), without Rust's "(os error N)".
pub fn io_text(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(errno) => nix::errno::Errno::from_raw(errno).desc().to_lowercase(),
        None => error.to_string(),
    }
}
