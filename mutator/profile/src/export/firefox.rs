//! The processed profile format of the Firefox Profiler, by the crate `fxprof-processed-profile`.

use super::ExportError;
use super::model::{Callers, Model, Naming, widths};
use crate::profile::{Metric, Profile, printable, program};
use fxprof_processed_profile as fx;
use fxprof_processed_profile::{CategoryHandle, CpuDelta, Frame, FrameFlags, FrameInfo, Timestamp};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

/// Writes each path as one sample, weighted by its exclusive cost. Times are in milliseconds. The
/// samples of a thread follow each other in the order of the profile, because the times of the
/// calls are not known.
///
/// # Errors
/// The profile does not have the metric, the metric is negative on some path or exceeds 64 bits, or
/// `out` fails.
pub fn to_firefox(
    profile: &Profile,
    metric: &str,
    callers: Callers,
    out: &mut impl Write,
) -> Result<(), ExportError> {
    let kind = profile.metric(metric)?;
    let widths = widths(profile, metric)?;
    let model = Model::of(profile, Naming::by_line(callers));
    let name = printable(&program(&profile.target.exe, &profile.target.args).0).into_owned();
    let started = Duration::from_nanos(profile.session.started_unix_ns);
    let mut made = fx::Profile::new(
        &name,
        fx::ReferenceTimestamp::from_duration_since_unix_epoch(started),
        fx::SamplingInterval::from_millis(1),
    );
    made.set_symbolicated(true);
    let time = |n: u64| Timestamp::from_nanos_since_reference(n.saturating_mul(1_000_000));
    let process = made.add_process(&name, profile.target.pid, time(0));
    let strings: Vec<_> = model.names.iter().map(|n| made.intern_string(n)).collect();
    let names = profile.thread_names();
    let mut threads: BTreeMap<Option<u32>, (fx::ThreadHandle, Vec<u64>)> = BTreeMap::new();
    // In the order in which threads are created, which is also the order in the output.
    let mut order = Vec::new();
    for (path, &width) in profile.paths.iter().zip(&widths) {
        let (thread, weights) = threads.entry(path.thread).or_insert_with(|| {
            let tid = path.thread.unwrap_or(profile.target.pid);
            let thread = made.add_thread(process, tid, time(0), order.is_empty());
            let called = path.thread.and_then(|tid| names.get(&tid)).copied();
            made.set_thread_name(thread, &printable(called.unwrap_or(&name)));
            made.set_thread_samples_weight_type(thread, weight_type(kind));
            order.push(path.thread);
            (thread, Vec::new())
        });
        let frames = model.stack(path).into_iter().map(|name| FrameInfo {
            frame: Frame::Label(strings[name]),
            category_pair: CategoryHandle::OTHER.into(),
            flags: FrameFlags::empty(),
        });
        let stack = made.intern_stack_frames(*thread, frames);
        let at = time(weights.len() as u64);
        made.add_sample(*thread, at, stack, CpuDelta::ZERO, 1);
        weights.push(width);
    }
    let mut written = serde_json::to_value(&made).map_err(io::Error::from)?;
    // The weights of the crate have 32 bits. Those of the format are JSON numbers, and may have
    // fractions.
    for (i, thread) in order.iter().enumerate() {
        let weights = threads.get(thread).map_or(&[][..], |(_, weights)| weights);
        let weights: Vec<Value> = weights.iter().map(|&n| number(n, kind)).collect();
        written["threads"][i]["samples"]["weight"] = Value::Array(weights);
    }
    serde_json::to_writer(&mut *out, &written).map_err(io::Error::from)?;
    Ok(out.write_all(b"\n")?)
}

fn weight_type(metric: &Metric) -> fx::WeightType {
    match metric.unit.as_str() {
        "ns" => fx::WeightType::TracingMs,
        "bytes" => fx::WeightType::Bytes,
        _ => fx::WeightType::Samples,
    }
}

/// A weight as a number of the format: times in milliseconds, others in the metric's unit.
fn number(weight: u64, metric: &Metric) -> Value {
    match metric.unit.as_str() {
        "ns" => json!(weight as f64 / 1e6),
        _ => json!(weight),
    }
}
