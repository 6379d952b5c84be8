//! Checks the options that say what to measure.

use crate::commands::failures::UnmatchedFailure;
use patcher::select::{Pattern, Spot};

use super::remarks::warn;
use crate::cli::{Measure, PathOf, Patterns};
use crate::failure::Failure;
use ipath_base::hint::{Cause, CommandLine, Word, hint};
use ipath_profile::merge::PathsOf;
use ipath_profile::{COUNT, printable};
use ipath_session::apart::{By, NoValue};
use ipath_session::condition::{Condition, ConditionError};
use ipath_session::counter::NoEvent;
use ipath_session::metric::Metric;
use ipath_session::session::{
    Candidate, Options, Pointed, Selection, Unmatched, none_measured, none_patched,
};
use ipath_target::process::Pid;

/// More functions than this need `--yes`.
pub(super) const MANY: usize = 64;

/// The patterns of a command line. An error if one cannot be parsed.
pub(super) fn patterns(operation: &str, texts: &[String]) -> Result<Vec<Pattern>, Failure> {
    let parse = |text: &String| {
        Pattern::parse(text).map_err(|e| Failure::new(operation, format!("-f '{text}'"), e).usage())
    };
    texts.iter().map(parse).collect()
}

/// The places of a command line. An error if one cannot be parsed.
pub(super) fn spots(operation: &str, patterns: &Patterns) -> Result<Vec<Spot>, Failure> {
    let parse = |option: &str, given: &String, text: &str| {
        let subject = || format!("{option} '{given}'");
        Spot::parse(text).map_err(|e| Failure::new(operation, subject(), e).usage())
    };
    let timed = patterns.timed.iter().map(|spot| match spot {
        Ok(spot) => Ok(spot.clone()),
        Err((text, e)) => Err(Failure::new(operation, format!("-f '{text}'"), e).usage()),
    });
    let places = patterns.at.iter().map(|text| parse("--at", text, text));
    let wholes = [
        ("--edges", &patterns.edges, "edges"),
        ("--loops", &patterns.loops, "trips"),
        ("--paths", &patterns.paths, "paths"),
    ];
    let wholes = wholes.into_iter().flat_map(|(option, texts, part)| {
        texts
            .iter()
            .map(move |text| parse(option, text, &format!("{text}:{part}")))
    });
    let of_copies = patterns.func.iter().filter(|_| patterns.inlined);
    let of_copies = of_copies.map(|text| {
        let failed = |e| Failure::new(operation, format!("-f '{text}'"), e).usage();
        Spot::copies_of(text).map_err(failed)
    });
    timed.chain(places).chain(wholes).chain(of_copies).collect()
}

/// The options of a session. If only points are given, only counts are measured.
///
/// # Errors
/// `--when` with points only, or a metric or condition that cannot be parsed.
pub(super) fn options(operation: &str, measure: &Measure) -> Result<Options, Failure> {
    let mut metrics = metrics(operation, &measure.metric)?;
    let Patterns { func, timed, .. } = &measure.patterns;
    if measure.patterns.has_places() && func.is_empty() && timed.is_empty() {
        if measure.when.is_some() {
            let cause = "conditions do not apply when only points are counted";
            return Err(Failure::new(operation, "--when", cause).usage());
        }
        let keeps = [("--slowest", measure.slowest), ("--trace", measure.trace)];
        if let Some((option, _)) = keeps.iter().find(|(_, given)| given.is_some()) {
            let cause = "there are no calls to keep when only points are counted";
            return Err(Failure::new(operation, *option, cause).usage());
        }
        metrics.clear();
    }
    let condition = measure.when.as_deref().map(str::parse).transpose();
    let condition = condition.map_err(|e: ConditionError| {
        let text = printable(measure.when.as_deref().unwrap_or_default()).into_owned();
        Failure::new(operation, format!("--when '{text}'"), e).usage()
    })?;
    let needs_ends = metrics.iter().any(Metric::needs_exits)
        || condition.as_ref().is_some_and(Condition::needs_exits);
    if !measure.phase.is_empty() && !needs_ends {
        let cause = "a phase ends with its call, and these metrics do not see the ends of calls";
        let failure = Failure::new(operation, "--phase", cause).usage();
        return Err(failure.hint("measure a time as well: -m wall"));
    }
    if measure.path == PathOf::Probes {
        check_callers(operation, measure, needs_ends)?;
    }
    for texts in [&measure.phase, &measure.under, &measure.not_under] {
        patterns(operation, texts)?;
    }
    let is_by_thread = measure.by.as_deref() == Some("tid");
    let by = measure.by.as_deref().filter(|_| !is_by_thread);
    let by = by.map(|text| {
        let subject = || format!("--by '{}'", printable(text));
        let parsed: Result<By, NoValue> = text.parse();
        parsed.map_err(|e| Failure::new(operation, subject(), e).usage())
    });
    let slower = measure.slower.map(|slower| {
        let ns = u64::try_from(slower.as_nanos()).unwrap_or(u64::MAX);
        ns.max(1)
    });
    Ok(Options {
        metrics,
        condition,
        by: by.transpose()?,
        slower_ns: slower,
        slowest: measure.slowest.unwrap_or(0),
        traced: measure.trace.unwrap_or(0),
        phases: measure.phase.clone(),
        under: measure.under.clone(),
        not_under: measure.not_under.clone(),
        max_values: measure.max_values,
        max_paths: measure.max_paths,
        depth: measure.depth.unwrap_or(0),
        callers_only: measure.path == PathOf::Probes,
        collapse_recursion: measure.collapse_recursion,
        per_thread: measure.per_thread || is_by_thread,
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

/// Checks that paths can consist of measured functions only.
///
/// # Errors
/// Ends of calls are not seen, or an option concerns other functions on the stack.
fn check_callers(operation: &str, measure: &Measure, needs_ends: bool) -> Result<(), Failure> {
    let refuse = |cause: &str| Failure::new(operation, "--path probes", cause).usage();
    let Patterns { timed, inlined, .. } = &measure.patterns;
    if measure.patterns.has_places() || !timed.is_empty() || *inlined {
        return Err(refuse(
            "only whole functions can be measured, and no parts of them",
        ));
    }
    if !needs_ends {
        let cause = "a function is on a path until its call ends, and these metrics do not see \
            the ends of calls";
        return Err(refuse(cause).hint("measure a time as well: -m wall"));
    }
    let others = [
        ("--depth", measure.depth.is_some()),
        ("--under", !measure.under.is_empty()),
        ("--not-under", !measure.not_under.is_empty()),
        ("--collapse-recursion", measure.collapse_recursion),
    ];
    match others.into_iter().find(|(_, is_given)| *is_given) {
        Some((option, _)) => Err(refuse(&format!("{option} needs a walk of the stack"))),
        None => Ok(()),
    }
}

/// The metrics with these names except the count, without duplicates. An error if one is unknown or
/// cannot be measured here. Prints a warning if a substitute is measured.
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

/// The names of metrics to remove, as sessions store them. A name may be unknown: a session may
/// have a metric that cannot be measured here any more. An error for the count, which is always
/// measured.
pub(super) fn metric_names(operation: &str, names: &[String]) -> Result<Vec<String>, Failure> {
    let mut found = Vec::new();
    for name in whole(names) {
        let name = name.trim();
        if name == COUNT {
            let cause = "calls of an instrumented function are always counted";
            let hint = "without -m the function is taken out";
            let failure = Failure::new(operation, "-m count", cause);
            return Err(failure.hint(hint).usage());
        }
        let named = Metric::named(name).map(|metric| metric.name());
        found.push(named.unwrap_or_else(|| name.to_owned()));
    }
    Ok(found)
}

/// The metric with this name. Prints a warning if a substitute is measured. An error if it is
/// unknown or cannot be measured here.
fn metric(operation: &str, name: &str) -> Result<Metric, Failure> {
    let subject = format!("-m {}", printable(name));
    match Metric::asked(name) {
        Ok(Metric::Cycles) => {
            let cause =
                Metric::counter_of_cycles().map_or_else(|e| e.to_string(), |_| String::new());
            warn(&format!(
                "{operation} {subject}: {cause}: reference cycles (TSC) are measured instead"
            ));
            Ok(Metric::Cycles)
        }
        Ok(metric) => Ok(metric),
        Err(cause @ NoEvent::Unknown) => {
            let near = Metric::nearest(name).map(|near| hint!("did you mean {}? ", Word(near)));
            let names = Metric::names();
            let hint = hint!("{}metrics are {}", near.unwrap_or_default(), Cause(&names));
            Err(Failure::new(operation, subject, cause).hint(hint).usage())
        }
        Err(cause) => {
            let is_here = !matches!(cause, NoEvent::NotHere(_));
            let cause = format!("{cause}; available here: {}", Metric::here());
            let failure = Failure::new(operation, subject, cause);
            Err(if is_here { failure.usage() } else { failure })
        }
    }
}

/// Rejoins names that were split at each comma. A comma between slashes belongs to a name:
/// `cpu/event=0x3c,umask=0x1/`.
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

/// Refuses a selection in which a pattern has no match, nothing can be instrumented, or more
/// matches than intended. If `is_pending`, patterns without a match may wait.
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
        selection.remarks.iter().for_each(|remark| warn(remark));
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

/// Like [`check`], if patterns without a match may wait.
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

/// A message for each pattern without a match, which waits for a library. Empty if all match.
pub(super) fn waiting(selection: &Selection) -> Vec<String> {
    let said = |unmatched: &Unmatched| {
        let near = unmatched.did_you_mean();
        let near = near.map_or_else(String::new, |near| format!(" ({near})"));
        let pattern = &unmatched.pattern;
        format!("'{pattern}' waits for a library that contains it{near}")
    };
    selection.unmatched.iter().map(said).collect()
}

/// The warning that waiting patterns have no effect until a command watches the process.
pub(super) fn unwatched(pid: Pid) -> String {
    let top = CommandLine::ipath("top").pid(pid);
    format!("patterns wait only while a command watches the process: `{top}` does")
}

/// The way in which paths of several processes are merged.
pub(super) fn paths_of(per_process: bool) -> PathsOf {
    if per_process {
        PathsOf::Each
    } else {
        PathsOf::All
    }
}

/// Like [`check`], without an error for patterns without a match: refuses a selection in which
/// nothing can be instrumented, or more matches than intended.
pub(super) fn check_found(
    operation: &str,
    subject: &str,
    patterns: &Patterns,
    selection: &Selection,
) -> Result<(), Failure> {
    selection.remarks.iter().for_each(|remark| warn(remark));
    let points = || selection.points.iter().flat_map(Pointed::points);
    let count = selection.count();
    if count > abi::MOST_FUNCTIONS {
        let cause = format!(
            "{count} functions match, and a session has room for {}",
            abi::MOST_FUNCTIONS
        );
        return Err(Failure::new(operation, subject, cause)
            .hint("name fewer, with a module or a narrower pattern"));
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
