//! Messages about the result of a change.

use super::measure::MANY;
use super::remarks::warn;
use ipath_base::printable::printable;
use ipath_profile::display_name::fit_all;
use ipath_profile::report::human;
use ipath_session::session::{Changed, Elsewhere, bare};

/// The most bytes of names on one line.
const MOST: usize = 320;
/// The most columns of a name on such a line.
pub(super) const WIDTH: usize = 60;
/// The most functions to list with their other names.
const FEW: usize = 16;

/// The message about the functions that were added, that changed their metrics, and that the
/// session had before. Empty if there are none.
pub(super) fn added(changed: &Changed) -> String {
    let mut by_metrics: Vec<(&[String], Vec<String>)> = Vec::new();
    for (name, metrics) in &changed.remeasured {
        match by_metrics.iter_mut().find(|(known, _)| known == metrics) {
            Some((_, names)) => names.push(name.clone()),
            None => by_metrics.push((metrics, vec![name.clone()])),
        }
    }
    let remeasured = by_metrics.into_iter().map(|(metrics, names)| {
        let metrics: Vec<_> = metrics.iter().map(|n| printable(n)).collect();
        (format!("measured by {}:", metrics.join(",")), names)
    });
    let of = |what: &str, names: &[String]| (what.to_owned(), names.to_vec());
    let said = std::iter::once(of("added", &changed.functions))
        .chain(remeasured)
        .chain([of("already in:", &changed.already)]);
    let said = said.filter(|(_, names)| !names.is_empty());
    let said: Vec<_> = said
        .map(|(what, names)| format!("{what} {}", listed(&names)))
        .collect();
    said.join("; ")
}

/// The names on one line, shortened. See [`few`].
pub(super) fn listed(names: &[String]) -> String {
    let shown = few(names);
    let text: Vec<_> = shown.iter().map(|n| printable(n)).collect();
    match names.len() - shown.len() {
        0 => text.join(", "),
        more => format!("{} and {more} more", text.join(", ")),
    }
}

/// The first of these names, shortened as in reports: at most [`MANY`], and together at most
/// [`MOST`] bytes.
pub(super) fn few(names: &[String]) -> Vec<String> {
    let names: Vec<&str> = names.iter().take(MANY).map(String::as_str).collect();
    let mut length = 0;
    let is_shown = |name: &String| {
        length += name.len() + ", ".len();
        length <= MOST
    };
    fit_all(&names, WIDTH)
        .into_iter()
        .take_while(is_shown)
        .collect()
}

/// Prints a warning for each function that was refused, is instrumented by breakpoints, or is not
/// measured as its name suggests. `changed` is the result of instrumenting.
pub(super) fn tell_refused(changed: &Changed) {
    for (name, reason) in &changed.refused {
        warn(&format!("{name}: not instrumented: {reason}"));
    }
    for (name, reason) in &changed.unchanged {
        warn(&format!("{name}: not changed: {reason}"));
    }
    for name in &changed.trapped {
        warn(&format!(
            "{name}: instrumented by breakpoints, a microsecond or more each"
        ));
    }
    for name in changed.bare.iter().take(MANY) {
        warn(&bare(name));
    }
    for path in &changed.unfollowed {
        warn(&unfollowed(path));
    }
    changed
        .shared
        .iter()
        .take(FEW)
        .filter_map(also_called)
        .for_each(|line| warn(&line));
    if let Some(more) = changed.shared.len().checked_sub(FEW).filter(|&n| n > 0) {
        warn(&format!(
            "{more} more functions whose code also has other names"
        ));
    }
    let partly = changed.partly.iter().take(MANY);
    for line in partly.filter_map(partly_counted) {
        warn(&line);
    }
    if let Some(more) = changed.partly.len().checked_sub(MANY).filter(|&n| n > 0) {
        warn(&format!(
            "not every call is counted of {more} more functions"
        ));
    }
}

/// The note that calls by other names count as calls of this function. `None` if there are none.
pub(super) fn also_called((name, others): &(String, Vec<String>)) -> Option<String> {
    Some(format!("{name}: {}", human::also(others)?))
}

/// The note that not every call of a function is counted. `None` if every call is.
pub(super) fn partly_counted((name, elsewhere): &(String, Elsewhere)) -> Option<String> {
    let clones = elsewhere.clones.iter().map(String::as_str);
    Some(format!(
        "{name}: {}",
        human::elsewhere(clones, elsewhere.inlined)?
    ))
}

/// The warning about a file whose Go stacks may move.
pub(super) fn unfollowed(path: &str) -> String {
    format!(
        "{path}: goroutine stacks that move cannot be followed: times may be wrong, but counts \
        are right"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_measures_the_same_is_told_together() {
        let strings = |names: &[&str]| names.iter().map(|&n| n.to_owned()).collect::<Vec<_>>();
        let measured = |name: &str, metrics: &[&str]| (name.to_owned(), strings(metrics));
        let changed = Changed {
            functions: strings(&["new"]),
            already: strings(&["known"]),
            remeasured: vec![
                measured("a", &["count", "cpu"]),
                measured("b", &["count"]),
                measured("c", &["count", "cpu"]),
            ],
            ..Changed::default()
        };
        assert_eq!(
            added(&changed),
            "added new; measured by count,cpu: a, c; measured by count: b; already in: known"
        );
    }

    #[test]
    fn long_names_are_shortened_and_only_a_few_are_listed() {
        let long = |n: usize| {
            format!(
                "shop::detail::Cache<std::map<std::string, shop::Item>, {n}>::look_up_{n}_of_it"
            )
        };
        let names: Vec<String> = (0..20).map(long).collect();
        let text = listed(&names);
        assert!(
            text.starts_with("shop::detail::Cache<...>::look_up_0_of_it, "),
            "{text}"
        );
        assert!(text.ends_with(" more") && text.len() < MOST + 16, "{text}");
        assert_eq!(
            listed(&names[..1]),
            "shop::detail::Cache<...>::look_up_0_of_it"
        );
    }

    #[test]
    fn names_beyond_many_are_counted() {
        let names: Vec<String> = (0..MANY + 3).map(|n| format!("f{n}")).collect();
        assert_eq!(listed(&names[..2]), "f0, f1");
        assert!(listed(&names[..MANY]).ends_with("f62, f63"));
        assert!(listed(&names).ends_with("f62, f63 and 3 more"));
    }
}
