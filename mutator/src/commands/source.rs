//! A session as something that is watched.

mod shown;

use std::thread::JoinHandle;

use super::panics::caught;
use super::remarks::{self, warn};
use super::replaced::Begun;
use crate::collect::Collector;
use crate::error::Failure;
use crate::guest::Runner;
use crate::hint::{CommandLine, Word, hint};
use crate::process::{Pid, Process};
use crate::profile::Profile;
use crate::segment::SegmentError;
use crate::session::{Answering, Over, Session, SessionError};
use crate::stumble::stumble;
use crate::view::{Names, Sample, Source};

/// What becomes of the session when the watching ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AtEnd {
    /// It is taken out.
    TakeOut,
    /// It stays in the program, as long as that runs.
    Keep,
    /// It is somebody else's: nothing is done to it, whatever became of its program.
    Nothing,
}

/// Why there is nothing more to watch.
fn text(over: Over) -> &'static str {
    match over {
        Over::ProgramEnded => "the program has ended",
        Over::OtherProgram => "the program has become another (exec)",
        Over::Detached => "the session has been detached",
    }
}

/// What is watched until it ends.
pub(super) trait Watched: Source {
    /// The processes whose ends are to be seen at once.
    fn watched(&self) -> Vec<&Process>;

    /// Takes this moment for the end of what has ended, before a look, which may take its time; true if nothing is left.
    fn note_ends(&mut self) -> bool;

    /// The profile now, and whether there is anything left to watch.
    fn look(&mut self) -> Result<Sample<'_>, Failure>;

    /// Ends the watching: whether what was to come out is out, which is done before anything else, and the final profile,
    /// also where something stays in the target.
    fn finish(&mut self) -> (Result<(), Failure>, Result<Profile, Failure>);

    /// The processes that a session stays in, where it was to.
    fn kept_in(&self) -> Vec<Pid>;

    /// The final profile once more, after debug files have come.
    fn profile_again(&mut self) -> Result<Profile, Failure>;

    /// Says what has taken the place of programs, if something has.
    fn replaced(&self) -> Vec<String>;
}

/// A session under observation.
pub(super) struct Live {
    session: Session,
    collector: Collector,
    at_end: AtEnd,
    /// Who runs the code of the process, where it does not itself.
    runner: Option<Runner>,
    over: Option<Over>,
    begun: Begun,
    is_finished: bool,
    /// Finds rules for the runtime meanwhile.
    answering: Option<Answering>,
    /// Reads the names of all functions.
    names: Option<JoinHandle<Names>>,
}

impl Live {
    /// Watches a session.
    pub(super) fn new(session: Session, at_end: AtEnd) -> Self {
        Self::answered(session, at_end, None)
    }

    /// The same where somebody answers the runtime already.
    pub(super) fn answered(session: Session, at_end: AtEnd, answering: Option<Answering>) -> Self {
        let runner = Runner::of_process(session.process());
        let begun = Begun::of(session.process());
        // One that has ended asks nothing.
        let runs = !session.process().has_ended();
        let begin = || runs.then(|| Answering::begin(session.process()));
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
            is_finished: false,
            answering,
            names: None,
        }
    }

    pub(super) fn session(&self) -> &Session {
        &self.session
    }

    pub(super) fn session_mut(&mut self) -> &mut Session {
        &mut self.session
    }

    /// The profile now, and whether there is anything left to watch.
    pub(super) fn look(&mut self) -> Result<Sample<'_>, SessionError> {
        stumble("look");
        self.session.refresh()?;
        let mut doubt = None;
        if self.over.is_none() {
            self.over = match self.session.over() {
                Ok(over) => over,
                Err(cause) => {
                    let pid = self.session.process().pid;
                    doubt = Some(format!("whether {pid} still runs cannot be seen: {cause}"));
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
        let stands = self.session.process().stands();
        stumble("collect");
        let (profile, changed) = self.collector.look(&self.session);
        Ok(Sample {
            profile,
            changed,
            stands,
            ended: self.over.map(|over| text(over).to_owned()),
            doubt,
            said: remarks::latest(),
        })
    }

    /// See [`Watched::finish`].
    pub(super) fn finish(&mut self) -> (Result<(), Failure>, Result<Profile, Failure>) {
        self.answering = None;
        let process = self.session.process().clone();
        // What runs the code may have been loaded since.
        self.runner = self.runner.or_else(|| Runner::of_process(&process));
        self.collector.set_remark(self.runner.map(Runner::note));
        let ended = self.end();
        let profile = caught("collect", || {
            let failure = |e: SessionError| e.failure("collect", &process);
            self.session.refresh().map_err(failure)?;
            stumble("collect");
            Ok(self.collector.profile(&self.session))
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
                                "the session stays in: `{}` takes it out once {} has let go",
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
            // Where its process is gone, its name goes. A second try finishes what a defect of this
            // program has left half done.
            _ => detach(&mut self.session).or_else(|failure| match failure.is_internal() {
                true => detach(&mut self.session).and(Err(failure)),
                false => Err(failure),
            }),
        }
    }
}

impl Watched for Live {
    fn watched(&self) -> Vec<&Process> {
        vec![self.session.process()]
    }

    fn note_ends(&mut self) -> bool {
        let is_over = self.session.process().has_ended();
        // Who only looks changes nothing.
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
        caught("collect", || Ok(self.collector.profile(&self.session)))
    }

    fn replaced(&self) -> Vec<String> {
        let pid = self.session.process().pid;
        let replaced = self.begun.replaced();
        let told = replaced.map(|by| format!("watch {pid}: {by}"));
        told.into_iter().collect()
    }
}

/// A session that another command has taken out needs nothing more.
fn missing_is_ended(error: SessionError) -> Result<(), SessionError> {
    match error {
        SessionError::Segment(SegmentError::Missing) => Ok(()),
        other => Err(other),
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // Only where nothing has come to its regular end: there is nobody to tell of an error.
        let _ = self.end();
    }
}
