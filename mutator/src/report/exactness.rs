//! What of a profile is not exact, in words.

use super::human;
use crate::profile::{Profile, printable, unseen_phrases};
use std::cmp::Reverse;
use std::io::{self, Write};

/// What is not exact, a phrase each; empty where nothing was lost. All reports and views decide by this alone whether they
/// may say so.
///
/// Activations that still run are not lost: they stand on their paths, and have no time yet.
pub fn loss_lines(profile: &Profile) -> Vec<String> {
    let losses = &profile.losses;
    let counts = [
        (losses.missed, "not recorded".to_owned()),
        (
            losses.overflow,
            "without their own path (limit of paths reached)".to_owned(),
        ),
        (losses.incomplete, "on incomplete paths".to_owned()),
        (
            profile.tail_calls(),
            "left by a tail call, timed without what that called".to_owned(),
        ),
    ];
    let is_timed = profile.timers().next().is_some();
    let unwound = losses.unwound.filter(|_| is_timed).unwrap_or(0);
    let unwound = (
        unwound,
        "left by an exception or longjmp, not timed".to_owned(),
    );
    let unmeasured = (
        profile.unmeasured(),
        "not measured by every metric".to_owned(),
    );
    let all = counts.into_iter().chain([unwound, unmeasured]);
    all.filter(|(n, _)| *n > 0)
        .map(|(n, what)| {
            // Those not recorded are in no total.
            let all = profile.calls().saturating_add(losses.missed);
            let share = human::share(n.into(), all.into());
            format!("{} {what} ({share})", human::count(n, "call"))
        })
        .chain(unseen_phrases(&losses.unseen))
        .collect()
}

/// What is not exact, or that all is.
pub(super) fn write(profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    let lines = loss_lines(profile);
    if lines.is_empty() && profile.calls() == 0 {
        return writeln!(
            out,
            "\nNothing was lost, and no call was made: one that had begun before is not seen."
        );
    }
    if lines.is_empty() {
        return writeln!(
            out,
            "\nNothing was lost: every call stands on its complete path."
        );
    }
    writeln!(out, "\nNot exact:")?;
    for line in &lines {
        writeln!(out, "  {line}")?;
    }
    let mut causes: Vec<_> = profile.losses.causes.iter().collect();
    causes.sort_by_key(|&(_, &n)| Reverse(n));
    if causes.is_empty() {
        return Ok(());
    }
    let causes = causes.iter().map(|(cause, n)| format!("{cause} {n}"));
    let causes = causes.collect::<Vec<_>>().join(", ");
    writeln!(out, "  paths are incomplete by {}", printable(&causes))
}
