//! The losses of a profile, in words.

use super::human;
use crate::display_name;
use crate::profile::{Frame, Function, Profile, Throttling, printable, unseen_phrases};
use patcher::function::demangle;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Phrases for all losses. Empty if nothing was lost: only then do reports and views call the
/// result exact.
///
/// Activations that are still running are not lost. They are on their paths, and have no time yet.
pub fn loss_lines(profile: &Profile) -> Vec<String> {
    loss_lines_beside(profile, false)
}

/// The phrases of [`loss_lines`] beside a table. `is_marked` is true if a shown number is marked
/// `≥`.
pub(super) fn loss_lines_beside(profile: &Profile, is_marked: bool) -> Vec<String> {
    let losses = &profile.losses;
    let is_timed = profile.timers().next().is_some();
    let counts = [
        (losses.missed, "not recorded".to_owned()),
        (
            losses.overflow,
            format!("without their own path ({})", losses.overflow_reasons()),
        ),
        (losses.incomplete, "on incomplete paths".to_owned()),
        (
            profile.tail_calls(),
            match (is_timed, is_marked) {
                (false, _) => "left by a tail call",
                (true, false) => "left by a tail call, timed without its callee",
                (true, true) => "left by a tail call, timed without its callee: marked ≥",
            }
            .to_owned(),
        ),
    ];
    let unwound = losses.unwound.filter(|_| is_timed).unwrap_or(0);
    let unwound = (
        unwound,
        "left by an exception or longjmp, not timed".to_owned(),
    );
    let all = counts.into_iter().chain([unwound]);
    let all = all.chain(unmeasured(profile));
    all.filter(|(n, _)| *n > 0)
        .map(|(n, what)| {
            // Calls that were not recorded are in no total.
            let all = profile.calls().saturating_add(losses.missed);
            let share = human::share(n.into(), all.into());
            format!("{} {what} ({share})", human::count(n, "call"))
        })
        .chain(unseen_phrases(&losses.unseen))
        .chain(unknown(profile))
        .collect()
}

/// The functions whose later calls are not known, because they were taken out to keep the overhead
/// low. `None` if there are none.
fn unknown(profile: &Profile) -> Option<String> {
    let is_out = |f: &&Function| f.throttled.is_some_and(|t| t.how == Throttling::Out);
    let functions = profile.functions.iter().filter(is_out);
    let functions: Vec<(&Function, u64)> = functions.map(|f| (f, 0)).collect();
    (!functions.is_empty()).then(|| {
        let names = names(&functions);
        format!("later calls of throttled functions are not counted: {names}")
    })
}

/// The numbers of calls that were counted but not measured by every metric, with a phrase that
/// names their functions. The first is of functions without an exit, the second of all others.
fn unmeasured(profile: &Profile) -> [(u64, String); 2] {
    let calls = profile.unmeasured_by_function();
    let of = |has_exits: bool| {
        let functions = profile.functions.iter().zip(&calls);
        let functions = functions.filter(|(f, n)| **n > 0 && has_exits != is_without_exit(f));
        let mut functions: Vec<(&Function, u64)> = functions.map(|(f, &n)| (f, n)).collect();
        functions.sort_by_key(|&(_, n)| Reverse(n));
        let sum = functions
            .iter()
            .map(|&(_, n)| n)
            .fold(0, u64::saturating_add);
        (sum, names(&functions))
    };
    let ((without_exit, first), (others, second)) = (of(false), of(true));
    [
        (
            without_exit,
            format!("not timed, as their function has no exit: {first}"),
        ),
        (others, format!("not measured by every metric: {second}")),
    ]
}

/// True if a function was to be timed but has no exit for a probe.
fn is_without_exit(function: &Function) -> bool {
    function.exits.is_empty() && function.measured.is_none()
}

/// The names of the first of `functions`, and the number of the remaining ones.
fn names(functions: &[(&Function, u64)]) -> String {
    const MAX_NAMES: usize = 3;
    const LONGEST: usize = 60;
    let shown = functions.iter().take(MAX_NAMES);
    let shown = shown.map(|(f, _)| printable(&display_name::fit(&f.name, LONGEST)).into_owned());
    let mut names: Vec<String> = shown.collect();
    if let more @ 1.. = functions.len().saturating_sub(MAX_NAMES) {
        names.push(format!("{more} more"));
    }
    names.join(", ")
}

/// The line that states that nothing was lost.
pub(super) const EXACT: &str = "Nothing was lost: every call is on its complete path.";

/// Writes the losses, or a line that says that there are none.
pub(super) fn write(profile: &Profile, is_marked: bool, out: &mut impl Write) -> io::Result<()> {
    let lines = loss_lines_beside(profile, is_marked);
    if lines.is_empty() && profile.calls() == 0 && !profile.inside.is_empty() {
        return writeln!(out, "\nNothing was lost.");
    }
    if lines.is_empty() && profile.calls() == 0 {
        return writeln!(
            out,
            "\nNothing was lost, and no call began: calls that were already running are not seen."
        );
    }
    if lines.is_empty() {
        writeln!(out, "\n{EXACT}")?;
        return write_verdicts(profile, out);
    }
    writeln!(out, "\nNot exact:")?;
    for line in &lines {
        writeln!(out, "  {line}")?;
    }
    let mut causes: Vec<_> = profile.losses.causes.iter().collect();
    causes.sort_by_key(|&(_, &n)| Reverse(n));
    if !causes.is_empty() {
        let causes = causes.iter().map(|(cause, n)| format!("{cause} {n}"));
        let causes = causes.collect::<Vec<_>>().join(", ");
        writeln!(out, "  causes of incomplete paths: {}", printable(&causes))?;
    }
    write_contradictions(profile, out)?;
    write_verdicts(profile, out)
}

/// Writes the call sites that cannot have led to the frame below them, in descending order of
/// calls.
fn write_contradictions(profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    const MAX_SITES: usize = 3;
    let mut edges: BTreeMap<(usize, String), u64> = BTreeMap::new();
    for path in &profile.paths {
        let Some(at) = path.contradicted else {
            continue;
        };
        let below = match at.checked_sub(1) {
            Some(below) => place(&profile.frames[path.stack[below]]),
            None => profile.functions[path.function].name.clone(),
        };
        let calls = edges.entry((path.stack[at], below)).or_default();
        *calls = calls.saturating_add(path.metrics.count);
    }
    let mut edges: Vec<_> = edges.into_iter().collect();
    edges.sort_by_key(|&(_, calls)| Reverse(calls));
    for ((frame, below), calls) in edges.iter().take(MAX_SITES) {
        let line = format!(
            "the call before {} cannot have led to {below}",
            place(&profile.frames[*frame])
        );
        writeln!(
            out,
            "  {} ({})",
            printable(&line),
            human::count(*calls, "call")
        )?;
    }
    match edges.len().saturating_sub(MAX_SITES) {
        0 => Ok(()),
        more => writeln!(out, "  and {} more", human::count(more as u64, "such pair")),
    }
}

/// A frame as function and offset, or as an address.
fn place(frame: &Frame) -> String {
    match (&frame.function, frame.offset) {
        (Some(function), Some(offset)) => format!("{}+{offset:#x}", demangle(function)),
        _ => format!("{:#x}", frame.address),
    }
}

/// Writes the shares of calls by verdict. Writes nothing if no path was checked.
fn write_verdicts(profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    let Some(exactness) = &profile.exactness else {
        return Ok(());
    };
    let all = exactness.calls();
    if all == 0 {
        return Ok(());
    }
    let parts = [
        (exactness.proven, "proven"),
        (exactness.explained, "explained by tail calls"),
        (exactness.possible, "possible (through pointers)"),
        (exactness.contradicted, "contradicted"),
    ];
    let parts = parts.into_iter().filter(|&(calls, _)| calls > 0);
    let parts = parts.map(|(calls, what)| {
        let share = human::share(calls.into(), all.into());
        format!("{share} {what}")
    });
    let parts = parts.collect::<Vec<_>>().join(", ");
    writeln!(out, "Paths checked against the code: {parts}.")
}

#[cfg(test)]
mod tests {
    use super::loss_lines;
    use crate::profile::Profile;
    use crate::sample::sample;

    /// The sample without times for the calls of its first function.
    fn without_times() -> (Profile, String) {
        let mut profile = sample();
        for path in profile.paths.iter_mut().filter(|p| p.function == 0) {
            (path.unwound, path.open) = (None, None);
            for stats in path.metrics.timers.stats_mut() {
                *stats = Default::default();
            }
        }
        let name = profile.functions[0].name.clone();
        (profile, name)
    }

    #[test]
    fn calls_without_a_time_are_listed_by_function_and_reason() {
        let (mut profile, name) = without_times();
        let line = |profile: &Profile, what: &str| {
            let lines = loss_lines(profile).into_iter();
            lines.filter(|line| line.contains(what)).collect::<Vec<_>>()
        };
        profile.functions[0].exits.clear();
        let said = line(&profile, &format!("their function has no exit: {name} ("));
        assert_eq!(said.len(), 1, "{:?}", loss_lines(&profile));
        assert!(line(&profile, "by every metric").is_empty());
        // The function was only counted for some time.
        profile.functions[0].measured = Some(vec!["count".to_owned()]);
        let said = line(&profile, &format!("by every metric: {name} ("));
        assert_eq!(said.len(), 1, "{:?}", loss_lines(&profile));
        assert!(line(&profile, "has no exit").is_empty());
    }
}
