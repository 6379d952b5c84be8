//! The session of a child that a measured process has made by fork(2), created before the child
//! runs.
//!
//! The child has a copy of its parent's memory: patched text, trampolines, and the runtime, whose
//! page [`ALIVE`] is empty. So nothing is analyzed again. The runtime's state about the parent is
//! dropped, and its configuration stays. The child gets its own segment at the same address.
//!
//! Until that page is filled, the hooks do nothing. The unfinished session looks like one in a
//! program that has been replaced, so another command that finds it only removes its name.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use abi::counter::Event;
use abi::filter::{FilterRange, MOST_RANGES};
use abi::image::{
    ALIVE, Parameters, SYMBOL_ALIVE, SYMBOL_COSTS, SYMBOL_COUNTERS, SYMBOL_DETAILS, SYMBOL_EPOCH,
    SYMBOL_FILTERS, SYMBOL_PARAMETERS, SYMBOL_PATHS, SYMBOL_PROBES, SYMBOL_SCHEMAS,
    SYMBOL_TRAP_ACTIONS, SYMBOL_TRAPS, TRAP_BUCKETS, Trap, TrapActions,
};
use abi::schema::{MAX_SCHEMAS, Schema, source};
use abi::segment::{
    AREA_CALLS, AREA_JOURNAL, AREA_TABLES, JournalEntry, STATE_ACTIVE, STATE_SETUP,
};
use patcher::Avma;

use super::enter::banks;
use super::locked::{Locked, make_way};
use super::map_in::{close, open_named, own_file, pass, populate, populate_first};
use super::memory::Room;
use super::pending::AT_FIRST;
use super::recover::unmap;
use super::runtime_memory::read;
use super::stack_scan::Stacks;
use super::{Session, SessionError};
use crate::runtime_image::RuntimeImage;
use crate::segment::{Document, Journal, Lock, RegionDoc, Segment, SegmentError, Shape, has_room};
use ipath_profile::clock;
use ipath_target::priority::Priority;
use ipath_target::process::maps::{expect_mapping, free_range};
use ipath_target::process::memory::is_anonymous;
use ipath_target::process::{Extent, Mapping, Memory, Process, Space};
use ipath_target::tracee::{CallCode, Remote, Stopped};

impl Session {
    /// True if the child's memory contains this session's image: its parent had the session when it
    /// forked.
    ///
    /// # Errors
    /// The process or the segment cannot be read.
    pub fn has_come_to(&mut self, child: &Space) -> Result<bool, SessionError> {
        self.refresh()?;
        let image = self.document.image;
        Ok(child.maps()?.iter().any(|m| image.contains(m.range.start)))
    }

    /// Makes a session of the same functions in a child that has not run yet, with all counts at 0.
    /// Returns `None` if the child was forked before the first function was patched. The inherited
    /// memory is then unmapped, and the caller measures the child like any other program.
    ///
    /// # Errors
    /// This session is not active or cannot be inherited, or the child cannot be changed. The child
    /// then has no session, and its hooks do nothing.
    pub fn of_child(
        &mut self,
        child: &Process,
        stopped: &mut Stopped,
    ) -> Result<Option<Self>, SessionError> {
        let _priority = Priority::raise();
        self.refresh()?;
        if self.segment.header().state.load(Acquire) != STATE_ACTIVE {
            return Err(SegmentError::Missing.into());
        }
        if self.document.quiet {
            let why = "the runtime makes no system call in its parent (seccomp or \
                --no-system-calls), so a session cannot be forked from it";
            return Err(SessionError::Held(why.to_owned()));
        }
        let space = Arc::clone(stopped.space());
        match self.inherited(&space)? {
            Inherited::All => {}
            Inherited::Unpatched => return self.take_out_of(child, stopped).map(|()| None),
            Inherited::Part => {
                let why = "functions were added or removed while it was forked";
                return Err(SessionError::Held(why.to_owned()));
            }
        }
        make_way(child, &space)?;
        let made = self.make_in_child(child, stopped)?;
        let mut session = made.session;
        let mut locked = Locked::new(&mut session, space, made.lock);
        let begun = begin_in_child(&mut locked);
        drop(locked);
        match begun {
            Ok(()) => Ok(Some(session)),
            Err(error) => {
                session.segment.remove_name();
                Err(error)
            }
        }
    }

    /// Maps the child's own segment and runtime in place of the parent's. The hooks still do
    /// nothing.
    fn make_in_child(&self, child: &Process, stopped: &mut Stopped) -> Result<Made, SessionError> {
        let space = Arc::clone(stopped.space());
        let memory = space.memory();
        let maps = space.maps()?;
        let document = self.document_of_child(child);
        let image = RuntimeImage::built_in().map_err(SessionError::Image)?;
        if document.runtime.head != image.document().head
            || document.runtime.symbols != image.document().symbols
        {
            let why = "its parent's runtime comes from another build of ipath";
            return Err(SessionError::Held(why.to_owned()));
        }
        // Memory that the runtime mapped for the parent's threads.
        let left = self.mapped_by_runtime(memory)?;
        if let Err(error) = self.check_left(stopped, &left) {
            self.leave_room(child, &maps, stopped)?;
            return Err(error);
        }
        let told = self.told(memory)?;
        let header = self.segment.header();
        let shape = Shape {
            max_paths: told.max_paths,
            columns: header.columns.load(Relaxed) as usize,
            keeps_single: header.areas[AREA_CALLS].capacity() > 0,
        };
        if shape.size() != document.segment.len {
            return Err(SegmentError::Corrupt("size").into());
        }
        let code = CallCode::find(child, &maps, memory)?;
        let room = Room::of_child(child, image.writable.end - image.writable.start)?;
        let mut remote = Remote::new(&code, stopped)?;
        for extent in left {
            remote.unmap(extent.start, extent.len)?;
        }
        let base = document.image.start;
        let at = base.plus(image.writable.start);
        let len = image.writable.end - image.writable.start;
        // The child keeps its copy of the parent's memory, whose hooks do nothing, until the new
        // memory is complete.
        let mut maps = maps;
        expect_mapping(&mut maps, document.segment.range());
        let place = free_range(&maps, len).ok_or(SessionError::NoSpace(len))?;
        remote.map_zeroes(place, len)?;
        let fresh = Fresh {
            scratch: place,
            at,
            len,
        };
        let child = Child {
            process: child,
            document,
            shape,
            told,
            room,
        };
        let made = self.lay_out(child, image, &fresh, &mut remote);
        if made.is_err() {
            // The scratch memory is unused, or has already moved to its final place.
            let _ = remote.unmap(fresh.scratch, fresh.len);
        }
        made
    }

    /// Prepares the child's session and replaces the copy of the parent's session with it.
    fn lay_out(
        &self,
        child: Child<'_>,
        image: &RuntimeImage,
        fresh: &Fresh,
        remote: &mut Remote<'_>,
    ) -> Result<Made, SessionError> {
        let Child {
            process: child,
            document,
            shape,
            told,
            room,
        } = child;
        let (scratch, header) = (fresh.scratch, self.segment.header());
        let named = if has_room() {
            Segment::create(child, &shape).ok()
        } else {
            None
        };
        let opened = named.as_ref().and_then(|(segment, _)| {
            let fd = if segment.is_draft() {
                None
            } else {
                open_named(child, remote, scratch, segment)
            };
            if fd.is_none() {
                segment.remove_name();
            }
            fd
        });
        let ((segment, lock), fd) = match (named, opened) {
            (Some(named), Some(fd)) => (named, fd),
            _ => own_file(child, remote, scratch, &shape, None)?,
        };
        let lasting = |segment: &Segment| {
            self.copy_to(segment)?;
            if !segment.add_counters(0, document.edge_counters)? {
                return Err(segment.full().into());
            }
            segment.write_document(&document)?;
            begin_header(segment, header);
            if let Some(room) = &room {
                room.begin(segment.header());
            }
            Ok::<(), SessionError>(())
        };
        let mapped = lasting(&segment).and_then(|()| {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let (locks, at) = (child.locks_memory(), document.segment.start);
            let shared = libc::MAP_SHARED;
            Ok(remote.map_lazily(locks, at, shape.size(), protection, shared, fd as i64)?)
        });
        let closed = close(remote, fd);
        let whole = mapped.and_then(|()| {
            closed?;
            pass(remote, scratch, &[0; 128])?;
            let number = u64::from(child.inner_pid() as u32).to_le_bytes();
            let number_at = self.symbol(SYMBOL_PARAMETERS)?.plus(Parameters::PROCESS);
            let writes = image.writable_writes(document.image.start);
            let table = self.symbol(SYMBOL_ALIVE)?;
            let banks = banks(&segment, document.segment.start, table);
            let writes = writes.into_iter().chain(told.writes).chain(banks);
            for (at, bytes) in writes.chain([(number_at, number.to_vec())]) {
                fresh.write(remote, at, &bytes)?;
            }
            if room.is_some() {
                populate(remote, scratch, fresh.len)?;
            }
            remote.move_over(scratch, fresh.len, fresh.at)?;
            remote.advise(self.symbol(SYMBOL_ALIVE)?, abi::PAGE, libc::MADV_WIPEONFORK)?;
            let paths = self.symbol(SYMBOL_PATHS)?;
            remote.advise(paths, abi::path::SLOTS_BYTES, libc::MADV_WIPEONFORK)?;
            remote.advise(document.segment.start, shape.size(), libc::MADV_DONTFORK)?;
            if room.is_some() {
                populate_first(remote, document.segment.start, &shape)?;
            }
            Ok::<(), SessionError>(())
        });
        if let Err(error) = whole {
            segment.remove_name();
            return Err(error);
        }
        Ok(Made {
            session: Session::begun(child, segment, document),
            lock,
        })
    }

    /// Maps anonymous memory at the segment's address, for a hook that the child returns into. What
    /// the hook writes there is discarded.
    fn leave_room(
        &self,
        child: &Process,
        maps: &[Mapping],
        stopped: &mut Stopped,
    ) -> Result<(), SessionError> {
        let space = Arc::clone(stopped.space());
        let code = CallCode::find(child, maps, space.memory())?;
        let mut remote = Remote::new(&code, stopped)?;
        let Extent { start, len } = self.document.segment;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let locks = child.locks_memory();
        Ok(remote.map_lazily(locks, start, len, protection, anonymous, -1)?)
    }

    /// Returns an error if the child would return into a hook or the runtime: a signal handler that
    /// interrupts one may fork. All of the parent's memory has to stay then.
    fn check_left(&self, stopped: &mut Stopped, own: &[Extent]) -> Result<(), SessionError> {
        let space = Arc::clone(stopped.space());
        let mut stacks = Stacks::of(space.maps()?, own.to_vec());
        let regions = self.document.regions.iter().map(RegionDoc::extent);
        let code: Vec<Extent> = regions.chain([self.document.image]).collect();
        let is_inside = |at: Avma| code.iter().any(|extent| extent.contains(at));
        for thread in stopped.threads() {
            let interrupted = stacks.interrupted(space.memory(), thread.sp());
            if is_inside(thread.pc()) || interrupted.into_iter().any(is_inside) {
                let why = "it was forked by a signal handler that interrupted the recording of a \
                    call";
                return Err(SessionError::Held(why.to_owned()));
            }
        }
        Ok(())
    }

    /// The child's document at its beginning.
    fn document_of_child(&self, child: &Process) -> Document {
        let mut document = Document {
            parent: Some(self.process.pid.0),
            family: self.document.family.or(Some(self.process.id())),
            stops: Vec::new(),
            cpu_begun_ns: child.cpu_time(),
            cpu_ended_ns: None,
            leaving: Vec::new(),
            leaving_mark: String::new(),
            ..self.document.clone()
        };
        for metric in &mut document.metrics {
            metric.since_ns = None;
        }
        for function in &mut document.functions {
            function.since_ns = None;
            (function.out_ns, function.away_ns) = (function.out_ns.map(|_| 0), 0);
            if let Some(throttled) = &mut function.throttled {
                throttled.since_ns = 0;
            }
        }
        document
    }

    /// Copies the journal and the tables into the child's segment.
    fn copy_to(&self, segment: &Segment) -> Result<(), SessionError> {
        let (from, to) = (self.segment.header(), segment.header());
        let entries = self
            .segment
            .used(AREA_JOURNAL, from.journal_used.load(Acquire));
        let bytes = self
            .segment
            .used(AREA_TABLES, from.tables_used.load(Acquire));
        let parts = [
            (AREA_JOURNAL, entries * size_of::<JournalEntry>() as u64),
            (AREA_TABLES, bytes),
        ];
        for (area, len) in parts {
            if !self.segment.copy_area(area, len, segment)? {
                return Err(segment.full().into());
            }
        }
        to.journal_used.store(entries, Relaxed);
        to.tables_used.store(bytes, Relaxed);
        Ok(())
    }

    /// Reads the runtime's configuration from a child's memory.
    fn told(&self, memory: &Memory) -> Result<Told, SessionError> {
        let rows = 8 * self.document.functions.len();
        let mut symbols = vec![
            (SYMBOL_PARAMETERS, size_of::<Parameters>()),
            (SYMBOL_PROBES, rows),
            (SYMBOL_DETAILS, rows),
            (SYMBOL_SCHEMAS, MAX_SCHEMAS * size_of::<Schema>()),
            (SYMBOL_COUNTERS, source::COUNTERS * size_of::<Event>()),
            (SYMBOL_EPOCH, size_of::<u64>()),
            (SYMBOL_COSTS, abi::image::COSTS * size_of::<u64>()),
        ];
        if self.document.is_filtered {
            symbols.push((SYMBOL_FILTERS, MOST_RANGES * size_of::<FilterRange>()));
        }
        if self.document.trap_handler {
            symbols.push((SYMBOL_TRAPS, TRAP_BUCKETS * size_of::<Trap>()));
            symbols.push((SYMBOL_TRAP_ACTIONS, size_of::<TrapActions>()));
        }
        let mut writes = Vec::new();
        for (symbol, len) in symbols {
            let at = self.symbol(symbol)?;
            writes.push((at, read(memory, at, len)?));
        }
        let at = Parameters::MAX_PATHS as usize;
        let word = writes[0].1[at..at + 8].try_into();
        Ok(Told {
            max_paths: word.map_or(0, u64::from_le_bytes),
            writes,
        })
    }
}

/// A child that will get a session.
struct Child<'p> {
    process: &'p Process,
    document: Document,
    shape: Shape,
    told: Told,
    room: Option<Room>,
}

/// The new memory for the runtime's writable part, while it is still at a scratch address.
struct Fresh {
    /// The scratch address.
    scratch: Avma,
    /// The final address.
    at: Avma,
    /// The length in bytes.
    len: u64,
}

impl Fresh {
    /// The scratch address of the byte whose final address is `at`.
    fn place(&self, at: Avma) -> Result<Avma, SessionError> {
        let offset = at.0.checked_sub(self.at.0).filter(|&n| n < self.len);
        let offset = offset.ok_or(SegmentError::Corrupt("image"))?;
        Ok(self.scratch.plus(offset))
    }

    /// Writes the pages of `bytes` that are not all zero. The memory is zero already, and large
    /// tables are almost entirely zero.
    fn write(&self, remote: &Remote<'_>, at: Avma, bytes: &[u8]) -> Result<(), SessionError> {
        let pieces = bytes.chunks(abi::PAGE as usize).zip(0..);
        for (piece, index) in pieces.filter(|(piece, _)| piece.iter().any(|&byte| byte != 0)) {
            pass(remote, self.place(at.plus(index * abi::PAGE))?, piece)?;
        }
        Ok(())
    }
}

/// A session that does not count yet.
struct Made {
    session: Session,
    lock: Lock,
}

/// The part of its parent's session that a child has inherited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inherited {
    /// The child has inherited all memory and patches that the document lists.
    All,
    /// At most memory of the session: no text was patched yet.
    Unpatched,
    /// Only some of the patches: functions were added or removed during the fork.
    Part,
}

/// The configuration that [`Session::told`] reads.
struct Told {
    /// The maximum number of distinct paths.
    max_paths: u64,
    /// The contents of the runtime's variables, by run-time address.
    writes: Vec<(Avma, Vec<u8>)>,
}

/// Fills in the header of a child's segment, which no other process can see yet.
fn begin_header(segment: &Segment, of_parent: &abi::segment::Header) {
    let header = segment.header();
    clock::start(header);
    header.started_unix_ns.store(clock::unix_ns(), Relaxed);
    let copied = [
        (&header.clock_hz, &of_parent.clock_hz),
        (&header.call_cost, &of_parent.call_cost),
    ];
    for (to, from) in copied {
        to.store(from.load(Relaxed), Relaxed);
    }
    let _ = header
        .state
        .compare_exchange(STATE_SETUP, STATE_ACTIVE, Release, Relaxed);
}

/// Enables the hooks of a child. The memory must be mapped as the document says.
fn begin_in_child(locked: &mut Locked<'_>) -> Result<(), SessionError> {
    let space = Arc::clone(&locked.space);
    let maps = space.maps()?;
    if locked.segment_in(&maps).is_none() {
        return Err(SegmentError::Corrupt("mappings").into());
    }
    let image = locked.document.image;
    if !locked.own.admit(&maps, image) {
        return Err(SegmentError::Corrupt("mappings").into());
    }
    // The runtime may wait for the command before the command has had time to look.
    if locked.document.is_waited_in() {
        locked.note_watched(AT_FIRST);
    }
    let alive = locked.symbol(SYMBOL_ALIVE)?;
    locked.write_own(&[(alive, ALIVE.to_le_bytes().to_vec())])
}

impl Session {
    /// The part of this session that a child has inherited, judged by its maps and its text.
    fn inherited(&self, child: &Space) -> Result<Inherited, SessionError> {
        let (maps, memory) = (child.maps()?, child.memory());
        let is_mapped = self.parts().all(|extent| is_anonymous(&maps, extent));
        let journal = Journal(&self.segment);
        let (mut patched, mut is_right) = (false, true);
        // Exchanged counters may have the same short jump to another trampoline's landing.
        let are_in = self.document.functions.iter().filter(|f| f.is_in());
        let are_in = are_in.flat_map(|f| f.sites_in().iter().flat_map(|site| &site.patches));
        let are_in = are_in.map(|&patch| journal.patch(patch).map(|patch| (patch.at, patch.new)));
        let are_in: HashSet<(Avma, Vec<u8>)> = are_in.collect::<Result<_, _>>()?;
        for function in &self.document.functions {
            let inside = if function.is_in() {
                function.sites_in().len()
            } else {
                0
            };
            for (index, site) in function.sites.iter().enumerate() {
                for &patch in &site.patches {
                    let patch = journal.patch(patch)?;
                    let is_to_be_in = index < inside;
                    if !is_to_be_in && are_in.contains(&(patch.at, patch.new.clone())) {
                        continue;
                    }
                    let now = read(memory, patch.at, patch.new.len());
                    // Other patches may have been laid out for the same bytes. Patches in unloaded
                    // libraries count as out.
                    let is_in = now.is_ok_and(|now| now == patch.new);
                    patched |= is_in && patch.new != patch.old;
                    is_right &= is_in == is_to_be_in;
                }
            }
        }
        Ok(match (is_mapped && is_right, patched) {
            (true, _) => Inherited::All,
            (false, false) => Inherited::Unpatched,
            (false, true) => Inherited::Part,
        })
    }

    /// The memory that children inherit: the runtime's image and the regions that are ready.
    fn parts(&self) -> impl Iterator<Item = Extent> {
        let regions = self.document.regions.iter().filter(|r| r.ready);
        regions.map(RegionDoc::extent).chain([self.document.image])
    }

    /// Unmaps the inherited memory of this session in a child whose text is unpatched.
    fn take_out_of(&self, child: &Process, stopped: &mut Stopped) -> Result<(), SessionError> {
        let space = Arc::clone(stopped.space());
        let maps = space.maps()?;
        let regions = self.document.regions.iter().map(RegionDoc::extent);
        let parts = regions.chain([self.document.image]);
        let there: Vec<Extent> = parts
            .filter(|&extent| is_anonymous(&maps, extent))
            .collect();
        self.check_left(stopped, &[])?;
        let code = CallCode::find(child, &maps, space.memory())?;
        unmap(&code, stopped, &there)
    }

    /// Mappings that the runtime made in the parent, read from the child's memory. Those inside the
    /// image are left out, and pages of perf events are not inherited.
    fn mapped_by_runtime(&self, memory: &Memory) -> Result<Vec<Extent>, SessionError> {
        let mut own = self.own_mappings(memory)?;
        let image = self.document.image;
        own.retain(|m| !image.contains(m.start));
        Ok(own)
    }
}
