//! Remarks on a whole profile.

use crate::profile::{Profile, printable, unseen_phrases};

/// The losses and the notes of a profile, one sentence each.
pub(super) fn notes(profile: &Profile) -> Vec<String> {
    let losses = &profile.losses;
    let beyond = format!(
        "calls are without their own path ({})",
        losses.overflow_reasons()
    );
    let counted = [
        (losses.missed, "calls could not be recorded"),
        (losses.overflow, &*beyond),
        (losses.incomplete, "calls are on incomplete paths"),
        (
            losses.unwound.unwrap_or(0),
            "calls ended by an exception or longjmp",
        ),
        (losses.open.unwrap_or(0), "calls were still running"),
        (
            profile.tail_calls(),
            "calls left by a tail call, timed without its callee",
        ),
    ];
    let counted = counted.iter().filter(|(n, _)| *n > 0);
    let counted = counted.map(|(n, what)| format!("{n} {what}"));
    let said = profile.said();
    counted
        .chain(unseen_phrases(&losses.unseen))
        .chain(said.map(|note| printable(&note).into_owned()))
        .collect()
}
