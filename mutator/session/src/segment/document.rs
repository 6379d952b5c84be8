//! The session document: what commands tell each other, as JSON in two areas of the segment, of
//! which one is always whole.

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::fence;

use abi::probe::{LENDS, Probe};
use abi::segment::{AREA_DOCUMENT_0, AREA_DOCUMENT_1};
use patcher::{Avma, Bias, Svma};
use serde::{Deserialize, Serialize};

use super::layout::{DOCUMENT, DOCUMENT_SPARE};
use super::module::ModuleDoc;
use super::role::{Forking, Reach, Role, State, Witness};
use super::schema::{CounterDoc, SchemaDoc};
use super::{Segment, SegmentError, addresses};
use ipath_profile::clock::ExitClock;
use ipath_target::fault_injection::step;
use ipath_target::process::Extent;

/// Everything about a session but its counters and the journal of patched bytes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Document {
    /// Program, arguments and host of the target.
    pub exe: String,
    /// See `exe`.
    pub args: Vec<String>,
    /// See `exe`.
    pub host: String,
    /// Its number in an MPI job.
    #[serde(default)]
    pub rank: Option<u32>,
    /// The process that it comes from, where it is followed.
    #[serde(default)]
    pub parent: Option<i32>,
    /// The first process of those that are measured as one: its id and its start time.
    #[serde(default)]
    pub family: Option<(i32, u64)>,
    /// All that is measured, `count` first.
    pub metrics: Vec<MetricDoc>,
    /// What is measured of which functions.
    pub schemas: Vec<SchemaDoc>,
    /// The schema that functions get which are added.
    pub schema: u8,
    /// Counters of the processor that sources are.
    #[serde(default)]
    pub counters: Vec<CounterDoc>,
    /// Patterns that wait for the libraries that have what they name.
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
    /// Functions that were removed because something else had changed their code.
    #[serde(default)]
    pub taken_out: u64,
    /// Remarks on the measurement.
    pub notes: Vec<String>,
    /// Innermost callers kept; 0 for all.
    pub depth: u64,
    /// True if recursion is folded.
    #[serde(default)]
    pub collapsed: bool,
    /// True if paths are kept apart by thread.
    pub per_thread: bool,
    /// True if times have in them what measuring takes.
    #[serde(default)]
    pub is_uncorrected: bool,
    /// How exits read the clock.
    #[serde(default)]
    pub exit_clock: ExitClock,
    /// CPU time of the target when the session began, ns, and when it was taken out.
    #[serde(default)]
    pub cpu_begun_ns: Option<u64>,
    /// See `cpu_begun_ns`.
    #[serde(default)]
    pub cpu_ended_ns: Option<u64>,
    /// When the target was stopped.
    pub stops: Vec<StopDoc>,
    /// Files that hold instrumented functions.
    pub modules: Vec<ModuleDoc>,
    /// Functions, by id.
    pub functions: Vec<FunctionDoc>,
    /// Functions that could not be instrumented.
    pub refused: Vec<RefusedDoc>,
    /// Modules whose unwind tables have been published: first address of the code, path, and device and inode.
    #[serde(default)]
    pub tables: Vec<(u64, String, (String, u64))>,
    /// The runtime's image in the target, with its reserve if it has one.
    pub image: Extent,
    /// What commands use of that image, which another build of ipath may have laid there.
    pub runtime: RuntimeDoc,
    /// True if the runtime makes no system call: see `session/quiet.rs`.
    #[serde(default)]
    pub quiet: bool,
    /// The segment in the target.
    pub segment: Extent,
    /// Trampolines.
    pub regions: Vec<RegionDoc>,
    /// The last number that functions have had which lend to each other.
    #[serde(default)]
    pub lendings: u16,
    /// True if SIGTRAP is handled for breakpoints of the session.
    pub trap_handler: bool,
    /// While the session is taken out: its mappings but the segment, and what their first bytes
    /// were overwritten with.
    pub leaving: Vec<Extent>,
    /// See `leaving`.
    pub leaving_mark: String,
}

/// A runtime's image.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RuntimeDoc {
    /// Where its symbols are, in bytes from its start.
    pub symbols: BTreeMap<String, u64>,
    /// Its first bytes.
    pub head: Vec<u8>,
}

/// A metric.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetricDoc {
    /// When it was added, ns from the session's start; none where it was there from then on.
    #[serde(default)]
    pub since_ns: Option<u64>,
    /// As in the profile.
    pub name: String,
    /// As in the profile.
    pub unit: String,
    /// Ticks to the unit: `ticks * mult >> shift`.
    pub mult: u64,
    /// See `mult`.
    pub shift: u64,
    /// True if it is a value of a call, which has no inclusive and exclusive part.
    #[serde(default)]
    pub is_value: bool,
}

/// A pattern that waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingDoc {
    /// As it was written.
    pub pattern: String,
    /// True once it has named a function.
    pub is_met: bool,
}

impl PendingDoc {
    /// One that has named nothing yet.
    pub fn of(pattern: &str) -> Self {
        Self {
            pattern: pattern.to_owned(),
            is_met: false,
        }
    }
}

/// A moment the target was stopped.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StopDoc {
    /// For what.
    pub why: String,
    /// For how long, ns.
    pub ns: u64,
}

/// An instrumented function.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FunctionDoc {
    /// Demangled name.
    pub name: String,
    /// Linkage name.
    pub linkage: String,
    /// Other linkage names.
    pub aliases: Vec<String>,
    /// Index of its module.
    pub module: usize,
    /// Address in the file.
    #[serde(with = "addresses::svma")]
    pub address: Svma,
    /// Bytes.
    pub size: u64,
    /// Tactic of its entry.
    pub entry: String,
    /// Tactics of its exits; empty where nothing has been laid out for them.
    pub exits: Vec<String>,
    /// The part of it that has hooks while it is in.
    #[serde(default)]
    pub reach: Reach,
    /// So many of its sites, from the first on, are in while its exits are out.
    #[serde(default)]
    pub first_sites: usize,
    /// True if what it measures has been changed.
    #[serde(default)]
    pub remeasured: bool,
    /// When it was put in first, in ns from the session's start; none where it was there from then on.
    #[serde(default)]
    pub since_ns: Option<u64>,
    /// The time of its removal, in ns from the session's start. `None` if it is instrumented.
    #[serde(default)]
    pub out_ns: Option<u64>,
    /// The time for which it was removed before it was added again, in ns.
    #[serde(default)]
    pub away_ns: u64,
    /// Linkage names of what the compiler has made of it and has others call.
    #[serde(default)]
    pub clones: Vec<String>,
    /// Copies of it that the compiler has put into others.
    #[serde(default)]
    pub inlined: u64,
    /// Why it has probes.
    pub role: Role,
    /// The children that it may create, if it is measured.
    #[serde(default)]
    pub children: Option<Forking>,
    /// Addresses in the file of what its tail calls lead to and that ends the calls it gets lent.
    #[serde(default)]
    pub lends: Vec<u64>,
    /// True if calls that are lent to it end when it returns.
    #[serde(default)]
    pub ends: bool,
    /// The number that functions have which lend to each other; 0 where it is none of those.
    #[serde(default)]
    pub lending: u16,
    /// True if it lends at its tail calls.
    #[serde(default)]
    pub is_lending: bool,
    /// Whether its probes are in.
    pub state: State,
    /// The schema that it is measured by.
    #[serde(default)]
    pub schema: u8,
    /// Where its arguments and its return value are: [`abi::value`].
    #[serde(default)]
    pub values: u64,
    /// Id of the carrier whose sites hold its hooks; `None` if its own sites do.
    #[serde(default)]
    pub carried_by: Option<usize>,
    /// The runtime's count of its adds and removes.
    pub generation: u32,
    /// What is overwritten, those that are out with its exits included.
    pub sites: Vec<SiteDoc>,
}

/// A patched place.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SiteDoc {
    /// The bytes that are overwritten, in the target.
    #[serde(with = "addresses::range")]
    pub window: Range<Avma>,
    /// The same of a springboard's landing; empty without one.
    #[serde(with = "addresses::range")]
    pub landing: Range<Avma>,
    /// The trampoline.
    pub trampoline: Extent,
    /// A punned jump's stepping stone; 0 without one.
    #[serde(with = "addresses::avma")]
    pub stone: Avma,
    /// The bytes that a punned jump depends on.
    pub kept: KeptDoc,
    /// Its patches, as indexes of journal entries.
    pub patches: Vec<u32>,
    /// True if a breakpoint leads there.
    pub trap: bool,
    /// Equal program counters.
    pub pcs: Vec<PairDoc>,
    /// Where hooks begin.
    pub hook_starts: Vec<PairDoc>,
}

/// Bytes of the target that must stay as they are.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "(u64, Vec<u8>)", into = "(u64, Vec<u8>)")]
pub struct KeptDoc {
    /// Where the first one is.
    pub at: Avma,
    /// What they are.
    pub bytes: Vec<u8>,
}

impl From<(u64, Vec<u8>)> for KeptDoc {
    fn from((at, bytes): (u64, Vec<u8>)) -> Self {
        Self {
            at: Avma(at),
            bytes,
        }
    }
}

impl From<KeptDoc> for (u64, Vec<u8>) {
    fn from(kept: KeptDoc) -> Self {
        (kept.at.0, kept.bytes)
    }
}

/// Equal program counters.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(from = "(u64, u64)", into = "(u64, u64)")]
pub struct PairDoc {
    /// In the original code.
    pub original: Avma,
    /// In the trampoline.
    pub trampoline: Avma,
}

impl From<(u64, u64)> for PairDoc {
    fn from((original, trampoline): (u64, u64)) -> Self {
        Self {
            original: Avma(original),
            trampoline: Avma(trampoline),
        }
    }
}

impl From<PairDoc> for (u64, u64) {
    fn from(pair: PairDoc) -> Self {
        (pair.original.0, pair.trampoline.0)
    }
}

/// A function that could not be instrumented.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedDoc {
    /// Demangled name.
    pub name: String,
    /// Index of its module.
    pub module: usize,
    /// Address in the file.
    #[serde(with = "addresses::svma")]
    pub address: Svma,
    /// Why.
    pub reason: String,
    /// Whether it is a function or an instruction.
    pub role: Role,
}

/// Memory for trampolines near a module.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RegionDoc {
    /// First address.
    #[serde(with = "addresses::avma")]
    pub start: Avma,
    /// Bytes.
    pub len: u64,
    /// Bytes in use.
    pub used: u64,
    /// True if it is mapped and its cells are filled.
    pub ready: bool,
    /// True if it holds stepping stones, and no trampolines.
    pub stones: bool,
}

impl RegionDoc {
    /// All of it.
    pub fn extent(&self) -> Extent {
        Extent {
            start: self.start,
            len: self.len,
        }
    }
}

impl FunctionDoc {
    /// Its row of the probe table, while it is in.
    pub fn row(&self) -> [u8; size_of::<Probe>()] {
        let mut row = [0; size_of::<Probe>()];
        row[..4].copy_from_slice(&self.generation.to_le_bytes());
        row[offset_of!(Probe, kind)] = self.role.probe_kind(self.has_exits(), self.children);
        row[offset_of!(Probe, schema)] = self.schema;
        row[offset_of!(Probe, lending)..].copy_from_slice(&self.lending_word().to_le_bytes());
        row
    }

    /// True if its probes are in.
    pub fn is_in(&self) -> bool {
        self.state == State::In
    }

    /// True if its probes will not come in again.
    pub fn is_retired(&self) -> bool {
        self.state == State::Retired
    }

    /// True if its exits are out while it is in.
    pub fn has_only_entry(&self) -> bool {
        self.reach == Reach::Entry
    }

    /// Says whether its exits are in while it is, if it has some.
    pub fn set_exits(&mut self, are_in: bool) {
        self.reach = if are_in || self.exits.is_empty() {
            Reach::Whole
        } else {
            Reach::Entry
        };
    }

    /// What is overwritten as long as it is in.
    pub fn sites_in(&self) -> &[SiteDoc] {
        match self.reach {
            Reach::Entry => self.sites.get(..self.first_sites).unwrap_or(&self.sites),
            Reach::Whole => &self.sites,
        }
    }

    /// The sites whose patches are not in the text.
    pub fn sites_restored(&self) -> &[SiteDoc] {
        if self.is_in() {
            self.sites_out()
        } else {
            &self.sites
        }
    }

    /// The rest of its sites, which are out with its exits.
    pub fn sites_out(&self) -> &[SiteDoc] {
        &self.sites[self.sites_in().len()..]
    }

    /// True if exits of it are in while it is.
    pub fn has_exits(&self) -> bool {
        !self.exits.is_empty() && !self.has_only_entry()
    }

    /// What its row has of the calls that it lends and ends.
    pub fn lending_word(&self) -> u16 {
        if self.is_lending {
            self.lending | LENDS
        } else {
            self.lending
        }
    }
}

impl Document {
    /// Where a function is: no two are at one address of a file that is at one place. `None` where something else has come to
    /// its file's place.
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

    /// The functions that are measured and the points, with their ids.
    pub fn measured(&self) -> impl Iterator<Item = (usize, &FunctionDoc)> {
        self.functions
            .iter()
            .enumerate()
            .filter(|(_, f)| f.role.is_shown() && !f.is_retired())
    }
}

impl Segment {
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
        // Room to take the session out again, whatever takes all memory meanwhile: what is not to be had
        // now is looked for then.
        let spare = (text.len() as u64 + DOCUMENT_SPARE).min(room) - text.len() as u64;
        let _ = self.write_bytes(area, text.len() as u64, &vec![0; spare as usize])?;
        let len = &self.header().document_len[(turn & 1) as usize];
        len.store(text.len() as u64, Relaxed);
        let (pid, start) = document.family.unwrap_or_default();
        let header = self.header();
        header.family_pid.store(pid.max(0) as u64, Relaxed);
        header.family_start.store(start, Relaxed);
        step("document");
        self.header().document_turn.store(turn, Release);
        step("document turn");
        Ok(())
    }

    /// How often the document has been written: a number that changes with it.
    pub fn document_turn(&self) -> u64 {
        self.header().document_turn.load(Acquire)
    }

    /// The document, read again where a writer came between.
    pub fn read_document(&self) -> Result<Document, SegmentError> {
        const TRIES: usize = 100;
        for _ in 0..TRIES {
            let turn = self.document_turn();
            let (area, room) = self.document_area(turn & 1);
            let len = self.header().document_len[(turn & 1) as usize].load(Relaxed);
            // The target can change what its header says of the room.
            if turn == 0 || len > room.min(DOCUMENT) {
                return Err(SegmentError::Corrupt("document"));
            }
            // By a system call: what is not there is an error, and takes no memory.
            let mut bytes = vec![0; len as usize];
            let start = self.header().areas.get(area).map_or(0, |a| a.offset());
            let read = self.file.read_exact_at(&mut bytes, start);
            // The bytes have been read before the turn is looked at again.
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
