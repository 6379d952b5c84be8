//! A page for a browser, for readers without `ipath`. It is one file that loads nothing else.

mod inside;
mod sources;

use patcher::function::also_called;

use super::ExportError;
use super::code::Code;
use super::model::{Callers, Line, Model, Naming, is_partly, metrics, weight};
use super::notes::notes;
use super::shade::{Shades, hue};
use crate::profile::{
    COUNT, Counts, Distribution, Function, Metric, Profile, Total, off_cpu, printable, program,
};
use crate::report::human;
use serde_json::{Value, json};
use sources::Sources;
use std::collections::HashMap;
use std::io::Write;

/// The page, which contains [`DATA`].
const PAGE: &str = include_str!("html/page.html");
/// The placeholder for the profile in the page.
const DATA: &str = "@DATA@";

/// Writes the page, with `metric` or all metrics. With `sources`, it contains the lines around each
/// call, from those source files that are on this machine. With `code`, it lists the functions
/// whose control flow was counted.
///
/// # Errors
/// The profile does not have the metric, or `out` fails.
pub fn to_html(
    profile: &Profile,
    metric: Option<&str>,
    callers: Callers,
    sources: bool,
    code: Option<&Code>,
    out: &mut impl Write,
) -> Result<(), ExportError> {
    let mut asked = metrics(profile, metric)?;
    asked.retain(|metric| metric.name != COUNT);
    let model = Model::of(profile, Naming::by_line(callers));
    let mut files = Files::default();
    let frame = |lines: &Vec<Line<'_>>| {
        let line = |line: &Line<'_>| {
            let file = line.file.map(|file| files.place(file));
            json!([line.name, file, line.line])
        };
        lines.iter().map(line).collect::<Value>()
    };
    let frames: Vec<Value> = model.frames.iter().map(frame).collect();
    let mut found = Sources::default();
    if sources {
        for line in model.frames.iter().flatten() {
            if let (Some(file), Some(number)) = (line.file, line.line) {
                found.add(file, files.place(file), number);
            }
        }
    }
    let shown: Vec<_> = profile.metrics.iter().filter(|m| m.name == COUNT).collect();
    let shown: Vec<_> = shown
        .iter()
        .chain(&asked)
        .map(|m| json!({"name": off_cpu::heading(&m.name), "unit": m.unit}))
        .chain(has_waiting(&asked).then(|| json!({"name": off_cpu::WAITING, "unit": "ns"})))
        .collect();
    let target = &profile.target;
    let (name, rest) = program(&target.exe, &target.args);
    let words: Vec<_> = [&*name]
        .into_iter()
        .chain(rest.iter().map(|a| &**a))
        .map(printable)
        .collect();
    let about = format!(
        "pid {} on {}, measured for {}, ipath {}",
        target.pid,
        printable(&target.host),
        human::time(profile.session.elapsed_ns.into()),
        printable(&profile.ipath)
    );
    let (before, after) = PAGE.split_once(DATA).unwrap_or((PAGE, ""));
    out.write_all(before.as_bytes())?;
    let shades = Shades::of(&model);
    let names = 0..model.names.len();
    let of_names: Vec<_> = names.map(|name| shades.module(name)).collect();
    let modules = shades.modules.iter().enumerate();
    let modules: Vec<_> = modules.map(|(i, name)| json!([name, hue(i)])).collect();
    let head = json!({
        "title": words.join(" "),
        "about": about,
        "losses": notes(profile),
        "metrics": shown,
        "names": model.names,
        "modules": modules,
        "moduleOf": of_names,
        "files": files.names,
        "sources": found.lines(),
        "frames": frames,
        "functions": functions(profile, &asked),
    });
    let head = safe(&head.to_string());
    // Paths are by far the largest part, so they are written one by one.
    write!(
        out,
        "{},\"paths\":[",
        head.strip_suffix('}').unwrap_or(&head)
    )?;
    for (i, path) in profile.paths.iter().enumerate() {
        let function = &profile.functions[path.function];
        let place = model.function(path);
        let name = &model.names[place];
        let plain = printable(&function.name);
        let stack: Vec<usize> = path.stack.iter().rev().copied().collect();
        let one = json!({
            "function": path.function,
            "name": place,
            "mark": name.strip_prefix(&*plain).unwrap_or(""),
            "stack": stack,
            "complete": path.complete,
            "unknown": model.unknown(path),
            "thread": path.thread,
            "process": profile.process_of(path).map(|process| process.pid),
            "count": path.metrics.count,
            "unwound": path.unwound,
            "open": path.open,
            "tail": path.tail,
            "values": values(&path.metrics, &asked, |metric| weight(path, metric)),
        });
        let separator = if i == 0 { "" } else { "," };
        write!(out, "{separator}{}", safe(&one.to_string()))?;
    }
    write!(out, "],\"inside\":[")?;
    if let Some(code) = code {
        inside::write(profile, code, sources, safe, out)?;
    }
    write!(out, "]}}")?;
    Ok(out.write_all(after.as_bytes())?)
}

/// Escapes JSON so that it cannot end the enclosing element (HTML, 13.2.5.4: a script's text ends
/// at `</script`).
fn safe(json: &str) -> String {
    json.replace('<', "\\u003c")
}

/// Source files without duplicates.
#[derive(Default)]
struct Files {
    /// The paths, safe to display, in the order in which they were added.
    names: Vec<String>,
    /// The index in `names` for each path.
    places: HashMap<String, usize>,
}

impl Files {
    /// The index of a file in `names`. The file is added if it is missing.
    fn place(&mut self, file: &str) -> usize {
        if let Some(&known) = self.places.get(file) {
            return known;
        }
        self.names.push(printable(file).into_owned());
        self.places.insert(file.to_owned(), self.names.len() - 1);
        self.names.len() - 1
    }
}

fn functions(profile: &Profile, asked: &[&Metric]) -> Vec<Value> {
    let mut totals: Vec<(Total, HashMap<&str, i128>)> = Vec::new();
    totals.resize_with(profile.functions.len(), Default::default);
    for path in &profile.paths {
        let (total, own) = &mut totals[path.function];
        total.add(path);
        for metric in asked {
            let sum = own.entry(&*metric.name).or_default();
            *sum = sum.saturating_add(weight(path, &metric.name));
        }
    }
    let functions = profile.functions.iter().zip(&totals);
    let one = |(function, (total, own)): (&Function, &(Total, HashMap<&str, i128>))| {
        let clones = function.clones.iter().map(|name| &**name);
        json!({
            "name": printable(&function.name),
            "module": printable(&profile.modules[function.module].path),
            "also": human::also(&also_called(&function.linkage, &function.aliases)),
            "elsewhere": human::elsewhere(clones, function.inlined),
            "count": total.counts.count,
            "unwound": total.unwound,
            "open": total.open,
            "tail": function.tail,
            "partly": is_partly(function),
            "values": values(&total.counts, asked, |metric| own.get(metric).copied().unwrap_or(0)),
        })
    };
    functions.map(one).collect()
}

/// The sums and distribution of each metric of `counts`, and of the waiting if the page shows it.
/// `own` returns the part of the named metric outside nested probed functions.
fn values(counts: &Counts, asked: &[&Metric], own: impl Fn(&str) -> i128) -> Vec<Value> {
    let one = |metric: &&Metric| {
        let stats = counts.timers.get(&metric.name).cloned().unwrap_or_default();
        let values = Distribution::of(&stats);
        let buckets = values.buckets().iter();
        let hist: Vec<_> = buckets
            .map(|&(bucket, n)| (number(bucket.least()), number(bucket.most()), n))
            .collect();
        json!({
            "sum": number(stats.sum),
            "own": number(own(&metric.name)),
            "p50": values.quantile(500).map(number),
            "p99": values.quantile(990).map(number),
            "max": values.ends().map(|(_, max)| max),
            "n": values.count(),
            "hist": hist,
        })
    };
    let mut all: Vec<Value> = asked.iter().map(one).collect();
    if has_waiting(asked) {
        let (sum, calls) = off_cpu::waiting(&counts.timers).unwrap_or_default();
        let own = off_cpu::waiting_by(|name| Some((own(name), calls)));
        all.push(json!({
            "sum": number(sum),
            "own": number(own.map_or(0, |(own, _)| own)),
            "n": calls,
            "hist": [],
        }));
    }
    all
}

/// True if the page shows the waiting within the off-CPU time as a separate metric.
fn has_waiting(asked: &[&Metric]) -> bool {
    off_cpu::waiting_by(|name| asked.iter().any(|m| m.name == name).then_some((0, 1))).is_some()
}

/// A number as in JavaScript: exact up to 2^53, else the nearest.
fn number(n: i128) -> Value {
    i64::try_from(n).map_or_else(|_| json!(n as f64), |n| json!(n))
}
