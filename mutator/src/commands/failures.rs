//! Errors of the lower crates for users: `OPERATION SUBJECT: CAUSE`, with advice.

mod process;
mod session;
mod unmatched;

pub(super) use process::ProcessFailure;
pub(super) use session::{SessionFailure, instead, unmeasured};
pub(super) use unmatched::UnmatchedFailure;
