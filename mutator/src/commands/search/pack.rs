//! The processes of a search: one, or a process with its descendants. Functions and call sites are
//! identified by [common addresses](super::common).

use crate::commands::failures::SessionFailure;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use patcher::Avma;

use super::super::each::in_some;
use super::super::live::Live;
use super::super::suggest;
use super::common::{Common, Shifts};
use super::for_work::ForWork;
use super::look::{Moment, Spent, window};
use crate::commands::language::Language;
use crate::failure::Failure;
use ipath_profile::{GENERATED, Left, Profile, Session, Target};
use ipath_sampling::sampling::{Generated, SampledStack, Sampler, Seeing, begin_all};
use ipath_sampling::search::{Measured, MeasuredPath, Site, Window};
use ipath_session::follow::Follower;
use ipath_session::session::Selected;
use ipath_target::process::{Presence, Process};

/// A process to search in, with the functions to search within.
pub(in crate::commands) struct Prey {
    pub(in crate::commands) process: Process,
    /// The functions to search within. `None` if all functions are searched.
    pub(in crate::commands) given: Option<Selected>,
}

impl Prey {
    /// A process in which all functions are searched.
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
    /// `None` if it cannot be sampled, or has started since the last step.
    pub(super) sampler: Option<Sampler>,
    /// The conversion between its own addresses and common ones.
    pub(super) shifts: Shifts,
    /// The functions to search within, before its session is created. `None` if there are none.
    pub(super) given: Option<Selected>,
    /// True once an operation in it has failed. It is no longer measured.
    pub(super) is_out: bool,
}

/// The sessions of the members, in their order. `None` for a member without a session.
pub(super) type Lives = Vec<Option<Live>>;

/// The measurements of all processes up to a moment.
pub(super) struct Moments {
    /// In the order of the members. New members come last.
    of_members: Vec<Moment>,
    /// The stacks of each member that were sampled up to this moment.
    sampled: Vec<Vec<SampledStack>>,
    /// The sum of followed processes that are no longer members.
    gone: Option<Moment>,
}

impl Moments {
    /// The sum of the times and calls.
    pub(super) fn spent(&self) -> Spent {
        let all = self.of_members.iter().chain(&self.gone);
        Spent::sum(all.map(|moment| Spent::of(&moment.profile)))
    }
}

/// The processes of a search.
pub(super) struct Pack {
    pub(super) members: Vec<Member>,
    /// The first process and its follower. `None` without `--follow`.
    pub(super) following: Option<(Process, Follower)>,
    pub(super) common: Common,
    /// The results of `name_at`, kept for processes that have ended since.
    names: BTreeMap<Avma, (String, String)>,
    /// The time at which sampling began.
    begun: Instant,
}

impl Pack {
    /// Starts to sample these processes. Prints a line for each one that cannot be sampled if there
    /// are others.
    ///
    /// # Errors
    /// The failure for the first process, if none can be sampled.
    pub(super) fn begin(
        operation: &str,
        preys: Vec<Prey>,
        following: Option<(Process, Follower)>,
    ) -> Result<Self, Failure> {
        let processes: Vec<Process> = preys.iter().map(|prey| prey.process.clone()).collect();
        let begun = preys.into_iter().zip(begin_all(&processes));
        let begun = begun.map(|(Prey { process, given }, begun)| match begun {
            Ok(sampler) => Ok(Member {
                process,
                sampler: Some(sampler),
                shifts: Shifts::default(),
                given,
                is_out: false,
            }),
            Err(why) => Err(suggest::failure(operation, &process, &why)),
        });
        let members = in_some(begun)?;
        let mut pack = Self {
            members,
            following,
            common: Common::default(),
            names: BTreeMap::new(),
            begun: Instant::now(),
        };
        pack.renew_shifts();
        Ok(pack)
    }

    /// True if the first process is and remains the only one.
    fn is_one(&self) -> bool {
        self.members.len() == 1 && self.following.is_none()
    }

    /// Adds the files that the processes have loaded since the last call.
    pub(super) fn renew_shifts(&mut self) {
        if self.is_one() {
            return;
        }
        for member in &mut self.members {
            let Some(sampler) = &member.sampler else {
                continue;
            };
            let modules = sampler.modules();
            let modules = modules.iter().map(|(_, module)| module);
            member.shifts = self.common.shifts(modules);
        }
    }

    /// True if `life` finds that all processes have ended or executed other programs. With
    /// `--follow`, true if no followed process is left.
    pub(super) fn is_gone(&self, life: fn(&Process) -> Presence) -> bool {
        if let Some((_, follower)) = &self.following {
            return follower.seen().living == 0;
        }
        let mut processes = self.members.iter().map(|member| &member.process);
        processes.all(|process| life(process) != Presence::Here)
    }

    /// The most limited way in which a process is sampled. The default if none is.
    pub(super) fn seeing(&self) -> Seeing {
        let samplers = self.members.iter().flat_map(|member| &member.sampler);
        let all = samplers.map(Sampler::seeing);
        all.max().unwrap_or_default()
    }

    fn samplers(&mut self) -> impl Iterator<Item = &mut Sampler> {
        self.members
            .iter_mut()
            .flat_map(|member| &mut member.sampler)
    }

    /// Reads the samples of all members that were taken since the last call.
    pub(super) fn look(&mut self) {
        self.samplers().for_each(Sampler::look);
    }

    /// The number of samples of all members so far.
    pub(super) fn samples(&mut self) -> u64 {
        let samples = self.samplers().map(|sampler| {
            let shares = sampler.shares(0);
            shares.on + shares.off
        });
        samples.sum()
    }

    /// Records that ipath has stopped the processes since `begun`, a result of [`Sampler::moment`].
    pub(super) fn stopped_since(&mut self, begun: u64) {
        self.samplers()
            .for_each(|sampler| sampler.stopped_since(begun));
    }

    /// The stacks sampled so far.
    pub(super) fn stacks(&mut self) -> Vec<SampledStack> {
        self.renew_shifts();
        let samplers = self.members.iter_mut().map(|member| &mut member.sampler);
        let sampled = samplers.map(|sampler| match sampler {
            Some(sampler) => sampler.stacks().stacks,
            None => Vec::new(),
        });
        let mut sampled: Vec<Vec<SampledStack>> = sampled.collect();
        match (self.is_one(), sampled.pop()) {
            (true, Some(own)) => own,
            (_, last) => {
                sampled.extend(last);
                self.sum_of(&sampled)
            }
        }
    }

    /// The sum of the stacks of the members.
    fn sum_of(&self, sampled: &[Vec<SampledStack>]) -> Vec<SampledStack> {
        let mut sum: BTreeMap<(Vec<Avma>, usize), (f64, f64, f64)> = BTreeMap::new();
        for (member, stacks) in self.members.iter().zip(sampled) {
            for stack in stacks {
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

    /// The generated functions with at least `least` of the sampled time. They cannot be measured.
    pub(super) fn generated(&mut self, least: f64) -> Vec<Left> {
        let mut whole = Generated::default();
        let mut all: BTreeMap<String, Generated> = BTreeMap::new();
        for sampler in self.samplers() {
            for stack in sampler.stacks().stacks {
                whole.cpu += stack.cpu;
                whole.waited += stack.waited;
            }
            for (name, Generated { cpu, waited }) in sampler.generated() {
                let of_it = all.entry(name).or_default();
                of_it.cpu += cpu;
                of_it.waited += waited;
            }
        }
        let share = |part: f64, of: f64| if of > 0.0 { part / of } else { 0.0 };
        let first = self.members.first();
        let tool = first
            .and_then(|first| Some(Language::of_process(&first.process)?.tool(&first.process)));
        let tool = tool.map_or_else(String::new, |tool| format!("; {tool}"));
        let left = all.into_iter().map(|(name, of_it)| Left {
            name,
            file: GENERATED.to_owned(),
            reason: format!("generated code cannot be instrumented{tool}"),
            cpu_share: share(of_it.cpu, whole.cpu),
            waiting_share: share(of_it.waited, whole.waited),
        });
        left.filter(|left| left.share() >= least).collect()
    }

    /// The names of the function at a common address and of its module. If unknown, the address
    /// itself and an empty name.
    pub(super) fn name_at(&mut self, at: Avma) -> (String, String) {
        let mut members = self.members.iter_mut();
        let name = |member: &mut Member| {
            let own = member.shifts.to_own(at)?;
            Some(member.sampler.as_mut()?.name_at(own))
        };
        match members.find_map(name) {
            Some(name) => {
                self.names.insert(at, name.clone());
                name
            }
            None => {
                let known = self.names.get(&at).cloned();
                known.unwrap_or_else(|| (at.to_string(), String::new()))
            }
        }
    }

    /// The start of the function that contains `at`, or `at` if none is known. Both are in the
    /// common address space of the processes.
    fn function_at(&mut self, at: Avma) -> Avma {
        let mut members = self.members.iter_mut();
        let function = |member: &mut Member| {
            let own = member.shifts.to_own(at)?;
            let function = member.sampler.as_mut()?.function_at(own);
            Some(member.shifts.to_common(function))
        };
        members.find_map(function).unwrap_or(at)
    }

    /// The times of all processes with a session so far. Reads no path.
    pub(super) fn spent(&mut self, lives: &mut Lives) -> Spent {
        self.take_in_newcomers(lives);
        let sessions = lives.iter().flatten().map(Live::session);
        Spent::sum(sessions.map(Spent::now))
    }

    /// The measurements and samples so far, and true if all sessions are over. With `--follow`,
    /// true if no followed process is left.
    pub(super) fn moments(
        &mut self,
        operation: &str,
        lives: &mut Lives,
    ) -> Result<(Moments, bool), Failure> {
        self.take_in_newcomers(lives);
        let (mut of_members, mut all_sampled, mut is_over) = (Vec::new(), Vec::new(), true);
        for (member, live) in self.members.iter_mut().zip(lives) {
            let sampled = member.sampler.as_mut().map(Sampler::stacks);
            let sampled = sampled.unwrap_or_default();
            let profile = match live {
                Some(live) => {
                    let sample = live.look();
                    let sample = sample.map_err(|e| e.failure(operation, &member.process))?;
                    is_over &= sample.ended.is_some();
                    sample.profile.clone()
                }
                None => unmeasured(&member.process, self.begun),
            };
            of_members.push(Moment {
                profile,
                lived: sampled.lived,
                idle: sampled.idle,
                delayed: sampled.delayed,
            });
            all_sampled.push(sampled.stacks);
        }
        let gone = self.following.as_ref().map(|(_, follower)| Moment {
            profile: follower
                .gathered(true)
                .finish()
                .unwrap_or_else(|| Moment::nothing().profile),
            ..Moment::nothing()
        });
        if self.following.is_some() {
            is_over = self.is_gone(Process::life);
        }
        let moments = Moments {
            of_members,
            sampled: all_sampled,
            gone,
        };
        Ok((moments, is_over))
    }

    /// The calls and times of these functions between two moments, over all processes.
    pub(super) fn window(
        &mut self,
        old: &Moments,
        new: &Moments,
        functions: &BTreeSet<Avma>,
    ) -> Window {
        self.renew_shifts();
        // Processes that are not sampled are assumed to wait as the others do.
        let of_all = if self.is_one() {
            ForWork::default()
        } else {
            ForWork::of(&self.sum_of(&new.sampled), functions, false)
        };
        let begin = Moment::nothing();
        let old_of = |index: usize| old.of_members.get(index).unwrap_or(&begin);
        let (mut windows, mut unsampled) = (Vec::new(), Vec::new());
        let measured = new.of_members.iter().zip(&new.sampled);
        for (index, (member, (new, sampled))) in self.members.iter_mut().zip(measured).enumerate() {
            let Member {
                sampler, shifts, ..
            } = member;
            let functions = functions.iter().filter_map(|&f| shifts.to_own(f));
            let functions: BTreeSet<Avma> = functions.collect();
            let Some(sampler) = sampler else {
                let own = window(old_of(index), new, &functions, &of_all, |at| at);
                unsampled.push(to_common(own, shifts));
                continue;
            };
            let for_work = ForWork::of(sampled, &functions, sampler.seeing() == Seeing::Whole);
            let function_at = |at| sampler.function_at(at);
            let own = window(old_of(index), new, &functions, &for_work, function_at);
            windows.push(to_common(own, shifts));
        }
        for mut window in unsampled {
            let paths = window.measured.iter_mut().flat_map(|m| &mut m.paths);
            for site in paths.flat_map(|path| &mut path.callers) {
                site.function = self.function_at(site.at);
            }
            windows.push(window);
        }
        if let (Some(old), Some(new)) = (&old.gone, &new.gone) {
            let function_at = |at| self.function_at(at);
            windows.push(window(old, new, functions, &of_all, function_at));
        }
        match windows.len() {
            1 => windows.remove(0),
            _ => sum(windows, functions),
        }
    }
}

/// The profile of a process without a session: it contains the CPU time of the process and no
/// functions.
fn unmeasured(process: &Process, begun: Instant) -> Profile {
    let during = Session {
        elapsed_ns: begun.elapsed().as_nanos() as u64,
        cpu_ns: process.cpu_time(),
        ..Session::default()
    };
    Profile::empty(Target::default(), during, Vec::new())
}

/// Converts a window of one process to common addresses.
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
                        known.idle += path.idle;
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
