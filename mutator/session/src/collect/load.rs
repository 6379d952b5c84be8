//! The load that measuring puts on a process: the calls of each function, and the overhead so far.
//! Reads no call path and no histogram, so that it can be read every few milliseconds.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use abi::schema::{Derived, source};
use abi::segment::{AREA_RECORDS, NODE_IS_PATH, ROOT_OVERFLOW, RecordHead};

use super::head::elapsed_ns;
use super::overhead::measuring_ns;
use crate::segment::{Document, FunctionDoc, Role, SchemaDoc, Segment};
use crate::session::Session;
use ipath_profile::clock;

/// The load on a process up to a moment. All numbers grow.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Load {
    /// The time since the session's start, in nanoseconds.
    pub elapsed_ns: u64,
    /// The CPU time of the process, in nanoseconds.
    pub cpu_ns: u64,
    /// The part of the CPU time that the runtime knows it has taken, in nanoseconds.
    pub measuring_ns: u64,
    /// The functions and points that are in and can be measured less, by id, ascending.
    pub functions: Vec<FunctionLoad>,
}

/// The calls of a function up to a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FunctionLoad {
    /// The function's id in the session.
    pub id: usize,
    /// True if the function has probes at its exits.
    pub is_timed: bool,
    /// True if the function can be counted without its exits.
    pub may_count: bool,
    /// The number of calls.
    pub calls: u64,
    /// The number of frames on the paths of these calls.
    pub frames: u64,
    /// The number of paths, by thread.
    pub paths: u64,
    /// The number of calls that share a path because their own path had no room.
    pub unpathed: u64,
    /// The time of the calls without measured functions that they call, in nanoseconds.
    pub own_ns: u64,
}

/// Reads the load of a session again and again.
#[derive(Default)]
pub struct LoadReader {
    /// The number of the reading of the document that `none` and `own` are based on.
    reading: Option<u64>,
    /// The functions without calls.
    none: Vec<FunctionLoad>,
    /// For each schema, the columns that add up to the time of a function without its callees.
    own: Vec<Vec<usize>>,
    /// The paths of records, which do not change. `None` for a record that is not in use yet.
    paths: Vec<Option<PathOf>>,
}

/// The path of a record.
#[derive(Clone, Copy)]
struct PathOf {
    function: usize,
    frames: u32,
    has_room: bool,
}

impl LoadReader {
    /// The load on the session's process now, by the document as it was last read. The CPU time is
    /// 0 if it cannot be read.
    pub fn read(&mut self, session: &Session) -> Load {
        let (segment, document) = (session.segment(), session.document());
        if self.reading != Some(session.reading()) {
            self.reading = Some(session.reading());
            let all = document.functions.iter().enumerate();
            self.none = all.map(|(id, f)| empty(document, id, f)).collect();
            self.own = document.schemas.iter().map(own_columns).collect();
        }
        Load {
            elapsed_ns: elapsed_ns(segment.header()),
            cpu_ns: session.process().cpu_time().unwrap_or(0),
            measuring_ns: measuring_ns(segment),
            functions: self.functions(segment, document),
        }
    }

    fn functions(&mut self, segment: &Segment, document: &Document) -> Vec<FunctionLoad> {
        let mut functions = self.none.clone();
        let (scale, _) = clock::scale_to_ns(segment.header().clock_hz.load(Relaxed));
        let used = segment.header().records_used.load(Acquire);
        for index in 0..segment.used(AREA_RECORDS, used) {
            let Some(head) = segment.record(index) else {
                break;
            };
            let Some(path) = self.path_of(segment, index, head) else {
                continue;
            };
            let Some(function) = functions.get_mut(path.function) else {
                continue;
            };
            let calls = head.entered.load(Relaxed);
            let more = |sum: &mut u64, n: u64| *sum = sum.saturating_add(n);
            more(&mut function.calls, calls);
            more(&mut function.paths, 1);
            more(
                &mut function.frames,
                calls.saturating_mul(path.frames.into()),
            );
            if !path.has_room {
                more(&mut function.unpathed, calls);
            }
            let columns = self.own.get(usize::from(head.schema.load(Relaxed)));
            for &number in columns.into_iter().flatten() {
                let own = segment.column(index, number);
                let ticks = own.map_or(0, |c| c.exclusive.load(Relaxed) as i64).max(0);
                let ns = (ticks as u128 * u128::from(scale)) >> abi::image::SCALE_SHIFT;
                more(&mut function.own_ns, u64::try_from(ns).unwrap_or(u64::MAX));
            }
        }
        let is_in = |load: &FunctionLoad| {
            let function = &document.functions[load.id];
            // Edges are counted without calls, and a phase must be seen to end.
            let may_change = function.role != Role::Edges && !function.is_phase;
            function.is_in() && function.role.is_shown() && may_change
        };
        functions.retain(is_in);
        functions
    }

    /// The path of a record. `None` if the record is not in use, or belongs to no function.
    fn path_of(&mut self, segment: &Segment, index: u64, head: &RecordHead) -> Option<PathOf> {
        let index = usize::try_from(index).ok()?;
        if let Some(Some(known)) = self.paths.get(index) {
            return Some(*known);
        }
        let number = head.path.load(Acquire);
        let node = segment.node(number).filter(|_| number != 0)?;
        let key = node.key.load(Relaxed);
        let function = usize::try_from(key & !NODE_IS_PATH).ok();
        let path = PathOf {
            function: function.filter(|_| key & NODE_IS_PATH != 0)?,
            frames: node.depth.load(Relaxed),
            has_room: node.parent.load(Relaxed) != ROOT_OVERFLOW,
        };
        if index >= self.paths.len() {
            self.paths.resize(index + 1, None);
        }
        self.paths[index] = Some(path);
        Some(path)
    }
}

/// A function without calls.
fn empty(document: &Document, id: usize, function: &FunctionDoc) -> FunctionLoad {
    // A condition may be known only when a call ends.
    let without = document.schema_of(function.schema).map(|schema| SchemaDoc {
        columns: Vec::new(),
        ..schema.clone()
    });
    FunctionLoad {
        id,
        is_timed: function.has_exits(),
        may_count: function.role.is_measured() && without.is_some_and(|s| !s.needs_exits()),
        ..FunctionLoad::default()
    }
}

/// The columns that add up to the time of a function without its callees: elapsed time, or CPU time
/// if that alone is measured.
fn own_columns(schema: &SchemaDoc) -> Vec<usize> {
    const CPU: Derived = Derived::Growth(source::CPU as u8);
    const CLOCK: Derived = Derived::Growth(source::CLOCK as u8);
    let of = |wanted: &[Derived]| -> Vec<usize> {
        let columns = schema.columns.iter().enumerate();
        let is_wanted = |derived: u64| wanted.iter().any(|w| w.encode() == derived);
        let found = columns.filter(|(_, column)| is_wanted(column.derived));
        found.map(|(number, _)| number).collect()
    };
    let wall = of(&[CLOCK]);
    if wall.is_empty() {
        of(&[CPU, Derived::Steady])
    } else {
        of(&[CLOCK, Derived::Steady])
    }
}
