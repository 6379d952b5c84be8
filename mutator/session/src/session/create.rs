//! Making a session. The target's own system calls, made on a stopped thread, map the runtime and
//! the segment. They are filled from outside.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};

use abi::image::{
    ALIVE, BY_CALLERS, BY_WALK, Parameters, SYMBOL_ALIVE, SYMBOL_FILTERS, SYMBOL_PARAMETERS,
    TICKS_SHIFT,
};
use abi::schema::{SCHEMA_COUNT, SCHEMA_WALL};
use abi::segment::STATE_ACTIVE;
use patcher::plan::Effects;

use super::end::unmap_in;
use super::execute::AT_START;
use super::locked::Locked;
use super::map_in::{ControlBlock, Placed, Ready, ThreadPointer, map_in};
use super::memory::Room;
use super::pending::{AT_FIRST, note_met};
use super::quiet::{populate_columns, reserve_after};
use super::tables::prepare_all;
use super::under::Filters;
use super::values::WantedValues;
use super::{Changed, Ended, Selected, Session, SessionError, VERIFY, filters, quiet};
use crate::apart::By;
use crate::condition::{Condition, Operand};
use crate::metric::Metric;
use crate::mpi;
use crate::runtime_image::RuntimeImage;
use crate::segment::{Document, MetricDoc, PendingDoc, SchemaDoc, SegmentError, Shape, has_room};
use ipath_profile::clock::{self, ExitClock};
use ipath_symbols::images;
use ipath_symbols::values::Item;
use ipath_target::fault_injection::{look, step};
use ipath_target::priority::Priority;
use ipath_target::process::modules::Module;
use ipath_target::process::{Extent, Process, host, read_text};
use ipath_target::tracee::{Stopped, tracing};

/// Parameters of a new session.
#[derive(Clone, Debug)]
pub struct Options {
    /// The metrics besides the count.
    pub metrics: Vec<Metric>,
    /// The condition that a call must meet to count. `None` if all calls count.
    pub condition: Option<Condition>,
    /// The value by which calls of one path are kept apart. `None` if there is none.
    pub by: Option<By>,
    /// Nanoseconds from which on a call is kept apart from others of its path. `None` if none is.
    pub slower_ns: Option<u64>,
    /// The number of slowest calls to keep of each function on each thread; 0 if none are kept.
    pub slowest: u64,
    /// The number of last calls to keep of each function on each thread; 0 if none are kept.
    pub traced: u64,
    /// Patterns of functions whose calls are phases.
    pub phases: Vec<String>,
    /// Patterns of functions that a path must pass through, in this order from the root.
    pub under: Vec<String>,
    /// Patterns of functions that a path must not pass through.
    pub not_under: Vec<String>,
    /// The limit on the number of values and phases of one path.
    pub max_values: u64,
    /// The limit on the number of distinct paths.
    pub max_paths: u64,
    /// The number of innermost callers that a path keeps; 0 for all.
    pub depth: u64,
    /// True if paths consist of measured functions only.
    pub callers_only: bool,
    /// True to fold recursion.
    pub collapse_recursion: bool,
    /// True to keep paths apart by thread.
    pub per_thread: bool,
    /// True to leave the cost of measuring in the times.
    pub no_correction: bool,
    /// How exits read the clock.
    pub exit_clock: ExitClock,
    /// True if the runtime must make no system call, even if no seccomp filter is seen.
    pub no_system_calls: bool,
    /// The id of the parent process. `None` unless this one is followed.
    pub parent: Option<i32>,
    /// The first of the processes that are measured as one. `None` if this one is measured alone.
    pub family: Option<Process>,
    /// Patterns that wait for libraries.
    pub pending: Vec<String>,
    /// The requested functions, as they were named.
    pub named: Vec<String>,
    /// Notify the command before the program executes another one. Without following, no other
    /// event reports this.
    pub tells_of_execs: bool,
    /// Notify the command before the process exits: it contains LeakSanitizer, and it is traced.
    pub tells_of_exits: bool,
    /// Permits calls in the target for which a seccomp filter may end it.
    pub allow_seccomp: bool,
}

/// The default limit on distinct paths.
pub const MAX_PATHS: u64 = 65_536;

/// The default limit on the values and phases of one path.
pub const MAX_VALUES: u64 = 1024;

/// The defaults count calls by their whole paths.
impl Default for Options {
    fn default() -> Self {
        Self {
            metrics: Vec::new(),
            condition: None,
            by: None,
            slower_ns: None,
            slowest: 0,
            traced: 0,
            phases: Vec::new(),
            under: Vec::new(),
            not_under: Vec::new(),
            max_values: MAX_VALUES,
            max_paths: MAX_PATHS,
            depth: 0,
            callers_only: false,
            collapse_recursion: false,
            per_thread: false,
            no_correction: false,
            exit_clock: ExitClock::default(),
            no_system_calls: false,
            parent: None,
            family: None,
            pending: Vec::new(),
            named: Vec::new(),
            tells_of_execs: true,
            tells_of_exits: false,
            allow_seccomp: false,
        }
    }
}

impl Options {
    /// The values of a call that the metrics and the condition need.
    pub fn items(&self) -> WantedValues {
        let of = |metric: &Metric| match metric {
            Metric::Value(item) => Some(*item),
            _ => None,
        };
        let condition = self.condition.as_ref().map(Condition::operand);
        let compared = condition.and_then(|operand| match operand {
            Operand::Item(item) => Some(item),
            Operand::Timer(_) => None,
        });
        let by = self.by.as_ref().map(By::item);
        let mut items: Vec<Item> = self.metrics.iter().filter_map(of).collect();
        for item in compared.into_iter().chain(by) {
            if !items.contains(&item) {
                items.push(item);
            }
        }
        WantedValues::of(items, self.by.as_ref()).and_all(self.keeps_single())
    }

    /// True if single calls are kept.
    fn keeps_single(&self) -> bool {
        self.slowest > 0 || self.traced > 0
    }

    /// Returns an error if the metrics need system calls, which the runtime must not make here.
    fn check_quiet(&self) -> Result<(), SessionError> {
        let timer = self.condition.as_ref().and_then(|c| match c.operand() {
            Operand::Timer(timer) => Metric::named(timer.name()),
            Operand::Item(_) => None,
        });
        if let Some(by) = self.by.as_ref().filter(|by| by.needs_system_calls()) {
            return Err(SessionError::NeedsSystemCalls(by.to_string()));
        }
        let mut all = self.metrics.iter().cloned().chain(timer);
        match all.find(|metric| metric.needs_system_calls()) {
            Some(metric) => Err(SessionError::NeedsSystemCalls(metric.name())),
            None => Ok(()),
        }
    }

    /// The probe points that the metrics need.
    pub fn wanted(&self) -> Effects {
        Effects {
            entry: true,
            exits: self.metrics.iter().any(|metric| metric.needs_exits())
                || self.condition.as_ref().is_some_and(Condition::needs_exits)
                || self.by.as_ref().is_some_and(By::needs_exits)
                || self.slower_ns.is_some()
                || self.keeps_single(),
        }
    }
}

/// The state of the target when the session is made.
pub enum Where<'s> {
    /// The target runs, and is stopped for the moments that need it.
    Running,
    /// The caller has stopped the target, and it stays stopped.
    Stopped(&'s mut Stopped),
}

impl Selected {
    /// Reads the data that a session needs from the files, so that making it takes less time.
    pub fn prepare(&self) {
        prepare_all(&self.modules);
        look("prepared");
    }
}

impl Session {
    /// Makes a session in a process and instruments the selected functions. Also returns the report
    /// of the change.
    ///
    /// # Errors
    /// The session cannot be made, or every function is refused. Whatever was mapped or patched is
    /// then removed. If that fails too, parts of the session stay in the process.
    pub fn create(
        process: &Process,
        options: &Options,
        selected: Selected,
        state: Where<'_>,
    ) -> Result<(Self, Changed), SessionError> {
        let space = Arc::clone(&selected.space);
        let made = match state {
            Where::Running => tracing(|| Self::make(process, options, selected, None)),
            Where::Stopped(stopped) => Self::make(process, options, selected, Some(stopped)),
        };
        made.map_err(|error| error.unless_gone(&space))
    }

    fn make(
        process: &Process,
        options: &Options,
        selected: Selected,
        mut stopped: Option<&mut Stopped>,
    ) -> Result<(Self, Changed), SessionError> {
        let Selected {
            space,
            modules,
            selection,
        } = selected;
        let hz = clock::frequency();
        // Before the priority is raised and before the lock is taken.
        prepare_all(&modules);
        let _priority = Priority::raise();
        let image = RuntimeImage::built_in().map_err(SessionError::Image)?;
        let mut document = document(process, options, hz)?;
        let columns = document.schemas.iter().map(|schema| schema.columns.len());
        let shape = Shape {
            max_paths: options.max_paths,
            columns: Shape::with_spare(columns.max().unwrap_or(0)),
            keeps_single: options.keeps_single(),
        };
        document.runtime = image.document();
        if !options.allow_seccomp && filters::may_end(process) {
            return Err(SessionError::MayBeEnded);
        }
        document.quiet = quiet::is_needed(process)? || options.no_system_calls;
        if document.quiet {
            options.check_quiet()?;
        }
        let is_followed = options.family.is_some();
        let filters = Filters::of(&options.under, &options.not_under, &modules, is_followed)?;
        let reserve = if document.quiet {
            quiet::reserve(process)
        } else {
            0
        };
        let room = Room::find(process, image.size, options.max_paths)?;
        document.notes.extend(room.as_ref().and_then(Room::note));
        let ready = Ready {
            process,
            space: &space,
            image,
            shape: &shape,
            reserve,
            is_bounded: room.is_some(),
            has_room: has_room(),
        };
        let Placed {
            segment,
            lock,
            draft,
            control_block,
            stop,
        } = map_in(&ready, &mut document, stopped.as_deref_mut())?;
        if let Some(room) = &room {
            room.begin(segment.header());
        }
        let mut session = Self::begun(process, segment, document);
        let mut locked = Locked::new(&mut session, space, lock);
        if let Some(duration) = stop {
            locked.note_stop(AT_START, duration);
        }
        let parameters = locked.parameters(options, hz, &modules, control_block);
        if let Some(state) = images::loader_state(process, locked.space.memory(), &modules) {
            parameters.loader_state.store(state.0, Relaxed);
        }
        parameters.filters.store(filters.len(), Relaxed);
        parameters
            .checks_stacks
            .store(u64::from(filters.len() > 0), Relaxed);
        parameters.filter_items.store(filters.items.into(), Relaxed);
        let filled = fill_image(&mut locked, image, hz, &parameters, &filters);
        let result = filled.and_then(|()| {
            if let Some((draft, _lock)) = &draft {
                draft.remove_name();
            }
            let met = selection.met_texts(&options.pending);
            note_met(&mut locked.document, &met);
            let changed = locked.add(AT_START, &modules, selection, stopped.as_deref_mut())?;
            if !options.pending.is_empty() {
                locked.document.check_awaits()?;
                // Libraries may have been loaded since the patterns were looked up.
                locked.segment.note_load();
            }
            if locked.document.is_waited_in() {
                // The creator of the session watches from now on.
                locked.note_watched(AT_FIRST);
            }
            locked.note_written();
            Ok(changed)
        });
        let result = result.inspect_err(|_| {
            let is_followed = stopped.is_some();
            let ended = match stopped {
                Some(stopped) => unmap_in(&mut locked, stopped).map(|()| Ended::Detached),
                None => locked.end(),
            };
            // The first error is the one to report. The name goes if the program is gone. It also
            // goes if the process is followed, because no command would detach it later.
            if locked.or_gone(ended).is_err() && is_followed {
                locked.segment.remove_name();
            }
        });
        drop(locked);
        result.map(|changed| (session, changed))
    }
}

/// Threads without a C library and without system calls are described in the limits.
const SAME_THREADS: &str = "threads that reuse the memory of ended ones are counted as those: \
    telling them apart needs system calls";

/// Writes the runtime and its parameters. None of it runs yet.
fn fill_image(
    locked: &mut Locked<'_>,
    image: &RuntimeImage,
    hz: u64,
    parameters: &Parameters,
    filters: &Filters,
) -> Result<(), SessionError> {
    let Extent { start: base, .. } = locked.document.image;
    let maps = locked.space.maps()?;
    if !locked.own.admit(&maps, locked.document.image) {
        return Err(SegmentError::Corrupt("mappings").into());
    }
    if locked.document.quiet {
        let Extent { start, len } = reserve_after(&locked.document, image.size);
        parameters.system_calls.store(0, Relaxed);
        parameters.reserve.store(start.0, Relaxed);
        parameters.reserve_len.store(len, Relaxed);
        quiet::populate(&locked.process, &locked.segment, parameters)?;
        if parameters.threads_apart.load(Relaxed) != 0 && parameters.tid_offset.load(Relaxed) < 0 {
            locked.document.notes.push(SAME_THREADS.to_owned());
        }
    }
    locked.view().publish_maps()?;
    let at = |symbol| image.address(base, symbol).map_err(SessionError::Image);
    let mut writes = image.writes(base, locked.document.exit_clock);
    writes.push((at(SYMBOL_PARAMETERS)?, bytes_of(parameters)));
    if filters.len() > 0 {
        writes.push((at(SYMBOL_FILTERS)?, filters.bytes()));
    }
    for (symbol, bytes) in locked.document.tables_of_schemas() {
        writes.push((at(symbol)?, bytes));
    }
    writes.push((at(SYMBOL_ALIVE)?, ALIVE.to_le_bytes().to_vec()));
    locked.write_own(&writes)?;
    populate_columns(locked)?;
    let header = locked.segment.header();
    clock::start(header);
    header.started_unix_ns.store(clock::unix_ns(), Relaxed);
    header.clock_hz.store(hz, Relaxed);
    locked.segment.write_document(&locked.document)?;
    header.state.store(STATE_ACTIVE, Release);
    step("state active");
    Ok(())
}

impl Session {
    /// The parameters of the runtime, as the session begins.
    fn parameters(
        &self,
        options: &Options,
        hz: u64,
        modules: &[Module],
        control_block: ControlBlock,
    ) -> Parameters {
        /// The loader's entry code calls the constructors. glibc's is 70 bytes long.
        const ENTRY_CODE: u64 = 128;
        const NS: u128 = 1_000_000_000;
        let process = &self.process;
        let root = images::loader(process, modules).and_then(|module| {
            let image = images::of_module(module).ok()?;
            Some(module.bias(image.image())?.to_avma(image.image().entry()).0)
        });
        Parameters {
            segment: self.document.segment.start.0.into(),
            process: (process.inner_pid() as u64).into(),
            max_paths: options.max_paths.into(),
            depth: options.depth.into(),
            path: (if options.callers_only {
                BY_CALLERS
            } else {
                BY_WALK
            })
            .into(),
            folds: u64::from(options.collapse_recursion).into(),
            filters: 0.into(),
            checks_stacks: 0.into(),
            filter_items: 0.into(),
            max_values: options.max_values.into(),
            slowest: options.slowest.into(),
            traced: options.traced.into(),
            distrust: u64::from(std::env::var_os(VERIFY).is_some_and(|v| v == "distrust")).into(),
            tid_offset: control_block.tid_offset.unwrap_or(-1).into(),
            reads_tp: u32::from(control_block.thread_pointer == ThreadPointer::Register).into(),
            may_read_tp: u32::from(control_block.may_read).into(),
            system_calls: 1.into(),
            awaits_libraries: u32::from(!options.pending.is_empty()).into(),
            threads_apart: u32::from(options.per_thread).into(),
            loader_state: 0.into(),
            corrects: (if options.no_correction { 0 } else { u64::MAX }).into(),
            scale: clock::scale_to_ns(hz).0.into(),
            ticks_per_ns: (((u128::from(hz)) << TICKS_SHIFT).div_ceil(NS) as u64).into(),
            root_start: root.unwrap_or(0).into(),
            root_end: root.map_or(0, |r| r + ENTRY_CODE).into(),
            reserve: 0.into(),
            reserve_len: 0.into(),
            room: room(self.document.segment.len).into(),
            populated: std::array::from_fn(|_| 0.into()),
        }
    }
}

/// The value of [`Parameters::room`]: 0 if the kernel counts memory that has never been written to
/// (vm.overcommit_memory 2, Documentation/mm/overcommit-accounting.rst).
fn room(segment: u64) -> u64 {
    let counts = read_text("/proc/sys/vm/overcommit_memory").is_ok_and(|mode| mode.trim() == "2");
    if counts { 0 } else { segment }
}

/// The document of a new session without functions. `hz` is the frequency of the time-stamp
/// counter.
fn document(process: &Process, options: &Options, hz: u64) -> Result<Document, SessionError> {
    let metrics = vec![MetricDoc {
        name: "count".into(),
        unit: "calls".into(),
        since_ns: None,
        mult: 1,
        shift: 0,
        is_value: false,
    }];
    let mut notes = Vec::new();
    if options.collapse_recursion {
        notes.push("recursion is collapsed: each call site appears once on a path".to_owned());
    }
    if options.callers_only {
        notes.push("paths consist of measured functions only".to_owned());
    }
    if let Some(condition) = &options.condition {
        notes.push(format!("only calls with {condition} are counted"));
    }
    let through = [("under", &options.under), ("not under", &options.not_under)];
    for (how, named) in through.into_iter().filter(|(_, named)| !named.is_empty()) {
        notes.push(format!("only calls {how} {} are counted", named.join(", ")));
    }
    let mut document = Document {
        exe: process
            .exe()
            .map(|e| e.display().to_string())
            .unwrap_or_default(),
        args: process.args(),
        host: host(),
        rank: mpi::rank_of(process),
        parent: options.parent,
        family: options.family.as_ref().map(Process::id),
        pending: options
            .pending
            .iter()
            .map(|text| PendingDoc::of(text))
            .collect(),
        named: options.named.clone(),
        tells_of_execs: options.tells_of_execs,
        tells_of_exits: options.tells_of_exits,
        metrics,
        notes,
        by: options.by.as_ref().map(By::to_string),
        slower_ns: options.slower_ns,
        slowest: options.slowest,
        traced: options.traced,
        phases: options.phases.clone(),
        is_filtered: !options.under.is_empty() || !options.not_under.is_empty(),
        depth: options.depth,
        callers_only: options.callers_only,
        collapsed: options.collapse_recursion,
        per_thread: options.per_thread,
        is_uncorrected: options.no_correction,
        exit_clock: options.exit_clock,
        cpu_begun_ns: process.cpu_time(),
        ..Document::default()
    };
    // The two schemas whose numbers the runtime knows.
    for (metrics, number) in [(&[][..], SCHEMA_COUNT), (&[Metric::Wall], SCHEMA_WALL)] {
        let given = document.number_of(SchemaDoc::of(metrics, None, hz, &[])?)?;
        debug_assert_eq!(given, number);
    }
    document.schema = document.measure(&options.metrics, options.condition.as_ref(), hz)?;
    let keeps_single = options.keeps_single();
    if options.by.is_some() || options.slower_ns.is_some() || keeps_single {
        let mut schema = document.schemas[usize::from(document.schema)].clone();
        schema.keep_apart(options.by.as_ref(), options.slower_ns, hz);
        if keeps_single {
            schema.keep_single();
        }
        document.schema = document.number_of(schema)?;
    }
    Ok(document)
}

/// The parameters as bytes.
fn bytes_of(parameters: &Parameters) -> Vec<u8> {
    let at: *const Parameters = parameters;
    // SAFETY: the type is repr(C) without padding (abi asserts its size) and every bit of it is
    // initialized; it is ours alone.
    unsafe { std::slice::from_raw_parts(at.cast::<u8>(), size_of::<Parameters>()) }.to_vec()
}
