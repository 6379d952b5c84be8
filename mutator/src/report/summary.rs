//! The short summary of an interval, for where there is no terminal.

use super::chains::ARROW;
use super::table::LONGEST;
use super::threads::{self, Names};
use super::{human, loss_lines};
use crate::display_name::{self, Chain, Link};
use crate::folding::{self, Fold, Item};
use crate::profile::{
    COUNT, Delta, Distribution, Function, Metric, PathEntry, Profile, off_cpu, printable,
};
use std::cmp::Reverse;
use std::io::{self, Write};
use unicode_width::UnicodeWidthStr;

/// Paths shown below each function.
const PATHS: usize = 3;
/// Callers shown of each path.
const CALLERS: usize = 6;
/// The most frames of a path that are used for its line.
const DEPTH: usize = 32;

/// What a function or path did in the interval.
#[derive(Clone, Default)]
struct Change {
    calls: u64,
    values: Distribution,
    incomplete: u64,
    tail: u64,
    unmeasured: u64,
}

/// Writes a few lines: the calls, calls a second, total and mean of each function, and the costliest
/// three paths. They cover the time since `prev`, or without `prev` the whole session. Lines are
/// shortened to `width` columns, if given.
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
    summary.names = summary.function_names();
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
        writeln!(out, "  {}", printable(&heavy))?;
    }
    let losses = loss_lines(profile);
    if !losses.is_empty() {
        writeln!(out, "  not exact: {}", losses.join(", "))?;
    }
    Ok(())
}

/// What a function did in the interval, and its paths by index, those that did something.
#[derive(Default)]
struct Changes {
    whole: Change,
    paths: Vec<(usize, Change)>,
}

/// Of each function, since the profile that `delta` is counted from, if any.
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

    fn cost(&self, timed: bool) -> (i128, u64) {
        let cost = match timed {
            true => self.values.sum(),
            false => self.calls.into(),
        };
        (cost, self.calls)
    }
}

/// What is not exact of some calls, apart from where their paths end. Points are counted, and nothing else.
fn marks(change: &Change, is_point: bool) -> String {
    let marks = [
        (change.tail, "left by a tail call"),
        (change.unmeasured, "not measured by every metric"),
    ];
    let marks = marks.iter().take(if is_point { 1 } else { 2 });
    let marks = marks.filter(|(n, _)| *n > 0);
    marks.map(|(n, what)| format!(", {n} {what}")).collect()
}

/// An interval of `span` ns.
struct Summary<'p> {
    profile: &'p Profile,
    timer: Option<&'p Metric>,
    span: u64,
    threads: Names<'p>,
    /// The functions as they are shown.
    names: Vec<String>,
    /// The columns of a line.
    width: Option<usize>,
}

impl Summary<'_> {
    /// Writes the line of a function and those of its costliest paths.
    fn function(
        &self,
        index: usize,
        Changes { whole, paths }: &Changes,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let name = &self.names[index];
        let rate = human::rate(whole.calls, self.span);
        write!(out, "  {name}: {} calls ({rate}/s)", whole.calls)?;
        if let Some(Metric { name, unit, .. }) = self.timer {
            let values = &whole.values;
            let marked = |text: String| human::at_least(text, unit, whole.tail);
            let total = marked(human::quantity(values.sum(), unit));
            let mean = marked(human::average(values.mean(), unit));
            let metric = printable(off_cpu::heading(name));
            write!(out, ", {metric} {total}, mean {mean}")?;
            for (per_mille, name) in [(500, "p50"), (990, "p99")] {
                if let Some(value) = values.quantile(per_mille) {
                    write!(out, ", {name} {}", human::quantity(value, unit))?;
                }
            }
        }
        if let Some(incomplete) = human::incomplete(whole.incomplete, whole.calls) {
            write!(out, ", {incomplete}")?;
        }
        let is_point = self.profile.functions[index].point;
        write!(out, "{}", marks(whole, is_point))?;
        writeln!(out)?;
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
            let links = match is_one {
                true => links.clone(),
                // By what tells their call sites apart.
                false => self.chain(*path, true),
            };
            let share = human::share(part, all);
            heads.push(format!("    {share:>7} {:>10} calls  ", change.calls));
            let thread = self.profile.paths[*path].thread;
            let thread = thread.map(|tid| format!(", {}", threads::title(&self.threads, tid)));
            rows.push((links, thread.unwrap_or_default() + &marks(change, is_point)));
        }
        for (head, text) in heads.iter().zip(self.written(rows, heads.first())) {
            writeln!(out, "{head}{text}")?;
        }
        if more > 0 {
            writeln!(out, "    and {}", super::more(more, "path"))?;
        }
        Ok(())
    }

    /// The names of all functions, shortened if there is a width.
    fn function_names(&self) -> Vec<String> {
        let names = (0..self.profile.functions.len()).map(|index| self.name(index));
        let names: Vec<String> = names.collect();
        match self.width {
            Some(width) => {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                display_name::fit_all(&names, LONGEST.min(width / 2))
            }
            None => names,
        }
    }

    /// Paths, each with the text that follows it, in the room after `head`.
    fn written(&self, rows: Vec<(Vec<Link>, String)>, head: Option<&String>) -> Vec<String> {
        /// Names are not cut below this many columns.
        const LEAST: usize = 20;
        let Some(width) = self.width else {
            let join = |(links, after): (Vec<Link>, String)| {
                let names = links
                    .iter()
                    .map(|link| format!("{}{}", link.name, link.mark));
                format!("{}{after}", names.collect::<Vec<_>>().join(ARROW))
            };
            return rows.into_iter().map(join).collect();
        };
        let room = width.saturating_sub(head.map_or(0, |head| head.width()));
        let (links, after): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
        let chains: Vec<Chain> = links
            .into_iter()
            .zip(&after)
            .map(|(links, after)| Chain {
                links,
                room: room.saturating_sub(after.width()).max(LEAST),
            })
            .collect();
        let texts = display_name::fit_chains(&chains, ARROW).into_iter();
        texts
            .zip(after)
            .map(|(text, after)| text + &after)
            .collect()
    }

    /// What a function is called, with its module where another one is called so that is called as well, or it alone is not.
    fn name(&self, index: usize) -> String {
        let functions = &self.profile.functions;
        let function = &functions[index];
        let name = printable(&function.name);
        let has_calls = |f: &Function| f.totals.counts.count > 0;
        let is_other = |&(at, f): &(usize, &Function)| at != index && f.name == function.name;
        let mut others = functions.iter().enumerate().filter(is_other);
        let module = self.profile.module_name(Some(function.module));
        match others.any(|(_, other)| has_calls(other) || !has_calls(function)) {
            true => format!("{name} ({module})"),
            false => name.into_owned(),
        }
    }

    /// The callers, the innermost first; `with_sites` with the offset at which each calls.
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
            })
            .collect();
        let items = folding::fold(frames.iter().map(|link| Fold::of(&link.name)));
        let is_cut = items.len() > CALLERS || path.stack.len() > DEPTH;
        let items = items.into_iter().take(CALLERS);
        let mut links: Vec<Link> = items
            .map(|item| match item {
                Item::Frame(index) => frames[index].clone(),
                Item::Runtime(text) | Item::Wrappers(text) => Link::whole(text),
            })
            .collect();
        if is_cut {
            links.push(Link::whole("..."));
        } else if let Some(unknown) = path.unknown_callers() {
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
    use crate::profile::Frame;
    use crate::profile::tests::sample;

    fn summarized(profile: &Profile) -> String {
        let mut out = Vec::new();
        summary(profile, None, None, &mut out).unwrap();
        String::from_utf8(out).unwrap()
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
        let name = format!("{} (app): ", profile.functions[0].name);
        assert_eq!(summarized(&profile).matches(&name).count(), 2);
        // One that is not called is the one to be told.
        profile.functions[1].totals.counts.count = 0;
        let text = summarized(&profile);
        assert_eq!(text.matches(&name).count(), 1, "{text}");
    }
}
