//! A session as something that is watched.

use patcher::select::Pattern;

use super::measure::{self, MANY};
use super::outcome::{added, partly_counted, unfollowed};
use super::panics::caught;
use super::remarks::warn;
use crate::collect::Collector;
use crate::error::Failure;
use crate::guest::Runner;
use crate::process::Presence;
use crate::profile::Profile;
use crate::segment::{Remeasure, SegmentError};
use crate::session::{Answering, Changed, Session, SessionError};
use crate::stumble::stumble;
use crate::view::{Sample, Source};

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    ProgramEnded,
    OtherProgram,
    Detached,
}

impl Over {
    fn text(self) -> &'static str {
        match self {
            Self::ProgramEnded => "the program has ended",
            Self::OtherProgram => "the program has become another (exec)",
            Self::Detached => "the session has been detached",
        }
    }
}

/// A session under observation.
pub(super) struct Live {
    session: Session,
    collector: Collector,
    at_end: AtEnd,
    /// Who runs the code of the process, where it does not itself.
    runner: Option<Runner>,
    over: Option<Over>,
    is_finished: bool,
    /// Finds rules for the runtime meanwhile.
    answering: Option<Answering>,
}

impl Live {
    /// Watches a session.
    pub(super) fn new(session: Session, at_end: AtEnd) -> Self {
        let runner = Runner::of_process(session.process());
        let answering = Some(Answering::begin(session.process()));
        Self {
            session,
            collector: Collector::default(),
            at_end,
            runner,
            over: None,
            is_finished: false,
            answering,
        }
    }

    pub(super) fn session(&self) -> &Session {
        &self.session
    }

    pub(super) fn session_mut(&mut self) -> &mut Session {
        &mut self.session
    }

    /// The profile now, and whether there is anything left to watch.
    pub(super) fn look(&mut self) -> Result<Sample, SessionError> {
        stumble("look");
        self.session.refresh()?;
        let mut doubt = None;
        if self.over.is_none() {
            self.over = match self.ended() {
                Ok(over) => over,
                Err(cause) => {
                    let pid = self.session.process().pid;
                    doubt = Some(format!("whether {pid} still runs cannot be seen: {cause}"));
                    None
                }
            };
        }
        // Who only looks changes nothing.
        if self.at_end != AtEnd::Nothing && self.over == Some(Over::ProgramEnded) {
            self.session.note_end();
        }
        if self.at_end != AtEnd::Nothing && self.over.is_none() {
            for name in self.session.take_out_disturbed().unwrap_or_default() {
                warn(&format!("{name}: taken out: something else has patched it"));
            }
        }
        Ok(Sample {
            profile: self.profile(),
            ended: self.over.map(|over| over.text().to_owned()),
            doubt,
        })
    }

    fn profile(&mut self) -> Profile {
        stumble("collect");
        let mut profile = self.collector.profile(&self.session);
        profile.session.notes.extend(self.runner.map(Runner::note));
        profile
    }

    /// Why there is nothing more to come; or why that cannot be seen.
    fn ended(&self) -> Result<Option<Over>, String> {
        let header = self.session.segment().header();
        let state = header.state.load(std::sync::atomic::Ordering::Relaxed);
        match self.session.presence() {
            Presence::Ended => Ok(Some(Over::ProgramEnded)),
            _ if state == abi::segment::STATE_ENDED => Ok(Some(Over::Detached)),
            Presence::OtherProgram => Ok(Some(Over::OtherProgram)),
            Presence::Here => Ok(None),
            Presence::Unknown(cause) => Err(cause),
        }
    }

    /// Ends the watching: whether what was to come out is out, which is done before anything else, and the
    /// final profile, also where something stays in the target.
    pub(super) fn finish(&mut self) -> (Result<(), Failure>, Result<Profile, Failure>) {
        self.answering = None;
        let process = self.session.process().clone();
        // What runs the code may have been loaded since.
        self.runner = self.runner.or_else(|| Runner::of_process(&process));
        let ended = self.end();
        let profile = caught("collect", || {
            let failure = |e: SessionError| e.failure("collect", &process);
            self.session.refresh().map_err(failure)?;
            Ok(self.profile())
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
                    .map_err(|e| e.failure("detach", &process))
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

    /// The id of a function by its index in the latest sample.
    fn function(&self, index: usize) -> Result<usize, String> {
        let id = self.session.document().measured().nth(index);
        let id = id.map(|(id, _)| id);
        id.ok_or_else(|| "the function is not in the session".to_owned())
    }

    fn apply(
        &mut self,
        change: impl FnOnce(&mut Session) -> Result<Changed, SessionError>,
    ) -> Result<Changed, String> {
        let result = change(&mut self.session);
        result.map_err(|e| e.failure("change", self.session.process()).to_string())
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

impl Source for Live {
    fn sample(&mut self) -> Result<Sample, String> {
        self.look().map_err(|e| e.to_string())
    }

    fn add(&mut self, pattern: &str) -> Result<String, String> {
        let patterns = [Pattern::parse(pattern).map_err(|e| e.to_string())?];
        let selected = self
            .session
            .select(&patterns, None)
            .map_err(|e| e.to_string())?;
        if let Some(unmatched) = selected.selection.unmatched.first() {
            let near = &unmatched.near;
            let hint = if near.is_empty() {
                String::new()
            } else {
                format!(" (did you mean {}?)", near.join(", "))
            };
            return Err(format!("{unmatched}{hint}"));
        }
        let count = selected.selection.candidates.len();
        if count > MANY {
            let pid = self.session.process().pid;
            return Err(format!(
                "{count} functions match: `ipath add {pid} -f '{pattern}' --yes` instruments them all"
            ));
        }
        let changed = self.apply(|session| session.add("add", selected))?;
        let refused = changed
            .refused
            .first()
            .map(|(name, reason)| format!("; refused {name}: {reason}"));
        let moving = changed.unfollowed.first();
        let moving = moving.map(|path| format!("; {}", unfollowed(path)));
        let partly = changed.partly.first();
        let partly = partly.and_then(partly_counted);
        let partly = partly.map(|line| format!("; {line}"));
        let further = [refused, moving, partly].into_iter().flatten();
        Ok(added(&changed) + &further.collect::<String>())
    }

    fn change(&mut self, function: usize, metrics: &str) -> Result<String, String> {
        let text = |failure: Failure| {
            let hint = failure.hint_text().map(|hint| format!(" ({hint})"));
            format!("{failure}{}", hint.unwrap_or_default())
        };
        let names: Vec<String> = metrics.split(',').map(str::to_owned).collect();
        let names: Vec<String> = names.into_iter().filter(|n| !n.trim().is_empty()).collect();
        let metrics = measure::metrics("change", &names).map_err(text)?;
        let id = self.function(function)?;
        let document = self.session.document();
        let place = document
            .functions
            .get(id)
            .filter(|f| f.active && !f.is_point);
        let place = place.and_then(|f| document.place_of(f));
        let (bias, address) = place.ok_or("it is no function that is in")?;
        let at = format!("{:#x}", bias.to_avma(address).0);
        let pattern = Pattern::parse(&at).map_err(|e| e.to_string())?;
        let process = self.session.process().clone();
        let failure = |e: SessionError| text(e.failure("change", &process));
        let remeasure = Some(Remeasure::Set(metrics));
        let selected = self
            .session
            .select(&[pattern], remeasure)
            .map_err(failure)?;
        let changed = self.session.add("add", selected).map_err(failure)?;
        Ok(added(&changed))
    }

    fn remove(&mut self, function: usize) -> Result<String, String> {
        let id = self.function(function)?;
        let changed = self.apply(|session| session.remove(&[id]))?;
        Ok(format!("removed {}", changed.functions.join(", ")))
    }
}
