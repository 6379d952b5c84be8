//! A session: the runtime in a target, the probes that are in, and the segment both share.
//!
//! The only background work is to answer the runtime while a command watches (`answers.rs`). Each
//! change opens the session, takes its lock, stops the target for as long as bytes are written, and
//! lets it go.

mod ahead;
mod answers;
mod apply;
mod came;
mod candidate;
mod child;
mod claims;
mod copies;
mod counted;
mod create;
mod decide;
mod departing;
mod descriptor;
mod elsewhere;
mod end;
mod enders;
mod enter;
mod error;
mod exchange;
mod execute;
pub mod filters;
mod forks;
mod generated;
mod in_the_way;
mod indirect;
mod inlined;
pub mod legacy;
mod lending;
mod locked;
mod lost;
mod map_in;
mod mark;
mod memory;
mod parked;
mod pending;
mod place;
mod plan;
mod pointed;
mod points;
mod published;
mod quiet;
mod reading;
mod recover;
mod refusal;
mod refusing;
mod registered;
mod relaid;
mod remeasure;
mod room;
mod rows;
mod runtime_memory;
mod select;
mod shown;
mod slices;
mod slots;
mod spans;
mod spots;
mod stack_scan;
mod tables;
mod taking;
mod throttling;
mod traps;
mod turn;
mod uncertain;
mod under;
mod unmatched;
mod values;
mod view;
mod windows;
mod witnesses;
mod write;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use abi::count::{Bank, FIRST};
use abi::image::{
    SYMBOL_ALIVE, SYMBOL_CALLED_STUB, SYMBOL_COUNT_STUB, SYMBOL_ENDER_STUB, SYMBOL_ENDER_TAIL_STUB,
    SYMBOL_ENTRY_STUB, SYMBOL_EXIT_STUB, SYMBOL_IDLE_STUB, SYMBOL_LEND_STUB, SYMBOL_PATH_STUB,
    SYMBOL_PATHS, SYMBOL_POINT_STUB, SYMBOL_SPAN_END_STUB, SYMBOL_SPAN_STUB, SYMBOL_TAIL_STUB,
    SYMBOL_TIMED_PATH_END_STUB, SYMBOL_TIMED_PATH_STUB, SYMBOL_VERIFIED_ENTRY_STUB,
    SYMBOL_VERIFIED_POINT_STUB, SYMBOL_VERIFIED_SPAN_STUB, SYMBOL_VERIFIED_TIMED_PATH_STUB,
};
use abi::segment::{STATE_ACTIVE, STATE_ENDED};
use patcher::Avma;
use patcher::plan::{Allowed, Effects};
use patcher::select::Pattern;

use crate::segment::{Document, Segment, SegmentError};
use ipath_profile::clock;
use ipath_symbols::images;
use ipath_target::process::headroom::yield_memory;
use ipath_target::process::modules::{Module, modules};
use ipath_target::process::{Extent, Mapping, Presence, Process, Space, shadow};
use ipath_target::tracee::Stopped;

use reading::Reading;

pub use answers::Answering;
pub use candidate::{Candidate, Point};
pub use create::{MAX_PATHS, MAX_VALUES, Options, Where};
pub use departing::Departures;
pub use elsewhere::Elsewhere;
pub use end::Ended;
pub use error::{SessionError, bare, none_measured, none_patched};
pub use in_the_way::InTheWay;
pub use pointed::Pointed;
pub use refusal::{Refusal, Refused};
pub use select::{Missed, Query, Selection, select_in_file, select_in_modules};
pub use shown::Places;
pub use unmatched::{Hidden, Unmatched};
pub use values::WantedValues;
pub use witnesses::has_leak_check;

/// The environment variable that makes the runtime verify its remembered walks, for tests. It then
/// walks the stack at every call and ends the program if the two differ. With the value `distrust`
/// they always differ.
const VERIFY: &str = "IPATH_VERIFY_WALKS";

/// A session of a process.
pub struct Session {
    process: Process,
    segment: Segment,
    document: Document,
    reading: Reading,
}

/// Functions selected in a process, with the address space they were found in. A change is made
/// only in that address space.
pub struct Selected {
    /// The address space in which the patterns were looked up.
    pub space: Arc<Space>,
    /// The modules that contain the functions.
    pub modules: Vec<Module>,
    /// The functions found, with their plans.
    pub selection: Selection,
}

/// Looks patterns up in a process as it is now, and plans the functions they name.
///
/// # Errors
/// The process cannot be read, has ended or has executed another program.
pub fn select_in(
    process: &Process,
    patterns: &[Pattern],
    wanted: Effects,
) -> Result<Selected, SessionError> {
    let space = Arc::new(Space::open(process)?);
    select_stopped(space, patterns, wanted, None, false)
}

/// Looks patterns up in a known address space, whose process may be stopped, and plans the
/// functions they name. If `is_quick`, suggests no names for patterns without a match: finding
/// suggestions takes long.
///
/// # Errors
/// The process cannot be read, has ended or has executed another program.
pub fn select_stopped(
    space: Arc<Space>,
    patterns: &[Pattern],
    wanted: Effects,
    stopped: Option<&mut Stopped>,
    is_quick: bool,
) -> Result<Selected, SessionError> {
    yield_memory(space.process());
    let modules = modules(space.process(), &space.maps()?);
    images::forget_changed(&modules);
    let allowed = allowed(space.process(), &modules, stopped.is_some());
    let mut selection = select::select(&modules, patterns, wanted, allowed, is_quick);
    // The modules of a process that has begun to end disappear, so missing ones may have been
    // there.
    if !selection.unmatched.is_empty() || !selection.unreadable.is_empty() {
        space.check()?;
    }
    indirect::resolve(&space, &modules, &mut selection, wanted, stopped)?;
    Ok(Selected {
        space,
        modules,
        selection,
    })
}

/// Returns the patching techniques that a process allows. A process that has `just_started` may
/// still enable shadow stacks, if its file and the machine support them.
pub fn allowed(process: &Process, modules: &[Module], just_started: bool) -> Allowed {
    let may_come = || {
        let exe = process.exe().map(|exe| exe.display().to_string());
        let mut own = modules.iter().filter(|m| Some(&m.path) == exe.as_ref());
        let bears =
            |m: &Module| images::of_module(m).map_or(true, |i| i.image().bears_shadow_stack());
        shadow::is_able() && own.any(bears)
    };
    let has_shadow_stacks = process.has_shadow_stacks() || just_started && may_come();
    Allowed {
        moved_calls: !has_shadow_stacks,
        ..Allowed::ALL
    }
}

/// Why a session is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// The session's program has ended.
    ProgramEnded,
    /// The session's process runs another program (exec).
    OtherProgram,
    /// The session has been taken out of the process.
    Detached,
}

/// The outcome of a change.
#[derive(Clone, Debug, Default)]
pub struct Changed {
    /// Names of the functions added or removed.
    pub functions: Vec<String>,
    /// Names of functions to be added that were in already.
    pub already: Vec<String>,
    /// Functions whose metrics have changed: by name, with their new metrics.
    pub remeasured: Vec<(String, Vec<String>)>,
    /// Functions refused, with the reason.
    pub refused: Refused,
    /// Functions that are in and whose metrics could not be changed, with the reason.
    pub unchanged: Refused,
    /// Names of functions that use breakpoints.
    pub trapped: Vec<String>,
    /// Added functions with calls that are not counted, by name. With each, the code outside the
    /// session that those calls reach instead.
    pub partly: Vec<(String, Elsewhere)>,
    /// Added functions whose code has other names too: by name, with those names.
    pub shared: Vec<(String, Vec<String>)>,
    /// Files of Go programs whose moving stacks cannot be followed.
    pub unfollowed: Vec<String>,
    /// Names of functions without debug information. Their registers are read as they are.
    pub bare: Vec<String>,
}

impl Changed {
    /// True if the change did nothing except refuse functions.
    fn is_nothing(&self) -> bool {
        self.functions.is_empty() && self.already.is_empty() && self.remeasured.is_empty()
    }

    /// The error for a change that did nothing because functions were refused. `None` for other
    /// changes.
    fn refusal(&self) -> Option<SessionError> {
        let (refused, unchanged) = (&self.refused, &self.unchanged);
        match (refused.is_empty(), unchanged.is_empty()) {
            _ if !self.is_nothing() => None,
            (true, true) => None,
            (true, false) => Some(SessionError::Unchanged(unchanged.clone())),
            _ => Some(SessionError::Refused([&refused[..], unchanged].concat())),
        }
    }
}

impl Session {
    /// Opens the session of a process for reading.
    ///
    /// # Errors
    /// The process has no session, or it cannot be read.
    pub fn open(process: &Process) -> Result<Self, SessionError> {
        Self::with(process, Segment::open(process)?)
    }

    /// Opens the session of a process for changing it.
    ///
    /// # Errors
    /// The process has no session, or it cannot be read.
    pub fn open_to_change(process: &Process) -> Result<Self, SessionError> {
        Self::with(process, Segment::open_to_change(process)?)
    }

    fn with(process: &Process, segment: Segment) -> Result<Self, SessionError> {
        let document = segment.read_document()?;
        Ok(Self {
            process: process.clone(),
            segment,
            document,
            reading: Reading::default(),
        })
    }

    /// The same session for another thread, without reading the document again.
    ///
    /// # Errors
    /// The segment cannot be mapped once more.
    pub fn again(&self) -> Result<Self, SessionError> {
        Ok(Self {
            process: self.process.clone(),
            segment: self.segment.again()?,
            document: self.document.clone(),
            reading: self.reading.again(),
        })
    }

    /// True if the session is complete and its removal has not begun.
    pub fn is_whole(&self) -> bool {
        self.segment.header().state.load(Relaxed) == STATE_ACTIVE
    }

    /// A number that changes whenever the document may have changed.
    pub fn reading(&self) -> u64 {
        self.reading.number()
    }

    /// The process that the session is in.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Sets the beginning of the measured time to now: the program has not run before.
    pub fn note_begin(&self) {
        clock::start(self.segment.header());
    }

    /// Sets the end of the measured time to now, when the program has ended. Does nothing if an end
    /// is already set.
    pub fn note_end(&self) {
        self.note_end_at(clock::tsc());
    }

    /// Sets the end of the measured time, in ticks of the time-stamp counter. Does nothing if an
    /// end is already set.
    pub fn note_end_at(&self, moment: u64) {
        let ended = &self.segment.header().ended_tsc;
        // An end that is already set stays.
        let _ = ended.compare_exchange(0, moment, Relaxed, Relaxed);
    }

    /// The end of the measured time, in ticks of the time-stamp counter. `None` if it is not set.
    pub fn ended_at(&self) -> Option<u64> {
        let ended = self.segment.header().ended_tsc.load(Relaxed);
        (ended != 0).then_some(ended)
    }

    /// The session's segment.
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    /// The session's document, as of its last reading.
    pub fn document(&self) -> &Document {
        &self.document
    }

    /// Returns `Here` if the process still has the session. Returns `OtherProgram` if the process
    /// runs and no longer maps the segment. exec(2) keeps the process and replaces everything in
    /// it, the session too.
    pub fn presence(&self) -> Presence {
        let maps = match self.process.living_maps() {
            Ok(maps) => maps,
            Err(presence) => return presence,
        };
        match self.segment_in(&maps) {
            Some(_) => Presence::Here,
            None => Presence::OtherProgram,
        }
    }

    /// The mapping of the segment. `None` if the segment is not mapped where the document says.
    fn segment_in<'m>(&self, maps: &'m [Mapping]) -> Option<&'m Mapping> {
        let start = self.document.segment.start;
        maps.iter()
            .find(|m| m.range.start == start && self.segment.is_in(m))
    }

    /// Why nothing more is counted, or `None` if the session goes on.
    ///
    /// # Errors
    /// The reason why this cannot be determined, as part of a sentence.
    pub fn over(&self) -> Result<Option<Over>, String> {
        let state = self.segment.header().state.load(Relaxed);
        match self.presence() {
            Presence::Ended => Ok(Some(Over::ProgramEnded)),
            _ if state == STATE_ENDED => Ok(Some(Over::Detached)),
            Presence::OtherProgram => Ok(Some(Over::OtherProgram)),
            Presence::Here => Ok(None),
            Presence::Unknown(cause) => Err(cause),
        }
    }

    /// The address of a symbol of the runtime in the target, which may be from another build.
    fn symbol(&self, name: &str) -> Result<Avma, SessionError> {
        symbol(&self.document, name)
    }

    /// The first bytes of each trampoline region: the addresses of the runtime's stubs, in the
    /// order of `place::Cell`, and that of the table of banks.
    fn cells(&self) -> Result<Vec<u8>, SessionError> {
        let [mut entry, point, span, path] = match std::env::var_os(VERIFY) {
            Some(_) => [
                SYMBOL_VERIFIED_ENTRY_STUB,
                SYMBOL_VERIFIED_POINT_STUB,
                SYMBOL_VERIFIED_SPAN_STUB,
                SYMBOL_VERIFIED_TIMED_PATH_STUB,
            ],
            None => [
                SYMBOL_ENTRY_STUB,
                SYMBOL_POINT_STUB,
                SYMBOL_SPAN_STUB,
                SYMBOL_TIMED_PATH_STUB,
            ],
        };
        if self.document.callers_only {
            entry = SYMBOL_CALLED_STUB;
        }
        let mut cells = Vec::new();
        for symbol in [
            entry,
            SYMBOL_EXIT_STUB,
            SYMBOL_TAIL_STUB,
            SYMBOL_LEND_STUB,
            SYMBOL_ENDER_STUB,
            SYMBOL_ENDER_TAIL_STUB,
            SYMBOL_IDLE_STUB,
            point,
            SYMBOL_COUNT_STUB,
            SYMBOL_ALIVE,
            SYMBOL_PATH_STUB,
            SYMBOL_PATHS,
            span,
            SYMBOL_SPAN_END_STUB,
            path,
            SYMBOL_TIMED_PATH_END_STUB,
        ] {
            let mut at = self.symbol(symbol)?.0;
            if symbol == SYMBOL_ALIVE {
                // The table begins with the bank of the first thread.
                at += (FIRST * size_of::<Bank>()) as u64;
            }
            cells.extend(at.to_le_bytes());
        }
        Ok(cells)
    }
}

/// The address of a symbol of the runtime in the target, which may be from another build.
fn symbol(document: &Document, name: &str) -> Result<Avma, SessionError> {
    let Extent { start, len } = document.image;
    let offset = document.runtime.symbols.get(name);
    let offset = offset.filter(|&&offset| offset < len);
    let offset = offset.ok_or(SegmentError::Corrupt("symbols"))?;
    Ok(start.plus(*offset))
}
