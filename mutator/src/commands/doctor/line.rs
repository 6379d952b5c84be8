//! What `doctor` says, line by line.

use ipath_base::hint::Hint;

/// Whether a thing is as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Pass,
    Warn,
    Fail,
}

/// What is said of one thing, and what mends it.
pub(super) struct Line {
    pub(super) verdict: Verdict,
    pub(super) what: String,
    pub(super) mend: Hint,
}

pub(super) fn line(verdict: Verdict, what: impl Into<String>, mend: impl Into<Hint>) -> Line {
    Line {
        verdict,
        what: what.into(),
        mend: mend.into(),
    }
}
