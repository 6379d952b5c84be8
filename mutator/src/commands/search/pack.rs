//! The processes that a search is in: one, or a process with its descendants. Functions and call sites are
//! named by [common addresses](super::common).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use patcher::Avma;

use super::super::remarks::warn;
use super::super::source::Live;
use super::super::suggest;
use super::common::{Common, Shifts};
use super::for_work::ForWork;
use super::look::{Moment, window};
use crate::error::Failure;
use crate::process::{Presence, Process};
use crate::profile::{Profile, Session, Target};
use crate::sampling::{SampledStack, Sampler, Seeing, begin_all};
use crate::search::{Measured, MeasuredPath, Site, Window};
use crate::session::Selected;

/// A process to search in, with the functions to search within.
pub(in crate::commands) struct Prey {
    pub(in crate::commands) process: Process,
    pub(in crate::commands) given: Option<Selected>,
}

impl Prey {
    /// A process in which everything is searched.
    pub(in crate::commands) fn of(process: &Process) -> Self {
        Self {
            process: process.clone(),
            given: None,
        }
    }
}

/// A process of a search.
pub(super) struct Member {
    pub(super) process: Process,
    pub(super) sampler: Sampler,
    pub(super) shifts: Shifts,
    pub(super) given: Option<Selected>,
    /// True if no session could be made in it.
    pub(super) is_out: bool,
}

/// The sessions of the members, in their order.
pub(super) type Lives = Vec<Option<Live>>;

/// The processes.
pub(super) struct Pack {
    pub(super) members: Vec<Member>,
    common: Common,
    begun: Instant,
}

impl Pack {
    /// Begins to sample these processes. Prints a line for each of several that cannot be sampled.
    ///
    /// # Errors
    /// The failure for the first process, if none can be sampled.
    pub(super) fn begin(operation: &str, preys: Vec<Prey>) -> Result<Self, Failure> {
        let processes: Vec<Process> = preys.iter().map(|prey| prey.process.clone()).collect();
        let (mut members, mut failed) = (Vec::new(), Vec::new());
        for (prey, begun) in preys.into_iter().zip(begin_all(&processes)) {
            let Prey { process, given } = prey;
            match begun {
                Ok(sampler) => members.push(Member {
                    process,
                    sampler,
                    shifts: Shifts::default(),
                    given,
                    is_out: false,
                }),
                Err(why) => failed.push(suggest::failure(operation, &process, &why)),
            }
        }
        let failures = || failed.iter().map(Failure::in_one_line);
        match (members.is_empty(), failed.first()) {
            (true, Some(failure)) => return Err(failure.clone()),
            _ => failures().for_each(|failure| warn(&failure)),
        }
        let mut pack = Self {
            members,
            common: Common::default(),
            begun: Instant::now(),
        };
        pack.renew_shifts();
        Ok(pack)
    }

    /// True if there is no other process than the first one.
    fn is_one(&self) -> bool {
        self.members.len() == 1
    }

    /// Takes in the files that the processes have loaded since.
    fn renew_shifts(&mut self) {
        if self.is_one() {
            return;
        }
        for member in &mut self.members {
            let modules = member.sampler.modules();
            let modules = modules.iter().map(|(_, module)| module);
            member.shifts = self.common.shifts(modules);
        }
    }

    /// True if none of the processes is there any more.
    pub(super) fn is_gone(&self, life: fn(&Process) -> Presence) -> bool {
        let mut processes = self.members.iter().map(|member| &member.process);
        processes.all(|process| life(process) != Presence::Here)
    }

    /// How the process is sampled of which least is seen.
    pub(super) fn seeing(&self) -> Seeing {
        let all = self.members.iter().map(|member| member.sampler.seeing());
        all.max_by_key(|seeing| match seeing {
            Seeing::Whole => 0,
            Seeing::UserMode => 1,
            Seeing::Stops => 2,
        })
        .unwrap_or_default()
    }

    /// Takes in what has been sampled since.
    pub(super) fn look(&mut self) {
        for member in &mut self.members {
            member.sampler.look();
        }
    }

    /// The number of samples until now.
    pub(super) fn samples(&mut self) -> u64 {
        let samples = self.members.iter_mut().map(|member| {
            let shares = member.sampler.shares(0);
            shares.on + shares.off
        });
        samples.sum()
    }

    /// Notes that ipath has stopped processes since `begun`.
    pub(super) fn stopped_since(&mut self, begun: u64) {
        for member in &mut self.members {
            member.sampler.stopped_since(begun);
        }
    }

    /// What has been sampled until now.
    pub(super) fn stacks(&mut self) -> Vec<SampledStack> {
        self.renew_shifts();
        if let [only] = self.members.as_mut_slice() {
            return only.sampler.stacks().stacks;
        }
        let mut sum: BTreeMap<(Vec<Avma>, usize), (f64, f64, f64)> = BTreeMap::new();
        for member in &mut self.members {
            for stack in member.sampler.stacks().stacks {
                let functions = stack.functions.iter();
                let functions = functions.map(|&f| member.shifts.to_common(f)).collect();
                let (cpu, waited, for_work) = sum.entry((functions, stack.charged)).or_default();
                *cpu += stack.cpu;
                *waited += stack.waited;
                *for_work += stack.for_work;
            }
        }
        let stack = |((functions, charged), (cpu, waited, for_work))| SampledStack {
            functions,
            charged,
            cpu,
            waited,
            for_work,
        };
        sum.into_iter().map(stack).collect()
    }

    /// The names of the function at an address and of its module.
    pub(super) fn name_at(&mut self, at: Avma) -> (String, String) {
        let mut members = self.members.iter_mut();
        let name = |member: &mut Member| Some(member.sampler.name_at(member.shifts.to_own(at)?));
        members
            .find_map(name)
            .unwrap_or_else(|| (at.to_string(), String::new()))
    }

    /// What is measured and sampled of each process until now, and true if all sessions are over.
    pub(super) fn moments(
        &mut self,
        operation: &str,
        lives: &mut Lives,
    ) -> Result<(Vec<Moment>, bool), Failure> {
        let (mut moments, mut is_over) = (Vec::new(), true);
        for (member, live) in self.members.iter_mut().zip(lives) {
            let sampled = member.sampler.stacks();
            let profile = match live {
                Some(live) => {
                    let sample = live.look();
                    let sample = sample.map_err(|e| e.failure(operation, &member.process))?;
                    is_over &= sample.ended.is_some();
                    sample.profile.clone()
                }
                None => unmeasured(&member.process, self.begun),
            };
            moments.push(Moment {
                profile,
                lived: sampled.lived,
                idle: sampled.idle,
            });
        }
        Ok((moments, is_over))
    }

    /// The calls and times of these functions between two moments, over all processes.
    pub(super) fn window(
        &mut self,
        old: &[Moment],
        new: &[Moment],
        functions: &BTreeSet<Avma>,
    ) -> Window {
        let moments = old.iter().zip(new);
        let windows = self
            .members
            .iter_mut()
            .zip(moments)
            .map(|(member, (old, new))| {
                let Member {
                    sampler, shifts, ..
                } = member;
                let functions = functions.iter().filter_map(|&f| shifts.to_own(f));
                let functions: BTreeSet<Avma> = functions.collect();
                let for_work = ForWork::of(&sampler.stacks().stacks, &functions);
                let function_at = |at| sampler.function_at(at);
                let own = window(old, new, &functions, &for_work, function_at);
                to_common(own, shifts)
            });
        let mut windows: Vec<Window> = windows.collect();
        match windows.len() {
            1 => windows.remove(0),
            _ => sum(windows, functions),
        }
    }
}

/// The profile of a process without a session: it has the CPU time of the process and no functions.
fn unmeasured(process: &Process, begun: Instant) -> Profile {
    let during = Session {
        elapsed_ns: begun.elapsed().as_nanos() as u64,
        cpu_ns: process.cpu_time(),
        ..Session::default()
    };
    Profile::empty(Target::default(), during, Vec::new())
}

/// A window of one process in common addresses.
fn to_common(own: Window, shifts: &Shifts) -> Window {
    let site = |site: Site| Site {
        function: shifts.to_common(site.function),
        at: shifts.to_common(site.at),
    };
    let path = |path: MeasuredPath| MeasuredPath {
        callers: path.callers.into_iter().map(site).collect(),
        ..path
    };
    let measured = |measured: Measured| Measured {
        function: shifts.to_common(measured.function),
        paths: measured.paths.into_iter().map(path).collect(),
    };
    Window {
        measured: own.measured.into_iter().map(measured).collect(),
        ..own
    }
}

/// The sum of the windows of several processes.
fn sum(windows: Vec<Window>, functions: &BTreeSet<Avma>) -> Window {
    let empty = |&function: &Avma| (function, BTreeMap::<Vec<Site>, MeasuredPath>::new());
    let mut paths: BTreeMap<_, _> = functions.iter().map(empty).collect();
    let mut whole = Window::default();
    for window in windows {
        whole.ns = whole.ns.max(window.ns);
        whole.whole += window.whole;
        for measured in window.measured {
            let of_function = paths.entry(measured.function).or_default();
            for path in measured.paths {
                match of_function.get_mut(&path.callers) {
                    Some(known) => {
                        known.calls = known.calls.saturating_add(path.calls);
                        known.cost += path.cost;
                    }
                    None => drop(of_function.insert(path.callers.clone(), path)),
                }
            }
        }
    }
    whole.measured = paths
        .into_iter()
        .map(|(function, paths)| Measured {
            function,
            paths: paths.into_values().collect(),
        })
        .collect();
    whole
}
