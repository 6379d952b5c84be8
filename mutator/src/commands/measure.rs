//! What a user wants measured, checked.

use patcher::select::Pattern;

use crate::cli::{Measure, Patterns};
use crate::error::Failure;
use crate::report::human;
use crate::session::{Changed, Elsewhere, Metric, Options, Selection, none_patched};

/// More functions than this need `--yes`.
pub(super) const MANY: usize = 64;

/// The patterns of a command line.
pub(super) fn patterns(operation: &str, texts: &[String]) -> Result<Vec<Pattern>, Failure> {
    let parse = |text: &String| {
        Pattern::parse(text).map_err(|e| Failure::new(operation, format!("-f '{text}'"), e))
    };
    texts.iter().map(parse).collect()
}

/// The options of a session.
pub(super) fn options(operation: &str, measure: &Measure) -> Result<Options, Failure> {
    let mut metrics = Vec::new();
    for name in &measure.metric {
        let metric = match name.trim() {
            "count" => continue,
            "wall" => Metric::Wall,
            "cycles" => Metric::Cycles,
            other => {
                let cause = "not a metric this version has";
                return Err(Failure::new(operation, format!("-m {other}"), cause)
                    .hint("there are count, wall and cycles"));
            }
        };
        if !metrics.contains(&metric) {
            metrics.push(metric);
        }
    }
    Ok(Options {
        metrics,
        max_paths: measure.max_paths,
        depth: measure.depth.unwrap_or(0),
        collapse_recursion: measure.collapse_recursion,
        per_thread: measure.per_thread,
        no_system_calls: measure.no_system_calls,
    })
}

/// Refuses a selection in which nothing can be instrumented, or more than the user may have meant.
pub(super) fn check(
    operation: &str,
    subject: &str,
    patterns: &Patterns,
    selection: &Selection,
) -> Result<(), Failure> {
    if let Some(unmatched) = selection.unmatched.first() {
        let failure = unmatched.failure(operation, subject);
        let unreadable = selection.unreadable.first();
        return Err(match unreadable.filter(|_| unmatched.near.is_empty()) {
            Some((path, cause)) => failure.hint(format!("{path} could not be read: {cause}")),
            None => failure,
        });
    }
    let count = selection.candidates.len();
    if count > MANY && !patterns.yes {
        return Err(
            Failure::new(operation, subject, format!("{count} functions match"))
                .hint("give --yes to instrument them all"),
        );
    }
    let refused = selection
        .candidates
        .iter()
        .filter_map(|c| Some((c.name.clone(), c.plan.refused()?.1.to_string())));
    let refused: Vec<_> = refused.collect();
    if refused.len() == count {
        let cause = none_patched(&refused);
        return Err(Failure::new(operation, subject, cause));
    }
    Ok(())
}

/// Says on standard error what was refused, and what will be slow.
pub(super) fn tell_refused(changed: &Changed) {
    for (name, reason) in &changed.refused {
        super::warn(&format!("{name}: not instrumented: {reason}"));
    }
    for name in &changed.trapped {
        super::warn(&format!(
            "{name}: instrumented by breakpoints, a microsecond or more each"
        ));
    }
    for path in &changed.unfollowed {
        super::warn(&unfollowed(path));
    }
    let partly = changed.partly.iter().take(MANY);
    for line in partly.filter_map(partly_counted) {
        super::warn(&line);
    }
    if let Some(more) = changed.partly.len().checked_sub(MANY).filter(|&n| n > 0) {
        super::warn(&format!(
            "{more} more functions of which not every call is counted"
        ));
    }
}

/// Says that not every call of a function is counted.
pub(super) fn partly_counted((name, elsewhere): &(String, Elsewhere)) -> Option<String> {
    let clones = elsewhere.clones.iter().map(String::as_str);
    Some(format!(
        "{name}: {}",
        human::elsewhere(clones, elsewhere.inlined)?
    ))
}

/// What it means for the functions of this file that Go may move the stacks they run on.
pub(super) fn unfollowed(path: &str) -> String {
    format!(
        "{path}: goroutine stacks that move cannot be followed: times may be wrong, counts are not"
    )
}
