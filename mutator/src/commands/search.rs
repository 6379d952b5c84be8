//! `--search`: functions are measured, added and dropped until the call paths that cost are named. What is decided, is decided
//! in [`crate::search`]; here it is done to a process.

mod asked;
mod best;
mod hunt;
mod look;
mod result;
mod samples;
mod words;

use nix::sys::signal::Signal;

pub(super) use asked::Searching;

use hunt::{Hunt, Over};

use super::existing::refuse_existing;
use super::measure::{self, check};
use super::panics::caught;
use super::remarks::warn;
use super::source::Live;
use super::target::find;
use super::watch::{Shown, Watch, conclude, hold};
use crate::cli::{Measure, Output, Refine, Show};
use crate::error::Failure;
use crate::guest::Runner;
use crate::metric::Metric;
use crate::process::{Pid, Presence, Process};
use crate::search::Bounds;
use crate::session::{Options, Selected, SessionError, select_in};
use crate::signals::Signals;

/// How much is to be explained: of the rest there are many causes.
const EXPLAIN: f64 = 0.9;
/// For how many steps calls that take long are waited for.
const PATIENCE: u32 = 4;

impl<'a> Searching<'a> {
    /// Checks the options, and adds to the metrics those that a search goes by.
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
        let step = show.interval;
        Ok(Self {
            operation,
            bounds: Bounds {
                min_share: refine.min_share,
                explain: EXPLAIN,
                most: usize::try_from(refine.max_functions).unwrap_or(usize::MAX),
                max_overhead: refine.max_overhead,
                patience: u64::try_from((step * PATIENCE).as_nanos()).unwrap_or(u64::MAX),
            },
            step,
            allow_traps: measure.patterns.allow_trap,
            show,
        })
    }

    /// Searches, within the functions of a session or those that are given where there are any; takes the session out and
    /// shows what was found.
    pub(super) fn search(
        &self,
        (process, mut live, given): (Process, Option<Live>, Option<Selected>),
        output: &Watch,
        options: &Options,
        (signals, kept): (Signals, &[Signal]),
    ) -> Result<(), Failure> {
        signals.watch(&[&process]);
        let mut hunt = None;
        let over = caught("search", || {
            let begun = Hunt::begin(self, options, &process)?;
            hunt.insert(begun).run(&mut live, given, &signals)
        });
        // What cannot be done to a program that has ended is no failure.
        let over = match over {
            Err(failure) if !failure.is_internal() && process.life() == Presence::Ended => {
                Ok(Over::Gone)
            }
            over => over,
        };
        let outcome = hunt.and_then(Hunt::outcome);
        let Some(mut live) = live else {
            signals.release_but(kept);
            return self.nothing_measured(&process, over?);
        };
        let (ended, profile) = live.finish();
        let profile = profile.map(|mut profile| {
            profile.search = outcome.map(|outcome| outcome.found(&profile));
            profile
        });
        let shown = over.map(|_| Shown::default());
        conclude(output, self.show, (ended, profile), shown, (signals, kept))
    }

    /// There was no time to measure anything, or nothing to be measured.
    fn nothing_measured(&self, process: &Process, over: Over) -> Result<(), Failure> {
        let cause = match over {
            Over::Asked => "it was ended before anything was measured",
            Over::Gone => "the program has ended before anything was measured",
            Over::Found => "nothing that costs can be measured",
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

/// Searches in a process that runs.
pub(super) fn attach(
    pid: Pid,
    measure: &Measure,
    refine: &Refine,
    show: &Show,
) -> Result<(), Failure> {
    const OPERATION: &str = "attach";
    let patterns = measure::patterns(OPERATION, &measure.patterns.func)?;
    let mut options = measure::options(OPERATION, measure)?;
    let searching = Searching::new(OPERATION, (measure, refine, show), &mut options)?;
    let output = Watch::new(show)?;
    let process = find(OPERATION, pid)?;
    let failure = |e: SessionError| e.failure(OPERATION, &process);
    process.check().map_err(|e| failure(e.into()))?;
    refuse_existing(&process)?;
    if let Some(runner) = Runner::of_process(&process) {
        warn(&format!("{OPERATION} {pid}: {}", runner.note()));
    }
    let mut given = None;
    if !patterns.is_empty() {
        let mut selected = select_in(&process, &patterns, options.wanted()).map_err(failure)?;
        selected.complete(&[], searching.allow_traps, &options.items());
        let subject = pid.to_string();
        let (named, selection) = (&measure.patterns, &selected.selection);
        check(OPERATION, &subject, named, selection, false)?;
        given = Some(selected);
    }
    let signals = hold(OPERATION)?;
    searching.search((process, None, given), &output, &options, (signals, &[]))
}
