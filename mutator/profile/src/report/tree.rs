//! The callers of each function as a tree. Paths with the same innermost callers share these nodes.

use super::table::Frame;
use super::{Numbered, Options, Report, Selection, end_of, exactness, human};
use crate::display_name;
use crate::folding::{self, Item};
use crate::profile::{PathEntry, Profile, off_cpu, printable};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, Write};
use std::rc::Rc;

/// The paths that share the callers up to this one.
#[derive(Default)]
struct Node {
    calls: u64,
    /// The sum of the metric that is the sort key.
    sum: i128,
    /// The number of calls on incomplete paths.
    incomplete: u64,
    /// The number of calls that left by a tail call.
    tail: u64,
    /// The number of calls that at least one metric has not measured.
    unmeasured: u64,
    /// The number of calls on paths whose display ends here before a root, or that have no caller,
    /// by the text shown for them.
    ends: BTreeMap<&'static str, u64>,
    /// Callers on shown paths, by frame.
    callers: HashMap<usize, Node>,
    /// True if there are callers on paths that are not shown.
    has_others: bool,
}

impl Node {
    fn add(&mut self, path: &PathEntry, sum: i128, is_point: bool) {
        self.calls = self.calls.saturating_add(path.metrics.count);
        self.sum = self.sum.saturating_add(sum);
        self.incomplete = self.incomplete.saturating_add(path.incomplete());
        self.tail = self.tail.saturating_add(path.tail);
        if !is_point {
            self.unmeasured = self.unmeasured.saturating_add(path.unmeasured());
        }
    }
}

impl Node {
    /// Adds a path, with its `sum` of the metric, to this node and to the nodes of its callers, up
    /// to `depth` of them. Stops at a caller that has no node.
    fn take(&mut self, profile: &Profile, path: &PathEntry, sum: i128, depth: usize) {
        let is_point = profile.functions[path.function].point;
        self.add(path, sum, is_point);
        let mut node = self;
        for frame in path.stack.iter().take(depth) {
            node.has_others |= !node.callers.contains_key(frame);
            let Some(caller) = node.callers.get_mut(frame) else {
                return;
            };
            caller.add(path, sum, is_point);
            node = caller;
        }
        let end = if path.stack.len() > depth {
            Some("...")
        } else {
            end_of(profile, path)
        };
        if let Some(end) = end {
            let calls = node.ends.entry(end).or_default();
            *calls = calls.saturating_add(path.metrics.count);
        }
    }
}

/// Writes the tree of callers for each function, with their shares of the calls and of the metric.
///
/// # Errors
/// Returns the errors of `out`.
pub fn tree(
    profile: &Profile,
    shown: &Selection,
    options: &Options,
    out: &mut impl Write,
) -> io::Result<()> {
    let report = Report::new(profile, shown, options);
    report.head(out)?;
    let mut is_shown = vec![false; profile.paths.len()];
    for (index, _) in report.chosen().0 {
        is_shown[index] = true;
    }
    for &function in report.listed() {
        Tree::of(&report, function, &is_shown).write(out)?;
    }
    let hidden = report.order.len() - report.listed().len();
    if hidden > 0 {
        let (more, all_by) = (super::more(hidden, "function"), options.all_by);
        writeln!(out, "\n{more}, not shown; {all_by}")?;
    }
    let sorted_by = report.metrics.iter().take(1);
    let sorted_by = sorted_by.filter(|_| report.sorted_by().is_some());
    exactness::write(profile, report.is_marked(sorted_by), out)
}

/// The callers of one function.
struct Tree<'r> {
    report: &'r Report<'r>,
    /// Index into [`Profile::functions`].
    function: usize,
    /// The node of the function itself.
    root: Node,
    /// Displayed names of the function and of all its callers, by their whole names.
    names: HashMap<String, String>,
    /// The number of paths of the function that are not shown.
    hidden: usize,
}

impl<'r> Tree<'r> {
    fn of(report: &'r Report<'r>, function: usize, is_shown: &[bool]) -> Self {
        let mut root = Node::default();
        let depth = report.options.depth.unwrap_or(usize::MAX);
        let paths: &[Numbered<'_>] = &report.paths[function];
        for (_, path) in paths.iter().filter(|(index, _)| is_shown[*index]) {
            let frames = path.stack.iter().take(depth);
            frames.fold(&mut root, |node, &frame| {
                node.callers.entry(frame).or_default()
            });
        }
        for &(_, path) in paths {
            let stats = report.sorted_by().and_then(|m| path.metrics.timers.get(m));
            let sum = stats.map_or(0, |stats| stats.sum);
            root.take(report.profile, path, sum, depth);
        }
        let shown = paths.iter().filter(|(index, _)| is_shown[*index]).count();
        Self {
            report,
            function,
            names: names(report, function, &root),
            root,
            hidden: paths.len() - shown,
        }
    }

    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let function = &self.report.profile.functions[self.function];
        let end = self.report.end(self.function);
        let name = self.name(&end);
        let metric = self.report.sorted_by();
        writeln!(out, "\n{name}")?;
        for line in self.report.place(function) {
            writeln!(out, "  {line}")?;
        }
        write!(out, "  {}", human::count(self.root.calls, "call"))?;
        if let Some(metric) = self.report.metrics.first().filter(|_| metric.is_some()) {
            let sum = human::quantity(self.root.sum, &metric.unit);
            let is_throttled = u64::from(function.throttled.is_some());
            let sum = human::at_least(sum, &metric.unit, self.root.tail.max(is_throttled));
            write!(out, ", {} {sum}", printable(off_cpu::heading(&metric.name)))?;
        }
        writeln!(out)?;
        let of_metric = metric.map_or_else(String::new, |m| {
            format!("  {:>7}", printable(off_cpu::heading(m)))
        });
        writeln!(out, "  {:>7}{of_metric}", "calls")?;
        self.node(&self.root, &[Rc::clone(&end)], (0, false), out)?;
        if self.hidden > 0 {
            let (more, all_by) = (super::more(self.hidden, "path"), self.report.options.all_by);
            writeln!(out, "  {more}, in the shares but not shown; {all_by}")?;
        }
        Ok(())
    }

    /// Writes a caller with these lines, then its own callers. One of several callers begins with a
    /// dash.
    fn node(
        &self,
        node: &Node,
        lines: &[Rc<Frame>],
        (indent, is_part): (usize, bool),
        out: &mut impl Write,
    ) -> io::Result<()> {
        let mut numbers = self.numbers(node.calls, Some(node.sum));
        let mut before = lead(indent, is_part);
        let to_be_folded = !self.report.options.verbose;
        let folds = lines.iter().map(|l| l.fold.filter(|_| to_be_folded));
        let texts = folding::fold(folds)
            .into_iter()
            .flat_map(|item| match item {
                Item::Frame(index) => {
                    let line = &lines[index];
                    let own = format!("{}{}  {}", self.name(line), line.suffix, line.place);
                    line.loops.iter().cloned().chain([own]).collect()
                }
                Item::Runtime(text) => vec![text],
                // The function into which they are inlined follows.
                Item::Wrappers(_) => Vec::new(),
            });
        for line in texts {
            let text = format!("  {numbers}  {before}{line}");
            write!(out, "{}", text.trim_end())?;
            if numbers.trim().is_empty() {
                writeln!(out)?;
            } else {
                writeln!(out, "{}", marks(node))?;
            }
            numbers = " ".repeat(numbers.len());
            before = lead(indent, false);
        }
        let mut callers: Vec<_> = node.callers.iter().collect();
        callers.sort_by_key(|(frame, n)| (std::cmp::Reverse((n.sum, n.calls)), **frame));
        // A single caller has the same indentation; several callers are indented further.
        let others = node.ends.len() + usize::from(node.has_others);
        let parts = node.callers.len() + others > 1;
        let indent = indent + if parts { DASH.len() } else { 0 };
        for (&frame, caller) in callers {
            let (last, lines) = self.foldable(frame, caller);
            self.node(last, &lines, (indent, parts), out)?;
        }
        for (end, &calls) in &node.ends {
            let numbers = self.numbers(calls, None);
            writeln!(out, "  {numbers}  {}{end}", lead(indent, parts))?;
        }
        Ok(())
    }

    /// The lines of a caller and of its chain of single callers, as long as all of them are folded.
    /// Returns the node of the last line. All these nodes have the same numbers.
    fn foldable<'n>(&self, frame: usize, caller: &'n Node) -> (&'n Node, Vec<Rc<Frame>>) {
        let is_folded = |lines: &[Rc<Frame>]| lines.iter().all(|line| line.fold.is_some());
        let (mut lines, mut last) = (self.report.lines(frame).to_vec(), caller);
        while is_folded(&lines) && last.ends.is_empty() && !last.has_others {
            let mut callers = last.callers.iter();
            let (Some((&frame, next)), None) = (callers.next(), callers.next()) else {
                break;
            };
            let more = self.report.lines(frame);
            if !is_folded(more) {
                break;
            }
            lines.extend_from_slice(more);
            last = next;
        }
        (last, lines)
    }

    /// The displayed name of the function of a frame.
    fn name<'n>(&'n self, frame: &'n Frame) -> &'n str {
        self.names.get(&frame.name).unwrap_or(&frame.name)
    }

    /// The share of the calls, and of the metric if it is the sort key, as text.
    fn numbers(&self, calls: u64, sum: Option<i128>) -> String {
        let calls = human::share(calls.into(), self.root.calls.into());
        if self.report.sorted_by().is_none() {
            return format!("{calls:>7}");
        }
        let sum = sum.map_or_else(String::new, |sum| human::share(sum, self.root.sum));
        format!("{calls:>7}  {sum:>7}")
    }
}

/// The displayed names of a function and of the callers in its tree.
fn names(report: &Report<'_>, function: usize, root: &Node) -> HashMap<String, String> {
    let mut names = BTreeSet::from([report.end(function).name.clone()]);
    let mut nodes = vec![root];
    while let Some(node) = nodes.pop() {
        for (&frame, caller) in &node.callers {
            names.extend(report.lines(frame).iter().map(|line| line.name.clone()));
            nodes.push(caller);
        }
    }
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    let short = display_name::fit_all(&all, report.longest());
    names.into_iter().zip(short).collect()
}

/// The prefix of one of several callers.
const DASH: &str = "- ";

/// The text before the name of a caller with this indentation.
fn lead(indent: usize, is_part: bool) -> String {
    let dash = if is_part { DASH } else { "" };
    format!("{:len$}{dash}", "", len = indent - dash.len())
}

/// The remarks on the accuracy of calls through a caller.
fn marks(node: &Node) -> String {
    let marks = [
        (node.incomplete, "incomplete"),
        (node.tail, "left by a tail call"),
        (node.unmeasured, "not measured by every metric"),
    ];
    let marks = marks.iter().filter(|(n, _)| *n > 0);
    marks.map(|(n, what)| format!(", {n} {what}")).collect()
}
