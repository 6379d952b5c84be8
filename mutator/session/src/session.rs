//! A session: the runtime in a target, the probes that are in, and the segment both share.
//!
//! Nothing runs in the background but what answers the runtime while somebody watches (`answers.rs`). Each change opens the session, takes its lock, stops the
//! target for as long as bytes are written, and lets it go.

mod ahead;
mod answers;
mod apply;
mod came;
mod candidate;
mod child;
mod claims;
mod create;
mod decide;
mod departing;
mod descriptor;
mod elsewhere;
mod end;
mod enders;
mod enter;
mod error;
mod execute;
pub mod filters;
mod forks;
mod generated;
mod in_the_way;
mod indirect;
mod legacy;
mod lending;
mod locked;
mod lost;
mod map_in;
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
mod remeasure;
mod room;
mod rows;
mod runtime_memory;
mod select;
mod shown;
mod slices;
mod stack_scan;
mod tables;
mod taking;
mod traps;
mod turn;
mod unmatched;
mod values;
mod view;
mod windows;
mod witnesses;
mod write;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use abi::image::{
    SYMBOL_ENDER_STUB, SYMBOL_ENDER_TAIL_STUB, SYMBOL_ENTRY_STUB, SYMBOL_EXIT_STUB,
    SYMBOL_IDLE_STUB, SYMBOL_LEND_STUB, SYMBOL_POINT_STUB, SYMBOL_TAIL_STUB,
    SYMBOL_VERIFIED_ENTRY_STUB, SYMBOL_VERIFIED_POINT_STUB,
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
pub use create::{MAX_PATHS, Options, Where};
pub use departing::Departures;
pub use elsewhere::Elsewhere;
pub use end::Ended;
pub use error::{SessionError, bare, instead, none_measured, none_patched};
pub use in_the_way::InTheWay;
pub use pointed::Pointed;
pub use refusal::{Refusal, Refused};
pub use select::{Missed, Query, Selection, select_in_file, select_in_modules};
pub use shown::Places;
pub use unmatched::Unmatched;
pub use witnesses::has_leak_check;

/// In the environment, has the runtime walk the stack at every call even where it remembers the walk,
/// and end the program where the two differ: for tests. With the value `distrust` they always do.
const VERIFY: &str = "IPATH_VERIFY_WALKS";

/// A session of a process.
pub struct Session {
    process: Process,
    segment: Segment,
    document: Document,
    reading: Reading,
}

/// Functions selected in a process, with the address space they were found in: a change is made in no other.
pub struct Selected {
    /// Where they were found.
    pub space: Arc<Space>,
    /// The modules they are in.
    pub modules: Vec<Module>,
    /// The functions.
    pub selection: Selection,
}

/// Looks patterns up in a process as it is now.
pub fn select_in(
    process: &Process,
    patterns: &[Pattern],
    wanted: Effects,
) -> Result<Selected, SessionError> {
    let space = Arc::new(Space::open(process)?);
    select_stopped(space, patterns, wanted, None, false)
}

/// The same in an address space that is known, of a process that may be stopped. Where it `is_quick`, without what may have
/// been meant by what has no match.
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
    // What is missed may have been there before the process began to end.
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

/// What a process allows. One that has `just_started` puts shadow stacks on later, if its file says that it can run
/// with them and the machine has them.
pub fn allowed(process: &Process, modules: &[Module], just_started: bool) -> Allowed {
    let may_come = || {
        let exe = process.exe().map(|exe| exe.display().to_string());
        let mut own = modules.iter().filter(|m| Some(&m.path) == exe.as_ref());
        let bears =
            |m: &Module| images::of_module(m).map_or(true, |i| i.image.bears_shadow_stack());
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
    /// Its program has ended,
    ProgramEnded,
    /// or become another.
    OtherProgram,
    /// It has been taken out.
    Detached,
}

/// What a change did.
#[derive(Clone, Debug, Default)]
pub struct Changed {
    /// Names of the functions added or removed.
    pub functions: Vec<String>,
    /// Names of functions to be added that were in already.
    pub already: Vec<String>,
    /// Names of functions that measure something else than before, each with what.
    pub remeasured: Vec<(String, Vec<String>)>,
    /// Functions refused, with the reason.
    pub refused: Refused,
    /// Functions that are in and measure what they did, with the reason.
    pub unchanged: Refused,
    /// Names of functions with breakpoints.
    pub trapped: Vec<String>,
    /// Names of functions that were added of which not every call is counted, with where the others go that is not
    /// in the session.
    pub partly: Vec<(String, Elsewhere)>,
    /// Added functions whose code has other names, too; by name, with those names.
    pub shared: Vec<(String, Vec<String>)>,
    /// Files of Go programs whose stacks that move cannot be followed.
    pub unfollowed: Vec<String>,
    /// Names of functions of whose values nothing is known, so that registers are read as they are.
    pub bare: Vec<String>,
}

impl Changed {
    /// True if nothing has come of it but refusals.
    fn is_nothing(&self) -> bool {
        self.functions.is_empty() && self.already.is_empty() && self.remeasured.is_empty()
    }

    /// That nothing has come of it, where that is so because of refusals.
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
    /// The session of a process, for reading.
    pub fn open(process: &Process) -> Result<Self, SessionError> {
        Self::with(process, Segment::open(process)?)
    }

    /// The session of a process, for changing it.
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

    /// True if the session is complete and its removal has not begun.
    pub fn is_whole(&self) -> bool {
        self.segment.header().state.load(Relaxed) == STATE_ACTIVE
    }

    /// A number that is another one whenever the document may be another one.
    pub fn reading(&self) -> u64 {
        self.reading.number()
    }

    /// The process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Says that the time measured begins now: the program has not run before.
    pub fn note_begin(&self) {
        let began = &self.segment.header().started_tsc;
        began.store(clock::tsc(), Relaxed);
    }

    /// Says that the time measured has ended, with the program.
    pub fn note_end(&self) {
        self.note_end_at(clock::tsc());
    }

    /// The same of a moment, by the time-stamp counter.
    pub fn note_end_at(&self, moment: u64) {
        let ended = &self.segment.header().ended_tsc;
        // It has been said already.
        let _ = ended.compare_exchange(0, moment, Relaxed, Relaxed);
    }

    /// The moment that counts as the end of the process, by the time-stamp counter.
    pub fn ended_at(&self) -> Option<u64> {
        let ended = self.segment.header().ended_tsc.load(Relaxed);
        (ended != 0).then_some(ended)
    }

    /// The segment.
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    /// The document.
    pub fn document(&self) -> &Document {
        &self.document
    }

    /// `Here` where the session is in its process: exec(2) replaces everything, the session too, and keeps the
    /// process.
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

    /// The mapping of the segment, where it is mapped at the place the document says.
    fn segment_in<'m>(&self, maps: &'m [Mapping]) -> Option<&'m Mapping> {
        let start = self.document.segment.start;
        maps.iter()
            .find(|m| m.range.start == start && self.segment.is_in(m))
    }

    /// Why nothing more is counted, where that is so; or why that cannot be seen.
    ///
    /// # Errors
    /// One part of a sentence.
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

    /// Where the runtime in the target has a symbol: it may be another build's.
    fn symbol(&self, name: &str) -> Result<Avma, SessionError> {
        symbol(&self.document, name)
    }

    /// What each trampoline region begins with: the addresses of the runtime's stubs, in the order of `place::Cell`.
    fn cells(&self) -> Result<Vec<u8>, SessionError> {
        let (entry, point) = match std::env::var_os(VERIFY) {
            Some(_) => (SYMBOL_VERIFIED_ENTRY_STUB, SYMBOL_VERIFIED_POINT_STUB),
            None => (SYMBOL_ENTRY_STUB, SYMBOL_POINT_STUB),
        };
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
        ] {
            cells.extend(self.symbol(symbol)?.0.to_le_bytes());
        }
        Ok(cells)
    }
}

/// Where the runtime in the target has a symbol: it may be another build's.
fn symbol(document: &Document, name: &str) -> Result<Avma, SessionError> {
    let Extent { start, len } = document.image;
    let offset = document.runtime.symbols.get(name);
    let offset = offset.filter(|&&offset| offset < len);
    let offset = offset.ok_or(SegmentError::Corrupt("symbols"))?;
    Ok(start.plus(*offset))
}
