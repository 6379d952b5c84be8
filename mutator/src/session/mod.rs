//! A session: the runtime in a target, the probes that are in, and the segment both share.
//!
//! Nothing runs in the background. Each change opens the session, takes its lock, stops the
//! target for as long as bytes are written, and lets it go.

mod apply;
mod claims;
mod create;
mod end;
mod indirect;
mod map_in;
mod place;
mod reapers;
mod recover;
mod room;
mod select;
mod stack_scan;
mod tables;
mod traps;
mod windows;
mod write;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use abi::image::{SYMBOL_ENTRY_STUB, SYMBOL_EXIT_STUB, SYMBOL_VERIFIED_ENTRY_STUB};
use patcher::Avma;
use patcher::plan::RefuseReason;

use crate::error::Failure;
use crate::process::{Process, ProcessError};
use crate::runtime_image::RuntimeImage;
use crate::segment::{Document, Segment, SegmentError, StopDoc};
use crate::tracee::{Priority, Stopped, TraceeError, tracing};

pub use create::{Metric, Options, Where};
pub use end::Ended;
pub use indirect::resolve;
pub use select::{Candidate, Selection, Unmatched, copies_of, display_name, select};
pub use windows::Occupied;

/// In the environment, has the runtime walk the stack at every call even where it remembers the walk,
/// and end the program where the two differ: for tests. With the value `distrust` they always do.
const VERIFY: &str = "IPATH_VERIFY_WALKS";

/// What can go wrong with a session.
#[derive(Debug)]
pub enum SessionError {
    /// The process.
    Process(ProcessError),
    /// Stopping it or making it call the system.
    Tracee(TraceeError),
    /// The segment.
    Segment(SegmentError),
    /// Reading or writing its memory.
    Memory(&'static str, Avma, std::io::Error),
    /// The text is not what was analysed.
    TextChanged(Avma),
    /// None of the functions can be instrumented: their names and why.
    Refused(Vec<(String, String)>),
    /// No free range of addresses of that many bytes.
    NoSpace(u64),
    /// A thread stays where bytes would be overwritten.
    Occupied(Occupied),
    /// The process has a session already.
    Exists,
    /// More functions than a session holds.
    TooMany,
    /// The image of the runtime in this program is unusable.
    Image(String),
    /// Something in the target keeps the runtime from being taken out.
    Held(String),
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(error) => error.fmt(f),
            Self::Tracee(error) => error.fmt(f),
            Self::Segment(error) => error.fmt(f),
            Self::Memory(what, at, error) => {
                write!(f, "{what} at {at}: {}", crate::error::io_text(error))
            }
            Self::TextChanged(at) => {
                write!(
                    f,
                    "the code at {at} is not what its file says: something else has patched it"
                )
            }
            Self::Refused(functions) => f.write_str(&none_patched(functions)),
            Self::NoSpace(bytes) => write!(
                f,
                "no free range of {} MiB in its address space",
                bytes.div_ceil(1 << 20)
            ),
            Self::Occupied(what) => what.fmt(f),
            Self::Exists => write!(f, "the process has a session already"),
            Self::TooMany => write!(
                f,
                "a session holds {} functions at most",
                abi::MAX_FUNCTIONS
            ),
            Self::Image(what) => what.fmt(f),
            Self::Held(what) => write!(f, "{what}"),
        }
    }
}

impl std::error::Error for SessionError {}

impl From<ProcessError> for SessionError {
    fn from(error: ProcessError) -> Self {
        Self::Process(error)
    }
}

impl From<TraceeError> for SessionError {
    fn from(error: TraceeError) -> Self {
        Self::Tracee(error)
    }
}

impl From<SegmentError> for SessionError {
    fn from(error: SegmentError) -> Self {
        Self::Segment(error)
    }
}

impl SessionError {
    /// As a user meets it, in the course of `operation` on the process `pid`.
    pub fn failure(self, operation: &str, process: &Process) -> Failure {
        let hint = match &self {
            Self::Process(error) => error.hint(),
            Self::Exists => {
                let pid = process.pid;
                Some(format!(
                    "watch it with `ipath top {pid}`, change it with `ipath add {pid} -f FUNC`, or end it with `ipath detach {pid}`"
                ))
            }
            Self::Refused(functions) => used_by_ipath(functions),
            _ => None,
        };
        let failure = match &self {
            // Names the process itself.
            Self::Process(error) => Failure::of(operation, error),
            Self::Tracee(error) => {
                let text = error.to_string();
                let pid = format!("{}: ", process.pid);
                Failure::new(
                    operation,
                    process.pid,
                    text.strip_prefix(&pid).unwrap_or(&text),
                )
            }
            other => Failure::new(operation, process.pid, other),
        };
        failure.maybe_hint(hint)
    }
}

/// Says that nothing can be instrumented, with one function for each reason.
pub fn none_patched(refused: &[(String, String)]) -> String {
    let mut reasons: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, reason) in refused {
        reasons.entry(reason).or_insert(name);
    }
    let list: Vec<String> = reasons
        .iter()
        .map(|(reason, name)| format!("{name} ({reason})"))
        .collect();
    format!("none of the functions can be patched: {}", list.join(", "))
}

/// What to do about functions that ipath has for itself.
fn used_by_ipath(refused: &[(String, String)]) -> Option<String> {
    let reason = RefuseReason::UsedByIpath.to_string();
    let (name, _) = refused.iter().find(|(_, why)| *why == reason)?;
    Some(format!(
        "where times are measured ipath follows stacks that move by {name}; a session with `-m count` can count its calls"
    ))
}

/// A session of a process.
pub struct Session {
    process: Process,
    segment: Segment,
    document: Document,
}

/// What a change did.
#[derive(Clone, Debug, Default)]
pub struct Changed {
    /// Names of the functions added or removed.
    pub functions: Vec<String>,
    /// Functions refused, with the reason.
    pub refused: Vec<(String, String)>,
    /// Names of functions with breakpoints.
    pub trapped: Vec<String>,
    /// Files of Go programs whose stacks that move cannot be followed.
    pub unfollowed: Vec<String>,
}

impl Session {
    /// The session of a process, for reading.
    pub fn open(process: &Process) -> Result<Self, SessionError> {
        let segment = Segment::open(process)?;
        let document = segment.read_document()?;
        Ok(Self {
            process: process.clone(),
            segment,
            document,
        })
    }

    /// Reads again what other commands may have changed.
    pub fn refresh(&mut self) -> Result<(), SessionError> {
        self.document = self.segment.read_document()?;
        Ok(())
    }

    /// The process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// The segment.
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    /// The document.
    pub fn document(&self) -> &Document {
        &self.document
    }

    /// Whether the process runs and still is the program the session was made in: exec(2) replaces
    /// everything, the session too, and keeps the process.
    pub fn is_in_target(&self) -> bool {
        let (start, _) = self.document.segment;
        self.process.is_alive()
            && self.process.maps().is_ok_and(|maps| {
                maps.iter()
                    .any(|m| m.range.start.0 == start && m.name.contains("ipath"))
            })
    }

    /// Does a change under the session's lock, on the document as it is by then.
    fn locked<R: Send>(
        &mut self,
        change: impl FnOnce(&mut Self) -> Result<R, SessionError> + Send,
    ) -> Result<R, SessionError> {
        self.segment.lock()?;
        let result = tracing(|| {
            let _priority = Priority::raise();
            self.refresh()
                .and_then(|()| self.recover())
                .and_then(|()| change(self))
        });
        self.segment.unlock();
        result
    }

    fn note_stop(&mut self, why: &str, stopped: Duration) {
        let ns = u64::try_from(stopped.as_nanos()).unwrap_or(u64::MAX);
        self.document.stops.push(StopDoc {
            why: why.to_owned(),
            ns,
        });
    }

    fn image() -> Result<RuntimeImage, SessionError> {
        RuntimeImage::load().map_err(SessionError::Image)
    }

    /// What each trampoline region begins with: the addresses of the stubs for entries and exits in
    /// the runtime at `base`.
    fn cells(image: &RuntimeImage, base: Avma) -> Result<Vec<u8>, SessionError> {
        let entry = match std::env::var_os(VERIFY) {
            Some(_) => SYMBOL_VERIFIED_ENTRY_STUB,
            None => SYMBOL_ENTRY_STUB,
        };
        let mut cells = Vec::new();
        for symbol in [entry, SYMBOL_EXIT_STUB] {
            let stub = image.address(base, symbol).map_err(SessionError::Image)?;
            cells.extend(stub.0.to_le_bytes());
        }
        Ok(cells)
    }

    /// Stops all threads.
    fn stop_all(&self) -> Result<Stopped, SessionError> {
        Ok(Stopped::all(&self.process)?)
    }
}
