//! The session document: the state that commands share. It is stored as JSON in two areas of the
//! segment, one of which is always complete.

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::fence;

use abi::probe::{LENDS, PHASE, Probe};
use abi::segment::{AREA_DOCUMENT_0, AREA_DOCUMENT_1};
use patcher::{Avma, Bias, Svma};
use serde::{Deserialize, Serialize};

use super::inside::InsideDoc;
use super::layout::{DOCUMENT, DOCUMENT_SPARE};
use super::module::ModuleDoc;
use super::role::{Forking, Reach, Role, State, Witness};
use super::schema::{CounterDoc, SchemaDoc};
use super::site::SiteDoc;
use super::throttled::ThrottledDoc;
use super::{Segment, SegmentError, addresses};
use crate::apart::By;
use ipath_profile::clock::ExitClock;
use ipath_target::fault_injection::step;
use ipath_target::process::Extent;

/// Everything about a session but its counters and the journal of patched bytes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Document {
    /// The path of the target's program.
    pub exe: String,
    /// The target's arguments, the program's name first.
    pub args: Vec<String>,
    /// The machine that the target runs on.
    pub host: String,
    /// The target's number in an MPI job. `None` outside of one.
    #[serde(default)]
    pub rank: Option<u32>,
    /// The id of the parent process. `None` if the target is not a followed process.
    #[serde(default)]
    pub parent: Option<i32>,
    /// The first process of those that are measured as one: its id, and its start time in clock
    /// ticks since boot. `None` if the target is measured alone.
    #[serde(default)]
    pub family: Option<(i32, u64)>,
    /// The metrics of the session, `count` first.
    pub metrics: Vec<MetricDoc>,
    /// The measurements of functions, by schema number.
    pub schemas: Vec<SchemaDoc>,
    /// The number of the schema of functions that are added from now on.
    pub schema: u8,
    /// Hardware counters, in the order of their sources.
    #[serde(default)]
    pub counters: Vec<CounterDoc>,
    /// Patterns that wait for a library with a matching function.
    #[serde(default)]
    pub pending: Vec<PendingDoc>,
    /// The functions that were requested at the start of the session, as they were named.
    #[serde(default)]
    pub named: Vec<String>,
    /// Files that were searched for functions: path, device and inode.
    #[serde(default)]
    pub looked_in: Vec<(String, (String, u64))>,
    /// True if the runtime notifies the command before the program executes another one.
    #[serde(default)]
    pub tells_of_execs: bool,
    /// True if the runtime notifies the command before the process exits or checks for leaks.
    #[serde(default)]
    pub tells_of_exits: bool,
    /// The number of functions that were removed because something else had changed their code.
    #[serde(default)]
    pub taken_out: u64,
    /// How often the patches of a measured function have been replaced.
    #[serde(default)]
    pub replaced: u64,
    /// Remarks on the measurement.
    pub notes: Vec<String>,
    /// The number of innermost callers that a path keeps; 0 for all.
    pub depth: u64,
    /// True if paths consist of measured functions only.
    #[serde(default)]
    pub callers_only: bool,
    /// True if recursion is folded.
    #[serde(default)]
    pub collapsed: bool,
    /// True if paths are kept apart by thread.
    pub per_thread: bool,
    /// The value by which calls of one path are kept apart. `None` if there is none.
    #[serde(default)]
    pub by: Option<String>,
    /// Nanoseconds from which on a call is kept apart from others of its path. `None` if none is.
    #[serde(default)]
    pub slower_ns: Option<u64>,
    /// The number of slowest calls to keep of each function on each thread; 0 if none are kept.
    #[serde(default)]
    pub slowest: u64,
    /// The number of last calls to keep of each function on each thread; 0 if none are kept.
    #[serde(default)]
    pub traced: u64,
    /// Patterns of functions whose calls are phases.
    #[serde(default)]
    pub phases: Vec<String>,
    /// True if only paths through some functions are recorded, or only those not through some.
    #[serde(default)]
    pub is_filtered: bool,
    /// Names of the phases that commands have begun, by index.
    #[serde(default)]
    pub marks: BTreeMap<u32, String>,
    /// True if times include the overhead of measuring.
    #[serde(default)]
    pub is_uncorrected: bool,
    /// How exits read the clock.
    #[serde(default)]
    pub exit_clock: ExitClock,
    /// The CPU time of the target when the session began, in nanoseconds. `None` if it is not
    /// known.
    #[serde(default)]
    pub cpu_begun_ns: Option<u64>,
    /// The CPU time of the target when the session was taken out, in nanoseconds. `None` if it is
    /// not known.
    #[serde(default)]
    pub cpu_ended_ns: Option<u64>,
    /// The stops of the target by ipath.
    pub stops: Vec<StopDoc>,
    /// Files that hold instrumented functions.
    pub modules: Vec<ModuleDoc>,
    /// The functions of the session, by id.
    pub functions: Vec<FunctionDoc>,
    /// Functions that could not be instrumented.
    pub refused: Vec<RefusedDoc>,
    /// Modules whose unwind tables have been published: first run-time address of the code, path,
    /// and device and inode.
    #[serde(default)]
    pub tables: Vec<(u64, String, (String, u64))>,
    /// The runtime's image in the target, with its reserve if it has one.
    pub image: Extent,
    /// The parts of that image that commands use. Another build of ipath may have put it there.
    pub runtime: RuntimeDoc,
    /// True if the runtime makes no system call: see `session/quiet.rs`.
    #[serde(default)]
    pub quiet: bool,
    /// The mapping of the segment in the target.
    pub segment: Extent,
    /// Memory for trampolines.
    pub regions: Vec<RegionDoc>,
    /// The number of counters that functions have been given.
    #[serde(default)]
    pub edge_counters: u32,
    /// The address of the newest [`abi::image::CopiedCode`] in the target, or 0.
    #[serde(default)]
    pub copies: u64,
    /// The last number that a group of functions that lend to each other was given.
    #[serde(default)]
    pub lendings: u16,
    /// True if SIGTRAP is handled for breakpoints of the session.
    pub trap_handler: bool,
    /// While the session is being removed: its mappings except the segment. Otherwise empty.
    pub leaving: Vec<Extent>,
    /// The bytes, as text, that replaced the first bytes of the mappings in `leaving`.
    pub leaving_mark: String,
}

/// The image of the session's runtime.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RuntimeDoc {
    /// Offsets of the image's symbols, in bytes from its start.
    pub symbols: BTreeMap<String, u64>,
    /// The first bytes of the image.
    pub head: Vec<u8>,
}

/// A metric of the session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetricDoc {
    /// When the metric was added, in nanoseconds since the session's start. `None` if the session
    /// began with it.
    #[serde(default)]
    pub since_ns: Option<u64>,
    /// The metric's name in the profile.
    pub name: String,
    /// The metric's unit in the profile.
    pub unit: String,
    /// The conversion from ticks to the metric's unit: `ticks * mult >> shift`.
    pub mult: u64,
    /// See `mult`.
    pub shift: u64,
    /// True if the metric is a value of a call, which has no inclusive and exclusive parts.
    #[serde(default)]
    pub is_value: bool,
}

/// A pattern that waits for libraries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingDoc {
    /// The pattern as the user wrote it.
    pub pattern: String,
    /// True once the pattern has matched a function.
    pub is_met: bool,
}

impl PendingDoc {
    /// A pattern that has matched nothing yet.
    pub fn of(pattern: &str) -> Self {
        Self {
            pattern: pattern.to_owned(),
            is_met: false,
        }
    }
}

/// A stop of the target.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StopDoc {
    /// The reason for the stop.
    pub why: String,
    /// The duration of the stop, in nanoseconds.
    pub ns: u64,
}

/// An instrumented function.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FunctionDoc {
    /// The function's demangled name.
    pub name: String,
    /// The function's linkage name.
    pub linkage: String,
    /// The function's other linkage names.
    pub aliases: Vec<String>,
    /// The function's module, as an index into the document's modules.
    pub module: usize,
    /// The link-time address of the function's first byte.
    #[serde(with = "addresses::svma")]
    pub address: Svma,
    /// The function's size in bytes.
    pub size: u64,
    /// The tactic of the function's entry.
    pub entry: String,
    /// The tactics of the function's exits; empty if none have been laid out.
    pub exits: Vec<String>,
    /// The part of the function that has hooks while it is in.
    #[serde(default)]
    pub reach: Reach,
    /// The number of leading `sites` that are in while the function's exits are out.
    #[serde(default)]
    pub first_sites: usize,
    /// True if the function's metrics have been changed, or if a retired row has measured it
    /// before.
    #[serde(default)]
    pub remeasured: bool,
    /// When the function was first instrumented, in nanoseconds since the session's start. `None`
    /// if it was instrumented from the start.
    #[serde(default)]
    pub since_ns: Option<u64>,
    /// The time of the function's removal, in nanoseconds since the session's start. `None` if it
    /// is instrumented.
    #[serde(default)]
    pub out_ns: Option<u64>,
    /// The total time for which the function was removed before it was added again, in nanoseconds.
    #[serde(default)]
    pub away_ns: u64,
    /// The state that `--max-overhead` has put the function into. `None` if it is measured in full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled: Option<ThrottledDoc>,
    /// Linkage names of the clones that the compiler has made of the function for its callers.
    #[serde(default)]
    pub clones: Vec<String>,
    /// The number of copies of the function that the compiler has inlined into other functions.
    #[serde(default)]
    pub inlined: u64,
    /// Why the function has probes.
    pub role: Role,
    /// The children that a measured function may create. `None` for other functions.
    #[serde(default)]
    pub children: Option<Forking>,
    /// True if each call of the function is a phase.
    #[serde(default)]
    pub is_phase: bool,
    /// Link-time addresses of those targets of the function's tail calls that end the calls lent to
    /// them.
    #[serde(default)]
    pub lends: Vec<u64>,
    /// True if calls that are lent to the function end when it returns.
    #[serde(default)]
    pub ends: bool,
    /// The number of the function's group of functions that lend to each other; 0 if it belongs to
    /// none.
    #[serde(default)]
    pub lending: u16,
    /// True if the function lends at its tail calls.
    #[serde(default)]
    pub is_lending: bool,
    /// The state of the function's probes.
    pub state: State,
    /// The number of the schema that the function is measured by.
    #[serde(default)]
    pub schema: u8,
    /// The locations of the function's arguments and its return value, as in [`abi::value`].
    #[serde(default)]
    pub values: u64,
    /// The id of the carrier ([`Role::Carrier`]) whose sites hold the function's hooks. `None` if
    /// its own sites do.
    #[serde(default)]
    pub carried_by: Option<usize>,
    /// The inlined copy that is measured, if the row is a span of one ([`Role::Span`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy: Option<Box<CopyDoc>>,
    /// The graph and the counters of a function whose edges are counted ([`Role::Edges`]), or whose
    /// paths are timed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inside: Option<Box<InsideDoc>>,
    /// The runtime's count of how often the function was added or removed.
    pub generation: u32,
    /// The function's patched places, including those that are out with its exits.
    pub sites: Vec<SiteDoc>,
}

/// An inlined copy of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyDoc {
    /// The offset of the copy's entry in `.debug_info`.
    pub entry: u64,
    /// The linkage name of the inlined function, or its name in the source.
    pub linkage: String,
    /// The display name of the containing function.
    pub within: String,
    /// The file and line of the call. `None` if they are not known.
    pub called: Option<(String, u32)>,
    /// The number of inlined copies that contain it.
    pub depth: usize,
    /// The number of instructions of other code that are measured with it.
    pub gaps: usize,
    /// The number of its instructions that are not measured.
    pub outside: usize,
}

/// A function that could not be instrumented.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedDoc {
    /// The demangled name of the function, or the name of the instruction.
    pub name: String,
    /// The module, as an index into the document's modules.
    pub module: usize,
    /// The link-time address of the function or instruction.
    #[serde(with = "addresses::svma")]
    pub address: Svma,
    /// The reason why the function could not be instrumented.
    pub reason: String,
    /// The role that the function or instruction was to have.
    pub role: Role,
}

/// Memory for trampolines near a module.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RegionDoc {
    /// The run-time address of the region's first byte.
    #[serde(with = "addresses::avma")]
    pub start: Avma,
    /// The region's size in bytes.
    pub len: u64,
    /// The number of bytes of the region that are in use.
    pub used: u64,
    /// True if the region is mapped and its cells are filled.
    pub ready: bool,
    /// True if the region holds stepping stones, and no trampolines.
    pub stones: bool,
}

impl RegionDoc {
    /// The extent of the whole region.
    pub fn extent(&self) -> Extent {
        Extent {
            start: self.start,
            len: self.len,
        }
    }
}

impl Document {
    /// True if calls of one path are kept apart by phase, by a value or by their time.
    pub fn keeps_apart(&self) -> bool {
        self.by.is_some() || self.slower_ns.is_some() || self.keeps_phases()
    }

    /// The value by which calls of one path are kept apart. `None` if there is none.
    pub fn by(&self) -> Option<By> {
        self.by.as_ref()?.parse().ok()
    }

    /// True if single calls are kept.
    pub fn keeps_single(&self) -> bool {
        self.slowest > 0 || self.traced > 0
    }

    /// True if paths are kept apart by phase.
    pub fn keeps_phases(&self) -> bool {
        !self.phases.is_empty() || !self.marks.is_empty()
    }
}

impl FunctionDoc {
    /// True if the row is of the paths inside a function, which are timed.
    pub fn has_timed_paths(&self) -> bool {
        self.role == Role::Span && self.inside.is_some()
    }

    /// The function's row of the probe table while its probes are in.
    pub fn row(&self) -> [u8; size_of::<Probe>()] {
        let mut row = [0; size_of::<Probe>()];
        row[..4].copy_from_slice(&self.generation.to_le_bytes());
        let phase = if self.is_phase { PHASE } else { 0 };
        row[offset_of!(Probe, kind)] =
            self.role.probe_kind(self.has_exits(), self.children) | phase;
        row[offset_of!(Probe, schema)] = self.schema;
        row[offset_of!(Probe, lending)..].copy_from_slice(&self.lending_word().to_le_bytes());
        row
    }

    /// True if the function's probes are in.
    pub fn is_in(&self) -> bool {
        self.state == State::In
    }

    /// True if the function's probes will not come in again.
    pub fn is_retired(&self) -> bool {
        self.state == State::Retired
    }

    /// True if the function's exits are out while it is in.
    pub fn has_only_entry(&self) -> bool {
        self.reach == Reach::Entry
    }

    /// Selects if the function's exits are in while the function is. A function without exits is
    /// always whole.
    pub fn set_exits(&mut self, are_in: bool) {
        self.reach = if are_in || self.exits.is_empty() {
            Reach::Whole
        } else {
            Reach::Entry
        };
    }

    /// The sites that are overwritten while the function is in.
    pub fn sites_in(&self) -> &[SiteDoc] {
        match self.reach {
            Reach::Entry => self.sites.get(..self.first_sites).unwrap_or(&self.sites),
            Reach::Whole => &self.sites,
        }
    }

    /// The sites whose patches are not in the text: all while the function is out, otherwise
    /// [`Self::sites_out`].
    pub fn sites_restored(&self) -> &[SiteDoc] {
        if self.is_in() {
            self.sites_out()
        } else {
            &self.sites
        }
    }

    /// The sites that are not overwritten while the function is in: those of its exits, if only its
    /// entry is in.
    pub fn sites_out(&self) -> &[SiteDoc] {
        &self.sites[self.sites_in().len()..]
    }

    /// True if the function has exits, and these are in while the function is.
    pub fn has_exits(&self) -> bool {
        !self.exits.is_empty() && !self.has_only_entry()
    }

    /// The word of the function's row that states which calls it lends and ends.
    pub fn lending_word(&self) -> u16 {
        if self.is_lending {
            self.lending | LENDS
        } else {
            self.lending
        }
    }
}

impl Document {
    /// The bias of a function's module, and the function's link-time address. Entries of the
    /// document that agree in both are of one function. `None` if something else is now mapped at
    /// the place of its file.
    pub fn place_of(&self, function: &FunctionDoc) -> Option<(Bias, Svma)> {
        let module = self.modules.get(function.module)?;
        (!module.is_gone).then_some((module.bias, function.address))
    }

    /// True if the runtime may wait for the watching command.
    pub fn is_waited_in(&self) -> bool {
        !self.pending.is_empty() || self.tells_of_execs || self.tells_of_exits
    }

    /// True if the probe that reports the exit of the process is installed.
    pub fn sees_exits(&self) -> bool {
        let mut functions = self.functions.iter();
        functions.any(|f| f.is_in() && f.role == Role::Witness(Witness::Exits))
    }

    /// True if a function with this role is needed.
    pub fn needs(&self, role: Role) -> bool {
        match role.witness() {
            Some(Witness::Execs) => self.tells_of_execs,
            Some(Witness::Exits | Witness::Checks) => self.tells_of_exits,
            _ => true,
        }
    }

    /// Ids of the functions and points that are in and measured.
    pub fn active(&self) -> Vec<usize> {
        let measured = self.measured().filter(|(_, f)| f.is_in());
        measured.map(|(id, _)| id).collect()
    }

    /// The functions that are measured and the points, with their ids. Includes those that are out
    /// for now, but not retired ones.
    pub fn measured(&self) -> impl Iterator<Item = (usize, &FunctionDoc)> {
        self.functions
            .iter()
            .enumerate()
            .filter(|(_, f)| f.role.is_shown() && !f.is_retired())
    }
}

impl Segment {
    /// The index and the capacity in bytes of the area that holds the document in turns with the
    /// lowest bit `turn`.
    fn document_area(&self, turn: u64) -> (usize, u64) {
        let area = if turn == 0 {
            AREA_DOCUMENT_0
        } else {
            AREA_DOCUMENT_1
        };
        (
            area,
            self.header().areas.get(area).map_or(0, |a| a.capacity()),
        )
    }

    /// Replaces the document. A command that is killed meanwhile leaves the old one.
    ///
    /// # Errors
    /// The document does not fit, there is no memory for it, or the segment is damaged.
    pub fn write_document(&self, document: &Document) -> Result<(), SegmentError> {
        self.check_whole()?;
        let text = serde_json::to_vec(document).map_err(|_| SegmentError::Corrupt("document"))?;
        let turn = self.document_turn().wrapping_add(1);
        let (area, room) = self.document_area(turn & 1);
        if text.len() as u64 > room {
            return Err(self.full());
        }
        if !self.write_bytes(area, 0, &text)? {
            return Err(self.full());
        }
        // Reserve room for the document that removes the session, in case something uses up all
        // memory meanwhile. If there is none now, the removal tries again.
        let spare = (text.len() as u64 + DOCUMENT_SPARE).min(room) - text.len() as u64;
        let _ = self.write_bytes(area, text.len() as u64, &vec![0; spare as usize])?;
        let len = &self.header().document_len[(turn & 1) as usize];
        len.store(text.len() as u64, Relaxed);
        let (pid, start) = document.family.unwrap_or_default();
        let header = self.header();
        header.family_pid.store(pid.max(0) as u64, Relaxed);
        header.family_start.store(start, Relaxed);
        header
            .phases_kept
            .store(document.keeps_phases().into(), Relaxed);
        step("document");
        self.header().document_turn.store(turn, Release);
        step("document turn");
        Ok(())
    }

    /// The number of times that the document has been written, which identifies its version.
    pub fn document_turn(&self) -> u64 {
        self.header().document_turn.load(Acquire)
    }

    /// Reads the document, and reads it again if a writer interfered.
    ///
    /// # Errors
    /// The segment or the document is damaged, or writers interfered each time.
    pub fn read_document(&self) -> Result<Document, SegmentError> {
        const TRIES: usize = 100;
        for _ in 0..TRIES {
            let turn = self.document_turn();
            let (area, room) = self.document_area(turn & 1);
            let len = self.header().document_len[(turn & 1) as usize].load(Relaxed);
            // The target can change the capacity in the header.
            if turn == 0 || len > room.min(DOCUMENT) {
                return Err(SegmentError::Corrupt("document"));
            }
            // A system call returns an error for missing bytes, and allocates no memory.
            let mut bytes = vec![0; len as usize];
            let start = self.header().areas.get(area).map_or(0, |a| a.offset());
            let read = self.file.read_exact_at(&mut bytes, start);
            // The bytes must be read before the turn is read again.
            fence(Acquire);
            if self.header().document_turn.load(Relaxed) != turn {
                continue;
            }
            self.check_whole()?;
            read.map_err(|_| SegmentError::Corrupt("document"))?;
            return serde_json::from_slice(&bytes).map_err(|_| SegmentError::Corrupt("document"));
        }
        Err(SegmentError::Busy)
    }
}
