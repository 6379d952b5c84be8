//! The result of a search, as text.

use super::table::{LONGEST, Table};
use super::{Report, human, more};
use crate::display_name;
use crate::profile::{FoundPath, Left, SearchResult, printable};
use std::io::{self, Write};

/// The maximum number of callers shown for a path. A recursion can have thousands.
const DEPTH: usize = 24;

impl Report<'_> {
    /// Writes the call paths that explain where time is spent, and the functions that are not
    /// included: at most the limit of each.
    pub(super) fn found(&self, found: &SearchResult, out: &mut impl Write) -> io::Result<()> {
        match found.paths.len() {
            0 => writeln!(
                out,
                "\nno call path explains {}{}",
                whole(found),
                self.of_processes()
            ),
            n => {
                let paths = human::count(n as u64, "call path");
                let (explained, whose) = (explained(found), self.of_processes());
                writeln!(
                    out,
                    "\nexplained: {explained}{whose}; most of it by {paths}"
                )
            }
        }?;
        writeln!(
            out,
            "measured together in the best step, for {} after {}; measuring took {:.1} % of the CPU time",
            human::time(found.ns.into()),
            human::count(found.steps, "step"),
            100.0 * found.overhead,
        )?;
        let costliest = found.costliest_left();
        if let Some(left) = costliest {
            writeln!(out, "costliest: {}", not_measured(left))?;
        }
        let mut table = Table::new(&["calls", "total", "mean", "of CPU", "off CPU"]);
        for path in found.paths.iter().take(self.limit()) {
            self.found_path(&mut table, path);
        }
        let hidden = found.paths.len().saturating_sub(self.limit());
        self.rest(&mut table, hidden, "path");
        if !found.paths.is_empty() {
            table.write(out)?;
        }
        let others = found.left.iter().filter(|left| Some(*left) != costliest);
        for left in others.clone().take(self.limit()) {
            writeln!(out, "not included: {}", not_measured(left))?;
        }
        match others.count().saturating_sub(self.limit()) {
            0 => Ok(()),
            hidden => {
                let (hidden, all_by) = (more(hidden, "function"), self.options.all_by);
                writeln!(out, "not included: {hidden}, not shown; {all_by}")
            }
        }
    }

    fn found_path(&self, table: &mut Table, path: &FoundPath) {
        let total = path.cpu_ns.saturating_add(path.waiting_ns);
        let mean = (path.calls > 0).then(|| total as f64 / path.calls as f64);
        let cells = vec![
            path.calls.to_string(),
            human::time(total.into()),
            human::average(mean, "ns"),
            share(path.cpu_share),
            share(path.waiting_share),
        ];
        table.row(cells, String::new());
        table.shared(self.end(path.function));
        self.folded(table, &path.stack, DEPTH);
        let hidden = path.stack.len().saturating_sub(DEPTH);
        if hidden > 0 {
            table.text(more(hidden, "frame"));
        }
        if !path.complete {
            table.text(format!(
                "[{} continue from here]",
                human::count(path.paths, "path")
            ));
        }
    }
}

/// The CPU time and the off-CPU time to be explained, as text. Leaves out a time of 0.
pub(super) fn whole(found: &SearchResult) -> String {
    of_both(
        found,
        human::time(found.cpu_ns.into()),
        human::time(found.waiting_ns.into()),
    )
}

/// The explained shares of CPU time and off-CPU time, as text. Leaves out a time of 0. The search
/// printed the same numbers for its step.
pub(super) fn explained(found: &SearchResult) -> String {
    let shares = found.explained();
    let of =
        |share: f64, ns: u64| format!("{} of {}", human::rounded(share), human::time(ns.into()));
    of_both(
        found,
        of(shares.cpu, found.cpu_ns),
        of(shares.waiting, found.waiting_ns),
    )
}

/// Text on CPU time and on the time off it. Leaves out one of them if that time is 0.
fn of_both(found: &SearchResult, cpu: String, waiting: String) -> String {
    match (found.cpu_ns, found.waiting_ns) {
        (_, 0) => format!("{cpu} of CPU time"),
        (0, _) => format!("{waiting} off a processor"),
        _ => format!("{cpu} of CPU time and {waiting} off it"),
    }
}

/// A share in percent. `-` for 0, which stands for an insignificant share.
fn share(share: f64) -> String {
    if share > 0.0 {
        human::percent(share)
    } else {
        "-".to_owned()
    }
}

/// A function that is not measured, with its sampled shares and the reason.
pub(super) fn not_measured(left: &Left) -> String {
    let mut text = format!(
        "{}  {}",
        display_name::fit(&printable(&left.name), LONGEST),
        printable(&left.file)
    );
    let shares = [
        (left.cpu_share, "CPU time"),
        (left.waiting_share, "waiting"),
    ];
    let shares = shares.iter().filter(|(share, _)| *share >= 0.001);
    let shares: Vec<String> = shares
        .map(|(share, of)| format!("{:.0} % of {of}", 100.0 * share))
        .collect();
    if !shares.is_empty() {
        text.push_str(&format!(", by samples about {}", shares.join(" and ")));
    }
    if !left.reason.is_empty() {
        text.push_str(&format!(": {}", printable(&left.reason)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::Options;
    use super::super::tests::golden;
    use super::{explained, whole};
    use crate::profile::{Explained, FoundPath, Left, Profile, SearchResult};
    use crate::sample::sample;

    fn searched() -> Profile {
        let path = FoundPath {
            function: 0,
            stack: vec![0, 1],
            paths: 1,
            complete: true,
            calls: 1899,
            cpu_ns: 20_000_000,
            waiting_ns: 2_900_000_000,
            cpu_share: 0.0,
            waiting_share: 0.973,
            idle: false,
        };
        let recursion = FoundPath {
            stack: vec![1; 30],
            paths: 180,
            complete: false,
            cpu_ns: 800_000_000,
            waiting_ns: 0,
            cpu_share: 0.812,
            waiting_share: 0.0,
            ..path.clone()
        };
        let left = |name: &str, reason: &str, cpu_share, waiting_share| Left {
            name: name.to_owned(),
            file: "app".to_owned(),
            reason: reason.to_owned(),
            cpu_share,
            waiting_share,
        };
        let found = SearchResult {
            ns: 3_000_000_000,
            cpu_ns: 985_000_000,
            waiting_ns: 2_980_000_000,
            overhead: 0.012,
            steps: 4,
            explained: Some(Explained {
                cpu: 0.84,
                waiting: 0.981,
            }),
            paths: vec![path, recursion],
            left: vec![
                left(
                    "main",
                    "no call of it began and returned meanwhile",
                    0.12,
                    0.03,
                ),
                left("tiny\x1b[2J", "called too often", 0.0, 0.0),
            ],
        };
        Profile {
            search: Some(found),
            ..sample()
        }
    }

    fn text(profile: &Profile) -> String {
        let mut out = Vec::new();
        super::super::found(profile, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn text_of_what_was_found() {
        let profile = searched();
        profile.check().unwrap();
        golden("found", &text(&profile));
    }

    #[test]
    fn as_many_paths_as_the_limit_are_shown() {
        let profile = searched();
        let text = |limit| {
            let options = Options {
                limit,
                ..Options::default()
            };
            let mut out = Vec::new();
            super::super::text(&profile, &options, &mut out).unwrap();
            let text = String::from_utf8(out).unwrap();
            let (_, found) = text.split_once("\nexplained: ").unwrap();
            let (found, _) = found.split_once("\nFunctions\n").unwrap();
            found.to_owned()
        };
        let few = text(Some(1));
        assert!(few.contains("2.92 s") && !few.contains("800 ms"), "{few}");
        let all_by = Options::default().all_by;
        for what in ["1 more path", "1 more function"] {
            assert!(
                few.contains(&format!("{what}, not shown; {all_by}\n")),
                "{few}"
            );
        }
        assert!(
            few.contains("\nnot included: main ") && !few.contains("tiny"),
            "{few}"
        );
        for limit in [Some(2), None] {
            let all = text(limit);
            assert!(all.contains("800 ms") && all.contains("tiny"), "{all}");
            assert!(!all.contains("1 more path"), "{all}");
        }
    }

    #[test]
    fn text_where_nothing_was_found() {
        let mut profile = searched();
        let found = profile.search.as_mut().unwrap();
        found.paths.clear();
        found.left.truncate(1);
        golden("found-nothing", &text(&profile));
    }

    #[test]
    fn a_time_of_zero_has_no_share() {
        let of = |cpu_ns: u64, waiting_ns: u64| {
            let found = SearchResult {
                cpu_ns,
                waiting_ns,
                ..SearchResult::default()
            };
            (whole(&found), explained(&found))
        };
        let (whole, explained) = of(5_000_000, 0);
        assert_eq!(whole, "5.00 ms of CPU time");
        assert_eq!(explained, "0.0 % of 5.00 ms of CPU time");
        assert_eq!(of(0, 5_000_000).0, "5.00 ms off a processor");
        let both = of(5_000_000, 5_000_000).0;
        assert_eq!(both, "5.00 ms of CPU time and 5.00 ms off it");
    }
}
