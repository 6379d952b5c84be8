//! Lines of `doctor`'s output.

use ipath_base::hint::Hint;

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Pass,
    Warn,
    Fail,
}

/// A check's result, its text and the remedy, which may be empty.
pub(super) struct Line {
    pub(super) verdict: Verdict,
    pub(super) what: String,
    /// The remedy. It is printed unless the check passes.
    pub(super) mend: Hint,
}

pub(super) fn line(verdict: Verdict, what: impl Into<String>, mend: impl Into<Hint>) -> Line {
    Line {
        verdict,
        what: what.into(),
        mend: mend.into(),
    }
}
