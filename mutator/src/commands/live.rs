//! A session that is being watched.

mod shown;

use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::thread::JoinHandle;

use nix::sys::signal::Signal;

use super::limit::Limit;
use super::panics::caught;
use super::remarks::{self, warn};
use super::renewal::{Looked, Renewal};
use super::replaced::Begun;
use crate::commands::failures::SessionFailure;
use crate::failure::Failure;
use ipath_base::hint::{CommandLine, Word, hint};
use ipath_base::printable::printable;
use ipath_profile::clock;
use ipath_profile::merge::Merger;
use ipath_profile::report::loss_lines;
use ipath_profile::{Changed, Inside, Profile, Unseen};
use ipath_session::collect::Collector;
use ipath_session::segment::SegmentError;
use ipath_session::session::{Answering, Departures, Over, Session, SessionError};
use ipath_target::emulators::Runner;
use ipath_target::fault_injection::stumble;
use ipath_target::process::{Pid, Process};
use ipath_view::{Names, Sample, Source};

/// The fate of the session when watching ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AtEnd {
    /// The session is removed.
    TakeOut,
    /// The session stays in the program for as long as that runs.
    Keep,
    /// The session belongs to another command and is left alone, even if its program ends.
    Nothing,
}

/// The note on a program that has started others.
const UNFOLLOWED: &str = "processes that it has started are not measured: --follow measures them";

/// The reason why there is nothing more to watch.
fn text(over: Over) -> &'static str {
    match over {
        Over::ProgramEnded => "the program has ended",
        Over::OtherProgram => "the program has executed another one (exec)",
        Over::Detached => "the session has been detached",
    }
}

/// A session or job that is watched until it ends.
pub(super) trait Watched: Source {
    /// The processes whose end should be noticed at once.
    fn watched(&self) -> Vec<&Process>;

    /// Creates sessions that had to wait. Returns true if some still wait.
    fn begin_waiting(&mut self) -> bool {
        false
    }

    /// Records the current time as the end of ended processes, before a look that may take long.
    /// Returns true if no process is left.
    fn note_ends(&mut self) -> bool;

    /// The current profile, and whether watching continues.
    fn look(&mut self) -> Result<Sample<'_>, Failure>;

    /// Ends the watching. The first result is that of removing the sessions, which happens first.
    /// The second one is the final profile, even if a session stays in its target.
    fn finish(&mut self) -> (Result<(), Failure>, Result<Profile, Failure>);

    /// The processes in which a session stays on purpose.
    fn kept_in(&self) -> Vec<Pid>;

    /// The final profile again, after debug files have arrived.
    fn profile_again(&mut self) -> Result<Profile, Failure>;

    /// The end of the last process, as text. `None` while one runs.
    fn ended(&self) -> Option<String>;

    /// Lines about programs that have replaced measured ones and are not measured.
    fn replaced(&self) -> Vec<String>;
}

/// A watched session.
pub(super) struct Live {
    session: Session,
    collector: Collector,
    at_end: AtEnd,
    /// The emulator or virtual machine that runs the process's code, if any.
    runner: Option<Runner>,
    /// The reason why there is nothing more to watch. `None` while there is.
    over: Option<Over>,
    /// The state of the process when watching began.
    begun: Begun,
    /// A descriptor of the process, opened while it ran.
    ending: Option<OwnedFd>,
    /// Watches for execs of the program.
    renewal: Option<Arc<Renewal>>,
    /// The sum over the program before it executed its own file again.
    before: Option<Merger>,
    /// `before` with the current profile added, as of the last look.
    sum: Option<Profile>,
    /// The note on the program that replaced this one and is not measured.
    left: Option<String>,
    is_finished: bool,
    /// Answers the runtime's requests for unwind rules meanwhile.
    answering: Option<Answering>,
    /// Reads the names of all functions.
    names: Option<JoinHandle<Names>>,
    /// The limit of the overhead, as a share of the CPU time. `None` without a limit.
    most: Option<f64>,
    /// Keeps the limit meanwhile.
    limit: Option<Limit>,
}

impl Live {
    /// Watches a session.
    pub(super) fn new(session: Session, at_end: AtEnd) -> Self {
        Self::with(session, at_end, None, None)
    }

    /// Like [`new`](Self::new), for a session whose runtime already gets answers.
    pub(super) fn answered(session: Session, at_end: AtEnd, answering: Option<Answering>) -> Self {
        Self::with(session, at_end, answering, None)
    }

    /// Watches a session whose program may execute a file.
    pub(super) fn renewed(session: Session, at_end: AtEnd, renewal: Arc<Renewal>) -> Self {
        Self::with(session, at_end, None, Some(renewal))
    }

    fn with(
        session: Session,
        at_end: AtEnd,
        answering: Option<Answering>,
        renewal: Option<Arc<Renewal>>,
    ) -> Self {
        let runner = Runner::of_process(session.process());
        let begun = Begun::of(session.process());
        let ending = session.process().ending();
        // An ended process makes no requests.
        let runs = !session.process().has_ended();
        let measures = at_end != AtEnd::Nothing;
        let begin =
            || runs.then(|| Answering::begin(session.process(), departures(&renewal), measures));
        let answering = answering.or_else(begin);
        let mut collector = Collector::of(session.process());
        collector.set_remark(runner.map(Runner::note));
        Self {
            session,
            collector,
            at_end,
            runner,
            over: None,
            begun,
            ending,
            renewal,
            before: None,
            sum: None,
            left: None,
            is_finished: false,
            answering,
            names: None,
            most: None,
            limit: None,
        }
    }

    /// Keeps the overhead below this share of the CPU time while it watches. Does nothing with
    /// `None`.
    pub(super) fn limited(mut self, most: Option<f64>) -> Self {
        self.most = most;
        self.begin_limit();
        self
    }

    fn begin_limit(&mut self) {
        let process = self.session.process();
        let runs = !process.has_ended();
        let most = self.most.filter(|_| runs);
        self.limit = most.map(|most| Limit::begin(&self.session, most));
    }

    pub(super) fn session(&self) -> &Session {
        &self.session
    }

    pub(super) fn session_mut(&mut self) -> &mut Session {
        &mut self.session
    }

    /// The current profile, and whether watching continues.
    pub(super) fn look(&mut self) -> Result<Sample<'_>, SessionError> {
        stumble("look");
        let is_under_way = self.take_renewed();
        self.session.refresh()?;
        let mut doubt = None;
        if self.over.is_none() {
            self.over = match self.session.over() {
                // The new program gets a session soon.
                Ok(Some(Over::OtherProgram)) if is_under_way || self.take_renewed() => None,
                Ok(over) => over,
                Err(cause) => {
                    let pid = self.session.process().pid;
                    doubt = Some(format!(
                        "cannot determine whether {pid} still runs: {cause}"
                    ));
                    None
                }
            };
        }
        if self.over == Some(Over::ProgramEnded) {
            self.note_ends();
        }
        if self.at_end != AtEnd::Nothing && self.over.is_none() {
            for said in self.session.take_out_lost().unwrap_or_default() {
                warn(&said);
            }
        }
        self.begun.look();
        let stands = self.session.process().stands();
        stumble("collect");
        let (profile, changed) = self.collector.look(&self.session);
        let summed = self.before.as_ref().and_then(|sum| with(sum, profile));
        let (profile, changed) = match summed {
            Some(summed) => (&*self.sum.insert(summed), Changed::All),
            None => (profile, changed),
        };
        Ok(Sample {
            profile,
            changed,
            stands,
            ended: self.over.map(|over| text(over).to_owned()),
            doubt,
            said: remarks::latest(),
        })
    }

    /// Switches to the session of the program that executed its own file again. True if there is
    /// such a session, or may be one soon.
    fn take_renewed(&mut self) -> bool {
        match self.renewal.as_ref().map(|renewal| renewal.look()) {
            Some(Looked::Renewed(made)) => self.renew(made.0),
            Some(Looked::UnderWay) => {}
            _ => return false,
        }
        true
    }

    /// Switches to the session of the program that executed its own file again.
    fn renew(&mut self, session: Session) {
        self.limit = None;
        if session.process().has_ended() {
            // The end may have been seen before this session existed.
            session.note_end_at(self.session.ended_at().unwrap_or_else(clock::tsc));
        }
        self.session.note_end();
        self.collector.set_continued();
        // Counts that cannot be read are lost from the profile.
        let profile = match self.session.refresh() {
            Ok(()) => Some(self.collector.profile(&self.session)),
            Err(error) => {
                warn(
                    &error
                        .failure("collect", self.session.process())
                        .in_one_line(),
                );
                None
            }
        };
        let _: Result<(), SessionError> = self.session.give_up();
        let is_empty = |p: &Profile| {
            p.calls() == 0
                && loss_lines(p).is_empty()
                && p.inside.iter().all(Inside::is_without_counts)
        };
        if let Some(profile) = profile.filter(|profile| !is_empty(profile)) {
            let sum = self.before.get_or_insert_with(Merger::default);
            if let Err(error) = sum.add(&profile) {
                warn(&format!("watch {}: {error}", profile.target.pid));
            }
        }
        let process = session.process().clone();
        self.collector = Collector::of(&process);
        self.collector.set_remark(self.runner.map(Runner::note));
        self.begun = Begun::of(&process);
        self.answering = Some(Answering::begin(
            &process,
            departures(&self.renewal),
            self.at_end != AtEnd::Nothing,
        ));
        self.names = None;
        self.over = None;
        self.session = session;
        self.begin_limit();
    }

    /// Adds notes to the profile.
    pub(super) fn note_all(&mut self, said: impl IntoIterator<Item = String>) {
        said.into_iter()
            .for_each(|note| self.collector.add_note(note));
    }

    /// Adds to the profile the losses that the session knows of.
    fn note_unseen(&mut self) {
        let came = self.session.came_unmeasured();
        self.collector.set_libraries(came.len() as u64);
        for path in came {
            let path = printable(&path).into_owned();
            self.note_all([format!(
                "{path} was loaded later, and its matching functions are not measured: --pending \
                measures such functions"
            )]);
        }
        if self.begun.has_started_others() {
            self.note_all([UNFOLLOWED.to_owned()]);
        }
    }

    /// The final profile, including everything measured before an exec.
    fn whole(&mut self) -> Profile {
        let profile = self.collector.profile(&self.session);
        let summed = self.before.as_ref().and_then(|sum| with(sum, &profile));
        summed.unwrap_or(profile)
    }

    /// See [`Watched::finish`].
    pub(super) fn finish(&mut self) -> (Result<(), Failure>, Result<Profile, Failure>) {
        if let Some(Looked::Renewed(made)) = self.renewal.as_ref().map(|renewal| renewal.end()) {
            self.renew(made.0);
        }
        if self.session.document().tells_of_execs {
            let told = self.renewal.as_ref().and_then(|renewal| renewal.left());
            self.left = told.or_else(|| self.begun.replaced());
            let left = self.left.clone().map(|said| (Unseen::Programs, said));
            self.collector.set_left(left);
            self.note_unseen();
        }
        self.answering = None;
        self.limit = None;
        let process = self.session.process().clone();
        // The virtual machine may have been loaded since.
        self.runner = self.runner.or_else(|| Runner::of_process(&process));
        self.collector.set_remark(self.runner.map(Runner::note));
        let ended = self.end();
        let profile = caught("collect", || {
            let failure = |e: SessionError| e.failure("collect", &process);
            self.session.refresh().map_err(failure)?;
            stumble("collect");
            Ok(self.whole())
        });
        (ended, profile)
    }

    fn end(&mut self) -> Result<(), Failure> {
        if std::mem::replace(&mut self.is_finished, true) {
            return Ok(());
        }
        let process = self.session.process().clone();
        let detach = |session: &mut Session| {
            caught("detach", || {
                stumble("detach");
                session
                    .detach()
                    .map(drop)
                    .or_else(missing_is_ended)
                    .map_err(|e| {
                        let (pid, by) = (process.pid, e.tracer());
                        let stays = by.map(|name| {
                            hint!(
                                "the session stays in: `{}` takes it out once {} has detached",
                                CommandLine::ipath("detach").pid(pid),
                                Word(name)
                            )
                        });
                        e.failure("detach", &process).maybe_hint(stays)
                    })
            })
        };
        match (self.at_end, &self.over) {
            (AtEnd::Nothing, _) | (AtEnd::Keep, None) | (_, Some(Over::Detached)) => Ok(()),
            // If the process is gone, this removes the segment's name. A second attempt completes a
            // removal that a bug in this program interrupted.
            _ => detach(&mut self.session).or_else(|failure| {
                if failure.is_internal() {
                    detach(&mut self.session).and(Err(failure))
                } else {
                    Err(failure)
                }
            }),
        }
    }
}

impl Watched for Live {
    fn watched(&self) -> Vec<&Process> {
        vec![self.session.process()]
    }

    fn note_ends(&mut self) -> bool {
        self.take_renewed();
        let is_over = self.session.process().has_ended();
        // A command that only watches changes nothing.
        if is_over && self.at_end != AtEnd::Nothing {
            self.session.note_end();
        }
        is_over
    }

    fn look(&mut self) -> Result<Sample<'_>, Failure> {
        let process = self.session.process().clone();
        Self::look(self).map_err(|e| e.failure("watch", &process))
    }

    fn finish(&mut self) -> (Result<(), Failure>, Result<Profile, Failure>) {
        Self::finish(self)
    }

    fn kept_in(&self) -> Vec<Pid> {
        let is_kept = self.at_end == AtEnd::Keep && self.over.is_none();
        let kept = is_kept.then(|| self.session.process().pid);
        kept.into_iter().collect()
    }

    fn profile_again(&mut self) -> Result<Profile, Failure> {
        caught("collect", || Ok(self.whole()))
    }

    fn ended(&self) -> Option<String> {
        let process = self.session.process();
        let is_ended = self
            .over
            .map_or_else(|| process.has_ended(), |o| o == Over::ProgramEnded);
        let ending = self.ending.as_ref().filter(|_| is_ended);
        let status = ending.and_then(|ending| process.exit_status(ending));
        let how = status.map_or_else(String::new, |status| format!(" ({})", told(status)));
        is_ended.then(|| format!("process {} ended{how}", process.pid))
    }

    fn replaced(&self) -> Vec<String> {
        let pid = self.session.process().pid;
        let told = self.left.as_ref().map(|by| format!("watch {pid}: {by}"));
        told.into_iter().collect()
    }
}

/// The signal that ended a process, or its exit status.
fn told(status: ExitStatus) -> String {
    let signal = status.signal().map(|number| {
        let name = Signal::try_from(number).map(Signal::as_str);
        name.map_or_else(|_| format!("signal {number}"), str::to_owned)
    });
    signal.unwrap_or_else(|| format!("exit status {}", status.code().unwrap_or_default()))
}

/// The sum with a profile added. `None` if the two cannot be merged.
fn with(sum: &Merger, profile: &Profile) -> Option<Profile> {
    let mut sum = sum.clone();
    sum.add(profile).ok()?;
    sum.finish()
}

fn departures(renewal: &Option<Arc<Renewal>>) -> Option<Arc<dyn Departures>> {
    let renewal = renewal.as_ref().map(Arc::clone)?;
    Some(renewal)
}

/// Accepts a session that another command has removed.
fn missing_is_ended(error: SessionError) -> Result<(), SessionError> {
    match error {
        SessionError::Segment(SegmentError::Missing) => Ok(()),
        other => Err(other),
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // Only reached without a regular end. Errors cannot be reported here.
        let _ = self.end();
    }
}
