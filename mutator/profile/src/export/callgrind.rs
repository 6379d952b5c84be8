//! The Callgrind format, <https://valgrind.org/docs/manual/cl-format.html>, which
//! callgrind_annotate and KCachegrind read.

mod executed;

use super::ExportError;
use super::code::Code;
use super::model::{Callers, Line, Model, Name, Naming, all_widths, metrics};
use crate::profile::{Metric, Profile, printable};
use executed::Executed;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io::Write;

/// A function of the format.
type Node = Name;

/// The line of the call in the caller, and the callee.
type Call = (u32, Node);

/// The costs of a function.
#[derive(Default)]
struct Costs {
    /// The exclusive cost by each metric. Empty for a function that was not measured.
    own: Vec<u64>,
    /// The number of calls of probed functions that passed through each call, and their cost by
    /// each metric.
    calls: BTreeMap<Call, (u64, Vec<u64>)>,
}

/// Writes the cost of each function and of each call, by line, in `metric` or in all metrics. A
/// call site counts the calls of probed functions that passed through it, because the number of its
/// own calls is not known.
///
/// With `code` and without `metric`, there is an event for the executions of source lines in
/// functions whose control flow was counted.
///
/// # Errors
/// The profile does not have the metric, the metric is negative on some path or exceeds 64 bits, or
/// `out` fails.
pub fn to_callgrind(
    profile: &Profile,
    metric: Option<&str>,
    callers: Callers,
    code: Option<&Code>,
    out: &mut impl Write,
) -> Result<(), ExportError> {
    let asked = metrics(profile, metric)?;
    let weights = all_widths(profile, &asked)?;
    // A loop is no function, and its lines are those of its function.
    let callers = Callers {
        loops: false,
        ..callers
    };
    let mut model = Model::of(profile, Naming::by_line(callers));
    let executed = match code.filter(|_| metric.is_none() && !profile.inside.is_empty()) {
        Some(code) => Some(Executed::of(&mut model, code)?),
        None => None,
    };
    let mut costs = gather(&model, &weights);
    for node in executed.iter().flat_map(Executed::nodes) {
        costs.entry(node).or_default();
    }
    head(profile, &asked, &weights, executed.as_ref(), out)?;
    let places = Places::of(&model, executed.as_ref());
    let mut seen = BTreeSet::new();
    for (&node, costs) in &costs {
        writeln!(out)?;
        places.write(node, "", &model, &mut seen, out)?;
        if costs.own.iter().any(|&n| n > 0) {
            line(0, &costs.own, out)?;
        }
        if let Some(executed) = &executed {
            executed.write(node, places.file(node), asked.len(), out)?;
        }
        for (&(at, callee), (calls, all)) in &costs.calls {
            places.write(callee, "c", &model, &mut seen, out)?;
            writeln!(out, "calls={calls} 0")?;
            line(at, all, out)?;
        }
    }
    write!(out, "\ntotals:")?;
    for weights in &weights {
        write!(out, " {}", weights.iter().sum::<u64>())?;
    }
    if let Some(executed) = &executed {
        write!(out, " {}", executed.sum())?;
    }
    Ok(writeln!(out)?)
}

fn head(
    profile: &Profile,
    asked: &[&Metric],
    weights: &[Vec<u64>],
    executed: Option<&Executed<'_>>,
    out: &mut impl Write,
) -> Result<(), ExportError> {
    writeln!(
        out,
        "# callgrind format\nversion: 1\ncreator: ipath {}",
        env!("CARGO_PKG_VERSION")
    )?;
    writeln!(out, "pid: {}", profile.target.pid)?;
    let words: Vec<_> = profile.target.args.iter().map(|a| printable(a)).collect();
    let rest = words.get(1..).unwrap_or_default().join(" ");
    writeln!(out, "cmd: {} {rest}", printable(&profile.target.exe))?;
    let losses = &profile.losses;
    writeln!(
        out,
        "desc: Losses: {} missed, {} without their own path, {} on incomplete paths, {} left by a tail call",
        losses.missed,
        losses.overflow,
        losses.incomplete,
        profile.tail_calls()
    )?;
    writeln!(out, "positions: line")?;
    let names: Vec<_> = asked.iter().map(|metric| event(&metric.name)).collect();
    for (metric, name) in asked.iter().zip(&names) {
        let unit = if metric.unit.is_empty() {
            "plain number"
        } else {
            &metric.unit
        };
        writeln!(out, "event: {name} : {} ({unit})", printable(&metric.name))?;
    }
    let mut names = names.join(" ");
    if executed.is_some() {
        writeln!(out, "event: {} : {}", executed::EVENT, executed::ABOUT)?;
        names = format!("{names} {}", executed::EVENT);
    }
    writeln!(out, "events: {names}")?;
    write!(out, "summary:")?;
    for weights in weights {
        write!(out, " {}", weights.iter().sum::<u64>())?;
    }
    if let Some(executed) = executed {
        write!(out, " {}", executed.sum())?;
    }
    Ok(writeln!(out)?)
}

/// The name of a metric as a word of letters, digits and `_`.
fn event(name: &str) -> String {
    let word = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    name.chars().map(word).collect()
}

/// The costs of each function. `weights` has the weight of each path, for each metric.
fn gather(model: &Model<'_>, weights: &[Vec<u64>]) -> BTreeMap<Node, Costs> {
    let mut costs: BTreeMap<Node, Costs> = BTreeMap::new();
    let empty = || vec![0u64; weights.len()];
    let mut passed = HashSet::new();
    for (place, path) in model.profile.paths.iter().enumerate() {
        let weigh = |sum: &mut Vec<u64>| {
            let all = sum.iter_mut().zip(weights);
            all.for_each(|(sum, weights)| *sum = sum.saturating_add(weights[place]));
        };
        let at = |line: &Line<'_>| (line.name, line.line.unwrap_or(0));
        let unknown = model.unknown(path).map(|name| (name, 0));
        let callers: Vec<_> = unknown
            .into_iter()
            .chain(model.callers(path).map(at))
            .collect();
        let leaf = model.function(path);
        let callees = callers.iter().skip(1).map(|&(name, _)| name).chain([leaf]);
        passed.clear();
        for (&(caller, line), callee) in callers.iter().zip(callees) {
            // A path with recursion passes through a call several times, but counts only once.
            if !passed.insert((caller, line, callee)) {
                continue;
            }
            let calls = &mut costs.entry(caller).or_default().calls;
            let (calls, all) = calls.entry((line, callee)).or_insert_with(|| (0, empty()));
            *calls = calls.saturating_add(path.metrics.count);
            weigh(all);
        }
        let own = &mut costs.entry(leaf).or_default().own;
        if own.is_empty() {
            *own = empty();
        }
        weigh(own);
    }
    costs
}

fn line(at: u32, costs: &[u64], out: &mut impl Write) -> Result<(), ExportError> {
    write!(out, "{at}")?;
    for cost in costs {
        write!(out, " {cost}")?;
    }
    Ok(writeln!(out)?)
}

/// The module and the source file of each name.
struct Places<'p> {
    objects: HashMap<Node, &'p str>,
    files: HashMap<Node, &'p str>,
}

impl<'p> Places<'p> {
    fn of(model: &Model<'p>, executed: Option<&Executed<'p>>) -> Self {
        let mut places = Self {
            objects: HashMap::new(),
            files: HashMap::new(),
        };
        let profile = model.profile;
        for (frame, lines) in profile.frames.iter().zip(&model.frames) {
            let module = frame.module.and_then(|m| profile.modules.get(m));
            for line in lines {
                module.map(|m| places.objects.entry(line.name).or_insert(&m.path));
                line.file
                    .map(|file| places.files.entry(line.name).or_insert(file));
            }
        }
        for path in &profile.paths {
            let function = &profile.functions[path.function];
            let module = &profile.modules[function.module];
            places
                .objects
                .entry(model.function(path))
                .or_insert(&module.path);
        }
        for (node, function, file) in executed.into_iter().flat_map(Executed::places) {
            let module = &profile.modules[function.module];
            places.objects.entry(node).or_insert(&module.path);
            if let Some(file) = file {
                places.files.entry(node).or_insert(file);
            }
        }
        places
    }

    /// The source file of a function. `None` if it is not known.
    fn file(&self, node: Node) -> Option<&'p str> {
        self.files.get(&node).copied()
    }

    /// Writes the object, the file and the name of a function, and adds the function to `seen`. The
    /// name of a function in `seen` is left out, except for its number. `c` is `"c"` for a callee,
    /// else empty.
    fn write(
        &self,
        node: Node,
        c: &str,
        model: &Model<'_>,
        seen: &mut BTreeSet<Node>,
        out: &mut impl Write,
    ) -> Result<(), ExportError> {
        let place = |places: &HashMap<Node, &str>| {
            let text = places.get(&node).copied().unwrap_or("???");
            printable(text).into_owned()
        };
        writeln!(out, "{c}ob={}", place(&self.objects))?;
        writeln!(
            out,
            "{}={}",
            if c.is_empty() { "fl" } else { "cfi" },
            place(&self.files)
        )?;
        let name = if seen.insert(node) {
            &model.names[node]
        } else {
            ""
        };
        let gap = if name.is_empty() { "" } else { " " };
        Ok(writeln!(out, "{c}fn=({}){gap}{name}", node + 1)?)
    }
}
