//! The profile: what a session measured, as one value and as the file format `ipath-profile/1`.
//!
//! The structs are the format: their fields are the JSON's, in the order in which they are written.
//! Indexes (`module`, `function`, `stack`) point into the lists of the same profile;
//! [`Profile::check`] says whether all of it fits together.

mod changed;
mod check;
mod counts;
mod delta;
mod distribution;
mod exactness;
mod file;
mod found;
mod heavy;
mod label;
mod later;
pub mod off_cpu;
mod per_cycle;
mod process;
mod program;
mod room;
#[cfg(test)]
mod tests;
mod total;
mod unmeasured;
mod unseen;

pub use changed::Changed;
pub use check::Inconsistent;
pub use counts::{COUNT, Counts, FunctionTotals, TimerStats, Timers};
pub use delta::Delta;
pub use distribution::{Bucket, Distribution, Gathered};
pub use exactness::{CONTRADICTED, Exactness, Verdict};
pub use file::ProfileError;
pub use found::{Explained, Found, FoundPath, GENERATED, Kind, Left};
pub use ipath_base::printable::printable;
pub use label::Label;
pub use per_cycle::PerCycle;
pub use process::{InProcess, Process, Spread, Spreads};
pub use program::{program, started_as};
pub use room::UNKNOWN_CALLERS;
pub use room::{names_of, reason};
pub use total::Total;
pub use unseen::{AllUnseen, LEFT, Unseen, add_unseen, unseen_counts, unseen_phrases};

use crate::clock::ExitClock;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

/// The only schema this version reads and writes.
pub const SCHEMA: &str = "ipath-profile/1";

/// The metric of the time that threads have been on a processor.
const CPU: &str = "cpu";
/// The metric of what calls return.
const RETURN: &str = "ret";

/// All that one session measured, up to one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// [`SCHEMA`].
    pub schema: String,
    /// The version of the `ipath` that wrote it.
    pub ipath: String,
    /// The process that was measured.
    pub target: Target,
    /// When and how it was measured.
    pub session: Session,
    /// What was measured, `count` first.
    pub metrics: Vec<Metric>,
    /// The files whose code occurs in `functions` and `frames`.
    pub modules: Vec<Module>,
    /// The instrumented functions.
    pub functions: Vec<Function>,
    /// Functions that matched a pattern but could not be patched.
    #[serde(default)]
    pub refused: Vec<Refused>,
    /// The call sites of all paths, each once.
    pub frames: Vec<Frame>,
    /// The call paths that reached the functions.
    pub paths: Vec<PathEntry>,
    /// The threads of `paths`, where they are kept apart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub threads: Vec<Thread>,
    /// The processes of which this profile is the sum, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<Process>,
    /// What was found, where it was searched for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<Found>,
    /// What is not exact.
    pub losses: Losses,
    /// The agreement of the paths with the code. `None` if it was not checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exactness: Option<Exactness>,
}

impl Profile {
    /// A profile in which nothing has been measured yet.
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
            processes: Vec::new(),
            search: None,
            losses: Losses::default(),
            exactness: None,
        }
    }

    /// True if the target is the root of the process tree.
    pub fn is_of_tree(&self) -> bool {
        process::are_tree_of(self.target.pid, &self.processes)
    }

    /// The metrics that are not `count`, in the order of `metrics`.
    pub fn timers(&self) -> impl Iterator<Item = &Metric> {
        self.metrics.iter().filter(|m| m.name != COUNT)
    }

    /// The metric of this name.
    ///
    /// # Errors
    /// There is none.
    pub fn metric(&self, name: &str) -> Result<&Metric, NoSuchMetric> {
        let metric = self.metrics.iter().find(|m| m.name == name);
        metric.ok_or_else(|| NoSuchMetric {
            name: name.to_owned(),
            others: self.metrics.iter().map(|m| m.name.clone()).collect(),
        })
    }

    /// The calls of all functions.
    pub fn calls(&self) -> u64 {
        let calls = self.functions.iter().map(|f| f.totals.counts.count);
        calls.fold(0, u64::saturating_add)
    }

    /// The denominator of the `of run` share, in ns: the CPU time of the process for `cpu`, else the time
    /// in which the metric was measured. `presence` is that of the function. `None` if the denominator is
    /// not known or `metric` is not a time.
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

    /// The time that passed from a moment of the session on, of all processes together.
    pub(crate) fn elapsed_ns(&self, since: u64) -> u64 {
        let processes = self.processes.iter().map(|process| process.elapsed_ns);
        if self.processes.is_empty() {
            self.session.elapsed_ns.saturating_sub(since)
        } else {
            processes.fold(0, |sum, ns| sum.saturating_add(ns.saturating_sub(since)))
        }
    }

    /// The names of threads by their ids.
    pub fn thread_names(&self) -> HashMap<u32, &str> {
        let threads = self.threads.iter();
        threads
            .map(|thread| (thread.tid, thread.name.as_str()))
            .collect()
    }

    /// Its process, if the paths of each are kept apart.
    pub fn process_of(&self, path: &PathEntry) -> Option<&Process> {
        self.processes.get(path.process?)
    }

    /// What tells that process from others, wherever it stands in the list.
    pub fn process_key(&self, path: &PathEntry) -> Option<(u32, u64)> {
        self.process_of(path).map(Process::key)
    }

    /// True if the paths of each process are kept apart.
    pub fn has_processes_apart(&self) -> bool {
        self.paths.iter().any(|path| path.process.is_some())
    }

    /// Those that left by a tail call, timed without what that called.
    pub fn tail_calls(&self) -> u64 {
        let calls = self.functions.iter().map(|f| f.tail);
        calls.fold(0, u64::saturating_add)
    }
}

/// The process that was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// Its process id, in ipath's pid namespace.
    pub pid: u32,
    /// The path of its executable.
    pub exe: String,
    /// Its arguments, the program's name first.
    pub args: Vec<String>,
    /// The machine it ran on.
    pub host: String,
    /// What tells it from its siblings, such as an MPI rank.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// What became of it, where that is known (`running`, `exit status 0`, `killed by SIGTERM`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// The process id of the one that it comes from, where that was followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<u32>,
}

/// When and how the target was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// The start, in ns since the Unix epoch.
    pub started_unix_ns: u64,
    /// From the start to the moment this profile shows, in ns.
    pub elapsed_ns: u64,
    /// Patterns that wait for a library that has what they name: none has come while somebody was there to put it in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<String>,
    /// CPU time of the process in between, in ns, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ns: Option<u64>,
    /// Ticks of the time stamp counter a second.
    pub clock_hz: u64,
    /// How exits have read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<ExitClock>,
    /// Every moment in which the target stood still.
    pub stops: Vec<Stop>,
    /// What a reader of the numbers must know, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// True if recursion is folded: on no path does a call site stand twice.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub collapsed: bool,
    /// What the measuring itself has cost, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overhead: Option<Overhead>,
}

impl Session {
    /// `12.3 % of its CPU time`: the share of [`Session::overhead`], if that is known.
    pub fn overhead_share(&self) -> Option<String> {
        let overhead = self.overhead.as_ref()?;
        let at_most = if overhead.unreliable { "at most " } else { "" };
        let share = 100.0 * overhead.share;
        Some(format!(
            "{at_most}{share:.1} % of {}",
            self.overhead_is_of()
        ))
    }

    /// The denominator of the overhead's share.
    pub fn overhead_is_of(&self) -> &'static str {
        match self.cpu_ns {
            Some(_) => "its CPU time",
            None => "the time measured",
        }
    }

    /// What a reader of the numbers must know, that of patterns that wait included.
    pub fn said(&self) -> impl Iterator<Item = Cow<'_, str>> {
        let waits = |pattern: &String| {
            format!(
                "'{pattern}' waits for a library that has it: none has come while somebody watched"
            )
        };
        let waiting = self.pending.iter().map(move |p| Cow::Owned(waits(p)));
        waiting.chain(self.notes.iter().map(|note| Cow::Borrowed(note.as_str())))
    }
}

/// The time in which a function was instrumented.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Presence {
    /// See [`Function::since_ns`].
    pub since_ns: Option<u64>,
    /// See [`Function::away_ns`].
    pub away_ns: u64,
}

impl Function {
    /// The time in which it was instrumented.
    pub fn presence(&self) -> Presence {
        Presence {
            since_ns: self.since_ns,
            away_ns: self.away_ns,
        }
    }
}

/// What the measuring itself has cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Overhead {
    /// Of one call, in ns.
    pub call_ns: f64,
    /// Of all calls, in ns.
    pub total_ns: u64,
    /// That as a share of the CPU time of the process, or where that is not known of the time measured.
    pub share: f64,
    /// For how long libraries that came were looked at besides, by the threads that loaded them and by ipath, for which those waited;
    /// in ns.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub libraries_ns: u64,
    /// True if the times of the profile are without it.
    pub corrected: bool,
    /// True if the measured overhead exceeded the CPU time of the process. The CPU time is then given
    /// instead, as an upper bound.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unreliable: bool,
}

/// One moment in which the target stood still for ipath.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stop {
    /// What it was stopped for (`attach`, `add`, `detach`).
    pub why: String,
    /// For how long, in ns.
    pub ns: u64,
}

/// One thing that is measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metric {
    /// As on the command line (`wall`).
    pub name: String,
    /// The unit of every number of this metric (`ns`, `calls`, `cycles`, `bytes`; empty for plain numbers).
    pub unit: String,
    /// When it was added, in ns from the session's start; none where it was there from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ns: Option<u64>,
}

/// A profile does not have a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoSuchMetric {
    name: String,
    /// Those it has.
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

/// One file whose code was seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Module {
    /// Its path as the target sees it.
    pub path: String,
    /// The name by which the program was started, if that is a link to the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_as: Option<String>,
    /// Its GNU build id in hex.
    #[serde(default)]
    pub build_id: Option<String>,
    /// Addresses in the process minus addresses in the file; none where it could not be read. A
    /// file that is mapped twice is two modules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<u64>,
}

/// One instrumented function.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Function {
    /// The demangled name, or `module+0xADDR` where there is none.
    pub name: String,
    /// The name the linker knows; empty where there is none.
    pub linkage: String,
    /// Index into [`Profile::modules`].
    pub module: usize,
    /// Its start: the virtual address stated in the module's file.
    pub address: u64,
    /// Its length in bytes.
    pub size: u64,
    /// The source file and line of its entry, by the debug information, if it was looked up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// See `file`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// The tactic by which its entry was patched.
    pub entry: String,
    /// The tactics by which its exits are patched, in address order; empty where none is.
    #[serde(default)]
    pub exits: Vec<String>,
    /// When it was put in first, in ns from the session's start; none where it was there from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ns: Option<u64>,
    /// The time since then in which it was removed and not measured, in ns.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub away_ns: u64,
    /// What it measures now, the count first; none where that is all of [`Profile::metrics`] and has been from the
    /// beginning on. Of calls that were not measured by a metric there are no values in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Vec<String>>,
    /// Its other linkage names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// Linkage names of parts and copies of it that are called by themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clones: Vec<String>,
    /// How many inlined copies of it there are.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub inlined: u64,
    /// True if it is an instruction whose passes are counted, at `address`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub point: bool,
    /// Activations that left by a tail call, whose callee's time is not included.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tail: u64,
    /// True if it has been removed from a session that continues.
    #[serde(skip)]
    pub is_removed: bool,
    /// The sum of all its paths.
    pub totals: FunctionTotals,
    /// How its sums differ over the processes, where there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Box<Spreads>>,
    /// What each process has of it that has called it, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<InProcess>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// One function that matched a pattern but could not be patched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The demangled name.
    pub name: String,
    /// Index into [`Profile::modules`].
    pub module: usize,
    /// The virtual address stated in the module's file.
    pub address: u64,
    /// Why, machine-readable (`branch-into-window`).
    pub reason: String,
}

/// One call site on a path: the call instruction and the function it is in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// Index into [`Profile::modules`]; none for code that belongs to no file.
    #[serde(default)]
    pub module: Option<usize>,
    /// The return address minus 1, as stated in the module's file (or absolute without one). Where that file is
    /// not to be read, it is a position in it if nothing else is known.
    pub address: u64,
    /// The linkage name of the function there.
    #[serde(default)]
    pub function: Option<String>,
    /// Bytes from that function's start to `address`.
    #[serde(default)]
    pub offset: Option<u64>,
    /// The source file of the call in `function` itself.
    #[serde(default)]
    pub file: Option<String>,
    /// Its line.
    #[serde(default)]
    pub line: Option<u32>,
    /// Functions inlined into `function` around the call, innermost first.
    #[serde(default)]
    pub inlined: Vec<InlineFrame>,
}

/// One function whose inlined copy contains the call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InlineFrame {
    /// Its linkage name.
    #[serde(default)]
    pub function: Option<String>,
    /// The source file of the call in it.
    #[serde(default)]
    pub file: Option<String>,
    /// Its line.
    #[serde(default)]
    pub line: Option<u32>,
}

/// One call path into one function, with what its calls cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathEntry {
    /// Index into [`Profile::functions`].
    pub function: usize,
    /// Indexes into [`Profile::frames`], from the function's caller outwards.
    pub stack: Vec<usize>,
    /// True if the last frame is a known root and the code contradicts no edge.
    pub complete: bool,
    /// The index in `stack` of a call site that cannot have led to the frame below it: the first
    /// one from the function outwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contradicted: Option<usize>,
    /// The thread, where threads are kept apart.
    #[serde(default)]
    pub thread: Option<u32>,
    /// The process, as an index into [`Profile::processes`], where processes are kept apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<usize>,
    /// Activations that ended by an exception or longjmp; none where exits are not patched.
    #[serde(default = "counts::zero", skip_serializing_if = "counts::is_zero")]
    pub unwound: Option<u64>,
    /// Activations that still run; none where exits are not patched.
    #[serde(default = "counts::zero", skip_serializing_if = "counts::is_zero")]
    pub open: Option<u64>,
    /// Activations that left by a tail call, whose callee's time is not included.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tail: u64,
    /// The calls and the timers.
    pub metrics: Counts,
    /// How its sums differ over the processes, where there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Box<Spreads>>,
}

impl PathEntry {
    /// The activations, where the walk has come to no root. What has no frame at all is not such a path, but
    /// holds the calls of all paths beyond the limit.
    pub fn incomplete(&self) -> u64 {
        if self.complete || self.stack.is_empty() {
            0
        } else {
            self.metrics.count
        }
    }
}

/// One thread of the target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// Its id, in ipath's pid namespace.
    pub tid: u32,
    /// What it calls itself.
    pub name: String,
}

/// What is not exact, in activations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Losses {
    /// Calls that were seen but could not be recorded on a path at all.
    pub missed: u64,
    /// Calls that share one path, because there was no room for their own.
    pub overflow: u64,
    /// Why there was none: names of [`abi::shortage::Shortage`]. Empty in a profile that does not tell.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub overflow_by: BTreeSet<String>,
    /// Activations that ended by an exception or longjmp; none where no exit is patched.
    pub unwound: Option<u64>,
    /// Activations that still run; none where no exit is patched.
    pub open: Option<u64>,
    /// Calls whose stack could not be walked to its root.
    pub incomplete: u64,
    /// Those by the names of what stopped the walks (docs/limits.md); empty in a profile that does not tell.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub causes: BTreeMap<String, u64>,
    /// Calls and processes that the session knows it did not see, by kind: docs/limits.md.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unseen: AllUnseen,
}
