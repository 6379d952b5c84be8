//! Functions that measure some metrics no longer.

use super::enders::note_enders;
use super::lending::switch_lending;
use super::locked::Locked;
use super::remeasure::decide_taking;
use super::turn::turn_all;
use super::{Changed, Session, SessionError};

impl Session {
    /// Has functions, by id, measure these metrics no longer.
    ///
    /// # Errors
    /// One of the metrics is measured of none of them; then nothing is changed.
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
