//! Speedscope's own format, <https://www.speedscope.app/file-format-schema.json>: a profile of the
//! kind `sampled` for each metric.
//!
//! The format cannot select a view, and a file opens in the view `Time Order`. So the samples have
//! the order of the view `Left Heavy`, which makes both views look the same.

use super::ExportError;
use super::model::{Callers, Model, Name, Naming, all_widths, metrics};
use super::tree::Tree;
use crate::profile::{Metric, Profile, printable, program};
use serde_json::json;
use std::collections::HashMap;
use std::io::{self, Write};

/// Writes each path as one sample, weighted by its exclusive cost, in one profile for `metric`, or
/// one for each metric.
///
/// # Errors
/// The profile does not have the metric, the metric is negative on some path or exceeds 64 bits, or
/// `out` fails.
pub fn to_speedscope(
    profile: &Profile,
    metric: Option<&str>,
    callers: Callers,
    out: &mut impl Write,
) -> Result<(), ExportError> {
    let asked = metrics(profile, metric)?;
    let widths = all_widths(profile, &asked)?;
    let model = Model::of(profile, Naming::by_line(callers));
    let mut files: HashMap<usize, &str> = HashMap::new();
    for line in model.frames.iter().flatten() {
        line.file.map(|file| files.entry(line.name).or_insert(file));
    }
    let frame = |(place, name): (usize, &String)| match files.get(&place) {
        Some(file) => json!({"name": name, "file": printable(file)}),
        None => json!({"name": name}),
    };
    let frames: Vec<_> = model.names.iter().enumerate().map(frame).collect();
    let exe = printable(&program(&profile.target.exe, &profile.target.args).0).into_owned();
    let active = usize::from(asked.len() > 1);
    write!(
        out,
        "{{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\"name\":{},\"exporter\":\"ipath {}\",\
         \"activeProfileIndex\":{active},\"shared\":{{\"frames\":{}}},\"profiles\":[",
        json!(exe),
        env!("CARGO_PKG_VERSION"),
        json!(frames)
    )?;
    let stacks: Vec<_> = profile.paths.iter().map(|path| model.stack(path)).collect();
    for (i, (metric, widths)) in asked.iter().zip(&widths).enumerate() {
        let end: u64 = widths.iter().sum();
        let order = left_heavy(&stacks, widths);
        let samples: Vec<&Vec<Name>> = order.iter().map(|&path| &stacks[path]).collect();
        let weights: Vec<u64> = order.iter().map(|&path| widths[path]).collect();
        let separator = if i == 0 { "" } else { "," };
        write!(
            out,
            "{separator}{{\"type\":\"sampled\",\"name\":{},\"unit\":\"{}\",\"startValue\":0,\"endValue\":{end},\"samples\":",
            json!(metric.name),
            unit(metric)
        )?;
        serde_json::to_writer(&mut *out, &samples).map_err(io::Error::from)?;
        out.write_all(b",\"weights\":")?;
        serde_json::to_writer(&mut *out, &weights).map_err(io::Error::from)?;
        out.write_all(b"}")?;
    }
    Ok(out.write_all(b"]}\n")?)
}

/// The indexes of `stacks`, those in the heaviest subtree first.
fn left_heavy(stacks: &[Vec<Name>], widths: &[u64]) -> Vec<usize> {
    let mut tree = Tree::new(1);
    let all = stacks.iter().zip(widths);
    let ends: Vec<_> = all
        .map(|(stack, &width)| tree.add(stack, &[width.into()]))
        .collect();
    tree.sum();
    let mut rank = vec![0; tree.nodes.len()];
    for (place, node) in tree.heaviest_first(0).into_iter().enumerate() {
        rank[node] = place;
    }
    let mut order: Vec<usize> = (0..stacks.len()).collect();
    order.sort_by_key(|&path| ends[path].map(|end| rank[end]));
    order
}

fn unit(metric: &Metric) -> &'static str {
    match metric.unit.as_str() {
        "ns" => "nanoseconds",
        "bytes" => "bytes",
        _ => "none",
    }
}
