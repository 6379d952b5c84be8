//! A session as something that is watched.

use patcher::select::Pattern;

use crate::collect::Collector;
use crate::process::Presence;
use crate::profile::Profile;
use crate::segment::SegmentError;
use crate::session::{Changed, Ended, Session, SessionError};
use crate::view::{Sample, Source};

/// A session under observation.
pub(super) struct Live {
    session: Session,
    collector: Collector,
    keep: bool,
    over: Option<String>,
}

impl Live {
    /// Watches a session; `keep` leaves it in the target at the end.
    pub(super) fn new(session: Session, keep: bool) -> Self {
        Self {
            session,
            collector: Collector::default(),
            keep,
            over: None,
        }
    }

    pub(super) fn session(&self) -> &Session {
        &self.session
    }

    /// The profile now, and whether there is anything left to watch.
    pub(super) fn look(&mut self) -> Result<Sample, SessionError> {
        self.session.refresh()?;
        if self.over.is_none() {
            self.over = self.ended();
        }
        // Who only looks changes nothing.
        if !self.keep && self.over.is_none() {
            for name in self.session.take_out_disturbed().unwrap_or_default() {
                super::warn(&format!("{name}: taken out: something else has patched it"));
            }
        }
        Ok(Sample {
            profile: self.collector.profile(&self.session),
            ended: self.over.clone(),
        })
    }

    fn ended(&mut self) -> Option<String> {
        let state = self
            .session
            .segment()
            .header()
            .state
            .load(std::sync::atomic::Ordering::Relaxed);
        if state == abi::segment::STATE_ENDED {
            return Some("the session has been detached".to_owned());
        }
        match self.session.presence() {
            Presence::Here | Presence::Unknown(_) => {}
            Presence::Ended => return Some("the program has ended".to_owned()),
            Presence::OtherProgram => {
                return Some("the program has become another (exec)".to_owned());
            }
        }
        None
    }

    /// Ends the watching: the final profile.
    pub(super) fn finish(&mut self) -> Result<Profile, SessionError> {
        // Who only looks leaves even the name of a session whose program has ended.
        let result = match self.keep {
            true => Ok(Ended::Detached),
            false => self.session.detach().or_else(missing_is_ended),
        };
        // What was measured is shown even where something stays in the target.
        self.session.refresh()?;
        let profile = self.collector.profile(&self.session);
        result.map(|_| profile)
    }

    fn change(
        &mut self,
        change: impl FnOnce(&mut Session) -> Result<Changed, SessionError>,
    ) -> Result<Changed, String> {
        let result = change(&mut self.session);
        result.map_err(|e| e.failure("change", self.session.process()).to_string())
    }
}

/// A session that another command has taken out needs nothing more.
fn missing_is_ended(error: SessionError) -> Result<Ended, SessionError> {
    match error {
        SessionError::Segment(SegmentError::Missing) => Ok(Ended::Detached),
        other => Err(other),
    }
}

impl Source for Live {
    fn sample(&mut self) -> Result<Sample, String> {
        self.look().map_err(|e| e.to_string())
    }

    fn add(&mut self, pattern: &str) -> Result<String, String> {
        let patterns = [Pattern::parse(pattern).map_err(|e| e.to_string())?];
        let selected = self.session.select(&patterns).map_err(|e| e.to_string())?;
        if let Some(unmatched) = selected.selection.unmatched.first() {
            let near = &unmatched.near;
            let hint = if near.is_empty() {
                String::new()
            } else {
                format!(" (did you mean {}?)", near.join(", "))
            };
            return Err(format!("{unmatched}{hint}"));
        }
        let changed = self.change(|session| session.add("add", selected))?;
        let refused = changed
            .refused
            .first()
            .map(|(name, reason)| format!("; refused {name}: {reason}"));
        let unfollowed = changed.unfollowed.first();
        let unfollowed = unfollowed.map(|path| format!("; {}", super::measure::unfollowed(path)));
        Ok(format!(
            "added {}{}{}",
            changed.functions.join(", "),
            refused.unwrap_or_default(),
            unfollowed.unwrap_or_default()
        ))
    }

    fn remove(&mut self, function: usize) -> Result<String, String> {
        let id = self
            .session
            .document()
            .measured()
            .nth(function)
            .map(|(id, _)| id);
        let id = id.ok_or("the function is not in the session")?;
        let changed = self.change(|session| session.remove(&[id]))?;
        Ok(format!("removed {}", changed.functions.join(", ")))
    }
}
