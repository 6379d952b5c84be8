//! Removing metrics from functions.

use super::enders::note_enders;
use super::lending::switch_lending;
use super::locked::Locked;
use super::remeasure::decide_taking;
use super::turn::turn_all;
use super::{Changed, Session, SessionError};

impl Session {
    /// Stops measuring these metrics for functions, by id.
    ///
    /// # Errors
    /// One of the metrics is measured by none of the functions. Nothing is changed then.
    pub fn take_metrics(
        &mut self,
        ids: &[usize],
        names: Vec<String>,
    ) -> Result<Changed, SessionError> {
        self.change(None, |locked| take_metrics(locked, ids, names))
    }
}

fn take_metrics(
    locked: &mut Locked<'_>,
    ids: &[usize],
    names: Vec<String>,
) -> Result<Changed, SessionError> {
    let made = locked.made_for();
    let turns = decide_taking(&mut locked.document, ids, names, made)?;
    let mut changed = Changed::default();
    turn_all(locked, "remove", turns, &mut changed)?;
    switch_lending(locked)?;
    note_enders(&mut locked.document);
    locked.segment.write_document(&locked.document)?;
    Ok(changed)
}
