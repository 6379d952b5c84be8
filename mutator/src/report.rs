//! Profiles as text for people: the full report and the short summary of an interval.

mod found;
mod head;
mod histogram;
pub mod human;
mod rows;
mod summary;
mod table;
#[cfg(test)]
mod tests;
mod threads;

pub use summary::summary;

use crate::profile::{
    Function, Label, Metric, PathEntry, Profile, Refused, TimerStats, Total, printable,
};
use rows::Rows;
use std::cmp::Reverse;
use std::io::{self, Write};
use table::Table;
use threads::{Group, Names};

/// What the report shows.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The metric to sort by and to show first; the profile's first after the count without it.
    pub metric: Option<String>,
    /// The most paths of each function.
    pub paths: Option<usize>,
    /// The most frames of each path, from the innermost caller.
    pub depth: Option<usize>,
    /// How the values of each function are distributed, too.
    pub histogram: bool,
}

/// Writes the report: totals per function, then its paths, costliest first.
///
/// # Errors
/// What `out` gives.
pub fn text(profile: &Profile, options: &Options, out: &mut impl Write) -> io::Result<()> {
    let report = Report::new(profile, options);
    head::write(profile, out)?;
    if let Some(search) = &profile.search {
        report.found(search, out)?;
    }
    for function in report.functions() {
        report.function(function, out)?;
    }
    report.refused(out)?;
    report.losses(out)
}

/// Writes what a search has found, and no more.
///
/// # Errors
/// What `out` gives.
pub fn found(profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    let options = Options::default();
    let report = Report::new(profile, &options);
    head::write(profile, out)?;
    match &profile.search {
        Some(search) => report.found(search, out),
        None => Ok(()),
    }
}

struct Report<'p> {
    profile: &'p Profile,
    options: &'p Options,
    /// All metrics but the count, the chosen one first.
    metrics: Vec<&'p Metric>,
    /// The lines of each frame.
    labels: Vec<Vec<Label>>,
    /// The paths of each function.
    paths: Vec<Vec<&'p PathEntry>>,
    threads: Names<'p>,
}

impl<'p> Report<'p> {
    fn new(profile: &'p Profile, options: &'p Options) -> Self {
        let mut metrics: Vec<_> = profile.timers().collect();
        metrics.sort_by_key(|m| Some(&m.name) != options.metric.as_ref());
        let frames = profile.frames.iter();
        let mut paths = vec![Vec::new(); profile.functions.len()];
        for path in &profile.paths {
            paths[path.function].push(path);
        }
        Self {
            profile,
            options,
            metrics,
            labels: frames.map(|frame| profile.labels(frame)).collect(),
            paths,
            threads: profile.thread_names(),
        }
    }

    /// By cost: the chosen timer's sum, else the calls.
    fn cost(&self, count: u64, stats: Option<&TimerStats>) -> (i128, u64) {
        let by_calls = self.metrics.is_empty() || self.options.metric.as_deref() == Some("count");
        match stats {
            Some(stats) if !by_calls => (stats.sum, count),
            _ => (count.into(), count),
        }
    }

    fn first_of<'s>(&self, counts: &'s crate::profile::Counts) -> Option<&'s TimerStats> {
        counts.timers.get(&self.metrics.first()?.name)
    }

    fn functions(&self) -> Vec<usize> {
        let functions = &self.profile.functions;
        let cost = |f: &Function| {
            let counts = &f.totals.counts;
            self.cost(counts.count, self.first_of(counts))
        };
        let mut order: Vec<_> = (0..functions.len()).collect();
        order.sort_by_key(|&i| Reverse(cost(&functions[i])));
        order
    }

    fn function(&self, index: usize, out: &mut impl Write) -> io::Result<()> {
        let function = &self.profile.functions[index];
        let mut paths = self.paths[index].clone();
        paths.sort_by_key(|p| Reverse(self.cost(p.metrics.count, self.first_of(&p.metrics))));
        let shown = paths.len().min(self.options.paths.unwrap_or(usize::MAX));
        let whole = Total::of(paths.iter().copied());

        self.title(function, out)?;
        if self.options.histogram {
            histogram::write(&self.metrics, &whole, out)?;
        }
        let rows = Rows::new(self.profile, &self.metrics);
        let mut table = Table::new(&rows.headings());
        let paths_in_all = match paths.len() {
            1 => "1 path".to_owned(),
            n => format!("all {n} paths"),
        };
        rows.add(&mut table, &whole, &whole, &paths_in_all);
        let mut groups = threads::by_name(&self.threads, &paths);
        groups.sort_by_key(|group| {
            let counts = &group.total.counts;
            Reverse(self.cost(counts.count, self.first_of(counts)))
        });
        for Group { title, total } in &groups {
            rows.add(&mut table, total, &whole, title);
        }
        for path in &paths[..shown] {
            let part = Total {
                // The end of its stack says so.
                incomplete: 0,
                ..Total::of([*path])
            };
            let thread = path.thread.map(|tid| threads::title(&self.threads, tid));
            rows.add(&mut table, &part, &whole, &thread.unwrap_or_default());
            self.stack(&mut table, path);
        }
        if shown < paths.len() {
            table.text(
                more(paths.len() - shown, "path") + ", not shown; a profile (-o FILE) has them",
            );
        }
        table.write(out)
    }

    fn title(&self, function: &Function, out: &mut impl Write) -> io::Result<()> {
        let entry = printable(&function.entry);
        let how = match function.exits.as_slice() {
            [] if function.point => format!("a point, {entry}"),
            [] => format!("entry {entry}, exits not patched"),
            exits => format!("entry {entry}, exits {}", printable(&exits.join(", "))),
        };
        let module = self.profile.module_name(Some(function.module));
        writeln!(out, "\n{}", printable(&function.name))?;
        writeln!(out, "  at {module}+{:#x}, {how}", function.address)?;
        let is_measured = |name: &&String| {
            let mut functions = self.profile.functions.iter();
            functions.any(|f| f.module == function.module && f.linkage == **name)
        };
        let others = function.clones.iter().filter(|name| !is_measured(name));
        if let Some(text) = human::elsewhere(others.map(String::as_str), function.inlined) {
            writeln!(out, "  {}", printable(&text))?;
        }
        Ok(())
    }

    fn stack(&self, table: &mut Table, path: &PathEntry) {
        let depth = self.options.depth.unwrap_or(usize::MAX);
        for &index in path.stack.iter().take(depth) {
            self.frame(table, index);
        }
        if path.stack.len() > depth {
            table.text(more(path.stack.len() - depth, "frame"));
        } else if !path.complete {
            table.text("[callers unknown]".to_owned());
        } else if path.stack.is_empty() {
            table.text("[no caller]".to_owned());
        }
    }

    fn frame(&self, table: &mut Table, index: usize) {
        let offset = self.profile.frames[index].offset;
        for label in &self.labels[index] {
            let name = match (label.inlined, offset) {
                (true, _) => format!("{} (inlined)", label.name),
                (false, Some(offset)) => format!("{}+{offset:#x}", label.name),
                (false, None) => label.name.clone(),
            };
            table.frame(name, label.place.clone());
        }
    }

    fn refused(&self, out: &mut impl Write) -> io::Result<()> {
        let refused = &self.profile.refused;
        if refused.is_empty() {
            return Ok(());
        }
        writeln!(out, "\nNot instrumented:")?;
        for Refused {
            name,
            module,
            address,
            reason,
        } in refused
        {
            let (name, module) = (printable(name), self.profile.module_name(Some(*module)));
            writeln!(
                out,
                "  {name} ({module}+{address:#x}): {}",
                printable(reason)
            )?;
        }
        Ok(())
    }

    fn losses(&self, out: &mut impl Write) -> io::Result<()> {
        let lines = loss_lines(self.profile);
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
        let mut causes: Vec<_> = self.profile.losses.causes.iter().collect();
        causes.sort_by_key(|&(_, &n)| Reverse(n));
        if causes.is_empty() {
            return Ok(());
        }
        let causes = causes.iter().map(|(cause, n)| format!("{cause} {n}"));
        let causes = causes.collect::<Vec<_>>().join(", ");
        writeln!(out, "  paths are incomplete by {}", printable(&causes))
    }
}

/// What is not exact, a phrase each; empty where nothing was lost.
///
/// Activations that are unwound or open are not lost: they stand on their paths.
pub fn loss_lines(profile: &Profile) -> Vec<String> {
    let losses = &profile.losses;
    [
        (losses.missed, "not recorded"),
        (
            losses.overflow,
            "without their own path (limit of paths reached)",
        ),
        (losses.incomplete, "on incomplete paths"),
        (
            profile.tail_calls(),
            "left by a tail call, timed without what that called",
        ),
    ]
    .into_iter()
    .filter(|&(n, _)| n > 0)
    .map(|(n, what)| {
        // Those not recorded are in no total.
        let all = profile.calls().saturating_add(losses.missed);
        let share = human::share(n.into(), all.into());
        format!("{} {what} ({share})", human::count(n, "call"))
    })
    .collect()
}

/// `1 more frame`, `2 more frames`.
fn more(n: usize, what: &str) -> String {
    human::count(n as u64, &format!("more {what}"))
}
