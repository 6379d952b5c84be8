//! TAU's profile files, `profile.NODE.CONTEXT.THREAD`, with call paths as `A => B`. ParaProf,
//! PerfExplorer and Hatchet read them (TAU Reference Guide, "Profile data format";
//! `hatchet/readers/tau_reader.py`).

use super::ExportError;
use super::model::{Callers, Model, Name, Naming, metrics, widths};
use super::tree::{Node, Tree};
use crate::profile::{COUNT, Profile};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// The parent of all roots.
const TOP: &str = ".TAU application";

/// A line of a file: the calls of a function, the number of functions that it calls, and its
/// exclusive and inclusive value of the metric.
#[derive(Clone, Copy, Default)]
struct Row {
    calls: i128,
    callees: usize,
    own: i128,
    all: i128,
}

/// Writes a file for each process and thread, or a single one if these are not kept apart. With
/// several metrics, there is a folder `MULTI__METRIC` for each. `open` creates a file with the
/// given name. Without `metric`, writes all metrics except `count`, which is part of every file.
///
/// # Errors
/// The profile does not have the metric, the metric is negative on some path or exceeds 64 bits, or
/// a file cannot be written.
pub fn to_tau<W: Write>(
    profile: &Profile,
    metric: Option<&str>,
    callers: Callers,
    mut open: impl FnMut(&str) -> io::Result<W>,
) -> Result<(), ExportError> {
    let mut asked = metrics(profile, metric)?;
    if asked.len() > 1 {
        asked.retain(|metric| metric.name != COUNT);
    }
    let mut model = Model::of(profile, Naming::by_line(callers));
    for name in &mut model.names {
        // The separator between names, and the terminator of names.
        *name = name.replace("=>", "->").replace('"', "'");
    }
    let mut threads: BTreeMap<(usize, Option<u32>), Vec<usize>> = BTreeMap::new();
    for (place, path) in profile.paths.iter().enumerate() {
        let thread = (node(profile, path.process), path.thread);
        threads.entry(thread).or_default().push(place);
    }
    if threads.is_empty() {
        threads.insert((node(profile, None), None), Vec::new());
    }
    for metric in &asked {
        let widths = widths(profile, &metric.name)?;
        let folder = match asked.len() {
            1 => String::new(),
            _ => format!("MULTI__{}/", metric.name.replace(['/', '\0'], "_")),
        };
        let mut of_node = (0, 0);
        for (&(node, _), places) in &threads {
            of_node = match of_node {
                (last, next) if last == node => (node, next + 1),
                _ => (node, 1),
            };
            let number = of_node.1 - 1;
            let mut tree = Tree::new(2);
            for &place in places {
                let path = &profile.paths[place];
                let calls = path.metrics.count.into();
                tree.add(&model.stack(path), &[widths[place].into(), calls]);
            }
            tree.sum();
            let mut out = open(&format!("{folder}profile.{node}.0.{number}"))?;
            write_file(&model, &tree, &metric.name, &mut out)?;
            out.flush()?;
        }
    }
    Ok(())
}

/// The number of a process: its rank, or its index `process` in the list of processes if it has no
/// rank, or 0 if processes are not kept apart.
fn node(profile: &Profile, process: Option<usize>) -> usize {
    let labels = match process.and_then(|index| profile.processes.get(index)) {
        Some(process) => &process.labels,
        None => &profile.target.labels,
    };
    let rank = labels.get("rank").and_then(|rank| rank.parse().ok());
    rank.or(process).unwrap_or(0)
}

fn write_file(
    model: &Model<'_>,
    tree: &Tree,
    metric: &str,
    out: &mut impl Write,
) -> Result<(), ExportError> {
    let flat = flat(tree);
    let lines = 1 + flat.len() + tree.nodes.len();
    let words = |c: char| if matches!(c, '<' | '>' | '&') { '_' } else { c };
    let value: String = metric.chars().map(words).collect();
    writeln!(
        out,
        "{lines} templated_functions_MULTI_{}",
        metric.replace(' ', "_")
    )?;
    writeln!(
        out,
        "# Name Calls Subrs Excl Incl ProfileCalls # <metadata><attribute><name>Metric Name</name><value>{value}</value>\
         </attribute></metadata>"
    )?;
    let top = Row {
        calls: 1,
        callees: tree.roots.len(),
        own: 0,
        all: tree.total(0),
    };
    write_row(TOP, top, "TAU_DEFAULT", out)?;
    for (&name, &row) in &flat {
        write_row(&model.names[name], row, "TAU_DEFAULT", out)?;
    }
    let out = std::cell::RefCell::new(out);
    let stack = std::cell::RefCell::new(TOP.to_owned());
    let lengths = std::cell::RefCell::new(Vec::new());
    tree.walk(
        |_, node, _| {
            let mut stack = stack.borrow_mut();
            lengths.borrow_mut().push(stack.len());
            stack.push_str(" => ");
            stack.push_str(&model.names[node.name]);
            write_row(&stack, row(node), "TAU_CALLPATH", &mut **out.borrow_mut())
        },
        |_| {
            let length = lengths.borrow_mut().pop().unwrap_or(0);
            stack.borrow_mut().truncate(length);
            Ok::<_, ExportError>(())
        },
    )?;
    Ok(writeln!(out.borrow_mut(), "0 aggregates")?)
}

fn row(node: &Node) -> Row {
    Row {
        calls: node.own[1],
        callees: node.children.len(),
        own: node.own[0],
        all: node.all[0],
    }
}

/// The totals of each function over all callers. Inclusive costs count once for each path.
fn flat(tree: &Tree) -> BTreeMap<Name, Row> {
    let mut flat: BTreeMap<Name, Row> = BTreeMap::new();
    // The names on the way from the root, with their number of occurrences.
    let open: std::cell::RefCell<BTreeMap<Name, usize>> = std::cell::RefCell::default();
    // Both closures are infallible.
    let _ = tree.walk(
        |_, node, _| {
            let part = row(node);
            let sum = flat.entry(node.name).or_default();
            sum.calls = sum.calls.saturating_add(part.calls);
            sum.callees = sum.callees.saturating_add(part.callees);
            sum.own = sum.own.saturating_add(part.own);
            let mut open = open.borrow_mut();
            let times = open.entry(node.name).or_default();
            if *times == 0 {
                sum.all = sum.all.saturating_add(part.all);
            }
            *times += 1;
            Ok::<_, std::convert::Infallible>(())
        },
        |node| {
            if let Some(times) = open.borrow_mut().get_mut(&node.name) {
                *times = times.saturating_sub(1);
            }
            Ok(())
        },
    );
    flat
}

fn write_row(name: &str, row: Row, group: &str, out: &mut impl Write) -> Result<(), ExportError> {
    let Row {
        calls,
        callees,
        own,
        all,
    } = row;
    Ok(writeln!(
        out,
        "\"{name}\" {calls} {callees} {own} {all} 0 GROUP=\"{group}\""
    )?)
}
