//! A session that is looked at from outside, with nothing changed.

use super::remarks::warn;
use ipath_profile::Profile;
use ipath_session::collect::Collector;
use ipath_session::session::Session;
use ipath_target::process::Pid;

/// A session, and what is known of its code.
pub(super) struct Looked {
    session: Session,
    collector: Collector,
}

impl Looked {
    pub(super) fn of(session: Session) -> Self {
        let collector = Collector::of(session.process());
        Self { session, collector }
    }

    /// The process that is measured.
    pub(super) fn pid(&self) -> Pid {
        self.session.process().pid
    }

    /// True once nothing is counted any more.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.session.over(), Ok(Some(_)))
    }

    /// What there is now; nothing where it cannot be read at this moment.
    pub(super) fn profile(&mut self, operation: &str) -> Option<Profile> {
        if let Err(error) = self.session.refresh() {
            let failure = error.failure(operation, self.session.process());
            warn(&failure.in_one_line());
            return None;
        }
        Some(self.collector.look(&self.session).0.clone())
    }
}
