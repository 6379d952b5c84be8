//! Google's pprof format: a gzip-compressed protobuf, `proto/profile.proto` of google/pprof.

mod executed;
#[allow(
    missing_docs,
    reason = "it is generated; the format is documented where it is defined"
)]
pub mod proto;
mod tables;

use super::ExportError;
use super::code::Code;
use super::model::{Callers, Model, Naming, is_partly, metrics, weight};
use super::notes::notes;
use crate::profile::{Block, COUNT, Metric, PathEntry, Profile, printable};
use flate2::{Compression, write::GzEncoder};
use prost::Message;
use std::collections::HashMap;
use std::io::Write;
use tables::{Functions, Strings, base};

/// Writes one sample for each path, with the requested metric or all metrics as its values. Labels
/// mark incomplete data: `path=incomplete`, `measured=partly`, and the numbers `unwound`, `open`
/// and `tail`.
///
/// With `code` and without `metric`, there is a sample type for the executions of source lines in
/// functions whose control flow was counted, and a sample for each of these lines.
///
/// # Errors
/// The profile does not have the metric, a number needs more than 64 bits, or `out` fails.
pub fn to_pprof(
    profile: &Profile,
    metric: Option<&str>,
    callers: Callers,
    code: Option<&Code>,
    out: &mut impl Write,
) -> Result<(), ExportError> {
    let bytes = message(profile, metric, callers, code)?.encode_to_vec();
    let mut zipped = GzEncoder::new(out, Compression::fast());
    zipped.write_all(&bytes)?;
    zipped.finish()?;
    Ok(())
}

/// The message that [`to_pprof`] compresses and writes with default callers, without `code`.
///
/// # Errors
/// The profile does not have the metric, or a number needs more than 64 bits.
pub fn to_pprof_message(
    profile: &Profile,
    metric: Option<&str>,
) -> Result<proto::Profile, ExportError> {
    message(profile, metric, Callers::default(), None)
}

fn message(
    profile: &Profile,
    metric: Option<&str>,
    callers: Callers,
    code: Option<&Code>,
) -> Result<proto::Profile, ExportError> {
    let asked = metrics(profile, metric)?;
    let model = Model::of(profile, Naming::by_line(callers));
    let code = code.filter(|_| metric.is_none() && !profile.inside.is_empty());
    Ok(Made::of(&model, &asked, code)?.0)
}

struct Made(proto::Profile);

impl Made {
    fn of(model: &Model<'_>, asked: &[&Metric], code: Option<&Code>) -> Result<Self, ExportError> {
        let profile = model.profile;
        let mut strings = Strings::default();
        let mut made = proto::Profile {
            time_nanos: number(profile.session.started_unix_ns),
            duration_nanos: number(profile.session.elapsed_ns),
            mapping: mappings(profile, &mut strings),
            ..Default::default()
        };
        for metric in asked {
            made.sample_type.push(proto::ValueType {
                r#type: strings.of(&metric.name),
                unit: strings.of(unit(metric)),
            });
        }
        // Every call is recorded.
        made.period = 1;
        made.period_type = Some(proto::ValueType {
            r#type: strings.of(COUNT),
            unit: strings.of("calls"),
        });
        // The first is `count`. Users usually want the metric after it.
        let preferred = made.sample_type.get(1).or(made.sample_type.first());
        made.default_sample_type = preferred.map_or(0, |kind| kind.r#type);
        let mut functions = locate(model, &mut made, &mut strings);
        let callers = profile.frames.len() as u64;
        let threads = profile.thread_names();
        for path in &profile.paths {
            let mut sample = proto::Sample::default();
            // Location ids start at 1, because 0 means none.
            let stack = path.stack.iter().map(|&frame| frame as u64 + 1);
            sample.location_id.push(callers + path.function as u64 + 1);
            sample.location_id.extend(stack);
            for metric in asked {
                let value = i64::try_from(weight(path, &metric.name));
                let large = |_| ExportError::TooLarge(metric.name.clone());
                sample.value.push(value.map_err(large)?);
            }
            sample.label = labels(profile, path, &threads, &mut strings);
            made.sample.push(sample);
        }
        if let Some(code) = code {
            executed::add(profile, code, &mut made, &mut functions, &mut strings)?;
        }
        for note in notes(profile) {
            made.comment.push(strings.of(&note));
        }
        made.string_table = strings.into_table();
        Ok(Self(made))
    }
}

/// Adds a location for each frame of the profile, then one for each measured function. Returns the
/// functions of these locations.
fn locate(model: &Model<'_>, made: &mut proto::Profile, strings: &mut Strings) -> Functions {
    let profile = model.profile;
    let mut functions = Functions::default();
    let mut sources: HashMap<&str, &str> = HashMap::new();
    for (frame, lines) in profile.frames.iter().zip(&model.frames) {
        let mut location = proto::Location {
            id: made.location.len() as u64 + 1,
            mapping_id: frame.module.map_or(0, |module| module as u64 + 1),
            address: frame.address.wrapping_add(base(profile, frame.module)),
            ..Default::default()
        };
        // The innermost line comes first.
        for line in lines.iter().rev() {
            if let (Some(linkage), Some(file)) = (line.linkage, line.file) {
                sources.entry(linkage).or_insert(file);
            }
            let name = strings.of(&model.names[line.name]);
            let linkage = strings.of(&printable(line.linkage.unwrap_or("")));
            let file = strings.of(&printable(line.file.unwrap_or("")));
            location.line.push(proto::Line {
                function_id: functions.id(made, name, linkage, file),
                line: line.line.unwrap_or(0).into(),
            });
        }
        made.location.push(location);
    }
    for probed in &profile.functions {
        let name = strings.of(&printable(&probed.name));
        let linkage = strings.of(&printable(&probed.linkage));
        // Use the same source file as for the function as a caller, so that it is one function to
        // pprof.
        let source = sources.get(&*probed.linkage).copied().unwrap_or("");
        let source = strings.of(&printable(source));
        let function_id = functions.id(made, name, linkage, source);
        made.location.push(proto::Location {
            id: made.location.len() as u64 + 1,
            mapping_id: probed.module as u64 + 1,
            address: probed
                .address
                .wrapping_add(base(profile, Some(probed.module))),
            line: vec![proto::Line {
                function_id,
                line: 0,
            }],
            is_folded: false,
        });
    }
    functions
}

/// A mapping for each module, from its base to its last known address.
fn mappings(profile: &Profile, strings: &mut Strings) -> Vec<proto::Mapping> {
    let mut ends = vec![0u64; profile.modules.len()];
    let frames = profile.frames.iter().map(|f| (f.module, f.address));
    let functions = profile
        .functions
        .iter()
        .map(|f| (Some(f.module), f.address));
    let blocks = profile.inside.iter().flat_map(|inside| {
        let module = profile.functions[inside.function].module;
        let last = |block: &Block| block.address.saturating_add(block.size.saturating_sub(1));
        inside.blocks.iter().map(move |b| (Some(module), last(b)))
    });
    for (module, address) in frames.chain(functions).chain(blocks) {
        if let Some(end) = module.and_then(|m| ends.get_mut(m)) {
            *end = (*end).max(address.saturating_add(1));
        }
    }
    let mapping = |(i, module): (usize, &crate::profile::Module)| {
        let start = module.base.unwrap_or(0);
        proto::Mapping {
            id: i as u64 + 1,
            memory_start: start,
            memory_limit: start.wrapping_add(ends[i]),
            file_offset: 0,
            filename: strings.of(&printable(&module.path)),
            build_id: strings.of(&printable(module.build_id.as_deref().unwrap_or(""))),
            // Everything known is in the profile: tools need not symbolize it.
            has_functions: true,
            has_filenames: true,
            has_line_numbers: true,
            has_inline_frames: true,
        }
    };
    profile.modules.iter().enumerate().map(mapping).collect()
}

fn labels(
    profile: &Profile,
    path: &PathEntry,
    threads: &HashMap<u32, &str>,
    strings: &mut Strings,
) -> Vec<proto::Label> {
    let mut labels = Vec::new();
    let mut text = |key: &str, value: &str| {
        labels.push(proto::Label {
            key: strings.of(key),
            str: strings.of(&printable(value)),
            ..Default::default()
        });
    };
    if !path.complete {
        text("path", "incomplete");
    }
    if path.stack.is_empty()
        && let Some(unknown) = profile.unknown_callers(path)
    {
        text("callers", unknown);
    }
    if is_partly(&profile.functions[path.function]) {
        text("measured", "partly");
    }
    if let Some(name) = path.thread.and_then(|tid| threads.get(&tid)) {
        text("thread", name);
    }
    let process = profile.process_of(path);
    let of_process = process.iter().flat_map(|process| &process.labels);
    for (name, value) in profile.target.labels.iter().chain(of_process) {
        text(&printable(name), value);
    }
    if let Some(process) = process {
        text("program", process.program());
    }
    let thread = path.thread.map_or(0, u64::from);
    for (key, n, unit) in [
        ("thread_id", thread, ""),
        ("pid", process.map_or(0, |process| process.pid.into()), ""),
        ("unwound", path.unwound.unwrap_or(0), "calls"),
        ("open", path.open.unwrap_or(0), "calls"),
        ("tail", path.tail, "calls"),
    ] {
        if n > 0 {
            labels.push(proto::Label {
                key: strings.of(key),
                num: number(n),
                num_unit: strings.of(unit),
                ..Default::default()
            });
        }
    }
    labels
}

fn unit(metric: &Metric) -> &str {
    match metric.unit.as_str() {
        "ns" => "nanoseconds",
        "" => "count",
        unit => unit,
    }
}

/// `n`, or the largest number of the format if `n` is larger.
fn number(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
