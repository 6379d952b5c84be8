//! What a user wants measured, checked.

use patcher::select::{Pattern, Spot};

use super::remarks::warn;
use crate::cli::{Measure, Patterns};
use ipath_base::error::Failure;
use ipath_base::hint::{Cause, CommandLine, Word, hint};
use ipath_profile::merge::PathsOf;
use ipath_profile::{COUNT, printable};
use ipath_session::condition::ConditionError;
use ipath_session::counter::NoEvent;
use ipath_session::metric::Metric;
use ipath_session::session::{
    Candidate, Options, Pointed, Selection, Unmatched, none_measured, none_patched,
};
use ipath_target::process::Pid;

/// More functions than this need `--yes`.
pub(super) const MANY: usize = 64;

/// The patterns of a command line.
pub(super) fn patterns(operation: &str, texts: &[String]) -> Result<Vec<Pattern>, Failure> {
    let parse = |text: &String| {
        Pattern::parse(text).map_err(|e| Failure::new(operation, format!("-f '{text}'"), e).usage())
    };
    texts.iter().map(parse).collect()
}

/// The places of a command line.
pub(super) fn spots(operation: &str, texts: &[String]) -> Result<Vec<Spot>, Failure> {
    let parse = |text: &String| {
        Spot::parse(text).map_err(|e| Failure::new(operation, format!("--at '{text}'"), e).usage())
    };
    texts.iter().map(parse).collect()
}

/// The options of a session. Where there are points alone, nothing but counts is measured.
pub(super) fn options(operation: &str, measure: &Measure) -> Result<Options, Failure> {
    let mut metrics = metrics(operation, &measure.metric)?;
    if !measure.patterns.at.is_empty() && measure.patterns.func.is_empty() {
        if measure.when.is_some() {
            let cause = "conditions are not looked at where points are counted";
            return Err(Failure::new(operation, "--when", cause).usage());
        }
        metrics.clear();
    }
    let condition = measure.when.as_deref().map(str::parse).transpose();
    let condition = condition.map_err(|e: ConditionError| {
        let text = printable(measure.when.as_deref().unwrap_or_default()).into_owned();
        Failure::new(operation, format!("--when '{text}'"), e).usage()
    })?;
    Ok(Options {
        metrics,
        condition,
        max_paths: measure.max_paths,
        depth: measure.depth.unwrap_or(0),
        collapse_recursion: measure.collapse_recursion,
        per_thread: measure.per_thread,
        no_correction: measure.no_correction,
        exit_clock: measure.clock.into(),
        no_system_calls: measure.no_system_calls,
        pending: if measure.pending {
            measure.patterns.func.clone()
        } else {
            Vec::new()
        },
        named: measure.patterns.func.clone(),
        allow_seccomp: measure.allow_seccomp,
        ..Options::default()
    })
}

/// The metrics of these names but the count, each once.
pub(super) fn metrics(operation: &str, names: &[String]) -> Result<Vec<Metric>, Failure> {
    let mut metrics: Vec<Metric> = Vec::new();
    for name in whole(names) {
        let name = name.trim();
        if name == COUNT {
            continue;
        }
        let metric = metric(operation, name)?;
        if !metrics.iter().any(|known| known.name() == metric.name()) {
            metrics.push(metric);
        }
    }
    Ok(metrics)
}

/// The names of metrics that are to be measured no longer, as sessions have them: a session may have one that cannot be
/// measured here by now.
pub(super) fn metric_names(operation: &str, names: &[String]) -> Result<Vec<String>, Failure> {
    let mut found = Vec::new();
    for name in whole(names) {
        let name = name.trim();
        if name == COUNT {
            let cause = "calls are counted as long as a function is in";
            let hint = "without -m the function is taken out";
            let failure = Failure::new(operation, "-m count", cause);
            return Err(failure.hint(hint).usage());
        }
        let named = Metric::named(name).map(Metric::name);
        found.push(named.unwrap_or_else(|| name.to_owned()));
    }
    Ok(found)
}

/// The metric of a name. What is not quite what was asked for is said.
fn metric(operation: &str, name: &str) -> Result<Metric, Failure> {
    let subject = format!("-m {}", printable(name));
    match Metric::asked(name) {
        Ok(Metric::Cycles) => {
            let cause =
                Metric::counter_of_cycles().map_or_else(|e| e.to_string(), |_| String::new());
            warn(&format!(
                "{operation} {subject}: {cause}: reference cycles (TSC) are measured in its place"
            ));
            Ok(Metric::Cycles)
        }
        Ok(metric) => Ok(metric),
        Err(cause @ NoEvent::Unknown) => {
            let near = Metric::nearest(name).map(|near| hint!("did you mean {}? ", Word(near)));
            let names = Metric::names();
            let hint = hint!("{}there are {}", near.unwrap_or_default(), Cause(&names));
            Err(Failure::new(operation, subject, cause).hint(hint).usage())
        }
        Err(cause) => {
            let is_here = !matches!(cause, NoEvent::NotHere(_));
            let cause = format!("{cause}; what can be measured here: {}", Metric::here());
            let failure = Failure::new(operation, subject, cause);
            Err(if is_here { failure.usage() } else { failure })
        }
    }
}

/// Names that were split at each comma, where those between slashes are of one name: `cpu/event=0x3c,umask=0x1/`.
fn whole(pieces: &[String]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for piece in pieces {
        let is_open = |name: &&mut String| !name.matches('/').count().is_multiple_of(2);
        match names.last_mut().filter(is_open) {
            Some(name) => {
                name.push(',');
                name.push_str(piece);
            }
            None => names.push(piece.clone()),
        }
    }
    names
}

/// Refuses a selection in which a pattern has no match, nothing can be instrumented, or there is more than the user may have
/// meant. Where it `is_pending`, patterns without a match may wait.
pub(super) fn check(
    operation: &str,
    subject: &str,
    patterns: &Patterns,
    selection: &Selection,
    is_pending: bool,
) -> Result<(), Failure> {
    if is_pending {
        return check_but_pending(operation, subject, patterns, selection);
    }
    if let Some(unmatched) = selection.unmatched.first() {
        let failure = unmatched.failure(operation, subject);
        let unreadable = selection.unreadable.first();
        return Err(match unreadable {
            Some((path, cause)) => {
                let unread = hint!("{} could not be read: {}", Word(path), Cause(cause));
                failure.hint_first(unread)
            }
            None => failure,
        });
    }
    check_found(operation, subject, patterns, selection)
}

/// The same where patterns without a match may wait.
fn check_but_pending(
    operation: &str,
    subject: &str,
    patterns: &Patterns,
    selection: &Selection,
) -> Result<(), Failure> {
    let waits = |unmatched: &&Unmatched| patterns.func.contains(&unmatched.pattern);
    if let Some(unmatched) = selection.unmatched.iter().find(|u| !waits(u)) {
        return Err(unmatched.failure(operation, subject));
    }
    match selection.count() {
        0 => Ok(()),
        _ => check_found(operation, subject, patterns, selection),
    }
}

/// What is to be said of patterns that wait, once they do: none where an unmatched one is an error.
pub(super) fn waiting(selection: &Selection) -> Vec<String> {
    let said = |unmatched: &Unmatched| {
        let near = unmatched.did_you_mean();
        let near = near.map_or_else(String::new, |near| format!(" ({near})"));
        let pattern = &unmatched.pattern;
        format!("'{pattern}' waits for a library that has it{near}")
    };
    selection.unmatched.iter().map(said).collect()
}

/// That nobody looks at the libraries that come to a process in which patterns wait.
pub(super) fn unwatched(pid: Pid) -> String {
    let top = CommandLine::ipath("top").pid(pid);
    format!("patterns wait as long as somebody watches: `{top}` does")
}

/// Which paths of several processes are one.
pub(super) fn paths_of(per_process: bool) -> PathsOf {
    if per_process {
        PathsOf::Each
    } else {
        PathsOf::All
    }
}

/// The same of what has been found, whatever has not.
pub(super) fn check_found(
    operation: &str,
    subject: &str,
    patterns: &Patterns,
    selection: &Selection,
) -> Result<(), Failure> {
    let points = || selection.points.iter().flat_map(Pointed::points);
    let count = selection.count();
    if count > abi::MOST_FUNCTIONS {
        let cause = format!(
            "{count} functions match, and a session has room for {}",
            abi::MOST_FUNCTIONS
        );
        return Err(Failure::new(operation, subject, cause)
            .hint("name fewer, by a module or a narrower pattern"));
    }
    if count > MANY && !patterns.yes {
        return Err(
            Failure::new(operation, subject, format!("{count} functions match"))
                .hint("give --yes to instrument them all"),
        );
    }
    let refused = selection
        .candidates
        .iter()
        .filter_map(|c| Some((c.name.clone(), c.refused()?)));
    let points = points().filter_map(|(name, refused)| Some((name.to_owned(), refused?)));
    let refused: Vec<_> = refused.chain(points).collect();
    if refused.len() == count {
        let is_patched = |c: &Candidate| c.plan.refused().is_none();
        let cause = if selection.candidates.iter().all(is_patched) {
            none_measured(&refused)
        } else {
            none_patched(&refused)
        };
        return Err(Failure::new(operation, subject, cause));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_between_slashes_are_of_one_name() {
        for (text, expected) in [
            ("wall,cpu", &["wall", "cpu"][..]),
            (
                "count,cpu/event=0x3c,umask=0x1,edge/,wall",
                &["count", "cpu/event=0x3c,umask=0x1,edge/", "wall"],
            ),
            (
                "cpu/event=1/,cpu/event=2/",
                &["cpu/event=1/", "cpu/event=2/"],
            ),
            ("cpu/event=1,wall", &["cpu/event=1,wall"]),
        ] {
            let pieces: Vec<String> = text.split(',').map(str::to_owned).collect();
            assert_eq!(whole(&pieces), expected, "{text}");
        }
    }
}
