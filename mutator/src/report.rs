//! Profiles as text for people: the full report and the short summary of an interval.

pub mod human;
mod summary;
mod table;
#[cfg(test)]
mod tests;

pub use summary::summary;

use crate::profile::{Function, Label, PathEntry, Profile, Refused, TimerStats, Total, printable};
use std::cmp::Reverse;
use std::io::{self, Write};
use table::{Row, Table};

/// What the report shows.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The metric to sort by and to show first; the first timer without it.
    pub metric: Option<String>,
    /// The most paths of each function.
    pub paths: Option<usize>,
    /// The most frames of each path, from the innermost caller.
    pub depth: Option<usize>,
}

/// Writes the report: totals per function, then its paths, costliest first.
///
/// # Errors
/// What `out` gives.
pub fn text(profile: &Profile, options: &Options, out: &mut impl Write) -> io::Result<()> {
    let report = Report::new(profile, options);
    report.head(out)?;
    for function in report.functions() {
        report.function(function, out)?;
    }
    report.refused(out)?;
    report.losses(out)
}

struct Report<'p> {
    profile: &'p Profile,
    options: &'p Options,
    /// The timers, the chosen one first.
    timers: Vec<&'p str>,
    /// The lines of each frame.
    labels: Vec<Vec<Label>>,
}

/// The numbers of one function or path.
struct Numbers<'p> {
    count: u64,
    unwound: u64,
    open: u64,
    tail: u64,
    incomplete: u64,
    stats: &'p dyn Fn(&str) -> Option<&'p TimerStats>,
    measured: &'p dyn Fn(&str) -> u64,
}

impl<'p> Report<'p> {
    fn new(profile: &'p Profile, options: &'p Options) -> Self {
        let mut timers: Vec<_> = profile.timers().map(|m| m.name.as_str()).collect();
        timers.sort_by_key(|name| Some(*name) != options.metric.as_deref());
        let labels = profile
            .frames
            .iter()
            .map(|frame| profile.labels(frame))
            .collect();
        Self {
            profile,
            options,
            timers,
            labels,
        }
    }

    /// By cost: the chosen timer's sum, else the calls.
    fn cost(&self, count: u64, stats: Option<&TimerStats>) -> (i128, u64) {
        let by_calls = self.timers.is_empty() || self.options.metric.as_deref() == Some("count");
        match stats {
            Some(stats) if !by_calls => (stats.sum, count),
            _ => (count.into(), count),
        }
    }

    fn first_of<'s>(&self, counts: &'s crate::profile::Counts) -> Option<&'s TimerStats> {
        counts.timers.get(self.timers.first()?)
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

    fn head(&self, out: &mut impl Write) -> io::Result<()> {
        let Profile {
            target,
            session,
            metrics,
            ..
        } = self.profile;
        let metrics: Vec<_> = metrics.iter().map(|m| printable(&m.name)).collect();
        let args: String = target
            .args
            .iter()
            .skip(1)
            .map(|a| format!(" {}", printable(a)))
            .collect();
        writeln!(out, "{}{args}", printable(&target.exe))?;
        write!(
            out,
            "pid {} on {}, measured for {}",
            target.pid,
            printable(&target.host),
            human::time(session.elapsed_ns.into())
        )?;
        for (key, value) in &target.labels {
            write!(out, ", {} {}", printable(key), printable(value))?;
        }
        if let Some(state) = &target.state {
            write!(out, ", {}", printable(state))?;
        }
        writeln!(out, "\nmetrics: {}", metrics.join(", "))?;
        if let Some(longest) = session.stops.iter().max_by_key(|stop| stop.ns) {
            let times = match session.stops.len() {
                1 => "once".to_owned(),
                n => format!("{n} times, the longest"),
            };
            let time = human::time(longest.ns.into());
            writeln!(
                out,
                "stopped {times} for {time} ({})",
                printable(&longest.why)
            )?;
        }
        for note in &session.notes {
            writeln!(out, "note: {}", printable(note))?;
        }
        if let Err(wrong) = self.profile.check() {
            writeln!(out, "warning: this profile contradicts itself: {wrong}")?;
        }
        Ok(())
    }

    fn function(&self, index: usize, out: &mut impl Write) -> io::Result<()> {
        let function = &self.profile.functions[index];
        let totals = &function.totals;
        let mut paths: Vec<&PathEntry> = self
            .profile
            .paths
            .iter()
            .filter(|p| p.function == index)
            .collect();
        paths.sort_by_key(|p| Reverse(self.cost(p.metrics.count, self.first_of(&p.metrics))));
        let shown = paths.len().min(self.options.paths.unwrap_or(usize::MAX));

        self.title(function, out)?;
        let mut table = Table::new(&self.headings());
        let sum = Total::of(paths.iter().copied());
        let whole = Numbers {
            count: totals.counts.count,
            unwound: totals.unwound.unwrap_or(0),
            open: totals.open.unwrap_or(0),
            tail: function.tail,
            incomplete: paths
                .iter()
                .fold(0, |sum, path| sum.saturating_add(path.incomplete())),
            stats: &|name| totals.counts.timers.get(name),
            measured: &|name| sum.counts.timers.get(name).map_or(0, TimerStats::values),
        };
        let paths_in_all = match paths.len() {
            1 => "1 path".to_owned(),
            n => format!("all {n} paths"),
        };
        self.rows(&mut table, &whole, &whole, &paths_in_all);
        for path in &paths[..shown] {
            let numbers = Numbers {
                count: path.metrics.count,
                unwound: path.unwound.unwrap_or(0),
                open: path.open.unwrap_or(0),
                tail: path.tail,
                // The end of its stack says so.
                incomplete: 0,
                stats: &|name| path.metrics.timers.get(name),
                measured: &|name| path.metrics.timers.get(name).map_or(0, TimerStats::values),
            };
            let thread = path
                .thread
                .map(|tid| format!("thread {tid}"))
                .unwrap_or_default();
            self.rows(&mut table, &numbers, &whole, &thread);
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
        let exits = match function.exits.as_slice() {
            [] => "exits not patched".to_owned(),
            exits => format!("exits {}", printable(&exits.join(", "))),
        };
        let module = self.profile.module_name(Some(function.module));
        writeln!(out, "\n{}", printable(&function.name))?;
        writeln!(
            out,
            "  at {module}+{:#x}, entry {}, {exits}",
            function.address,
            printable(&function.entry)
        )?;
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

    fn headings(&self) -> Vec<&'static str> {
        match self.timers.len() {
            0 => vec!["calls", "share"],
            1 => vec!["calls", "total", "mean", "min", "max", "share", "of run"],
            _ => vec![
                "calls", "metric", "total", "mean", "min", "max", "share", "of run",
            ],
        }
    }

    /// One row a timer; what is not a timer's stands in the first.
    fn rows(&self, table: &mut Table, part: &Numbers<'_>, whole: &Numbers<'_>, remark: &str) {
        let mut remarks: Vec<String> = Some(remark)
            .filter(|r| !r.is_empty())
            .map(str::to_owned)
            .into_iter()
            .collect();
        for (n, what) in [
            (part.unwound, "unwound"),
            (part.open, "still running"),
            (part.tail, "left by a tail call"),
        ] {
            if n > 0 {
                remarks.push(format!("{n} {what}"));
            }
        }
        remarks.extend(human::incomplete(part.incomplete, part.count));
        let remark = remarks.join(", ");
        if self.timers.is_empty() {
            let share = human::share(part.count.into(), whole.count.into());
            table.row(Row {
                cells: vec![part.count.to_string(), share],
                remark,
            });
            return;
        }
        for (i, name) in self.timers.iter().enumerate() {
            let unit = self.unit(name);
            let measured = (part.measured)(name);
            let calls = if i == 0 {
                part.count.to_string()
            } else {
                String::new()
            };
            let mut cells = vec![calls];
            if self.timers.len() > 1 {
                cells.push(printable(name).into_owned());
            }
            match (part.stats)(name) {
                Some(stats) if measured > 0 => {
                    let all = (whole.stats)(name).map_or(0, |s| s.sum);
                    let run = if unit == "ns" {
                        // Nested activations run within the outermost one's time.
                        let once = stats.outermost.unwrap_or(stats.sum);
                        human::share(once, self.profile.session.elapsed_ns.into())
                    } else {
                        String::new()
                    };
                    cells.extend([
                        human::quantity(stats.sum, unit),
                        human::mean(stats.sum, measured, unit),
                        human::quantity(stats.min.into(), unit),
                        human::quantity(stats.max.into(), unit),
                        human::share(stats.sum, all),
                        run,
                    ]);
                }
                _ => cells.extend(["-"; 6].map(str::to_owned)),
            }
            let remark = if i == 0 {
                remark.clone()
            } else {
                String::new()
            };
            table.row(Row { cells, remark });
        }
    }

    fn unit(&self, metric: &str) -> &'p str {
        self.profile
            .metrics
            .iter()
            .find(|m| m.name == metric)
            .map_or("", |m| &m.unit)
    }

    fn stack(&self, table: &mut Table, path: &PathEntry) {
        let depth = self.options.depth.unwrap_or(usize::MAX);
        for &index in path.stack.iter().take(depth) {
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
        if path.stack.len() > depth {
            table.text(more(path.stack.len() - depth, "frame"));
        } else if !path.complete {
            table.text("[callers unknown]".to_owned());
        } else if path.stack.is_empty() {
            table.text("[no caller]".to_owned());
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
        format!(
            "{n} {} {what} ({share})",
            if n == 1 { "call" } else { "calls" }
        )
    })
    .collect()
}

/// `1 more frame`, `2 more frames`.
fn more(n: usize, what: &str) -> String {
    format!("{n} more {what}{}", if n == 1 { "" } else { "s" })
}
