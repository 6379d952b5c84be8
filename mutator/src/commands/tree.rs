//! `attach --children`: a session in a process and in each of its descendants.

use crate::commands::failures::{SessionFailure, UnmatchedFailure};
use std::cell::{OnceCell, RefCell};
use std::collections::BTreeSet;

use patcher::select::{Pattern, Spot};

use super::existing::refuse_existing_of_tree;
use super::find;
use super::kind::Kind;
use super::limit::tell_unlimited;
use super::live::AtEnd;
use super::measure::{check_found, options, paths_of, patterns, spots};
use super::others::tree;
use super::processes::Job;
use super::remarks::warn;
use super::target::{find, target_of};
use super::together;
use super::watch::{Watch, hold, watch};
use crate::cli::{Measure, Show};
use crate::failure::Failure;
use ipath_base::hint::{CommandLine, Hint, hint};
use ipath_session::session::{Changed, Options, Selected, Session, SessionError, Where, select_in};
use ipath_target::emulators::Runner;
use ipath_target::process::{Pid, Process};

const OPERATION: &str = "attach";

/// Instruments a process and all its descendants, and shows the measurements. Removes the sessions
/// at the end, unless `keep` is true. Without patterns, the user chooses functions in the view.
/// That is an error if there is no view.
pub(super) fn attach(pid: Pid, measure: &Measure, show: &Show, keep: bool) -> Result<(), Failure> {
    let patterns = patterns(OPERATION, &measure.patterns.func)?;
    let spots = spots(OPERATION, &measure.patterns)?;
    let mut options = options(OPERATION, measure)?;
    let output = Watch::new(show)?;
    let root = find(OPERATION, pid)?;
    options.family = Some(root.clone());
    let is_to_choose = patterns.is_empty() && spots.is_empty();
    if is_to_choose && !output.is_view() {
        let suggest = CommandLine::ipath("suggest").pid(pid).with("--children");
        let search = CommandLine::ipath("attach")
            .pid(pid)
            .with("--search --children");
        let hint = hint!(
            "`{}` lists functions worth naming with -f, `{}` finds and measures them",
            suggest,
            search
        );
        return Err(Failure::new(OPERATION, pid, "no function is named").hint(hint));
    }
    refuse_existing_of_tree(&root)?;
    let patterns = if !is_to_choose {
        patterns
    } else {
        let signals = hold(OPERATION)?;
        let wanted = find::choose_in_tree(OPERATION, &root, &signals)?;
        signals.release();
        match wanted {
            find::Wanted::Functions(patterns) => patterns,
            find::Wanted::Nothing => return Ok(()),
            find::Wanted::OtherProgram => {
                return Err(Failure::new(OPERATION, pid, find::OTHER_PROGRAM));
            }
            find::Wanted::Over(why) => return Err(Failure::new(OPERATION, pid, why)),
        }
    };
    let wanted = Wanted {
        patterns: &patterns,
        spots: &spots,
        measure,
        options: &options,
        met: RefCell::default(),
        near: OnceCell::new(),
    };
    let at_end = if keep { AtEnd::Keep } else { AtEnd::TakeOut };
    let signals = hold(OPERATION)?;
    let mut job = Job::new(Kind::Process, paths_of(measure.per_process));
    job.set_head(target_of(&root));
    let processes = tree(&root);
    let known: BTreeSet<Pid> = processes.iter().map(|process| process.pid).collect();
    let numbered = processes.iter().map(|p| (p.pid.0 as u32, p.clone()));
    let kept = (at_end, measure.max_overhead);
    let create = |process: &Process| wanted.begin(process, *process == root);
    together::begin(&mut job, numbered.collect(), kept, &signals, create)
        .map_err(|failure| wanted.of_all(failure, processes.len()))?;
    if job.is_empty() {
        return Ok(());
    }
    let is_waiting = job.is_waiting();
    if !is_waiting {
        wanted.tell_unmet(pid, processes.len());
    }
    tell_unlimited(pid, measure, keep);
    note_begun_since(&mut job, &root, &known);
    watch(&output, show, job, signals, &[])?;
    if is_waiting {
        wanted.tell_unmet(pid, processes.len());
    }
    Ok(())
}

/// Reports descendants that started while the sessions were created.
fn note_begun_since(job: &mut Job<'_>, root: &Process, known: &BTreeSet<Pid>) {
    let is_new = |process: &&Process| !known.contains(&process.pid);
    let said = match tree(root).iter().filter(is_new).count() {
        0 => return,
        1 => "a process that started meanwhile is not measured".to_owned(),
        n => format!("{n} processes that started meanwhile are not measured"),
    };
    let pid = root.pid;
    warn(&format!(
        "{OPERATION} {pid}: {said}; --follow measures such processes"
    ));
    job.note_unmeasured(said);
}

/// The functions to measure in each process, and the options.
struct Wanted<'a> {
    patterns: &'a [Pattern],
    spots: &'a [Spot],
    measure: &'a Measure,
    options: &'a Options,
    /// Texts of the patterns that matched in at least one process.
    met: RefCell<BTreeSet<String>>,
    /// Similar names, from the first process in which nothing matches.
    near: OnceCell<Option<Hint>>,
}

impl Wanted<'_> {
    /// Creates a session in a process. One matching pattern is enough.
    fn begin(&self, process: &Process, is_root: bool) -> Result<(Session, Changed), Failure> {
        let failure = |e: SessionError| e.failure(OPERATION, process);
        process.check().map_err(|e| failure(e.into()))?;
        let selected = select_in(process, self.patterns, self.options.wanted());
        let mut selected = selected.map_err(failure)?;
        let patterns = &self.measure.patterns;
        selected.complete(self.spots, patterns.allow_trap, &self.options.items());
        self.note_met(&selected);
        let subject = process.pid.to_string();
        match (selected.selection.count(), self.measure.pending) {
            (0, true) => {}
            (0, false) => return Err(self.no_match(process, &selected)),
            _ => check_found(OPERATION, &subject, patterns, &selected.selection)?,
        }
        if let Some(runner) = Runner::of_process(process) {
            warn(&format!("{OPERATION} {subject}: {}", runner.note()));
        }
        let parent = process.parent().filter(|_| !is_root);
        let options = Options {
            parent: parent.map(|pid| pid.0),
            ..self.options.clone()
        };
        Session::create(process, &options, selected, Where::Running).map_err(failure)
    }

    /// The failure for a process in which nothing matches.
    fn no_match(&self, process: &Process, selected: &Selected) -> Failure {
        let unmatched = &selected.selection.unmatched;
        let first = unmatched.first();
        self.near
            .get_or_init(|| first.and_then(UnmatchedFailure::did_you_mean));
        no_match(process, unmatched.iter().map(|u| u.pattern.as_str()))
    }

    /// The failure if no process could be measured.
    fn of_all(&self, failure: Failure, processes: usize) -> Failure {
        let failure = failure.maybe_hint(self.near.get().cloned().flatten());
        match processes {
            0 | 1 => failure,
            n => failure.hint_first(hint!("none of its {} processes could be measured", n)),
        }
    }

    fn note_met(&self, selected: &Selected) {
        let unmatched = &selected.selection.unmatched;
        let texts = self.patterns.iter().map(Pattern::text);
        let is_met = |text: &&str| unmatched.iter().all(|u| u.pattern != *text);
        self.met
            .borrow_mut()
            .extend(texts.filter(is_met).map(str::to_owned));
    }

    /// Reports the patterns that matched in no process. With `pending` they wait for a library.
    fn tell_unmet(&self, pid: Pid, processes: usize) {
        let met = self.met.borrow();
        let texts = self.patterns.iter().map(Pattern::text);
        for text in texts.filter(|text| !met.contains(*text)) {
            if self.measure.pending {
                warn(&format!("'{text}' waits for a library that contains it"))
            } else {
                warn(&format!(
                    "{OPERATION} {pid}: no function in its {processes} processes matches '{text}'"
                ))
            }
        }
    }
}

/// The failure for a process in which no function matches these patterns.
pub(super) fn no_match<'t>(process: &Process, texts: impl Iterator<Item = &'t str>) -> Failure {
    let texts: Vec<String> = texts.map(|text| format!("'{text}'")).collect();
    let cause = format!("no function matches {}", texts.join(" or "));
    Failure::new(OPERATION, process.pid, cause)
}
