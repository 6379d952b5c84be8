//! Counters at other places, once the counts show which edges are taken seldom.
//!
//! Counters come in where edges are expected to be taken seldom. Soon the counts tell how often
//! they are. If others would run less often, the counters are exchanged in one stop, in a moment in
//! which no thread is in the function outside of calls. So every transfer is counted either by the
//! old counters or by the new ones. Both are parts of the counts ([`InsideDoc::layouts`]). The
//! sum of a path depends on the places of the hooks, so the sums of all activations change with
//! them, by the calls in which these are.
//!
//! [`InsideDoc::layouts`]: crate::segment::InsideDoc::layouts

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::thread::{Thread, park_timeout, sleep};
use std::time::{Duration, Instant};

use abi::count::MOST_COUNTERS;
use patcher::Svma;
use patcher::flow::Flow;
use patcher::inside::{Inside, NeverReturning};

use super::copies;
use super::counted::{Counted, Wanted};
use super::decide::decide;
use super::enter::prepare;
use super::locked::Locked;
use super::pointed::Pointed;
use super::relaid::{function_of, rows_alone};
use super::rows::follows_goroutines;
use super::slots::{AtCall, Moved, at_calls};
use super::stack_scan::Stacks;
use super::write::{Part, switch};
use super::{Changed, Selection, Session, SessionError, allowed};
use crate::segment::{FunctionDoc, Role, SiteDoc, State};
use ipath_target::process::modules::{Module, modules};
use ipath_target::process::{Process, Space};
use ipath_target::tracee::{Stopped, pause};

/// The time between two looks at the document, and the age of counters at the first look at their
/// counts. The later looks at them are when they are 4, 16, 64, ... times as old.
const PERIOD: Duration = Duration::from_millis(250);
/// The most looks at the counts of a function.
const LOOKS: u32 = 5;
/// The least number of runs that other counters would have saved. An exchange costs the program
/// some milliseconds, as do so many runs.
const WORTH: u64 = 1_000_000;
/// Other counters must save one in this many runs.
const SHARE: u64 = 8;
/// The most stops in search of a moment in which no thread is in the function.
const STOPS: usize = 12;
/// The most time in these stops.
const MOST_STOPPED: Duration = Duration::from_millis(20);
/// The reason for a stop in which counters were exchanged.
const EXCHANGED: &str = "counters";
/// The reason for a stop in which they could not be.
const BUSY: &str = "counters (busy)";
/// The time that threads run between two of them.
const PAUSE: Duration = Duration::from_millis(3);

/// A thread that exchanges counters. It ends when this is dropped, but not in the middle of an
/// exchange.
pub(super) struct Exchanging {
    state: Arc<ExchangeState>,
    thread: Option<Thread>,
}

#[derive(Default)]
struct ExchangeState {
    is_over: AtomicBool,
    is_changing: AtomicBool,
}

impl ExchangeState {
    fn is_over(&self) -> bool {
        self.is_over.load(SeqCst)
    }
}

/// While it exists, the end of the exchange is awaited.
struct Changing<'s>(&'s ExchangeState);

impl<'s> Changing<'s> {
    fn begin(state: &'s ExchangeState) -> Self {
        state.is_changing.store(true, SeqCst);
        Self(state)
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.0.is_changing.store(false, SeqCst);
    }
}

impl Exchanging {
    /// Starts the thread. Without it, the counters stay where they are.
    pub(super) fn begin(process: &Process) -> Self {
        let state = Arc::new(ExchangeState::default());
        let (process, own) = (process.clone(), Arc::clone(&state));
        let work = move || exchange_until_over(&process, &own);
        let thread = std::thread::Builder::new().name("counters".into());
        let thread = thread.spawn(work).ok();
        Self {
            state,
            thread: thread.map(|thread| thread.thread().clone()),
        }
    }
}

impl Drop for Exchanging {
    fn drop(&mut self) {
        self.state.is_over.store(true, SeqCst);
        if let Some(thread) = &self.thread {
            thread.unpark();
        }
        // The thread itself is not awaited: it may wait for this one, if this one traces.
        while self.state.is_changing.load(SeqCst) {
            sleep(PAUSE);
        }
    }
}

fn exchange_until_over(process: &Process, state: &ExchangeState) {
    let Ok(session) = Session::open_to_change(process) else {
        return;
    };
    let mut looks = Looks {
        session,
        seen: HashMap::new(),
        state,
    };
    let mut last = Instant::now();
    while !state.is_over() {
        park_timeout(PERIOD.saturating_sub(last.elapsed()));
        if last.elapsed() < PERIOD {
            continue;
        }
        if looks.look().is_err_and(|error| error.is_end()) {
            return;
        }
        last = Instant::now();
    }
}

/// The looks at the counts of functions.
struct Looks<'s> {
    session: Session,
    /// When each row was first seen with its counters in, and the number of looks since then.
    seen: HashMap<usize, (Instant, u32)>,
    state: &'s ExchangeState,
}

impl Looks<'_> {
    fn look(&mut self) -> Result<(), SessionError> {
        self.session.refresh()?;
        for id in self.due() {
            // Another command may hold the lock, or another tool trace the process.
            let done = match self.session.better(id) {
                Ok(Some(better)) => self.session.exchange(id, better, self.state),
                other => other.map(drop),
            };
            if let Err(error) = done
                && error.is_end()
            {
                return Err(error);
            }
        }
        Ok(())
    }

    /// The rows whose counts are to be looked at now.
    fn due(&mut self) -> Vec<usize> {
        let functions = self.session.document.functions.iter().enumerate();
        let can_change = functions.filter(|(_, f)| {
            let inside = f.inside.as_deref();
            let is_plain = inside.is_some_and(|inside| {
                // The counters of paths go on only if no counters of edges precede them.
                let is_one_kind = inside.paths.is_none() || inside.counted.is_empty();
                let is_first = !inside.by_counts && inside.earlier.is_empty();
                is_first && is_one_kind && inside.trips.is_none()
            });
            f.role == Role::Edges && f.is_in() && is_plain
        });
        let mut due = Vec::new();
        for (id, _) in can_change {
            let (since, looks) = self.seen.entry(id).or_insert((Instant::now(), 0));
            if *looks < LOOKS && since.elapsed() >= PERIOD * 4_u32.pow(*looks) {
                *looks += 1;
                due.push(id);
            }
        }
        due
    }
}

/// Better counters for a function.
struct Better {
    space: Arc<Space>,
    modules: Vec<Module>,
    /// The carrier of the present counters.
    carrier: usize,
    /// The number of the first of the present counters.
    first: u32,
    /// The calls, if the paths are counted.
    calls: Vec<AtCall>,
    selection: Selection,
}

impl Session {
    /// Counters for row `id` that would run less often than the present ones. `None` if that would
    /// not pay, or if the function is also measured in another way.
    fn better(&self, id: usize) -> Result<Option<Better>, SessionError> {
        let row = &self.document.functions[id];
        let Some((carrier, inside)) = row.carried_by.zip(row.inside.as_deref()) else {
            return Ok(None);
        };
        let Some(relaid) = rows_alone(&self.document, id) else {
            return Ok(None);
        };
        let transfers = self.segment.transfers(inside);
        let transfers =
            transfers.filter(|all| all.iter().copied().fold(0, u64::saturating_add) >= WORTH);
        let Some(transfers) = transfers else {
            return Ok(None);
        };
        let space = Arc::new(Space::open(&self.process)?);
        let modules = modules(&self.process, &space.maps()?);
        let Some((origin, function)) = function_of(&self.document, &modules, row) else {
            return Ok(None);
        };
        let image = Arc::clone(&origin.image);
        let mut calls = NeverReturning::default();
        let code = Inside::of(image.image(), image.context(), &function, &mut calls);
        // The runtime of Go parks goroutines at any instruction.
        let is_go = code.as_ref().is_ok_and(|code| code.flow.is_go());
        if is_go || follows_goroutines(&self.document) {
            return Ok(None);
        }
        let counted = |measured: Option<&[u64]>| {
            let of = (row.name.clone(), Wanted::of(row));
            Counted::of(&image, &function, code.as_ref(), of, measured)
        };
        let (present, mut other) = (counted(None), counted(Some(&transfers)));
        let (runs, least) = (present.runs(&transfers), other.runs(&transfers));
        let saved = runs.saturating_sub(least);
        let is_same_graph = other.inside.edges == inside.edges;
        // The counters of edges are new ones. Room is left for other functions.
        let taken = self
            .document
            .edge_counters
            .saturating_add(other.inside.counters());
        let has_room = other.inside.counted.is_empty() || u64::from(taken) <= MOST_COUNTERS / 2;
        if !is_same_graph || !has_room || other.refused.is_some() || saved < WORTH.max(runs / SHARE)
        {
            return Ok(None);
        }
        let at = (origin.bias, &function);
        let Some(calls) = at_calls(&image, at, &present, &other) else {
            return Ok(None);
        };
        if let Ok(code) = &code {
            other.arrivals = self.ways_back(id, &code.flow);
            let copies = present.regions.iter().flat_map(|region| region.exits());
            other.arrivals.extend(copies);
        }
        let allowed = allowed(&self.process, &modules, false);
        let place = (origin.module, origin.image, origin.bias);
        let mut pointed = Pointed::none_in(place, function, allowed);
        pointed.counted = Some(other);
        let mut candidate = pointed.carrier();
        if candidate.refused().is_some() || candidate.drop_counters().is_some() {
            return Ok(None);
        }
        candidate.relaid = Some(relaid);
        Ok(Some(Better {
            space,
            modules,
            carrier,
            first: inside.first,
            calls,
            selection: Selection::of(vec![candidate], allowed),
        }))
    }

    /// The addresses at which control leaves the trampolines in a function, other than from copies:
    /// those that are in, and old ones, in which a saved context may be.
    fn ways_back(&self, id: usize, flow: &Flow) -> Vec<Svma> {
        let Some(place) = self.document.place_of(&self.document.functions[id]) else {
            return Vec::new();
        };
        let functions = self.document.functions.iter();
        let here = functions.filter(|f| self.document.place_of(f) == Some(place));
        let sites = here.flat_map(|f| &f.sites);
        let ways = sites.flat_map(|site| {
            let [start, end] = [site.window.start, site.window.end].map(|at| place.0.to_svma(at));
            let first = flow.insns.partition_point(|insn| insn.at() < start.0);
            let own = flow.insns[first..].iter();
            let own = own.take_while(move |insn| insn.at() < end.0);
            // The window of a breakpoint is shorter than the instruction.
            let last = own
                .clone()
                .last()
                .map_or(end, |last| end.max(Svma(last.end())));
            let jumps = own.filter(|insn| insn.is_jump());
            jumps.map(|jump| Svma(jump.target())).chain([last])
        });
        ways.collect()
    }

    /// Exchanges the counters of row `id`, unless another command has changed them meanwhile.
    fn exchange(
        &mut self,
        id: usize,
        better: Better,
        state: &ExchangeState,
    ) -> Result<(), SessionError> {
        let space = Arc::clone(&better.space);
        self.change(Some(space), |locked| {
            let row = locked.document.functions.get(id);
            let is_same = row.is_some_and(|row| {
                let first = row.inside.as_deref().map(|inside| inside.first);
                row.is_in()
                    && row.carried_by == Some(better.carrier)
                    && first == Some(better.first)
                    && rows_alone(&locked.document, id).is_some()
            });
            if !is_same {
                return Ok(());
            }
            let _changing = Changing::begin(state);
            if state.is_over() {
                return Ok(());
            }
            locked.exchange(id, better)
        })
    }
}

/// The outcome of a stop for an exchange.
enum Outcome {
    Exchanged,
    /// A thread or a saved context is in the function, or it is not known where an activation is.
    /// Nothing has changed.
    Busy,
    /// The new counters could not come in. The old ones are in again.
    Restored,
}

/// An exchange of the carriers `old` and `new`.
struct Exchange {
    /// The row of the counts.
    id: usize,
    old: usize,
    new: usize,
    /// The row with the old carrier, and that with the new one.
    rows: [FunctionDoc; 2],
    calls: Vec<AtCall>,
}

impl Locked<'_> {
    fn exchange(&mut self, id: usize, better: Better) -> Result<(), SessionError> {
        let Some(exchange) = self.prepare_exchange(id, better)? else {
            return Ok(());
        };
        let mut stopped = Duration::ZERO;
        for _ in 0..STOPS {
            let mut outcome = Ok(Outcome::Busy);
            self.in_stop(BUSY, |locked, stopped, stacks| {
                outcome = locked.exchange_in(stopped, stacks, &exchange);
                Ok(())
            })?;
            let stop = self.document.stops.last_mut();
            let outcome = outcome?;
            if !matches!(outcome, Outcome::Busy) {
                if let Some(stop) = stop.filter(|_| matches!(outcome, Outcome::Exchanged)) {
                    EXCHANGED.clone_into(&mut stop.why);
                }
                break;
            }
            stopped += stop.map_or(MOST_STOPPED, |stop| Duration::from_nanos(stop.ns));
            // With thousands of threads, each stop is long.
            if stopped >= MOST_STOPPED {
                break;
            }
            pause(PAUSE);
        }
        Ok(self.segment.write_document(&self.document)?)
    }

    /// Writes the trampolines of the new counters. Their carrier is retired until they come in.
    /// `None` if anything else had to make way for them.
    fn prepare_exchange(
        &mut self,
        id: usize,
        better: Better,
    ) -> Result<Option<Exchange>, SessionError> {
        let (old, new) = (better.carrier, self.document.functions.len());
        let maps = || self.space.maps_with_heap();
        let made = self.made_for();
        let selection = better.selection;
        let change = decide(&self.document, selection, &better.modules, &maps, made)?;
        let is_alone = change.fresh.len() == 1 && change.ids.is_empty();
        if !is_alone || !change.way.retired.is_empty() || change.way.given_up != [old] {
            return Ok(None);
        }
        let (rows, refused) = (&self.document.functions, &self.document.refused);
        let before = (rows.clone(), refused.clone());
        self.document = change.document;
        self.view().take_memory(change.bytes)?;
        let changed = &mut Changed::default();
        let prepared = prepare(self, &better.modules, change.fresh, &[], None, changed)?;
        if !prepared.contains(&new) {
            (self.document.functions, self.document.refused) = before;
            return Ok(None);
        }
        let functions = &mut self.document.functions;
        let with_new = std::mem::replace(&mut functions[id], before.0[id].clone());
        functions[new].state = State::Retired;
        if self.document.quiet {
            self.view().publish_maps()?;
        }
        // The document owns the memory before any code or table in it is used.
        self.segment.write_document(&self.document)?;
        copies::publish(self)?;
        Ok(Some(Exchange {
            id,
            old,
            new,
            rows: [before.0[id].clone(), with_new],
            calls: better.calls,
        }))
    }

    /// Exchanges the patches of the two carriers while all threads are stopped. After an error, it
    /// is not certain that the counters are in, and a note says so.
    fn exchange_in(
        &mut self,
        stopped: &mut Stopped,
        stacks: &mut Stacks,
        exchange: &Exchange,
    ) -> Result<Outcome, SessionError> {
        let &Exchange { old, new, .. } = exchange;
        let Some(slots) = self.is_possible(stopped, stacks, exchange)? else {
            return Ok(Outcome::Busy);
        };
        let done = self.exchange_now(stopped, stacks, (exchange, &slots));
        if let Err(error) = &done {
            let row = &mut self.document.functions[exchange.id];
            let note = format!(
                "{}: its counters went out when they were to be exchanged: {error}",
                row.title()
            );
            self.document.notes.push(note);
            switch(self, &[exchange.id, old, new], false)?;
            self.segment.write_document(&self.document)?;
        }
        done
    }

    /// The slots of activations on paths, if nothing is in the way of an exchange. Nothing has
    /// changed.
    fn is_possible(
        &self,
        stopped: &mut Stopped,
        stacks: &mut Stacks,
        exchange: &Exchange,
    ) -> Result<Option<Moved>, SessionError> {
        let view = self.view();
        let &Exchange { id, new, .. } = exchange;
        if !view.is_outside(stopped, stacks, id)? {
            return Ok(None);
        }
        // Signal handlers may return to landings, which then stay.
        let sites: Vec<&SiteDoc> = self.document.functions[exchange.old].sites.iter().collect();
        if !view.kept_patches(stopped, stacks, &sites)?.is_empty() {
            return Ok(None);
        }
        let inside = exchange.rows[0].inside.as_deref();
        let slots = inside.map(|inside| view.moved_slots(inside, &exchange.calls));
        let Some(slots) = slots.transpose()?.flatten() else {
            return Ok(None);
        };
        let space = Arc::clone(&self.space);
        // Something that passes may be in the way.
        match view.clear_windows(space.memory(), stopped, stacks, (&[new], Part::Whole)) {
            Err(error) if error.passes() => Ok(None),
            cleared => cleared.map(|()| Some(slots)),
        }
    }

    fn exchange_now(
        &mut self,
        stopped: &mut Stopped,
        stacks: &mut Stacks,
        (exchange, slots): (&Exchange, &Moved),
    ) -> Result<Outcome, SessionError> {
        let &Exchange { id, old, new, .. } = exchange;
        let [before, after] = &exchange.rows;
        self.turn_over((old, new), (id, after))?;
        self.view().write_out(stopped, stacks, &[old])?;
        // No thread is in the runtime, so return addresses into old trampolines are out of date.
        self.document.functions[old].state = State::Out;
        let entered = self.view().write_in(stopped, stacks, (&[new], Part::Whole));
        self.document.functions[old].state = State::Retired;
        if entered.is_ok() {
            self.view().take_slots(stopped, &slots.after)?;
            return Ok(Outcome::Exchanged);
        }
        self.turn_over((new, old), (id, before))?;
        let view = self.view();
        view.write_in(stopped, stacks, (&[old], Part::Whole))?;
        view.take_slots(stopped, &slots.before)?;
        Ok(Outcome::Restored)
    }

    /// Records that the row `id` is `row`, whose carrier is `to` and no longer `from`. A command
    /// that finds this half done takes the counters out.
    fn turn_over(
        &mut self,
        (from, to): (usize, usize),
        (id, row): (usize, &FunctionDoc),
    ) -> Result<(), SessionError> {
        switch(self, &[from], false)?;
        self.document.functions[from].state = State::Retired;
        self.document.functions[id].clone_from(row);
        switch(self, &[to], true)?;
        Ok(self.segment.write_document(&self.document)?)
    }
}
