//! The timeline of Chrome's trace events, which Perfetto reads
//! ("Trace Event Format", Google): a complete event (`X`) for each call of a trace.
//!
//! The calls on a thread must be nested. Those of coroutines may overlap, as their thread runs
//! others in between. They are on further tracks of the thread.

use super::ExportError;
use super::model::{Callers, Model, Naming};
use crate::profile::{Process, Profile, SingleCall, printable, program};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, Write};

/// Process and thread ids are below this number (PID_MAX_LIMIT, linux/threads.h: 2^22).
const MOST_IDS: u32 = 1 << 23;

/// Writes the calls of the profile's trace as events, ordered by time.
///
/// # Errors
/// The profile has no trace, or `out` fails.
pub fn to_chrome(
    profile: &Profile,
    callers: Callers,
    out: &mut impl Write,
) -> Result<(), ExportError> {
    let functions = profile.functions.iter();
    let mut calls: Vec<&SingleCall> = functions.flat_map(|f| &f.trace).collect();
    if calls.is_empty() {
        return Err(ExportError::NoTrace);
    }
    let clock = Clock::of(profile);
    let ids = ids(profile);
    let id = |call: &SingleCall| ids.get(call.process.unwrap_or(0)).copied().unwrap_or(0);
    calls.sort_by_key(|call| {
        let start = clock.at(call, call.start_ns);
        (
            start,
            std::cmp::Reverse(clock.at(call, call.end_ns)),
            id(call),
            call.thread,
        )
    });
    let naming = Naming {
        callers,
        inlined: false,
    };
    let model = Model::of(profile, naming);
    let exe = printable(&program(&profile.target.exe, &profile.target.args).0).into_owned();
    write!(
        out,
        "{{\"displayTimeUnit\":\"ns\",\"otherData\":{{\"exporter\":\"ipath {}\",\"program\":{},\
         \"clock\":\"{}\"}},\"traceEvents\":[",
        env!("CARGO_PKG_VERSION"),
        json!(exe),
        clock.name()
    )?;
    let mut separator = "\n";
    let mut write = |event: &Value| -> io::Result<()> {
        out.write_all(std::mem::replace(&mut separator, ",\n").as_bytes())?;
        serde_json::to_writer(&mut *out, event).map_err(io::Error::from)
    };
    for (process, &id) in ids.iter().enumerate() {
        write(&named(
            "process_name",
            (id, 0),
            title(profile, process, &exe),
        ))?;
    }
    let threads = profile.thread_names();
    let mut tracks = Tracks::default();
    let mut seen: HashMap<(u32, u32, u32), u32> = HashMap::new();
    let mut paths: HashMap<usize, String> = HashMap::new();
    for call in calls {
        let (start, end) = (clock.at(call, call.start_ns), clock.at(call, call.end_ns));
        let track = tracks.of((id(call), call.thread), start, end);
        let known = seen.len() as u32;
        let mut is_new = false;
        let tid = *seen
            .entry((id(call), call.thread, track))
            .or_insert_with(|| {
                is_new = true;
                match track {
                    0 => call.thread,
                    _ => MOST_IDS + known,
                }
            });
        if is_new {
            let name = threads.get(&call.thread).map(|name| printable(name));
            let name = name.map_or_else(|| "thread".to_owned(), |name| name.into_owned());
            let name = match track {
                0 => name,
                more => format!("{name} ({})", more + 1),
            };
            write(&named("thread_name", (id(call), tid), name))?;
        }
        let path = &profile.paths[call.path];
        let name = &model.names[model.function(path)];
        let stack = paths.entry(call.path).or_insert_with(|| {
            let names = model
                .stack(path)
                .into_iter()
                .map(|name| &*model.names[name]);
            names.collect::<Vec<&str>>().join(";")
        });
        write(&json!({
            "name": name,
            "cat": "call",
            "ph": "X",
            "ts": microseconds(start),
            "dur": microseconds(end.saturating_sub(start)),
            "pid": id(call),
            "tid": tid,
            "args": details(call, stack),
        }))?;
    }
    Ok(out.write_all(b"\n]}\n")?)
}

/// The values of a call.
fn details(call: &SingleCall, path: &str) -> Map<String, Value> {
    let mut all = Map::new();
    for (number, value) in (1..).zip(&call.args) {
        all.extend(value.map(|value| (format!("arg{number}"), json!(value))));
    }
    all.extend(call.ret.map(|value| ("ret".to_owned(), json!(value))));
    all.insert("wall_ns".to_owned(), json!(call.wall));
    all.extend(call.cpu.map(|cpu| ("cpu_ns".to_owned(), json!(cpu))));
    all.insert("path".to_owned(), json!(path));
    all
}

/// An event that names a process or thread.
fn named(what: &str, (pid, tid): (u32, u32), name: String) -> Value {
    json!({"name": what, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}})
}

/// Nanoseconds in microseconds, the unit of the format.
fn microseconds(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

/// The clock of the events.
enum Clock<'p> {
    /// CLOCK_MONOTONIC of the machine. For each process, its value at the start of the session.
    Monotonic(Vec<u64>),
    /// The time since the start of the first session: processes of several machines have no common
    /// CLOCK_MONOTONIC.
    SinceStart(&'p [Process]),
}

impl<'p> Clock<'p> {
    fn of(profile: &'p Profile) -> Self {
        let processes = &profile.processes;
        if processes.is_empty() {
            return Self::Monotonic(vec![profile.session.monotonic_ns.unwrap_or(0)]);
        }
        let hosts: BTreeSet<&str> = processes.iter().map(|p| p.host.as_str()).collect();
        let starts = processes.iter().map(|process| process.monotonic_ns);
        match starts.collect::<Option<Vec<u64>>>() {
            Some(starts) if hosts.len() < 2 => Self::Monotonic(starts),
            _ => Self::SinceStart(processes),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Monotonic(_) => "CLOCK_MONOTONIC",
            Self::SinceStart(_) => "since the start of the first session",
        }
    }

    /// A time of a call, which is given since the start of its process's session.
    fn at(&self, call: &SingleCall, ns: u64) -> u64 {
        let process = call.process.unwrap_or(0);
        let start = match self {
            Self::Monotonic(starts) => starts.get(process).copied().unwrap_or(0),
            Self::SinceStart(processes) => {
                let starts = processes.iter().map(|process| process.started_unix_ns);
                let first = starts.min().unwrap_or(0);
                let own = processes.get(process).map_or(first, |p| p.started_unix_ns);
                own - first
            }
        };
        start.saturating_add(ns)
    }
}

/// A number for each process: its id, unless another process has it too.
fn ids(profile: &Profile) -> Vec<u32> {
    if profile.processes.is_empty() {
        return vec![profile.target.pid];
    }
    let mut used = BTreeSet::new();
    let processes = profile.processes.iter();
    let id = processes.map(|process| {
        let mut all = std::iter::once(process.pid).chain(MOST_IDS..);
        all.find(|&id| used.insert(id)).unwrap_or(process.pid)
    });
    id.collect()
}

/// The title of a process: its program and labels.
fn title(profile: &Profile, process: usize, exe: &str) -> String {
    let (program, labels) = match profile.processes.get(process) {
        Some(process) => (printable(process.program()).into_owned(), &process.labels),
        None => (exe.to_owned(), &profile.target.labels),
    };
    let labels: String = labels
        .iter()
        .map(|(name, value)| format!(" {} {}", printable(name), printable(value)))
        .collect();
    program + &labels
}

/// The tracks of each thread, each with the ends of the calls that last.
#[derive(Default)]
struct Tracks(BTreeMap<(u32, u32), Vec<Vec<u64>>>);

impl Tracks {
    /// The number of the first track of a thread on which a call is nested in the calls that last,
    /// if calls come ordered by their starts, outer ones first.
    fn of(&mut self, thread: (u32, u32), start: u64, end: u64) -> u32 {
        let tracks = self.0.entry(thread).or_default();
        for (number, open) in tracks.iter_mut().enumerate() {
            while open.last().is_some_and(|&last| last <= start && last < end) {
                open.pop();
            }
            if open.last().is_none_or(|&last| end <= last) {
                open.push(end);
                return number as u32;
            }
        }
        tracks.push(vec![end]);
        (tracks.len() - 1) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::order_in_time;
    use crate::sample::sample;

    fn call(path: usize, thread: u32, start_ns: u64, end_ns: u64) -> SingleCall {
        SingleCall {
            path,
            process: None,
            thread,
            start_ns,
            end_ns,
            wall: end_ns - start_ns,
            nested: 0,
            callees: Vec::new(),
            cpu: None,
            args: vec![Some(-1), None, Some(3)],
            ret: Some(i64::MIN),
        }
    }

    /// The complete events of a profile with these calls: track, start and length in ns.
    fn events(profile: &Profile) -> Vec<(u64, u64, u64, Value)> {
        let mut out = Vec::new();
        to_chrome(profile, Callers::default(), &mut out).expect("a trace");
        let trace: Value = serde_json::from_slice(&out).expect("JSON");
        let events = trace["traceEvents"].as_array().expect("events").iter();
        let events = events.filter(|event| event["ph"] == "X");
        let ns = |value: &Value| (value.as_f64().expect("a number") * 1000.0).round() as u64;
        events
            .map(|event| {
                let tid = event["tid"].as_u64().expect("a number");
                (tid, ns(&event["ts"]), ns(&event["dur"]), event.clone())
            })
            .collect()
    }

    #[test]
    fn calls_are_events_in_the_order_of_time() {
        let mut profile = sample();
        profile.session.monotonic_ns = Some(1_000_000);
        let function = profile.paths[0].function;
        profile.functions[function].trace = vec![
            call(0, 7, 30, 40),
            call(0, 7, 10, 50),
            call(0, 8, 10, 20),
            // It overlaps with others on its thread.
            call(0, 7, 35, 60),
        ];
        order_in_time(&mut profile.functions[function].trace);
        let events = events(&profile);
        let places: Vec<_> = events
            .iter()
            .map(|&(tid, ts, dur, _)| (tid, ts, dur))
            .collect();
        let second = 2 + u64::from(MOST_IDS);
        assert_eq!(
            places,
            [
                (7, 1_000_010, 40),
                (8, 1_000_010, 10),
                (7, 1_000_030, 10),
                (second, 1_000_035, 25)
            ]
        );
        let (.., first) = &events[0];
        assert_eq!(first["pid"], 4242);
        assert_eq!(first["name"], "work");
        assert_eq!(first["args"]["arg1"], -1);
        assert_eq!(first["args"].get("arg2"), None);
        assert_eq!(first["args"]["ret"], i64::MIN);
        let path = first["args"]["path"].as_str().expect("a path");
        assert!(path.ends_with(";work"), "{path}");
    }

    #[test]
    fn processes_with_one_id_are_told_apart() {
        let mut profile = sample();
        let process = |host: &str, started_unix_ns| Process {
            pid: 9,
            host: host.to_owned(),
            started_unix_ns,
            monotonic_ns: Some(5),
            ..Process::default()
        };
        profile.processes = vec![process("a", 1000), process("b", 1500), process("c", 1200)];
        let function = profile.paths[0].function;
        for process in 0..3 {
            let mut call = call(0, 7, 10, 20);
            call.process = Some(process);
            profile.functions[function].trace.push(call);
        }
        let events = events(&profile);
        let mut ids: Vec<_> = events
            .iter()
            .map(|(.., event)| event["pid"].clone())
            .collect();
        ids.dedup();
        assert_eq!(ids.len(), 3);
        let starts: Vec<u64> = events.iter().map(|&(_, ts, ..)| ts).collect();
        assert_eq!(starts, [10, 210, 510]);
    }

    #[test]
    fn a_profile_without_a_trace_is_refused() {
        let error = to_chrome(&sample(), Callers::default(), &mut Vec::new());
        assert!(matches!(error, Err(ExportError::NoTrace)));
    }
}
