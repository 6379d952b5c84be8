//! `suggest`: samples a process and lists the functions worth measuring.

use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

use patcher::Avma;
use patcher::plan::Effects;
use patcher::select::Pattern;

use super::each::in_some;
use super::language::Language;
use super::others::Others;
use super::others::{tell_left_out, tree};
use super::output::{print, print_json};
use super::remarks::warn;
use super::target::find;
use super::watch::{hold, screen};
use crate::failure::Failure;
use ipath_base::error::io_text;
use ipath_base::hint::{CommandLine, hint};
use ipath_base::printable::{Page, printable};
use ipath_sampling::sampling::{
    Function, NoEvents, NoStops, NotSampled, Sampler, Seeing, Shares, Together, begin_all, together,
};
use ipath_session::session::{Query, allowed, select_in_modules};
use ipath_symbols::debuginfod;
use ipath_target::process::modules::Module;
use ipath_target::process::{Pid, Presence, Process};

mod rows;
mod text;

use rows::Suggestion;
pub(super) use rows::{Candidate, about, callers, figures, generated, head};
pub(super) use text::pattern_of;
use text::{Subject, text};

const OPERATION: &str = "suggest";

/// The advice if sampling is not permitted.
const ALLOW: &str = "run ipath as root, or lower kernel.perf_event_paranoid to 1";

/// The time between two reads of the samples. The ring buffers have room for more.
const A_LOOK: Duration = Duration::from_millis(25);

/// Samples a process, or with `children` a process and its descendants. Prints the functions that
/// are worth measuring, all of them if `limit` is 0.
pub(super) fn suggest(
    pid: Pid,
    children: bool,
    duration: Duration,
    limit: usize,
    json: bool,
) -> Result<(), Failure> {
    let process = find(OPERATION, pid)?;
    let processes = if children {
        tree(&process)
    } else {
        vec![process.clone()]
    };
    let signals = hold(OPERATION)?;
    signals.watch(&processes.iter().collect::<Vec<_>>());
    let begun = processes.iter().zip(begin_all(&processes));
    let begun = begun.map(|(process, begun)| match begun {
        Ok(sampler) => Ok((process.clone(), sampler)),
        Err(why) => Err(failure(OPERATION, process, &why)),
    });
    let (processes, mut samplers): (Vec<_>, Vec<_>) = in_some(begun)?.into_iter().unzip();
    if !children {
        let otherwise = "--children samples them, too";
        tell_left_out(
            OPERATION,
            pid,
            process.alike_descendants(),
            "sampled",
            otherwise,
        );
    }
    let others = (!children).then(|| Others::of(&process));
    let seeing = samplers.iter().find_map(|sampler| less(sampler.seeing()));
    if let Some(less) = seeing {
        warn(&format!("{OPERATION} {pid}: {less}"));
    }
    let end = Instant::now() + duration;
    while !signals.ended() {
        let Some(left) = end.checked_duration_since(Instant::now()) else {
            break;
        };
        std::thread::sleep(left.min(A_LOOK));
        samplers.iter_mut().for_each(Sampler::look);
        let have_ended = |process: &Process| process.life() == Presence::Ended;
        if processes.iter().all(have_ended) {
            break;
        }
    }
    debuginfod::wait(|| signals.ended());
    samplers.iter_mut().for_each(Sampler::look);
    signals.release();
    let most = if limit == 0 { usize::MAX } else { limit };
    let sampled = Sampled::of(&processes, &mut samplers, most);
    let shares = &sampled.sum.shares;
    let others = others.and_then(|others| others.busier(&process));
    if shares.on + shares.off == 0 {
        return Err(nothing_seen(&process, shares, others.as_deref()));
    }
    let suggestion = sampled.suggestion();
    if let Some(others) = &others {
        // The JSON has no field for it.
        if json {
            warn(&format!("{OPERATION} {pid}: {others}"));
        }
    }
    if json {
        return print_json(&suggestion);
    }
    let subject = Subject {
        pid,
        processes: processes.len(),
        children,
        tool: Language::of_process(&process).map(|language| language.tool(&process).to_string()),
        others,
    };
    let shares = &sampled.sum.shares;
    let width = screen().map(|screen| screen.width);
    let text = text(&subject, shares, &suggestion, &sampled.modules(), width);
    print(&Page::of(&text))
}

/// The results of the samplers of several processes.
pub(super) struct Sampled<'s> {
    processes: &'s [Process],
    samplers: &'s [Sampler],
    /// The functions of all processes, with the process in which each is costliest.
    pub(super) sum: Together,
}

impl<'s> Sampled<'s> {
    /// The `most` costliest functions of all processes.
    pub(super) fn of(processes: &'s [Process], samplers: &'s mut [Sampler], most: usize) -> Self {
        let of_each = match samplers.len() {
            1 => most,
            _ => usize::MAX,
        };
        let each = samplers.iter_mut().map(|sampler| sampler.shares(of_each));
        let each: Vec<Shares> = each.collect();
        let sum = match each.as_slice() {
            [only] => Together {
                shares: only.clone(),
                owners: (0..only.functions.len()).map(|index| (0, index)).collect(),
            },
            several => together(several, most),
        };
        Self {
            processes,
            samplers,
            sum,
        }
    }

    /// The modules of the process in which the first measurable function is costliest.
    fn modules(&self) -> Vec<Module> {
        let shares = &self.sum.shares;
        let first = (shares.functions.iter()).position(|f| f.is_known && !f.is_own);
        let owner = first.map_or(0, |first| self.sum.owners[first].0);
        let modules = self.samplers[owner].modules();
        modules.into_iter().map(|(_, module)| module).collect()
    }

    /// The functions without their callers, in the order of `sum`. `refusals` has an entry per
    /// process.
    pub(super) fn candidates(&self, refusals: &mut [Refusals]) -> Vec<Candidate> {
        let shares = &self.sum.shares;
        let mut found: Vec<Option<Candidate>> = Vec::new();
        found.resize_with(shares.functions.len(), || None);
        for ((number, sampler), refusals) in self.samplers.iter().enumerate().zip(refusals) {
            let owned = self.sum.owners.iter().enumerate();
            let owned = owned.filter(|(_, (process, _))| *process == number);
            let places: Vec<usize> = owned.map(|(at, _)| at).collect();
            let functions = places.iter().map(|&at| shares.functions[at].clone());
            let functions: Vec<Function> = functions.collect();
            let (process, modules) = (&self.processes[number], sampler.modules());
            let candidates = candidates(process, &modules, &functions, refusals);
            for (candidate, at) in candidates.into_iter().zip(places) {
                found[at] = Some(candidate);
            }
        }
        found.into_iter().flatten().collect()
    }

    fn suggestion(&self) -> Suggestion {
        let shares = &self.sum.shares;
        let mut refusals = Vec::new();
        refusals.resize_with(self.samplers.len(), Refusals::default);
        let mut candidates = self.candidates(&mut refusals);
        for (candidate, (owner, _)) in candidates.iter_mut().zip(&self.sum.owners) {
            candidate.stack = self.samplers[*owner].callers(&candidate.function);
        }
        Suggestion {
            samples: shares.on + shares.off,
            candidates,
            processes: self.processes.len(),
            observed_ns: shares.observed.as_nanos() as u64,
            cpu_ns: shares.cpu.as_nanos() as u64,
            waited_ns: shares.waited.as_nanos() as u64,
            waited_for_work_ns: shares.for_work.as_nanos() as u64,
            waits: shares.off,
            lost: shares.lost,
            idle_threads: shares.idle,
            unseen_threads: shares.unseen,
        }
    }
}

/// The limitation of this way of sampling compared to full perf events. `None` if there is none.
pub(super) fn less(seeing: Seeing) -> Option<&'static str> {
    match seeing {
        Seeing::Whole => None,
        Seeing::UserMode => Some(
            "the kernel allows sampling only in user mode (kernel.perf_event_paranoid): waiting \
            is not seen",
        ),
        Seeing::Stops => Some(
            "the kernel allows no perf events (kernel.perf_event_paranoid): running threads are \
            stopped for a moment, 80 times a second",
        ),
    }
}

/// The failure for a process that cannot be sampled.
pub(super) fn failure(operation: &str, process: &Process, why: &NotSampled) -> Failure {
    let of = |error: &io::Error| {
        let cause = format!("it cannot be sampled: {}", io_text(error));
        Failure::new(operation, process.pid, cause)
    };
    match why {
        NotSampled::Ended => Failure::new(operation, process.pid, "the process has ended"),
        NotSampled::Threads(error) => of(error),
        NotSampled::Events(NoEvents::Ring(error)) => match error.raw_os_error() {
            Some(libc::EPERM) => of(error).hint(
                "this user has reached the limit of locked memory: raise it (ulimit -l), or \
                kernel.perf_event_mlock_kb",
            ),
            _ => of(error),
        },
        NotSampled::Stops(NoStops::Ended) => {
            Failure::new(operation, process.pid, "the process has ended")
        }
        NotSampled::Stops(NoStops::Traced(by, name)) => {
            let name = printable(name);
            let cause = format!(
                "it cannot be sampled: it is traced by {by} ({name}), and there are no perf events"
            );
            Failure::new(operation, process.pid, cause).hint(ALLOW)
        }
        NotSampled::Stops(NoStops::Refused(error)) => {
            let cause = format!("it cannot be sampled: there are no perf events, and {error}");
            Failure::new(operation, process.pid, cause).hint(ALLOW)
        }
        NotSampled::Events(NoEvents::Event(error)) => match error.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE) => {
                of(error).hint("raise the limit of open files (ulimit -n)")
            }
            _ => of(error),
        },
    }
}

fn nothing_seen(process: &Process, shares: &Shares, others: Option<&str>) -> Failure {
    let pid = process.pid;
    if process.life() != Presence::Here {
        return Failure::new(OPERATION, pid, "the process has ended");
    }
    if let Some(stands) = process.stands() {
        return Failure::new(
            OPERATION,
            pid,
            format!("none of its threads ran: it is {stands}"),
        );
    }
    let cause = format!(
        "none of its threads ({}) ran within {:.1} s",
        shares.idle,
        shares.observed.as_secs_f64()
    );
    let failure = Failure::new(OPERATION, pid, cause);
    match others {
        Some(_) => failure.hint(hint!(
            "the processes that it has started ran: `{}` samples them, too",
            CommandLine::ipath("suggest").pid(pid).with("--children")
        )),
        None => failure.hint("give it something to do, or sample longer: --duration 10s"),
    }
}

/// A function by the index of its module and its start. The index is `None` outside of modules.
type FunctionAt = (Option<usize>, Avma);

/// The reason why an address without a known function cannot be measured.
pub(super) const UNKNOWN: &str = "no function is known there";

/// The reasons why functions cannot be patched, each determined once. A module that replaces
/// another one has its own index.
#[derive(Default)]
pub(super) struct Refusals(HashMap<FunctionAt, Option<String>>);

impl Refusals {
    /// Determines the reasons for new functions, if their modules are among `modules`, the loaded
    /// ones.
    fn find(&mut self, process: &Process, modules: &[(usize, Module)], functions: &[Function]) {
        let (index, here): (Vec<usize>, Vec<Module>) = modules.iter().cloned().unzip();
        let is_here = |f: &Function| f.module.is_some_and(|module| index.contains(&module));
        let is_new = |f: &&Function| is_here(f) && !self.0.contains_key(&place(f));
        let new: Vec<&Function> = functions.iter().filter(is_new).collect();
        if new.is_empty() {
            return;
        }
        let unknown = |f: &&Function| (place(f), Some(UNKNOWN.to_owned()));
        self.0.extend(new.iter().map(unknown));
        let pattern = |f: &&Function| Pattern::parse(&format!("{:#x}", f.start.0)).ok();
        let patterns: Vec<Pattern> = new.iter().filter_map(pattern).collect();
        let query = Query {
            patterns: &patterns,
            want: Effects {
                entry: true,
                exits: true,
            },
            allowed: allowed(process, &here, false),
            in_full: false,
            is_quick: false,
            most: usize::MAX,
        };
        let missed = select_in_modules(&here, &query, |candidate| {
            let start = candidate.bias.to_avma(candidate.plan.function.range.start);
            let place = (index.get(candidate.module).copied(), start);
            self.0
                .insert(place, candidate.refused().map(|why| why.to_string()));
        });
        for (path, cause) in missed.unreadable {
            let is_it = |&number: &usize| here[number].path == path;
            let of_it: Vec<usize> = (0..here.len()).filter(is_it).map(|n| index[n]).collect();
            let is_in_it = |f: &&&Function| f.module.is_some_and(|module| of_it.contains(&module));
            let reason = format!("{path} could not be read: {cause}");
            let refused = new.iter().filter(is_in_it);
            self.0
                .extend(refused.map(|f| (place(f), Some(reason.clone()))));
        }
    }

    /// The reason why a function cannot be patched. `None` if it can.
    fn of(&self, function: &Function) -> Option<String> {
        if function.is_own {
            return Some("ipath's own".to_owned());
        }
        if !function.is_known {
            return Some(UNKNOWN.to_owned());
        }
        match (function.module, self.0.get(&place(function))) {
            (None, _) => Some("JIT code".to_owned()),
            (Some(_), Some(known)) => known.clone(),
            (Some(_), None) => Some("its file is no longer mapped".to_owned()),
        }
    }
}

fn place(function: &Function) -> FunctionAt {
    (function.module, function.start)
}

/// The functions without their callers, with the reasons why they cannot be measured.
fn candidates(
    process: &Process,
    modules: &[(usize, Module)],
    functions: &[Function],
    refusals: &mut Refusals,
) -> Vec<Candidate> {
    refusals.find(process, modules, functions);
    let candidate = |function: &Function| Candidate {
        function: function.clone(),
        reason: refusals.of(function),
        stack: Vec::new(),
    };
    functions.iter().map(candidate).collect()
}
