//! Profiles as text: the full report and the short summary of an interval.

mod answer;
mod chains;
mod exactness;
mod filter;
mod found;
mod head;
mod histogram;
pub mod human;
mod inside;
mod json;
pub mod loop_counts;
mod order;
pub mod places;
mod process_rows;
mod processes;
pub mod routes;
mod rows;
mod single;
mod summary;
mod table;
#[cfg(test)]
mod tests;
mod threads;
mod throttled;
mod tree;
mod wrap;

pub use answer::{Screen, answer};
pub use exactness::loss_lines;
pub use filter::{Filter, NotThere, Selection};
pub(crate) use inside::{graph_size, loop_place, offset_in};
pub use json::json;
pub use order::By;
pub use processes::Titles;
pub use summary::summary;
pub use throttled::state;
pub use tree::tree;
pub use wrap::wrapped;

use patcher::function::also_called;

use crate::display_name;
use crate::profile::{
    COUNT, Function, FunctionPart, Label, Metric, PathEntry, Profile, Refused, Spreads, Total,
    printable,
};
use rows::Rows;
use rustc_hash::FxHashMap;
use std::borrow::Cow;
use std::cell::OnceCell;
use std::io::{self, Write};
use std::rc::Rc;
use table::Frame;
pub use table::Table;
use threads::{Group, Names};

/// The spread of a metric over the processes of a profile, as text. `None` if `spreads` is `None`,
/// as with only one process, or lacks the metric.
pub fn spread(
    profile: &Profile,
    (name, unit): (&str, &str),
    spreads: Option<&Spreads>,
) -> Option<String> {
    let spread = spreads?.get(name)?;
    let of = processes::number(profile);
    if spread.present == 0 {
        return Some(format!("called in none of {of}"));
    }
    let process = Titles::of(profile).title(spread.max_process)?;
    let quantity = |value| human::quantity(value, unit);
    Some(format!(
        "called in {} of {of}: min {}, mean {}, max {} ({process}), {} the mean",
        spread.present,
        quantity(spread.min),
        human::average(Some(spread.mean), unit),
        quantity(spread.max),
        human::times(1.0 + spread.imbalance),
    ))
}

/// A line with the costliest processes of a function, by the metric `name` in `unit`. `None` if
/// there is only one process, or if the part of each process is not known.
pub fn costliest_processes(
    profile: &Profile,
    (name, unit): (&str, &str),
    function: &Function,
) -> Option<String> {
    let groups = processes::groups(profile, &function.processes, name);
    let titles = Titles::of(profile);
    let shown = groups.iter().take(PROCESSES).map(|group| {
        let value = human::quantity(group.by(name), unit);
        format!("{value} {}", group.title(&titles))
    });
    let shown: Vec<String> = shown.collect();
    let more = groups.len().saturating_sub(shown.len());
    let more = (more > 0).then(|| format!("; {more} more"));
    (!groups.is_empty()).then(|| format!("{}{}", shown.join("; "), more.unwrap_or_default()))
}

/// The default for the number of functions and paths shown.
pub const LIMIT: usize = 30;
/// The default for the number of processes shown for a function.
pub const PROCESSES: usize = 8;
/// The default for the number of callers shown for a path. A recursion can have thousands.
pub const DEPTH: usize = 24;

/// The content of a report.
#[derive(Clone, Debug)]
pub struct Options {
    /// The metric to sort by and to show first. The default is the first metric of the profile
    /// after `count`.
    pub metric: Option<String>,
    /// The sort key of functions and paths.
    pub by: By,
    /// The maximum number of functions, and of paths. `None` for all.
    pub limit: Option<usize>,
    /// The maximum number of paths for each function. `None` for all.
    pub paths: Option<usize>,
    /// The maximum number of processes for each function. `None` for all.
    pub processes: Option<usize>,
    /// The maximum number of frames for each path, from the innermost caller outwards. `None` for
    /// all.
    pub depth: Option<usize>,
    /// The smallest share of its function's cost that a path must have, from 0 to 1.
    pub min_share: f64,
    /// True to add a histogram for each function.
    pub histogram: bool,
    /// True to write only the tables and the losses.
    pub quiet: bool,
    /// True to write whole names, every frame, and the way in which each function is patched.
    pub verbose: bool,
    /// A hint on how to show the parts that are left out.
    pub all_by: &'static str,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            metric: None,
            by: By::Total,
            limit: Some(LIMIT),
            paths: None,
            processes: Some(PROCESSES),
            depth: Some(DEPTH),
            min_share: 0.0,
            histogram: false,
            quiet: false,
            verbose: false,
            all_by: "a profile (-o FILE) has them",
        }
    }
}

/// Writes the report: the measurement, the functions, then the paths, costliest first.
///
/// # Errors
/// The errors of `out`.
pub fn text(profile: &Profile, options: &Options, out: &mut impl Write) -> io::Result<()> {
    selected(profile, &Selection::all(profile), options, out)
}

/// Writes the report of the selected part of the profile.
///
/// # Errors
/// Returns the errors of `out`.
pub fn selected(
    profile: &Profile,
    shown: &Selection,
    options: &Options,
    out: &mut impl Write,
) -> io::Result<()> {
    let report = Report::new(profile, shown, options);
    report.head(out)?;
    if let Some(search) = profile.search.as_ref().filter(|_| !options.quiet) {
        report.found(search, out)?;
    }
    report.functions(out)?;
    report.paths(out)?;
    report.slowest(out)?;
    report.inside(out)?;
    if !options.quiet {
        report.refused(out)?;
    }
    exactness::write(profile, report.is_marked(report.metrics.iter()), out)
}

/// Writes only the head of the report and the result of a search, if there was one.
///
/// # Errors
/// Returns the errors of `out`.
pub fn found(profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    let options = Options::default();
    let report = Report::new(profile, &Selection::all(profile), &options);
    report.head(out)?;
    match &profile.search {
        Some(search) => report.found(search, out),
        None => Ok(()),
    }
}

/// A selected path, with its index in the profile.
type Numbered<'p> = (usize, &'p PathEntry);

struct Report<'p> {
    profile: &'p Profile,
    options: &'p Options,
    /// The metrics except `count`, the chosen one first.
    metrics: Vec<&'p Metric>,
    /// The indexes of the selected functions, in sort order.
    order: Vec<usize>,
    /// The indexes of the selected functions whose control flow was counted, in sort order.
    insides: Vec<usize>,
    /// The selected paths of each function, by the function's index.
    paths: Vec<Vec<Numbered<'p>>>,
    /// The sum of `paths` for each function, by the function's index.
    totals: Vec<Total>,
    threads: Names<'p>,
    titles: Titles<'p>,
    /// The lines of each frame, filled on first use.
    lines: Vec<OnceCell<Vec<Rc<Frame>>>>,
}

impl<'p> Report<'p> {
    fn new(profile: &'p Profile, shown: &Selection, options: &'p Options) -> Self {
        let mut metrics: Vec<_> = profile.timers().collect();
        metrics.sort_by_key(|m| Some(&m.name) != options.metric.as_ref());
        let mut paths = vec![Vec::new(); profile.functions.len()];
        for &index in &shown.paths {
            let path = &profile.paths[index];
            paths[path.function].push((index, path));
        }
        let total = |(function, paths): (&Function, &Vec<Numbered<'_>>)| {
            Total::of(paths.iter().map(|(_, path)| *path)).of_function(function)
        };
        let totals = profile.functions.iter().zip(&paths).map(total).collect();
        let mut report = Self {
            profile,
            options,
            metrics,
            order: shown.functions.clone(),
            insides: Vec::new(),
            paths,
            totals,
            threads: profile.thread_names(),
            titles: Titles::of(profile),
            lines: vec![OnceCell::new(); profile.frames.len()],
        };
        let mut order = std::mem::take(&mut report.order);
        order.sort_by_key(|&f| {
            let name = &profile.functions[f].name;
            options
                .by
                .key(report.sorted_by(), &report.totals[f].counts, name)
        });
        report.insides.clone_from(&order);
        report.insides.retain(|&f| profile.has_inside(f));
        // Those without calls are in a section of their own.
        order.retain(|&f| !report.paths[f].is_empty() || !profile.has_inside(f));
        report.order = order;
        report
    }

    /// The metric that is the sort key. `None` if the sort key is the number of calls.
    fn sorted_by(&self) -> Option<&str> {
        let metric = self.metrics.first().map(|m| m.name.as_str());
        metric.filter(|_| self.options.metric.as_deref() != Some(COUNT))
    }

    /// The maximum number of terminal columns of a name.
    fn longest(&self) -> usize {
        if self.options.verbose {
            usize::MAX
        } else {
            table::LONGEST
        }
    }

    /// The maximum number of functions, of paths and of refused functions.
    fn limit(&self) -> usize {
        self.options.limit.unwrap_or(usize::MAX)
    }

    /// Writes the head, unless the report is quiet.
    fn head(&self, out: &mut impl Write) -> io::Result<()> {
        if self.options.quiet {
            Ok(())
        } else {
            head::write(self.profile, out)
        }
    }

    /// The paths shown, in sort order, and the number of all selected paths, including those that
    /// the options leave out.
    fn chosen(&self) -> (Vec<Numbered<'p>>, usize) {
        let all = self.order.iter().flat_map(|&f| &self.paths[f]);
        let mut paths: Vec<Numbered<'p>> = all.copied().collect();
        let number = paths.len();
        let least = self.options.min_share;
        if least > 0.0 {
            paths.retain(|(_, path)| self.share(path).is_some_and(|share| share >= least));
        }
        paths.sort_by_cached_key(|(_, path)| {
            let name = &self.profile.functions[path.function].name;
            self.options.by.key(self.sorted_by(), &path.metrics, name)
        });
        let mut left = vec![self.options.paths.unwrap_or(usize::MAX); self.paths.len()];
        paths.retain(|(_, path)| {
            let left = &mut left[path.function];
            let is_shown = *left > 0;
            *left = left.saturating_sub(1);
            is_shown
        });
        paths.truncate(self.limit());
        (paths, number)
    }

    /// The indexes of the functions shown, in sort order: the first of `order`, up to the limit.
    fn listed(&self) -> &[usize] {
        &self.order[..self.order.len().min(self.limit())]
    }

    /// True if a number of a listed function is marked `≥` for one of these metrics.
    fn is_marked<'m>(&self, mut metrics: impl Iterator<Item = &'m &'p Metric>) -> bool
    where
        'p: 'm,
    {
        let mut listed = self.listed().iter();
        metrics.any(|metric| human::is_markable(&metric.unit))
            && listed.any(|&f| self.totals[f].tail > 0)
    }

    fn functions(&self, out: &mut impl Write) -> io::Result<()> {
        if self.order.is_empty() {
            return Ok(());
        }
        writeln!(out, "\nFunctions")?;
        let rows = Rows::of_wholes(self.profile, &self.metrics);
        let mut table = Table::new(&rows.headings()).with_names(self.longest());
        let names = self.short_names();
        for &index in self.listed() {
            self.function(&rows, &mut table, &names, index);
        }
        self.rest(
            &mut table,
            self.order.len() - self.listed().len(),
            "function",
        );
        table.write(out)?;
        if self.options.histogram {
            for &index in self.listed() {
                let name = printable(&self.profile.functions[index].name);
                writeln!(out, "\n{name}")?;
                histogram::write(&self.metrics, &self.totals[index], out)?;
            }
        }
        Ok(())
    }

    /// The shortened names of the listed functions, by the function's index.
    fn short_names(&self) -> FxHashMap<usize, String> {
        let listed = self.listed().iter();
        let names = listed.map(|&index| printable(&self.profile.functions[index].name));
        let names: Vec<Cow<'_, str>> = names.collect();
        let names: Vec<&str> = names.iter().map(|name| &**name).collect();
        let short = display_name::fit_all(&names, self.longest());
        self.listed().iter().copied().zip(short).collect()
    }

    fn function(
        &self,
        rows: &Rows<'_>,
        table: &mut Table,
        names: &FxHashMap<usize, String>,
        index: usize,
    ) {
        let function = &self.profile.functions[index];
        let whole = &self.totals[index];
        let name = &names[&index];
        let paths = human::count(self.paths[index].len() as u64, "path");
        let distinction = self.profile.distinction(index);
        rows.add(
            table,
            whole,
            whole,
            &format!("{name}{distinction}, {paths}"),
        );
        // The spread is known only for all calls.
        let is_whole = whole.counts.count == function.totals.counts.count;
        let spread = function.spread.as_deref().filter(|_| is_whole);
        if let Some(spread) = self.spread(spread) {
            table.text(spread);
        }
        for line in self.place(function) {
            table.text(line);
        }
        let paths: Vec<_> = self.paths[index].iter().map(|(_, path)| *path).collect();
        let by_name = threads::by_name(&self.threads, &paths);
        let by_phase = threads::by_phase(self.profile, &paths);
        for (mut groups, what) in [(by_name, "thread"), (by_phase, "phase")] {
            let by = self.options.by;
            groups.sort_by_key(|group| by.key(self.sorted_by(), &group.total.counts, ""));
            let shown = groups.len().min(self.limit());
            for Group { title, total } in &groups[..shown] {
                rows.add(table, total, whole, title);
            }
            self.rest(table, groups.len() - shown, what);
        }
        let parts = processes::parts(function, &paths, whole.counts.count);
        self.processes(rows, table, &parts);
    }

    fn paths(&self, out: &mut impl Write) -> io::Result<()> {
        let (paths, number) = self.chosen();
        if number == 0 {
            return Ok(());
        }
        writeln!(out, "\nCostliest paths")?;
        let rows = Rows::of_parts(self.profile, &self.metrics);
        let mut table = Table::new(&rows.headings()).with_names(self.longest());
        for (_, path) in &paths {
            let function = &self.profile.functions[path.function];
            let mut part = Total::of([*path]).of_function(function);
            // The end of the stack shows this.
            part.incomplete = 0;
            let thread = path.thread.map(|tid| threads::title(&self.threads, tid));
            let process = path.process.and_then(|index| self.titles.title(index));
            let spread = self.spread(path.spread.as_deref());
            rows.add(
                &mut table,
                &part,
                &self.totals[path.function],
                &spread.unwrap_or_default(),
            );
            table.shared(self.end(path.function));
            self.stack(&mut table, path);
            let owners = self.profile.apart(path).into_iter().chain(thread);
            for owner in owners.chain(process) {
                table.text(owner);
            }
        }
        self.rest(&mut table, number - paths.len(), "path");
        table.write(out)
    }

    /// Adds a line with the number of items left out, if any.
    fn rest(&self, table: &mut Table, hidden: usize, what: &str) {
        if hidden > 0 {
            let all_by = self.options.all_by;
            table.text(format!("{}, not shown; {all_by}", more(hidden, what)));
        }
    }

    /// Lines on a function: its module and address, with `verbose` the way in which it is patched;
    /// the metrics that it measures now, if not all; its other names; and its copies whose calls
    /// are not counted.
    fn place(&self, function: &Function) -> Vec<String> {
        let entry = printable(&function.entry);
        let is_span = function.is_span();
        let how = match function.exits.as_slice() {
            [] if function.point => format!("a point, {entry}"),
            [] if is_span => format!("entries {entry}, ends not patched"),
            [] => format!("entry {entry}, exits not patched"),
            exits => format!("entry {entry}, exits {}", printable(&exits.join(", "))),
        };
        let module = self.profile.module_name(Some(function.module));
        let place = format!("at {module}+{:#x}", function.address);
        let place = match function.position().filter(|_| function.point || is_span) {
            Some(position) => format!("{place}, {}", printable(&position)),
            None => place,
        };
        let mut lines = vec![match self.options.verbose {
            true => format!("{place}, {how}"),
            false if function.point => format!("{place}, a point"),
            false => match function.part() {
                FunctionPart::Loop => format!("{place}, a loop"),
                FunctionPart::Paths => format!("{place}, its paths"),
                FunctionPart::Copy(_) => format!("{place}, an inlined copy"),
                FunctionPart::Whole | FunctionPart::Point => place,
            },
        }];
        if let Some(measured) = &function.measured {
            let measured = measured.join(", ");
            lines.push(format!("measured by {} now", printable(&measured)));
        }
        let also = human::also(&also_called(&function.linkage, &function.aliases));
        lines.extend(also.map(|text| printable(&text).into_owned()));
        let is_measured = |name: &&String| {
            let mut functions = self.profile.functions.iter();
            functions.any(|f| f.module == function.module && f.linkage == **name)
        };
        let others = function.clones.iter().filter(|name| !is_measured(name));
        let with_copies = self.profile.calls_with_copies(function);
        let inlined = if with_copies.is_some() {
            0
        } else {
            function.inlined
        };
        let elsewhere = human::elsewhere(others.map(String::as_str), inlined);
        lines.extend(elsewhere.map(|text| printable(&text).into_owned()));
        lines.extend(with_copies.map(|all| {
            let all = human::count(all, "call");
            format!("of {all} of the function and its inlined copies")
        }));
        lines
    }

    fn stack(&self, table: &mut Table, path: &PathEntry) {
        let depth = self.options.depth.unwrap_or(usize::MAX);
        self.folded(table, &path.stack, depth);
        if path.stack.len() > depth {
            table.text(more(path.stack.len() - depth, "frame"));
        }
        if let Some(end) = end_of(self.profile, path) {
            table.text(end.to_owned());
        }
    }

    /// Adds the innermost `depth` frames of a stack, folded unless `verbose`.
    fn folded(&self, table: &mut Table, stack: &[usize], depth: usize) {
        table.folded(self.frames(stack, depth), !self.options.verbose);
    }

    /// The lines of the frame with this index: the functions inlined at the call, innermost first,
    /// then the function itself, each with its place.
    fn lines(&self, index: usize) -> &[Rc<Frame>] {
        self.lines[index].get_or_init(|| {
            let frame = &self.profile.frames[index];
            let labels = self.profile.labels(frame).into_iter();
            let line = |label: Label| Rc::new(Frame::of(label, frame.offset));
            labels.map(line).collect()
        })
    }

    /// The line of the function with this index at the end of its paths.
    fn end(&self, index: usize) -> Rc<Frame> {
        let function = &self.profile.functions[index];
        let module = self.profile.module_name(Some(function.module));
        let position = function.position().filter(|_| function.is_span());
        Rc::new(Frame {
            name: printable(&function.name).into_owned(),
            suffix: self.profile.distinction(index),
            place: position.unwrap_or_else(|| module.into_owned()),
            fold: None,
            is_own: true,
            loops: Vec::new(),
        })
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
        } in refused.iter().take(self.limit())
        {
            let (name, module) = (printable(name), self.profile.module_name(Some(*module)));
            writeln!(
                out,
                "  {name} ({module}+{address:#x}): {}",
                printable(reason)
            )?;
        }
        match refused.len().saturating_sub(self.limit()) {
            0 => Ok(()),
            hidden => writeln!(
                out,
                "  {}; {}",
                more(hidden, "function"),
                self.options.all_by
            ),
        }
    }
}

/// The text after the last caller of a path: the reason if the path is not complete, `[no caller]`
/// if it is complete and has no caller. `None` on other paths.
fn end_of(profile: &Profile, path: &PathEntry) -> Option<&'static str> {
    let has_none = path.complete && path.stack.is_empty();
    profile
        .unknown_callers(path)
        .or(has_none.then_some("[no caller]"))
}

/// `1 more frame`, `2 more frames`.
fn more(n: usize, what: &str) -> String {
    human::count(n as u64, &format!("more {what}"))
}
