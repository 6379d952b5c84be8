//! The sources of a profile.

use crate::segment::{Document, Segment};
use crate::session::{Over, Session};
use ipath_target::process::{Presence, Process};

/// The data that a profile is made from.
#[derive(Clone, Copy)]
pub struct Measured<'s> {
    /// The segment with the session's counters.
    pub segment: &'s Segment,
    /// The description of the counters.
    pub document: &'s Document,
    /// The target, which may have ended.
    pub process: &'s Process,
    /// True if the target is still the program that the session was created in.
    pub is_in_target: bool,
    /// True if the target has executed another program.
    pub is_replaced: bool,
}

impl<'s> Measured<'s> {
    /// The current data of a session.
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
