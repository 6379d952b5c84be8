//! `--search`: adds and drops functions until the costly call paths are known.
//! [`ipath_sampling::search`] makes the decisions, and this module applies them to processes.

mod asked;
mod best;
mod brief;
mod change;
mod common;
mod for_work;
mod hunt;
mod look;
mod newcomers;
mod pack;
mod result;
mod samples;
mod words;

use crate::commands::failures::{SessionFailure, unmeasured};
use std::io::{self, IsTerminal};
use std::sync::Arc;

use nix::sys::signal::Signal;
use patcher::select::Pattern;

pub(super) use asked::Searching;
pub(super) use pack::Prey;

use common::Shifts;
use hunt::{Hunt, Over};
use pack::{Lives, Pack};
use result::{Numbers, Outcome};

use super::each::in_some;
use super::existing::{refuse_existing, refuse_existing_of_tree};
use super::live::Live;
use super::measure::{self, MANY, check, check_found};
use super::others::{tell_left_out, tree};
use super::panics::caught;
use super::processes::sum_of;
use super::remarks::{PREFIX, warn};
use super::target::{find, target_of};
use super::tree::no_match;
use super::watch::{Shown, Watch, conclude, hold, screen};
use crate::cli::{Measure, Output, Refine, Show};
use crate::failure::Failure;
use ipath_base::error::io_text;
use ipath_profile::merge::PathsOf;
use ipath_profile::{Profile, Unseen};
use ipath_sampling::search::Bounds;
use ipath_session::follow::{Follower, Wanted};
use ipath_session::metric::Metric;
use ipath_session::session::{Options, SessionError, select_in};
use ipath_target::emulators::Runner;
use ipath_target::process::{Pid, Presence, Process};
use ipath_target::signals::Signals;
use ipath_target::tracee::TraceeError;

const OPERATION: &str = "attach";

/// The share to explain. The rest has many small causes.
const EXPLAIN: f64 = 0.9;
/// The share of CPU time that measuring may take, without `--max-overhead`.
const MAX_OVERHEAD: f64 = 0.05;
/// The most steps to wait for long calls.
const PATIENCE: u32 = 4;

impl<'a> Searching<'a> {
    /// Checks the options, and adds the metrics that a search needs.
    ///
    /// # Errors
    /// The format is `jsonl`, which a search does not print.
    pub(super) fn new(
        operation: &'static str,
        (measure, refine, show): (&Measure, &Refine, &'a Show),
        options: &mut Options,
    ) -> Result<Self, Failure> {
        if show.format == Output::Jsonl {
            let cause = "a search prints one profile, at its end";
            return Err(Failure::new(operation, "--format jsonl", cause)
                .hint("`--format json` prints it, and -o FILE writes it"));
        }
        for metric in [Metric::Wall, Metric::Cpu] {
            if !options.metrics.contains(&metric) {
                options.metrics.push(metric);
            }
        }
        // Otherwise a path would end at a recursion, which has too many callers.
        options.collapse_recursion = true;
        let step = show.interval;
        Ok(Self {
            operation,
            bounds: Bounds {
                min_share: refine.min_share,
                explain: EXPLAIN,
                most: usize::try_from(refine.max_functions).unwrap_or(usize::MAX),
                max_overhead: measure.max_overhead.unwrap_or(MAX_OVERHEAD),
                patience: u64::try_from((step * PATIENCE).as_nanos()).unwrap_or(u64::MAX),
            },
            step,
            allow_traps: measure.patterns.allow_trap,
            paths_of: measure::paths_of(measure.per_process),
            show,
            brief: columns_of_steps(refine.verbose),
        })
    }

    /// Searches in these processes, of which `process` is the first. Searches within the functions
    /// of the session or the given ones, if there are any. Then takes the sessions out and shows
    /// the result.
    pub(super) fn search(
        &self,
        process: &Process,
        (preys, live, follower): (Vec<Prey>, Option<Live>, Option<Follower>),
        output: &Watch,
        options: &Options,
        (signals, kept): (Signals, &[Signal]),
    ) -> Result<(), Failure> {
        let processes: Vec<&Process> = preys.iter().map(|prey| &prey.process).collect();
        signals.watch(&processes);
        let (mut hunt, mut lives) = (None, vec![live]);
        let over = caught("search", || {
            let begun = Hunt::begin(self, options, process, preys, follower)?;
            let hunt: &mut Hunt<'_> = hunt.insert(begun);
            lives.resize_with(hunt.pack.members.len(), || None);
            hunt.run(&mut lives, &signals)
        });
        // An operation that fails because the program has ended is no failure.
        let over = match over {
            Err(failure) if !failure.is_internal() && process.life() == Presence::Ended => {
                Ok(Over::Gone)
            }
            over => over,
        };
        if lives.iter().all(Option::is_none) {
            signals.release_but(kept);
            return self.nothing_measured(process, over?);
        }
        let outcome = hunt.and_then(Hunt::outcome);
        let is_followed = (outcome.as_ref()).is_some_and(|(_, pack)| pack.following.is_some());
        let finished = match lives.as_mut_slice() {
            [Some(live)] if !is_followed => {
                let (ended, profile) = live.finish();
                let profile = profile.map(|mut profile| {
                    let numbers = Numbers::of_one(&profile);
                    profile.search = outcome.map(|(outcome, _)| outcome.found(&numbers));
                    profile
                });
                (ended, profile)
            }
            _ => self.finish_all(process, &mut lives, outcome),
        };
        let shown = over.map(|_| Shown::default());
        conclude(output, self.show, finished, shown, (signals, kept))
    }

    /// Removes the sessions of several processes, and adds up their profiles.
    fn finish_all(
        &self,
        root: &Process,
        lives: &mut Lives,
        outcome: Option<(Outcome, Pack)>,
    ) -> (Result<(), Failure>, Result<Profile, Failure>) {
        let (mut done, mut profiles) = (Ok(()), Vec::new());
        let (outcome, mut pack) = outcome.unzip();
        pack.iter().for_each(Pack::close);
        let (mut unread, mut next) = (0, 0);
        loop {
            for (index, live) in lives.iter_mut().enumerate().skip(next) {
                let Some(live) = live else {
                    continue;
                };
                let (ended, profile) = live.finish();
                done = done.and(ended);
                match profile {
                    Ok(profile) => profiles.push((index, profile)),
                    Err(failure) => {
                        unread += 1;
                        warn(&failure.in_one_line());
                    }
                }
            }
            next = lives.len();
            // The last processes may have had children meanwhile.
            let is_any = pack
                .as_mut()
                .is_some_and(|pack| pack.take_in_newcomers(lives));
            if !is_any {
                break;
            }
        }
        let gone = pack.as_ref().and_then(Pack::let_go);
        let all = profiles.iter().map(|(_, profile)| profile).chain(&gone);
        let sum = sum_of(self.operation, self.paths_of, all);
        let sum = sum.map(|mut sum| {
            sum.target = target_of(root);
            Unseen::Profiles.count(&mut sum.losses.unseen, unread);
            if let (Some(outcome), Some(pack)) = (outcome, &pack) {
                let out = pack.members.iter().filter(|member| member.is_out).count();
                Unseen::Processes.count(&mut sum.losses.unseen, out as u64);
                let same = Shifts::default();
                let part =
                    |(index, profile): (usize, Profile)| (&pack.members[index].shifts, profile);
                let parts = profiles.into_iter().map(part);
                let parts = parts.chain(gone.map(|gone| (&same, gone)));
                let parts: Vec<_> = parts.collect();
                sum.search = Some(outcome.found(&Numbers::of_sum(&sum, &parts)));
            }
            sum
        });
        (done, sum)
    }

    /// Reports that nothing was measured, for lack of time or of suitable functions.
    fn nothing_measured(&self, process: &Process, over: Over) -> Result<(), Failure> {
        let cause = match over {
            Over::Asked => "it was ended before anything was measured",
            Over::Gone => "the program has ended before anything was measured",
            Over::Found => "none of the costly functions can be measured",
        };
        // A program that was run has its own status.
        match (over, self.operation) {
            (Over::Asked, _) | (Over::Gone, "run") => {
                warn(&format!("{} {}: {cause}", self.operation, process.pid));
                Ok(())
            }
            _ => Err(Failure::new(self.operation, process.pid, cause)),
        }
    }
}

/// The width for steps on one line, in terminal columns. `None` if steps are printed in full: with
/// `--verbose`, or if standard output or standard error is no terminal.
fn columns_of_steps(is_verbose: bool) -> Option<usize> {
    let width = screen().map(|screen| screen.width.saturating_sub(PREFIX));
    width.filter(|_| !is_verbose && io::stderr().is_terminal())
}

/// Searches in a running process, and with `children` in its descendants.
pub(super) fn attach(
    pid: Pid,
    children: bool,
    measure: &Measure,
    refine: &Refine,
    show: &Show,
) -> Result<(), Failure> {
    let patterns = measure::patterns(OPERATION, &measure.patterns.func)?;
    let mut options = measure::options(OPERATION, measure)?;
    let searching = Searching::new(OPERATION, (measure, refine, show), &mut options)?;
    let output = Watch::new(show)?;
    let process = find(OPERATION, pid)?;
    let prey = |process: &Process| {
        let failure = |e: SessionError| e.failure(OPERATION, process);
        process.check().map_err(|e| failure(e.into()))?;
        if let Some(runner) = Runner::of_process(process) {
            warn(&format!("{OPERATION} {}: {}", process.pid, runner.note()));
        }
        let mut given = None;
        if !patterns.is_empty() {
            let mut selected = select_in(process, &patterns, options.wanted()).map_err(failure)?;
            selected.complete(&[], searching.allow_traps, &options.items());
            let subject = process.pid.to_string();
            let (named, selection) = (&measure.patterns, &selected.selection);
            match children {
                true if selection.count() == 0 => {
                    let texts = patterns.iter().map(Pattern::text);
                    return Err(no_match(process, texts));
                }
                true => check_found(OPERATION, &subject, named, selection)?,
                false => check(OPERATION, &subject, named, selection, false)?,
            }
            given = Some(selected);
        }
        let process = process.clone();
        Ok(Prey { process, given })
    };
    let preys = if children {
        refuse_existing_of_tree(&process)?;
        in_some(tree(&process).iter().map(prey))?
    } else {
        refuse_existing(&process)?;
        let first = prey(&process)?;
        let otherwise = "--children searches in them, too";
        let alike = process.alike_descendants();
        tell_left_out(OPERATION, pid, alike, "measured", otherwise);
        vec![first]
    };
    let signals = hold(OPERATION)?;
    let follower = if measure.follow {
        Some(follow(
            &process,
            &preys,
            wanted(measure, &patterns, &options),
            searching.paths_of,
        )?)
    } else {
        None
    };
    let signals = (signals, &[][..]);
    searching.search(
        &process,
        (preys, None, follower),
        &output,
        &options,
        signals,
    )
}

/// Follows these processes and the ones that they start later.
fn follow(
    first: &Process,
    preys: &[Prey],
    wanted: Wanted,
    paths_of: PathsOf,
) -> Result<Follower, Failure> {
    let follower = Follower::begin(wanted, paths_of);
    let follower = follower.map_err(|e| Failure::new(OPERATION, "--follow", io_text(&e)))?;
    for Prey { process, .. } in preys {
        let parent = process.parent().filter(|_| process != first);
        let followed = follower.follow(process, parent);
        let failure = |e: TraceeError| SessionError::from(e).failure(OPERATION, process);
        match followed.map_err(failure) {
            Err(failure) if process == first => return Err(failure),
            Err(failure) => warn(&failure.in_one_line()),
            Ok(()) => {}
        }
    }
    // No session exists yet, so their children need none.
    follower.begin_held();
    Ok(follower)
}

/// The functions to search within in programs that are executed later. Empty if the search is
/// unrestricted.
pub(super) fn wanted(measure: &Measure, patterns: &[Pattern], options: &Options) -> Wanted {
    Wanted {
        patterns: patterns.to_vec(),
        spots: Vec::new(),
        options: Options {
            tells_of_execs: false,
            ..options.clone()
        },
        allows_traps: measure.patterns.allow_trap,
        most: if measure.patterns.yes {
            abi::MOST_FUNCTIONS
        } else {
            MANY
        },
        why: unmeasured,
        met: Arc::default(),
    }
}
