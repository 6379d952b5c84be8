//! Counts of source lines inside functions, compared as text.

use super::Diff;
use super::matching::{self, Site, Sites};
use crate::display_name;
use crate::profile::{Profile, position, printable};
use crate::report::{Table, human};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::io::{self, Write};

/// The most terminal columns of a function's name.
const LONGEST: usize = 60;

/// A source file and a line in it.
type Line = (String, u32);

/// The control flow inside one function of a profile. Several graphs of it are added up.
#[derive(Default)]
struct Counted {
    /// Index into [`Profile::functions`].
    function: usize,
    activations: u64,
    lines: BTreeMap<Line, u64>,
}

/// Writes the lines whose counts differ, at most `limit` for each function: those with the largest
/// change, in source order. Only functions whose control flow both sides have counted are compared.
/// Writes nothing if a side has several runs.
pub(super) fn write(diff: &Diff<'_>, limit: usize, out: &mut impl Write) -> io::Result<()> {
    let ([old], [new]) = (diff.old.as_slice(), diff.new.as_slice()) else {
        return Ok(());
    };
    let common = matching::common([*old, *new].into_iter());
    let was = counted(old, &common);
    for (site, counted) in counted(new, &common) {
        if let Some(was) = was.get(&site) {
            write_function(new, was, &counted, limit, out)?;
        }
    }
    Ok(())
}

/// The functions of a profile whose control flow was counted, by their sites.
fn counted(profile: &Profile, common: &HashSet<&str>) -> BTreeMap<Site, Counted> {
    let sites = Sites::of(profile, common).functions;
    let mut all: BTreeMap<Site, Counted> = BTreeMap::new();
    for inside in &profile.inside {
        let sum = all.entry(sites[inside.function].clone()).or_default();
        sum.function = inside.function;
        let activations = inside.activations(profile.functions[inside.function].address);
        sum.activations = sum.activations.saturating_add(activations);
        for ((file, line), count) in inside.lines() {
            let known = sum.lines.entry((file.to_owned(), line)).or_default();
            *known = known.saturating_add(count);
        }
    }
    all
}

fn write_function(
    profile: &Profile,
    was: &Counted,
    now: &Counted,
    limit: usize,
    out: &mut impl Write,
) -> io::Result<()> {
    let count = |side: &Counted, line: &Line| side.lines.get(line).copied().unwrap_or(0);
    let mut lines: Vec<&Line> = was.lines.keys().chain(now.lines.keys()).collect();
    lines.sort_unstable();
    lines.dedup();
    lines.retain(|line| count(was, line) != count(now, line));
    lines.sort_by_key(|line| Reverse(count(was, line).abs_diff(count(now, line))));
    let hidden = lines.len().saturating_sub(limit);
    lines.truncate(limit);
    lines.sort_unstable();
    if lines.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\nInside {}: {} (were {})",
        display_name::fit(&printable(&profile.functions[now.function].name), LONGEST),
        human::count(now.activations, "activation"),
        was.activations
    )?;
    let mut table = Table::new(&["count", "were", "change", "line"]);
    for line in lines {
        let (old, new) = (count(was, line), count(now, line));
        let change = (old > 0).then(|| 100.0 * (new as f64 / old as f64 - 1.0));
        let change = change.map_or_else(|| "-".to_owned(), |change| format!("{change:+.1} %"));
        let place = position(Some(&line.0), Some(line.1)).unwrap_or_default();
        table.row(
            vec![new.to_string(), old.to_string(), change, place],
            String::new(),
        );
    }
    if hidden > 0 {
        let hidden = human::count(hidden as u64, "more line");
        table.text(format!("{hidden}, not shown; --limit 0 shows all"));
    }
    table.write(out)
}
