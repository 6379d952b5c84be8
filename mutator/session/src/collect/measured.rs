//! What the numbers are read from.

use crate::segment::{Document, Segment};
use crate::session::{Over, Session};
use ipath_target::process::{Presence, Process};

/// What a profile is made of.
#[derive(Clone, Copy)]
pub struct Measured<'s> {
    /// The counters.
    pub segment: &'s Segment,
    /// What they are about.
    pub document: &'s Document,
    /// The target; it may have ended.
    pub process: &'s Process,
    /// True if the target still is the program that the session was made in.
    pub is_in_target: bool,
    /// True if the target has executed another program.
    pub is_replaced: bool,
}

impl<'s> Measured<'s> {
    /// That of a session, as it is now.
    pub(super) fn by(session: &'s Session) -> Self {
        Self {
            segment: session.segment(),
            document: session.document(),
            process: session.process(),
            is_in_target: session.presence() == Presence::Here,
            is_replaced: session.over() == Ok(Some(Over::OtherProgram)),
        }
    }
}
