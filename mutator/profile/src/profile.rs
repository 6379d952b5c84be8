//! The profile: the results of a session, as a value and as the file format `ipath-profile/1`.
//!
//! The structs are the format: their fields are the fields of the JSON, in the order written.
//! Indexes (`module`, `function`, `stack`) point into the lists of the same profile.
//! [`Profile::check`] verifies that all of it is consistent.

mod apart;
mod changed;
mod check;
mod counts;
mod delta;
mod distribution;
mod exactness;
mod file;
mod found;
mod frame_loop;
mod function;
mod heavy;
mod inlined_copy;
mod inside;
mod inside_times;
mod kept_apart;
mod kept_single;
mod label;
mod later;
pub mod off_cpu;
mod path_entry;
mod per_cycle;
mod position;
mod process;
mod program;
mod room;
mod single;
mod taken_paths;
#[cfg(test)]
mod tests;
mod throttled;
mod total;
mod unmeasured;
mod unseen;
mod with_copies;

pub use apart::{Apart, ByValue, Phase};
pub use changed::Changed;
pub use check::Inconsistent;
pub use counts::{COUNT, Counts, FunctionTotals, TimerStats, Timers, WALL};
pub use delta::Delta;
pub use distribution::{Bucket, Distribution, Gathered};
pub use exactness::{CONTRADICTED, Exactness, Verdict};
pub use file::ProfileError;
pub use found::{Explained, FoundPath, GENERATED, Kind, Left, SearchResult};
pub use frame_loop::FrameLoop;
pub use function::{Function, FunctionPart, Presence};
pub use inlined_copy::InlinedCopy;
pub use inside::{Block, Edge, EdgeKind, Inside, Loop};
pub use ipath_base::printable::printable;
pub use kept_apart::NoPhase;
pub use label::Label;
pub use path_entry::PathEntry;
pub use per_cycle::PerCycle;
pub(crate) use position::position;
pub use process::{InProcess, Process, Spread, Spreads};
pub use program::{program, started_as};
pub use room::UNKNOWN_CALLERS;
pub use room::{names_of, reason};
pub use single::{Callee, SingleCall, keep_slowest, order_in_time};
pub use taken_paths::{PathContext, PathEnd, PathStart, PathTotals, TakenPath};
pub use throttled::{Throttled, Throttling};
pub use total::Total;
pub use unseen::{AllUnseen, LEFT, Unseen, add_unseen, unseen_counts, unseen_phrases};

use crate::clock::ExitClock;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

/// The only schema that this version reads and writes.
pub const SCHEMA: &str = "ipath-profile/1";

/// The metric of CPU time.
const CPU: &str = "cpu";
/// The metric of return values.
const RETURN: &str = "ret";

/// The results of one session up to one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// [`SCHEMA`].
    pub schema: String,
    /// The version of the `ipath` that wrote the profile.
    pub ipath: String,
    /// The process that was measured.
    pub target: Target,
    /// The time and the conditions of the measurement.
    pub session: Session,
    /// The measured metrics, `count` first.
    pub metrics: Vec<Metric>,
    /// The files whose code occurs in `functions` and `frames`.
    pub modules: Vec<Module>,
    /// The instrumented functions.
    pub functions: Vec<Function>,
    /// Functions that matched a pattern but could not be patched.
    #[serde(default)]
    pub refused: Vec<Refused>,
    /// The call sites of all paths, each listed once.
    pub frames: Vec<Frame>,
    /// The call paths that reached the functions.
    pub paths: Vec<PathEntry>,
    /// The threads of `paths`, if the paths of each thread are kept apart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub threads: Vec<Thread>,
    /// The control flow inside functions. Empty if it was not counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inside: Vec<Inside>,
    /// The processes that this profile sums. Empty if it is of one process.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<Process>,
    /// The result of the search for costly paths. `None` if there was no search.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<SearchResult>,
    /// The calls and processes for which the numbers are not exact.
    pub losses: Losses,
    /// The agreement of the paths with the code. `None` if it was not checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exactness: Option<Exactness>,
}

impl Profile {
    /// True if the edges of this function are counted.
    pub(crate) fn has_inside(&self, function: usize) -> bool {
        self.inside.iter().any(|inside| inside.function == function)
    }

    /// Creates a profile without functions and paths.
    pub fn empty(target: Target, session: Session, metrics: Vec<Metric>) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            ipath: env!("CARGO_PKG_VERSION").to_owned(),
            target,
            session,
            metrics,
            modules: Vec::new(),
            functions: Vec::new(),
            refused: Vec::new(),
            frames: Vec::new(),
            paths: Vec::new(),
            threads: Vec::new(),
            inside: Vec::new(),
            processes: Vec::new(),
            search: None,
            losses: Losses::default(),
            exactness: None,
        }
    }

    /// True if the profile sums the target and processes that were started below it. False for a
    /// profile of one process, and if another process has no known parent.
    pub fn is_of_tree(&self) -> bool {
        process::are_tree_of(self.target.pid, &self.processes)
    }

    /// The metrics other than `count`, in the order of `metrics`.
    pub fn timers(&self) -> impl Iterator<Item = &Metric> {
        self.metrics.iter().filter(|m| m.name != COUNT)
    }

    /// Returns the metric named `name`.
    ///
    /// # Errors
    /// The profile has no such metric. The error lists the metrics that it has.
    pub fn metric(&self, name: &str) -> Result<&Metric, NoSuchMetric> {
        let metric = self.metrics.iter().find(|m| m.name == name);
        metric.ok_or_else(|| NoSuchMetric {
            name: name.to_owned(),
            others: self.metrics.iter().map(|m| m.name.clone()).collect(),
        })
    }

    /// The number of calls of all functions.
    pub fn calls(&self) -> u64 {
        let calls = self.functions.iter().map(|f| f.totals.counts.count);
        calls.fold(0, u64::saturating_add)
    }

    /// The denominator of the `of run` share, in nanoseconds: the CPU time of the process for
    /// `cpu`, else the time in which the metric was measured. `presence` is that of the function.
    /// `None` if the denominator is not known or `metric` is not a time.
    pub fn run_of(&self, metric: &Metric, presence: Presence) -> Option<u64> {
        let since = metric.since_ns.max(presence.since_ns);
        let elapsed = || self.elapsed_ns(since.unwrap_or(0));
        match (metric.unit.as_str(), metric.name.as_str(), since) {
            ("ns", CPU, None) if presence.away_ns == 0 => self.session.cpu_ns,
            ("ns", CPU, _) => None,
            ("ns", _, _) => Some(elapsed().saturating_sub(presence.away_ns)),
            _ => None,
        }
    }

    /// The time elapsed since `since`, summed over all processes. Both are in nanoseconds; `since`
    /// counts from the start of the session.
    pub(crate) fn elapsed_ns(&self, since: u64) -> u64 {
        let processes = self.processes.iter().map(|process| process.elapsed_ns);
        if self.processes.is_empty() {
            self.session.elapsed_ns.saturating_sub(since)
        } else {
            processes.fold(0, |sum, ns| sum.saturating_add(ns.saturating_sub(since)))
        }
    }

    /// Thread names by thread id.
    pub fn thread_names(&self) -> HashMap<u32, &str> {
        let threads = self.threads.iter();
        threads
            .map(|thread| (thread.tid, thread.name.as_str()))
            .collect()
    }

    /// The process of `path`. `None` unless the paths of each process are kept apart.
    pub fn process_of(&self, path: &PathEntry) -> Option<&Process> {
        self.processes.get(path.process?)
    }

    /// A key of the process of `path` that does not depend on the order of the list. `None` if the
    /// paths of each process are not kept apart.
    pub fn process_key(&self, path: &PathEntry) -> Option<(u32, u64)> {
        self.process_of(path).map(Process::key)
    }

    /// True if the paths of each process are kept apart.
    pub fn has_processes_apart(&self) -> bool {
        self.paths.iter().any(|path| path.process.is_some())
    }

    /// The number of activations that left by a tail call. Their times exclude the callee.
    pub fn tail_calls(&self) -> u64 {
        let calls = self.functions.iter().map(|f| f.tail);
        calls.fold(0, u64::saturating_add)
    }
}

/// The process that was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// The target's process id, in ipath's pid namespace.
    pub pid: u32,
    /// The path of the target's executable. `several` if summed profiles differ in it.
    pub exe: String,
    /// The target's arguments, the program's name first.
    pub args: Vec<String>,
    /// The name of the machine that the target ran on. `several` if summed profiles differ in it.
    pub host: String,
    /// Labels that distinguish the process from its siblings, such as an MPI rank.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// The state of the process, if it is known (`running`, `exit status 0`, `killed by SIGTERM`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// The process id of the parent, if the parent was followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<u32>,
}

/// When and how the target was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// The start, in nanoseconds since the Unix epoch.
    pub started_unix_ns: u64,
    /// The time from the start to the moment of this profile, in nanoseconds.
    pub elapsed_ns: u64,
    /// Patterns that no library has matched yet. Only a watching command can instrument a library
    /// that is loaded later.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<String>,
    /// CPU time of the process from the start to the moment of this profile, in nanoseconds, if it
    /// is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ns: Option<u64>,
    /// The frequency of the time-stamp counter, in Hz.
    pub clock_hz: u64,
    /// How exits read the time-stamp counter. `None` if summed profiles differ in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<ExitClock>,
    /// Every stop of the target. If profiles were summed, the longest stop for each reason.
    pub stops: Vec<Stop>,
    /// Notes that qualify the numbers, one sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// True if recursion is folded: no call site occurs twice on a path.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub collapsed: bool,
    /// The phases of the program, by which paths are kept apart. The first one is of calls outside
    /// of all others. The last one may be of all further phases.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<Phase>,
    /// The value by which calls of one path are kept apart, as the user has named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Nanoseconds from which on a call is kept apart from others of its path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slower_ns: Option<u64>,
    /// The number of slowest calls that are kept of each function; 0 if none are.
    #[serde(default, skip_serializing_if = "function::is_zero")]
    pub slowest: u64,
    /// The number of last calls that are kept of each function on each thread; 0 if none are.
    #[serde(default, skip_serializing_if = "function::is_zero")]
    pub trace: u64,
    /// CLOCK_MONOTONIC at the start, in nanoseconds, if single calls are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub monotonic_ns: Option<u64>,
    /// The cost of measuring. `None` if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overhead: Option<Overhead>,
}

impl Session {
    /// The share of [`Session::overhead`] as text (`12.3 % of its CPU time`), if it is known.
    pub fn overhead_share(&self) -> Option<String> {
        let overhead = self.overhead.as_ref()?;
        let at_most = if overhead.unreliable { "at most " } else { "" };
        let share = 100.0 * overhead.share;
        Some(format!(
            "{at_most}{share:.1} % of {}",
            self.overhead_is_of()
        ))
    }

    /// The denominator of the share of overhead, as text.
    pub fn overhead_is_of(&self) -> &'static str {
        match self.cpu_ns {
            Some(_) => "its CPU time",
            None => "the time measured",
        }
    }

    /// The notes that qualify the numbers, preceded by one for each pending pattern.
    pub fn said(&self) -> impl Iterator<Item = Cow<'_, str>> {
        let waits = |pattern: &String| {
            format!(
                "'{pattern}' waits for a library with it: none was loaded while a command watched"
            )
        };
        let waiting = self.pending.iter().map(move |p| Cow::Owned(waits(p)));
        waiting.chain(self.notes.iter().map(|note| Cow::Borrowed(note.as_str())))
    }
}

/// The cost of measuring.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Overhead {
    /// The cost of one call, in nanoseconds.
    pub call_ns: f64,
    /// The cost of all calls, in nanoseconds.
    pub total_ns: u64,
    /// `total_ns` as a share of the CPU time of the process, or of the time measured if the CPU
    /// time is not known. 1.0 is all of it.
    pub share: f64,
    /// The additional cost of libraries that were loaded during the session, in nanoseconds. It is
    /// the time that the loading threads and ipath, on which they wait, spent inspecting the
    /// libraries.
    #[serde(default, skip_serializing_if = "function::is_zero")]
    pub libraries_ns: u64,
    /// True if the overhead has been subtracted from the times of the profile.
    pub corrected: bool,
    /// True if the measured overhead exceeded the CPU time of the process. The CPU time is then
    /// given instead, as an upper bound.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unreliable: bool,
}

/// A stop of the target by ipath.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stop {
    /// The reason (`attach`, `add`, `detach`).
    pub why: String,
    /// The length of the stop, in nanoseconds.
    pub ns: u64,
}

/// A measured quantity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metric {
    /// The metric's name on the command line (`wall`).
    pub name: String,
    /// The unit of every number of this metric: `ns`, `calls`, `cycles`, `bytes`. Empty for plain
    /// numbers.
    pub unit: String,
    /// The time at which the metric was added, in nanoseconds since the start of the session.
    /// `None` if it has been measured from the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ns: Option<u64>,
}

/// The profile does not have the metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoSuchMetric {
    name: String,
    /// The metrics that the profile has.
    others: Vec<String>,
}

impl fmt::Display for NoSuchMetric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let others = self.others.join(", ");
        write!(
            f,
            "the profile has no metric `{}`, only {others}",
            self.name
        )
    }
}

impl std::error::Error for NoSuchMetric {}

/// A file whose code occurs in the profile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Module {
    /// The file's path as the target sees it.
    pub path: String,
    /// The name by which the program was started, if that is a link to the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_as: Option<String>,
    /// The file's GNU build id in hex. `None` if it has none.
    #[serde(default)]
    pub build_id: Option<String>,
    /// Run-time addresses minus link-time addresses of the file. `None` if it could not be
    /// determined. A file that is mapped twice is two modules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<u64>,
}

/// A function that matched a pattern but could not be patched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The demangled name.
    pub name: String,
    /// The function's module: an index into [`Profile::modules`].
    pub module: usize,
    /// The function's link-time address, as stated in the module's file.
    pub address: u64,
    /// The reason, machine-readable (`branch-into-window`).
    pub reason: String,
}

/// A call site on a path: the call instruction and its function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// Index into [`Profile::modules`]. `None` for code that belongs to no file.
    #[serde(default)]
    pub module: Option<usize>,
    /// The return address minus 1, as stated in the module's file (absolute if `module` is `None`).
    /// If that file cannot be read and nothing else is known, it is a file offset.
    pub address: u64,
    /// The function's linkage name. `None` if it is not known.
    #[serde(default)]
    pub function: Option<String>,
    /// Bytes from the start of the function to `address`. `None` if the start is not known.
    #[serde(default)]
    pub offset: Option<u64>,
    /// The source file of the call, in `function` itself. `None` if it is not known.
    #[serde(default)]
    pub file: Option<String>,
    /// The source line of the call. `None` if it is not known.
    #[serde(default)]
    pub line: Option<u32>,
    /// Functions inlined into `function` around the call, innermost first.
    #[serde(default)]
    pub inlined: Vec<InlineFrame>,
    /// The loops around the call, innermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loops: Vec<FrameLoop>,
    /// If the callee is an inlined copy, the entry of that copy: [`InlinedCopy::entry`]. `address`
    /// is then that of its first instruction. `None` for a call site.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy: Option<u64>,
    /// If this is no call site, but a path inside the measured function, its number:
    /// [`TakenPath::number`]. `address` is then that of its first instruction, and `function` is a
    /// name for the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<u64>,
}

impl Frame {
    /// The meaning of the frame. Frames of the same address differ in it.
    pub fn part(&self) -> FramePart {
        match (self.copy, self.path) {
            (Some(copy), _) => FramePart::Copy(copy),
            (None, Some(path)) => FramePart::Path(path),
            (None, None) => FramePart::Call,
        }
    }
}

/// The meaning of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FramePart {
    /// A call site.
    Call,
    /// The call of the inlined copy with this entry ([`InlinedCopy::entry`]).
    Copy(u64),
    /// The path with this number inside the measured function.
    Path(u64),
}

/// A function whose inlined copy contains the call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InlineFrame {
    /// The function's linkage name. `None` if it is not known.
    #[serde(default)]
    pub function: Option<String>,
    /// The source file of the call in this function. `None` if it is not known.
    #[serde(default)]
    pub file: Option<String>,
    /// The line of the call in `file`. `None` if it is not known.
    #[serde(default)]
    pub line: Option<u32>,
}

/// A thread of the target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// The thread's id, in ipath's pid namespace.
    pub tid: u32,
    /// The thread's name, which the program may set.
    pub name: String,
}

/// The losses, in activations unless stated otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Losses {
    /// The number of calls that were seen but could not be recorded on any path.
    pub missed: u64,
    /// The number of calls that share one path because their own path had no room.
    pub overflow: u64,
    /// The reasons for `overflow`: names of [`abi::shortage::Shortage`]. Empty if the profile does
    /// not record them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub overflow_by: BTreeSet<String>,
    /// The number of activations that ended by an exception or longjmp. `None` if no exit is
    /// patched.
    pub unwound: Option<u64>,
    /// The number of activations that still run. `None` if no exit is patched.
    pub open: Option<u64>,
    /// The number of calls on incomplete paths, see [`PathEntry::incomplete`].
    pub incomplete: u64,
    /// The numbers of calls of `incomplete`, by the name of the cause for which the path is
    /// incomplete (docs/reference/limits-paths.md). Empty if the profile does not record causes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub causes: BTreeMap<String, u64>,
    /// The numbers of calls and processes that the session is known to have missed, by kind
    /// (docs/reference/limits-calls.md).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unseen: AllUnseen,
}
