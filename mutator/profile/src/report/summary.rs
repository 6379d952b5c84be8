//! The short summary of an interval, for output that is not a terminal.

use super::chains::ARROW;
use super::exactness::loss_lines_beside;
use super::table::LONGEST;
use super::threads::{self, Names};
use super::throttled::state;
use super::{human, wrapped};
use crate::display_name::{self, Chain, Link};
use crate::folding::{self, Fold, Item};
use crate::profile::{COUNT, Delta, Distribution, Metric, PathEntry, Profile, off_cpu, printable};
use std::cmp::Reverse;
use std::io::{self, Write};
use unicode_width::UnicodeWidthStr;

/// The maximum number of paths shown below each function.
const PATHS: usize = 3;
/// The maximum number of callers shown for each path.
const CALLERS: usize = 6;
/// The most frames of a path that are used for its line.
const DEPTH: usize = 32;
/// The terminal columns below which names are not cut.
const LEAST: usize = 20;
/// The indentation of each line. Continuation lines have it twice.
const INDENT: &str = "  ";

/// The activity of a function or path in the interval.
#[derive(Clone, Default)]
struct Change {
    calls: u64,
    /// The values of the metric.
    values: Distribution,
    /// The number of calls on incomplete paths.
    incomplete: u64,
    /// The number of calls that left by a tail call.
    tail: u64,
    /// The number of calls that at least one metric has not measured.
    unmeasured: u64,
}

/// Writes a few lines: for each function the calls, calls per second, total and mean, and the three
/// costliest paths. They cover the time since `prev`, or the whole session if `prev` is `None`.
/// Lines are shortened to `width` columns, if given.
///
/// # Errors
/// The errors of `out`.
pub fn summary(
    profile: &Profile,
    prev: Option<&Profile>,
    width: Option<usize>,
    out: &mut impl Write,
) -> io::Result<()> {
    let delta = prev.map(|prev| (prev, Delta::between(prev, profile)));
    let span = delta
        .as_ref()
        .map_or(profile.session.elapsed_ns, |(_, delta)| delta.elapsed_ns());
    let timer = profile.timers().next();
    let metric = timer.map_or(COUNT, |m| &m.name);

    let changes = changes(profile, delta.as_ref(), metric);
    let mut summary = Summary {
        profile,
        timer,
        span,
        threads: profile.thread_names(),
        names: Vec::new(),
        width,
    };
    summary.names = summary.function_names(&changes);
    let elapsed = human::time(profile.session.elapsed_ns.into());
    match prev {
        Some(_) => writeln!(out, "{elapsed}: the last {}", human::time(span.into()))?,
        None => writeln!(out, "{elapsed}: in all")?,
    }
    let mut order: Vec<_> = (0..changes.len()).collect();
    order.sort_by_key(|&f| Reverse(changes[f].whole.cost(timer.is_some())));
    for f in order {
        summary.function(f, &changes[f], out)?;
    }
    if let Some(heavy) = profile.heavy_line() {
        summary.write(&printable(&heavy).split(' ').collect::<Vec<_>>(), out)?;
    }
    if let Some(throttled) = profile.throttled_line() {
        summary.write(&printable(&throttled).split(' ').collect::<Vec<_>>(), out)?;
    }
    let is_marked = timer.is_some_and(|metric| human::is_markable(&metric.unit))
        && changes.iter().any(|change| change.whole.tail > 0);
    let losses = loss_lines_beside(profile, is_marked);
    if !losses.is_empty() {
        let text = format!("not exact: {}", losses.join(", "));
        summary.write(&text.split(' ').collect::<Vec<_>>(), out)?;
    }
    Ok(())
}

/// The activity of a function in the interval, and of its active paths by index.
#[derive(Default)]
struct Changes {
    whole: Change,
    paths: Vec<(usize, Change)>,
}

/// The activity of each function since the profile in `delta`, if any.
fn changes(profile: &Profile, delta: Option<&(&Profile, Delta)>, metric: &str) -> Vec<Changes> {
    let mut functions: Vec<Changes> = Vec::new();
    functions.resize_with(profile.functions.len(), Changes::default);
    for (i, path) in profile.paths.iter().enumerate() {
        let now = change(path, metric);
        let before = delta.and_then(|(prev, delta)| {
            let was = &prev.paths[delta.path(i)?];
            Some(change(was, metric))
        });
        let change = now.since(&before.unwrap_or_default());
        let of_function = &mut functions[path.function];
        of_function.whole.add(&change);
        if change.calls > 0 || change.values.sum() != 0 {
            of_function.paths.push((i, change));
        }
    }
    functions
}

/// The activity of a path from the start of the session on.
fn change(path: &PathEntry, metric: &str) -> Change {
    let stats = path.metrics.timers.get(metric);
    Change {
        calls: path.metrics.count,
        values: stats.map(Distribution::of).unwrap_or_default(),
        incomplete: path.incomplete(),
        tail: path.tail,
        unmeasured: path.unmeasured(),
    }
}

impl Change {
    fn since(&self, before: &Self) -> Self {
        Self {
            calls: self.calls.saturating_sub(before.calls),
            values: self.values.since(&before.values),
            incomplete: self.incomplete.saturating_sub(before.incomplete),
            tail: self.tail.saturating_sub(before.tail),
            unmeasured: self.unmeasured.saturating_sub(before.unmeasured),
        }
    }

    fn add(&mut self, other: &Self) {
        self.calls = self.calls.saturating_add(other.calls);
        self.values.merge(&other.values);
        self.incomplete = self.incomplete.saturating_add(other.incomplete);
        self.tail = self.tail.saturating_add(other.tail);
        self.unmeasured = self.unmeasured.saturating_add(other.unmeasured);
    }

    /// The sort key of functions and paths: the sum of the metric if `timed`, else the number of
    /// calls; then the number of calls.
    fn cost(&self, timed: bool) -> (i128, u64) {
        let cost = if timed {
            self.values.sum()
        } else {
            self.calls.into()
        };
        (cost, self.calls)
    }
}

/// Remarks on the accuracy of some calls, except on incomplete paths. Probe points are only
/// counted.
fn marks(change: &Change, is_point: bool) -> impl Iterator<Item = String> {
    let marks = [
        (change.tail, "left by a tail call"),
        (change.unmeasured, "not measured by every metric"),
    ];
    let marks = marks.into_iter().take(if is_point { 1 } else { 2 });
    let marks = marks.filter(|(n, _)| *n > 0);
    marks.map(|(n, what)| format!("{n} {what}"))
}

/// A summary of an interval of `span` nanoseconds.
struct Summary<'p> {
    profile: &'p Profile,
    /// The first metric after `count`. `None` if there is no other.
    timer: Option<&'p Metric>,
    span: u64,
    threads: Names<'p>,
    /// The displayed names of the functions, by index.
    names: Vec<String>,
    /// The most terminal columns of a line. `None` for no limit.
    width: Option<usize>,
}

impl Summary<'_> {
    /// The numbers of a function, each with the comma that separates it from the next.
    fn figures(&self, index: usize, whole: &Change) -> Vec<String> {
        let rate = human::rate(whole.calls, self.span);
        let mut figures = vec![format!("{} calls ({rate}/s)", whole.calls)];
        if let Some(Metric { name, unit, .. }) = self.timer {
            let values = &whole.values;
            let marked = |text: String| human::at_least(text, unit, whole.tail);
            let throttled = self.profile.functions[index].throttled;
            let lacking = whole.tail.max(u64::from(throttled.is_some()));
            let total = human::at_least(human::quantity(values.sum(), unit), unit, lacking);
            let mean = marked(human::average(values.mean(), unit));
            let metric = printable(off_cpu::heading(name));
            figures.extend([format!("{metric} {total}"), format!("mean {mean}")]);
            for (per_mille, name) in [(500, "p50"), (990, "p99")] {
                let value = values.quantile(per_mille);
                figures
                    .extend(value.map(|value| format!("{name} {}", human::quantity(value, unit))));
            }
        }
        figures.extend(human::incomplete(whole.incomplete, whole.calls));
        figures.extend(marks(whole, self.profile.functions[index].point));
        figures.extend(self.profile.functions[index].throttled.map(state));
        let last = figures.len() - 1;
        figures[..last].iter_mut().for_each(|text| text.push(','));
        figures
    }

    /// Writes the line of a function and the lines of its costliest paths.
    fn function(
        &self,
        index: usize,
        Changes { whole, paths }: &Changes,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let name = format!("{}:", self.names[index]);
        let figures = self.figures(index, whole);
        let words = std::iter::once(&name).chain(&figures);
        self.write(&words.map(String::as_str).collect::<Vec<_>>(), out)?;
        let is_point = self.profile.functions[index].point;
        let mut paths: Vec<_> = paths.iter().collect();
        let more = paths.len().saturating_sub(PATHS);
        paths.sort_by_key(|(_, change)| Reverse(change.cost(self.timer.is_some())));
        paths.truncate(PATHS);
        let chains: Vec<Vec<Link>> = paths
            .iter()
            .map(|(path, _)| self.chain(*path, false))
            .collect();
        let mut heads = Vec::new();
        let mut rows = Vec::new();
        for ((path, change), links) in paths.iter().zip(&chains) {
            let (part, all) = match self.timer {
                Some(_) => (change.values.sum(), whole.values.sum()),
                None => (change.calls.into(), whole.calls.into()),
            };
            let is_one = chains.iter().filter(|other| *other == links).count() == 1;
            let links = if is_one {
                links.clone()
            } else {
                // Distinguish the paths by their call sites.
                self.chain(*path, true)
            };
            let share = human::share(part, all);
            heads.push(format!("    {share:>7} {:>10} calls  ", change.calls));
            let of = &self.profile.paths[*path];
            let thread = of.thread.map(|tid| threads::title(&self.threads, tid));
            let apart = self.profile.apart(of).into_iter().chain(thread);
            rows.push((links, apart.chain(marks(change, is_point)).collect()));
        }
        for (head, lines) in heads.iter().zip(self.written(rows, heads.first())) {
            let gap = " ".repeat(head.width());
            let heads = std::iter::once(head).chain(std::iter::repeat(&gap));
            for (head, line) in heads.zip(lines) {
                writeln!(out, "{head}{line}")?;
            }
        }
        if more > 0 {
            writeln!(out, "    and {}", super::more(more, "path"))?;
        }
        Ok(())
    }

    /// The names of all functions, shortened if there is a width. A name gets the room beside its
    /// figures. If that is too little, the figures continue on further lines.
    fn function_names(&self, changes: &[Changes]) -> Vec<String> {
        let names = (0..self.profile.functions.len()).map(|index| self.name(index));
        let names: Vec<String> = names.collect();
        let Some(width) = self.width else {
            return names;
        };
        let room = |index: usize| {
            let figures = self.figures(index, &changes[index].whole).join(" ");
            match width.checked_sub(INDENT.len() + ": ".len() + figures.width()) {
                Some(room) if room >= LEAST.min(names[index].width()) => room,
                _ => width / 2,
            }
        };
        let each = names.iter().enumerate();
        let each = each.map(|(index, name)| (name.as_str(), LONGEST.min(room(index))));
        display_name::fit_each(&each.collect::<Vec<_>>())
    }

    /// Writes words on as many lines as they need. All but the first are indented twice.
    fn write(&self, words: &[&str], out: &mut impl Write) -> io::Result<()> {
        let width = self.width.unwrap_or(usize::MAX);
        let whole = words.join(" ");
        if INDENT.len() + whole.width() <= width {
            return writeln!(out, "{INDENT}{whole}");
        }
        let room = width.saturating_sub(2 * INDENT.len());
        for (n, line) in wrapped(words.iter().copied(), " ", room).iter().enumerate() {
            writeln!(out, "{}{line}", INDENT.repeat(1 + n.min(1)))?;
        }
        Ok(())
    }

    /// The lines of paths in the room after `head`. Each path has remarks. They follow the path on
    /// its line, or on further lines if there is too little room.
    fn written(
        &self,
        rows: Vec<(Vec<Link>, Vec<String>)>,
        head: Option<&String>,
    ) -> Vec<Vec<String>> {
        let Some(width) = self.width else {
            let join = |(links, remarks): (Vec<Link>, Vec<String>)| {
                let names = links
                    .iter()
                    .map(|link| format!("{}{}", link.name, link.mark));
                let path = names.collect::<Vec<_>>().join(ARROW);
                vec![[vec![path], remarks].concat().join(", ")]
            };
            return rows.into_iter().map(join).collect();
        };
        let room = width.saturating_sub(head.map_or(0, |head| head.width()));
        let beside = |remarks: &[String]| {
            let text: String = remarks.iter().map(|remark| format!(", {remark}")).collect();
            (text.width() + LEAST <= room).then_some(text)
        };
        let chains: Vec<Chain> = rows
            .iter()
            .map(|(links, remarks)| Chain {
                links: links.clone(),
                room: room
                    .saturating_sub(beside(remarks).map_or(0, |text| text.width()))
                    .max(LEAST),
            })
            .collect();
        let texts = display_name::fit_chains(&chains, ARROW).into_iter();
        let lines = texts
            .zip(&rows)
            .map(|(path, (_, remarks))| match beside(remarks) {
                Some(text) => vec![path + &text],
                None => {
                    let text = remarks.join(", ");
                    [vec![path], wrapped(text.split(' '), " ", room)].concat()
                }
            });
        lines.collect()
    }

    /// The name of a function, with an addition if other functions have the same name.
    fn name(&self, index: usize) -> String {
        let name = printable(&self.profile.functions[index].name);
        format!("{name}{}", self.profile.distinction(index))
    }

    /// The callers, innermost first. With `with_sites`, each has the offset of its call.
    fn chain(&self, path: usize, with_sites: bool) -> Vec<Link> {
        let path = &self.profile.paths[path];
        let frames = path
            .stack
            .iter()
            .take(DEPTH)
            .map(|&f| &self.profile.frames[f]);
        let frames: Vec<Link> = frames
            .map(|frame| Link {
                name: self.profile.frame_name(frame),
                mark: match frame.offset.filter(|_| with_sites) {
                    Some(offset) => format!("+{offset:#x}"),
                    None => String::new(),
                },
                ..Link::default()
            })
            .collect();
        let items = folding::fold(frames.iter().map(|link| Fold::of(&link.name)));
        let is_cut = items.len() > CALLERS || path.stack.len() > DEPTH;
        let items = items.into_iter().take(CALLERS);
        let mut links: Vec<Link> = items
            .map(|item| match item {
                Item::Frame(index) => frames[index].clone(),
                Item::Runtime(text) | Item::Wrappers(text) => Link::fold(text),
            })
            .collect();
        if is_cut {
            links.push(Link::whole("..."));
        } else if let Some(unknown) = self.profile.unknown_callers(path) {
            links.push(Link::whole(unknown));
        } else if links.is_empty() {
            links.push(Link::whole("[no caller]"));
        }
        links
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Frame, Thread};
    use crate::sample::sample;

    fn summarized(profile: &Profile) -> String {
        let mut out = Vec::new();
        summary(profile, None, None, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// Long names, threads and remarks on the accuracy.
    #[test]
    fn lines_of_a_summary_fit_the_terminal() {
        let mut profile = sample();
        profile.functions[1].name = format!("shop::{}get", "Basket::".repeat(20));
        profile.losses.missed = 7;
        for path in &mut profile.paths {
            path.thread = Some(4242);
            path.tail = 3;
            path.metrics.count += 100;
        }
        profile.threads = vec![Thread {
            tid: 4242,
            name: "a worker thread".to_owned(),
        }];
        for width in [60, 80, 100, 140] {
            let mut out = Vec::new();
            summary(&profile, None, Some(width), &mut out).unwrap();
            let text = String::from_utf8(out).unwrap();
            assert!(text.lines().all(|line| line.width() <= width), "{text}");
            assert!(text.contains("Basket::get: "), "{text}");
            assert!(text.contains("thread 4242 (a worker"), "{text}");
        }
    }

    #[test]
    fn summary_tells_apart_what_has_one_name() {
        let mut profile = sample();
        let is_of_first = |path: &&mut PathEntry| path.function == 0;
        let mut paths = profile.paths.iter_mut().filter(is_of_first);
        let (first, second) = (paths.next().unwrap(), paths.next().unwrap());
        let other = profile.frames.len();
        let caller = profile.frames[first.stack[0]].clone();
        second.stack.clone_from(&first.stack);
        second.stack[0] = other;
        profile.frames.push(Frame {
            address: caller.address + 0x10,
            offset: caller.offset.map(|offset| offset + 0x10),
            ..caller.clone()
        });
        let text = summarized(&profile);
        for offset in [0, 0x10].map(|more| caller.offset.unwrap() + more) {
            let site = format!("{}+{offset:#x} <", profile.frame_name(&caller));
            assert!(text.contains(&site), "{text}");
        }
        profile.functions[1].name = profile.functions[0].name.clone();
        let names = |profile: &Profile| {
            let name =
                |index: usize| profile.functions[index].name.clone() + &profile.distinction(index);
            [0, 1].map(|index| format!("  {}: ", name(index)))
        };
        let [first, second] = names(&profile);
        assert_ne!(first, second);
        let text = summarized(&profile);
        for name in [&first, &second] {
            assert_eq!(text.matches(name).count(), 1, "{text}");
        }
        // The function without calls is the one that gets an addition.
        profile.functions[1].totals.counts.count = 0;
        let text = summarized(&profile);
        let [first, second] = names(&profile);
        assert!(
            !first.contains(" (") && second.contains(" ("),
            "{first} {second}"
        );
        for name in [&first, &second] {
            assert_eq!(text.matches(name).count(), 1, "{text}");
        }
    }
}
