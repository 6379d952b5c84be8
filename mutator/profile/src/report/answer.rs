//! The end of a measurement on a terminal, on at most one screen: the costliest paths, a line each
//! and the costliest last, then one sentence about the costliest path and the next command.

use std::io::{self, Write};

use unicode_width::UnicodeWidthStr;

use super::chains::{self, End, Line, Written};
use super::exactness::{EXACT, loss_lines_beside};
use super::found::{explained, not_measured, whole};
use super::head::elapsed;
use super::rows::remarks;
use super::table::{LONGEST, aligned};
use super::{Numbered, Options, Report, Selection, human, more, threads, wrapped};
use crate::display_name;
use crate::profile::{
    self, Counts, FoundPath, Kind, Metric, PathEntry, Presence, Profile, SearchResult, Total, WALL,
    off_cpu, printable,
};
use ipath_base::hint::Hint;

/// The size of the terminal in characters.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    /// The width of the screen in terminal columns.
    pub width: usize,
    /// The height of the screen in lines.
    pub height: usize,
}

/// The maximum number of paths shown.
const MAX_PATHS: usize = 10;
/// The terminal columns below which names are not cut.
const LEAST: usize = 20;
/// The fewest terminal columns of a path beside the columns of further metrics.
const LEAST_PATH: usize = 46;
/// The maximum number of notes and losses shown. The report shows all.
const REMARKS: usize = 3;

/// Writes the end of a measurement: the program with losses and notes, the costliest paths, a
/// sentence on the costliest, and the next command `next`, if given.
///
/// # Errors
/// The errors of `out`.
pub fn answer(
    profile: &Profile,
    screen: Screen,
    next: Option<&Hint>,
    out: &mut impl Write,
) -> io::Result<()> {
    let options = Options::default();
    let report = Report::new(profile, &Selection::all(profile), &options);
    let answer = match &profile.search {
        Some(found) => report.of_search(found),
        None => report.of_paths(),
    };
    let columns = answer.columns(screen.width);
    let next = next.map(|next| format!("next: {next}"));
    let mut end = wrapped(answer.sentence.split(' '), " ", screen.width);
    // The command is not wrapped: users paste it.
    end.extend(next);
    let rows = |text: &String| text.width().div_ceil(screen.width.max(1)).max(1);
    // Two empty lines, the headings, the line about further paths, and the prompt.
    let mut under = answer.not_shown(screen.width);
    let inside = report.inside_lines();
    let inside = inside
        .iter()
        .flat_map(|line| wrapped(line.split(' '), " ", screen.width));
    under.extend(inside);
    let layout = |is_marked: bool| {
        let head = head(profile, screen, is_marked);
        let lines = head.iter().chain(&under).chain(&end);
        let taken = lines.map(rows).sum::<usize>() + 5;
        let room = screen.height.saturating_sub(taken).max(1);
        let texts = answer.texts(columns, screen.width, room);
        (head, texts)
    };
    // The note on marks takes lines. Omit it unless one of the rows shown is marked.
    let (head, texts) = match layout(true) {
        (head, texts) if answer.is_marked(texts.len()) => (head, texts),
        (_, texts) => (layout(false).0, texts),
    };
    head.iter().try_for_each(|line| writeln!(out, "{line}"))?;
    answer.write(columns, &texts, out)?;
    under.iter().try_for_each(|line| writeln!(out, "{line}"))?;
    if !answer.rows.is_empty() {
        writeln!(out)?;
    }
    end.iter().try_for_each(|line| writeln!(out, "{line}"))
}

/// Lines on the program, the losses and the notes, as many as fit in a quarter of the screen.
/// `is_marked` is true if a shown number is marked `≥`.
fn head(profile: &Profile, screen: Screen, is_marked: bool) -> Vec<String> {
    let (target, session) = (&profile.target, &profile.session);
    let (program, _) = profile::program(&target.exe, &target.args);
    let which = match profile.processes.len() {
        0 | 1 => format!("pid {}", target.pid),
        n => human::processes(n as u64),
    };
    let elapsed = elapsed(profile);
    let cpu = session.cpu_ns.map_or_else(String::new, |ns| {
        format!(", {} of CPU time", human::time(ns.into()))
    });
    let program = format!(
        "{} ({which}), measured for {elapsed}{cpu}",
        printable(&program)
    );
    let heavy = profile.heavy_line();
    let heavy = heavy.map(|heavy| format!("warning: {}", printable(&heavy)));
    let losses = loss_lines_beside(profile, is_marked);
    let is_exact = losses.is_empty() && profile.calls() > 0;
    let exact = is_exact.then(|| EXACT.to_owned());
    let losses = losses.iter().map(|loss| format!("not exact: {loss}"));
    let notes = profile.said();
    let notes = notes.map(|note| format!("note: {}", printable(&note)));
    let remarks = exact.into_iter().chain(heavy).chain(losses).chain(notes);
    let remarks: Vec<String> = remarks.collect();
    let lines = |most: usize| {
        let (shown, rest) = remarks.split_at(remarks.len().min(most));
        let rest =
            (!rest.is_empty()).then(|| format!("{}, in the report", more(rest.len(), "note")));
        let all = std::iter::once(&program).chain(shown).chain(&rest);
        let all = all.flat_map(|line| wrapped(line.split(' '), " ", screen.width));
        all.collect::<Vec<String>>()
    };
    let all = (0..=REMARKS).rev().map(lines);
    let mut fitting = all.filter(|lines| lines.len() <= screen.height / 4);
    fitting.next().unwrap_or_else(|| lines(0))
}

/// The table of paths, and the sentence about the costliest.
struct Answer {
    headings: Vec<String>,
    /// The metrics of the last columns. If the terminal is too narrow, their values follow the
    /// paths.
    further: Vec<String>,
    /// Metrics that are in the profile but not in the table.
    not_shown: Vec<String>,
    /// The cells and the path of each row, costliest first.
    rows: Vec<(Vec<String>, Line)>,
    /// The number of paths that are not in `rows`.
    hidden: usize,
    /// The sentence about the costliest path.
    sentence: String,
}

impl Answer {
    /// An answer without a table.
    fn of(sentence: String) -> Self {
        Self {
            headings: Vec::new(),
            further: Vec::new(),
            not_shown: Vec::new(),
            rows: Vec::new(),
            hidden: 0,
            sentence,
        }
    }

    /// The widths of the first `columns` columns of the table, in terminal columns.
    fn widths(&self, columns: usize) -> Vec<usize> {
        let mut widths: Vec<usize> = self.headings.iter().map(|h| h.width()).collect();
        for (cells, _) in &self.rows {
            for (widest, cell) in widths.iter_mut().zip(cells) {
                *widest = (*widest).max(cell.width());
            }
        }
        widths.truncate(columns);
        widths
    }

    /// The number of terminal columns before a path if the table has `columns` columns.
    fn before_path(&self, columns: usize) -> usize {
        self.widths(columns).iter().map(|w| w + 2).sum::<usize>() + 2
    }

    /// The number of columns of the table, without the path, that leave room for the paths on a
    /// terminal of `width` columns.
    fn columns(&self, width: usize) -> usize {
        let least = self.headings.len() - self.further.len();
        let mut numbers = (least..=self.headings.len()).rev();
        let is_roomy = |columns: &usize| self.before_path(*columns) + LEAST_PATH <= width;
        numbers.find(is_roomy).unwrap_or(least)
    }

    /// The text about metrics that are not shown, in lines of at most `width` columns. Empty if all
    /// are shown.
    fn not_shown(&self, width: usize) -> Vec<String> {
        if self.not_shown.is_empty() {
            return Vec::new();
        }
        let names = self.not_shown.join(", ");
        let text = format!("not shown: {names} (`-o FILE`, then `ipath report FILE` shows all)");
        wrapped(text.split(' '), " ", width)
    }

    /// The values of a row that have no column in a table of `columns` columns, with their metrics.
    fn values(&self, row: usize, columns: usize) -> Vec<String> {
        let first = self.headings.len() - self.further.len();
        let values = self.further.iter().zip(&self.rows[row].0[first..]);
        let hidden = values.skip(columns - first);
        hidden
            .map(|(name, value)| format!("{name} {value}"))
            .collect()
    }

    /// The paths that fit in `most` lines, the costliest first, at least one if there is one. The
    /// table has `columns` columns, and the terminal `width`.
    fn texts(&self, columns: usize, width: usize, most: usize) -> Vec<Written> {
        let lines: Vec<&Line> = self.rows.iter().map(|(_, line)| line).collect();
        let room = width.saturating_sub(self.before_path(columns)).max(LEAST);
        let mut shown = lines.len().min(most);
        loop {
            let texts = chains::write(&lines[..shown], |row| self.values(row, columns), room);
            let below = texts.iter().map(|text| text.below.len());
            if shown <= 1 || shown + below.sum::<usize>() <= most {
                return texts;
            }
            shown -= 1;
        }
    }

    /// True if a number of the first `shown` rows is marked.
    fn is_marked(&self, shown: usize) -> bool {
        let cells = self.rows[..shown].iter().flat_map(|(cells, _)| cells);
        cells.into_iter().any(|cell| cell.starts_with('≥'))
    }

    /// Writes the costliest paths, the costliest last.
    fn write(&self, columns: usize, texts: &[Written], out: &mut impl Write) -> io::Result<()> {
        if texts.is_empty() {
            return Ok(());
        }
        let widths = self.widths(columns);
        let gap = " ".repeat(self.before_path(columns));
        writeln!(out, "\n{}  PATH", aligned(&widths, &self.headings))?;
        let hidden = self.hidden + self.rows.len() - texts.len();
        if hidden > 0 {
            writeln!(out, "{gap}and {}", more(hidden, "path"))?;
        }
        for ((cells, _), text) in self.rows.iter().zip(texts).rev() {
            writeln!(out, "{}  {}", aligned(&widths, cells), text.path)?;
            for remark in &text.below {
                writeln!(out, "{gap}{remark}")?;
            }
        }
        Ok(())
    }
}

impl Report<'_> {
    /// The share of a path in the cost of its function's selected paths, from 0 to 1. `None` if the
    /// cost of these is not above 0.
    pub(super) fn share(&self, path: &PathEntry) -> Option<f64> {
        let whole = &self.totals[path.function].counts;
        let sum = |counts: &Counts| Some(counts.timers.get(self.sorted_by()?)?.sum);
        let (part, whole) = match (sum(&path.metrics), sum(whole)) {
            (Some(part), Some(whole)) => (part, whole),
            _ => (path.metrics.count.into(), whole.count.into()),
        };
        (whole > 0).then(|| part as f64 / whole as f64)
    }

    /// The answer with the costliest paths by the first metric, or by the number of calls if there
    /// is none.
    fn of_paths(&self) -> Answer {
        let (paths, number) = self.chosen();
        let called: Vec<&Numbered<'_>> = paths
            .iter()
            .filter(|(_, path)| path.metrics.count > 0)
            .take(MAX_PATHS)
            .collect();
        if called.is_empty() {
            let only_inside = self.order.is_empty() && !self.insides.is_empty();
            return Answer::of(if only_inside {
                let functions = human::count(self.insides.len() as u64, "function");
                format!("The control flow inside {functions} was counted, not their calls.")
            } else {
                "No call began: calls that were already running are not seen.".to_owned()
            });
        }
        let metric = self.metrics.first().copied();
        let further = self.metrics.get(1..).unwrap_or_default();
        let mut headings = match metric {
            Some(metric) => vec![
                self.share_heading(metric),
                total_heading(metric),
                "CALLS".to_owned(),
            ],
            None => vec!["SHARE".to_owned(), "CALLS".to_owned()],
        };
        headings.extend(further.iter().map(|metric| total_heading(metric)));
        let row = |(_, path): &&Numbered<'_>| {
            let mut line = self.chain(path.function, &path.stack, End::of(path.complete));
            let thread = path.thread.map(|tid| threads::title(&self.threads, tid));
            let process = path.process.and_then(|index| self.titles.title(index));
            let marks = self.marks(path);
            let apart = self.profile.apart(path);
            let remarks = apart.into_iter().chain(thread).chain(process).chain(marks);
            line.remarks = remarks.collect();
            let calls = path.metrics.count.to_string();
            let share = self.part(metric, path.function, self.sum(metric, &path.metrics));
            let total = |metric: &Metric| {
                let sum = human::quantity(self.sum(Some(metric), &path.metrics), &metric.unit);
                human::at_least(sum, &metric.unit, self.lacking(path))
            };
            let mut cells = match metric {
                Some(metric) => {
                    let share = human::at_least(share, &metric.unit, self.lacking(path));
                    vec![share, total(metric), calls]
                }
                None => vec![share, calls],
            };
            // The function may not measure this metric.
            let has = |metric: &Metric| {
                let stats = path.metrics.timers.get(&metric.name);
                stats.is_some_and(|stats| stats.values() > 0)
            };
            let totals = further.iter().map(|metric| {
                if has(metric) {
                    total(metric)
                } else {
                    "-".to_owned()
                }
            });
            cells.extend(totals);
            (cells, line)
        };
        let rows: Vec<_> = called.iter().map(row).collect();
        let (_, first) = called[0];
        let share = self.part(metric, first.function, self.sum(metric, &first.metrics));
        let which = self.of_caller(first.function, &first.stack, End::of(first.complete));
        let calls = human::count(first.metrics.count, "call");
        let sentence = match metric {
            Some(metric) => {
                let sum = human::quantity(self.sum(Some(metric), &first.metrics), &metric.unit);
                let sum = human::at_least(sum, &metric.unit, self.lacking(first));
                let whole = self.whole_name(metric);
                let time = format!("{sum} in {calls}");
                match share.strip_suffix('x') {
                    Some(times) => format!(
                        "On average {times} threads at a time{} are in {which}: {} {time}.",
                        match self.profile.processes.len() {
                            0 | 1 => "",
                            _ => " of each process",
                        },
                        printable(off_cpu::heading(&metric.name))
                    ),
                    None => format!("{share} of {whole} is in {which}: {time}."),
                }
            }
            None => format!("{share} of the calls are of {which}: {calls}."),
        };
        Answer {
            headings,
            further: further.iter().map(|metric| shown_name(metric)).collect(),
            not_shown: Vec::new(),
            rows,
            hidden: number - called.len(),
            sentence,
        }
    }

    /// See [`Total::lacking`].
    fn lacking(&self, path: &PathEntry) -> u64 {
        let function = &self.profile.functions[path.function];
        path.tail.max(u64::from(function.throttled.is_some()))
    }

    /// Remarks on the accuracy of a path, except on its missing callers. `None` if there are none.
    fn marks(&self, path: &PathEntry) -> Option<String> {
        let function = &self.profile.functions[path.function];
        let mut part = Total::of([path]).of_function(function);
        part.incomplete = 0;
        Some(remarks(&part, "")).filter(|marks| !marks.is_empty())
    }

    /// The sum of the metric, or the number of calls without a metric. 0 if it was not measured.
    fn sum(&self, metric: Option<&Metric>, counts: &profile::Counts) -> i128 {
        match metric {
            Some(metric) => counts.timers.get(&metric.name).map_or(0, |stats| stats.sum),
            None => counts.count.into(),
        }
    }

    /// The share that `sum` has as text: of the run if that is known, else of the measured total of
    /// all functions. `sum` is that of a path of `function`. Without `metric`, it is a number of
    /// calls.
    fn part(&self, metric: Option<&Metric>, function: usize, sum: i128) -> String {
        let presence = self.totals[function].presence;
        match metric.and_then(|metric| self.profile.run_of(metric, presence)) {
            Some(run) => human::of_run(sum, run.into()),
            None => {
                let all = self
                    .totals
                    .iter()
                    .map(|total| self.sum(metric, &total.counts));
                human::share(sum, all.fold(0, i128::saturating_add))
            }
        }
    }

    fn share_heading(&self, metric: &Metric) -> String {
        match self.profile.run_of(metric, Presence::default()) {
            Some(_) => "OF RUN".to_owned(),
            None => "SHARE".to_owned(),
        }
    }

    /// The name of the share's denominator.
    fn whole_name(&self, metric: &Metric) -> String {
        let run = self.profile.run_of(metric, Presence::default());
        let number = self.profile.processes.len();
        match (run, metric.name.as_str(), number) {
            (Some(_), "cpu", 0 | 1) => "the CPU time".to_owned(),
            (Some(_), "cpu", n) => format!("the CPU time of all {n} processes"),
            (Some(_), _, 0 | 1) => "the run".to_owned(),
            (Some(_), _, n) => format!("the time of all {n} processes"),
            (None, name, _) => format!("the measured {}", printable(off_cpu::heading(name))),
        }
    }

    /// ` of all processes` if the profile sums processes, else empty.
    pub(super) fn of_processes(&self) -> &'static str {
        if self.profile.processes.is_empty() {
            ""
        } else {
            " of all processes"
        }
    }

    /// A function and its first own caller, with the line of the call. If services call each other,
    /// the one that the program calls is named, too: `std::sync::Mutex::lock (syscall), called by
    /// app::handle at app.rs:7`.
    fn of_caller(&self, function: usize, stack: &[usize], end: End) -> String {
        let service = self.service(function, stack);
        let stack = service.map_or(stack, |(_, outside)| outside);
        let frames = self.frames(stack, stack.len().min(LEAST));
        let direct = frames.iter().position(|frame| frame.fold.is_none());
        let own = frames.iter().position(|frame| frame.is_own);
        let how = if own.is_some() && own != direct {
            "reached from"
        } else {
            "called by"
        };
        let caller = own.or(direct).and_then(|index| frames.get(index));
        let caller = caller.or(frames.first());
        let name = printable(&self.profile.functions[function].name);
        let entry = service.map_or(&*name, |(entry, _)| entry);
        let names: Vec<&str> = [entry]
            .into_iter()
            .chain(caller.map(|frame| frame.name.as_str()))
            .collect();
        let mut names = display_name::fit_all(&names, LONGEST);
        let distinction = self.profile.distinction(function);
        if service.is_some() {
            names[0].push_str(&format!(" ({})", display_name::fit(&name, LONGEST)));
        } else {
            names[0].push_str(&distinction);
        }
        match (caller, end) {
            (Some(frame), _) => {
                let site = if frame.has_line() {
                    frame.site()
                } else {
                    format!("{} in {}", frame.site(), frame.place)
                };
                format!("{}, {how} {}{site}", names[0], names[1])
            }
            (None, End::Unknown) => format!("{}, whose callers are unknown", names[0]),
            (None, End::Several) => format!("{}, on several paths", names[0]),
            (None, End::Root) => format!("{}, which has no caller", names[0]),
        }
    }

    /// The answer with the paths that a search has found.
    fn of_search(&self, found: &SearchResult) -> Answer {
        let costliest = found.costliest_left();
        let costliest = costliest.map_or_else(String::new, |left| {
            format!(
                "The costliest function is not measured: {}. ",
                not_measured(left)
            )
        });
        let Some((first, kind)) = found.first() else {
            return Answer::of(format!(
                "{costliest}No call path explains {}.",
                whole(found)
            ));
        };
        let row = |path: &FoundPath| {
            let mut line = self.chain(path.function, &path.stack, end_of(path));
            if !path.complete {
                line.end_with(format!("[{}]", human::count(path.paths, "path")));
            }
            let total = path.cpu_ns.saturating_add(path.waiting_ns);
            let share = |share: f64| {
                if share > 0.0 {
                    human::percent(share)
                } else {
                    "-".to_owned()
                }
            };
            let cells = vec![
                share(path.cpu_share),
                share(path.waiting_share),
                human::time(total.into()),
                path.calls.to_string(),
            ];
            (cells, line)
        };
        let is_in = |path: &FoundPath, kind: Kind| {
            let of = match kind {
                Kind::Cpu => "the CPU time",
                Kind::Waiting => "the time off a processor",
            };
            let whose = self.of_processes();
            format!(
                "{} of {of}{whose} is in {}: {} in {}.",
                human::percent(kind.share(path)),
                self.of_caller(path.function, &path.stack, end_of(path)),
                human::time(kind.time(path).into()),
                human::count(path.calls, "call"),
            )
        };
        // CPU time and time off a processor are derived from these two.
        let is_other = |metric: &&&Metric| !matches!(metric.name.as_str(), WALL | "cpu");
        let not_shown = self.metrics.iter().filter(is_other);
        let other = match kind {
            Kind::Cpu => Kind::Waiting,
            Kind::Waiting => Kind::Cpu,
        };
        let also = found
            .substantial(other)
            .map_or_else(String::new, |path| format!(" {}", is_in(path, other)));
        let sentence = format!(
            "{costliest}In the best step ({}), {}{also} Measured calls explain {} in all.",
            human::time(found.ns.into()),
            is_in(first, kind),
            explained(found),
        );
        Answer {
            headings: ["OF CPU", "OFF CPU", "TOTAL", "CALLS"]
                .map(str::to_owned)
                .to_vec(),
            further: Vec::new(),
            not_shown: not_shown.map(|metric| shown_name(metric)).collect(),
            rows: found.paths.iter().take(MAX_PATHS).map(row).collect(),
            hidden: found.paths.len().saturating_sub(MAX_PATHS),
            sentence,
        }
    }
}

/// The end of a path of a search. A path that is not complete continues in several ways.
fn end_of(path: &FoundPath) -> End {
    if path.complete {
        End::Root
    } else {
        End::Several
    }
}

/// The heading of a metric, safe to display.
fn shown_name(metric: &Metric) -> String {
    printable(off_cpu::heading(&metric.name)).into_owned()
}

fn total_heading(metric: &Metric) -> String {
    format!("{} TOTAL", shown_name(metric).to_uppercase())
}

#[cfg(test)]
mod tests;
