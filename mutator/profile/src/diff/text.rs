//! Comparisons as text.

use super::inside;
use super::runs::Run;
use super::statistics::smallest_change;
use super::{Diff, InOne, NEW, OLD, Pair, SIGNIFICANT, Side};
use crate::profile::{COUNT, off_cpu, printable};
use crate::report::{Table, human, loss_lines};
use std::io::{self, Write};

/// The maximum number of callers shown for a path.
const DEPTH: usize = crate::report::DEPTH;

/// Writes the paths whose sums have changed most, at most `limit` of them. `None` is all.
///
/// # Errors
/// Returns the errors of `out`.
pub fn text(diff: &Diff<'_>, limit: Option<usize>, out: &mut impl Write) -> io::Result<()> {
    let limit = limit.unwrap_or(usize::MAX);
    let paths = &diff.paths;
    let both = paths.iter().filter(|p| p.old.is_some() && p.new.is_some());
    let number = |is: fn(&Pair<'_>) -> bool| paths.iter().filter(|p| is(p)).count() as u64;
    let new = number(|p| p.in_one() == Some(InOne::New));
    let vanished = number(|p| p.in_one() == Some(InOne::Vanished));
    let unmeasured = match number(|p| p.in_one() == Some(InOne::Unmeasured)) {
        0 => String::new(),
        n => format!(", {n} measured on one side only"),
    };
    writeln!(
        out,
        "{} in both, {new} new, {vanished} vanished{unmeasured}; by {}",
        human::count(both.count() as u64, "path"),
        printable(off_cpu::heading(&diff.metric)),
    )?;
    if !diff.is_of_one_run() {
        let [old, new] = [&diff.old, &diff.new].map(|runs| human::count(runs.len() as u64, "run"));
        writeln!(
            out,
            "calls and totals are averages per run, of {old} before and {new} after"
        )?;
    }
    for note in diff.notes() {
        writeln!(out, "{}", printable(&note))?;
    }
    let compared = number(|p| p.p.is_some());
    let significant = paths
        .iter()
        .filter(|p| p.p.is_some_and(|p| p <= SIGNIFICANT));
    writeln!(
        out,
        "{} at p <= {SIGNIFICANT}, corrected for the {compared} that were compared",
        human::count(significant.count() as u64, "significant change"),
    )?;
    let mut table = Table::new(&headings(diff));
    for pair in paths.iter().take(limit) {
        row(diff, pair, &mut table);
    }
    if let hidden @ 1.. = paths.len().saturating_sub(limit) {
        let hidden = human::count(hidden as u64, "more path");
        table.text(format!("{hidden}, not shown; --limit 0 shows all"));
    }
    writeln!(out)?;
    table.write(out)?;
    inside::table::write(diff, limit, out)?;
    for (runs, name) in [(&diff.old, "old"), (&diff.new, "new")] {
        for (run, profile) in (1..).zip(runs) {
            let lines = loss_lines(profile);
            let run = match runs.len() {
                1 => String::new(),
                _ => format!(" {run}"),
            };
            if !lines.is_empty() {
                writeln!(out, "not exact in {name}{run}: {}", lines.join(", "))?;
            }
        }
    }
    let metric = printable(off_cpu::heading(&diff.metric));
    match diff.resolution() {
        Some((smallest, better)) => {
            let smallest = human::percent(smallest);
            write!(
                out,
                "runs differ: by {metric}, a change of the costliest path below {smallest} cannot \
                be distinguished from chance"
            )?;
            if let Some((metric, smallest)) = better {
                let smallest = human::percent(smallest);
                write!(out, "; by {metric} below {smallest}: --metric {metric}")?;
            }
            writeln!(out)
        }
        None if diff.is_of_one_run() => writeln!(
            out,
            "one run per side does not show how much runs differ; compare several: ipath diff \
            OLD... -- NEW..."
        ),
        None => Ok(()),
    }
}

/// The metric that usually varies least from run to run, because other programs on the machine
/// affect it least.
const STEADIER: &str = "cpu";

impl Diff<'_> {
    /// The smallest change of the costliest path on both sides that is significant by itself,
    /// relative to the old value. Then the smallest such change by [`STEADIER`], if it is less than
    /// half of the first. `None` if the variation between runs is not known.
    fn resolution(&self) -> Option<(f64, Option<(&'static str, f64)>)> {
        let smallest = self.smallest_change()?;
        let profiles = || self.old.iter().chain(&self.new);
        let is_known = || profiles().all(|profile| profile.metric(STEADIER).is_ok());
        let better = (self.metric != STEADIER && self.metric != COUNT && is_known())
            .then(|| Diff::of_runs(self.old.clone(), self.new.clone(), STEADIER))
            .and_then(|diff| diff.smallest_change())
            .filter(|steadier| *steadier < smallest / 2.0);
        Some((smallest, better.map(|steadier| (STEADIER, steadier))))
    }

    /// The first number of [`Diff::resolution`].
    fn smallest_change(&self) -> Option<f64> {
        let both = self.paths.iter();
        let both = both.filter_map(|pair| Some((pair.old.as_ref()?, pair.new.as_ref()?)));
        let sum = |side: &Side<'_>| side.sum(&self.metric);
        let (old, new) = both.max_by_key(|(old, new)| sum(old).saturating_add(sum(new)))?;
        let of = match self.metric.as_str() {
            COUNT => Run::calls,
            _ => Run::mean,
        };
        smallest_change(&old.runs.values(of), &new.runs.values(of), SIGNIFICANT)
    }
}

fn headings(diff: &Diff<'_>) -> Vec<&'static str> {
    match diff.metric.as_str() {
        COUNT => vec!["calls", "were", "change", "p"],
        _ => vec![
            "calls", "were", "total", "was", "mean", "was", "change", "p",
        ],
    }
}

fn row(diff: &Diff<'_>, pair: &Pair<'_>, table: &mut Table) {
    let sides = [pair.new.as_ref(), pair.old.as_ref()];
    let mut cells: Vec<String> = Vec::new();
    let calls = |side: &Side<'_>| side.calls().to_string();
    cells.extend(sides.map(|side| side.map_or_else(dash, calls)));
    if diff.metric != COUNT {
        let marked =
            |text: String, side: &Side<'_>| human::at_least(text, &diff.unit, side.total.tail);
        let total =
            |side: &Side<'_>| marked(human::quantity(side.sum(&diff.metric), &diff.unit), side);
        cells.extend(sides.map(|side| side.map_or_else(dash, total)));
        let mean = |side: &Side<'_>| {
            let mean = human::average(side.mean(&diff.metric), &diff.unit);
            let mean = marked(mean, side);
            match side.standard_error(&diff.metric) {
                Some(error) => format!("{mean} ± {}", human::average(Some(error), &diff.unit)),
                None => mean,
            }
        };
        cells.extend(sides.map(|side| side.map_or_else(dash, mean)));
    }
    let growth = pair.growth(&diff.metric);
    cells.push(growth.map_or_else(dash, |growth| format!("{:+.1} %", 100.0 * growth)));
    cells.push(pair.p.map_or_else(dash, likelihood));
    let mut remarks: Vec<String> = Vec::new();
    match pair.in_one() {
        Some(InOne::New) => remarks.push("new".to_owned()),
        Some(InOne::Vanished) => remarks.push("vanished".to_owned()),
        Some(InOne::Unmeasured) | None => {}
    }
    for (side, name) in [(OLD, "old"), (NEW, "new")] {
        let (without, all) = (pair.unmeasured_in(side), pair.measured[side].len());
        let runs: Vec<String> = without.iter().map(usize::to_string).collect();
        match without.len() {
            0 => {}
            n if n == all => remarks.push(format!("not measured in {name}")),
            _ => remarks.push(format!("not measured in {name} {}", runs.join(", "))),
        }
    }
    for (n, what) in [
        (
            sides.map(|s| s.map_or(0, |s| s.total.tail)),
            "left by a tail call",
        ),
        (
            sides.map(|s| s.map_or(0, |s| s.total.unmeasured)),
            "not measured by every metric",
        ),
    ] {
        if n != [0, 0] {
            remarks.push(format!("{} {what} (were {})", n[0], n[1]));
        }
    }
    table.row(cells, remarks.join(", "));
    let Some(Side {
        profile,
        first: path,
        ..
    }) = diff.shown(pair)
    else {
        return;
    };
    let function = &profile.functions[path.function];
    let module = profile.module_name(Some(function.module)).into_owned();
    let name = printable(&function.name).into_owned();
    table.function(name, module);
    let frames = path.stack.iter().take(DEPTH);
    let labels = frames.flat_map(|&frame| profile.labels(&profile.frames[frame]));
    table.stack(labels.collect());
    if let hidden @ 1.. = path.stack.len().saturating_sub(DEPTH) {
        table.text(human::count(hidden as u64, "more frame"));
    }
    if let Some(unknown) = profile.unknown_callers(path) {
        table.text(unknown.to_owned());
    }
}

fn dash() -> String {
    "-".to_owned()
}

/// A p-value as text.
fn likelihood(p: f64) -> String {
    match p {
        p if p < 0.0001 => "<0.0001".to_owned(),
        p if p < 0.1 => format!("{p:.4}"),
        p => format!("{p:.2}"),
    }
}
