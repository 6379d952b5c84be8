//! A session that is read from outside, without changing it.

use super::remarks::warn;
use crate::commands::failures::SessionFailure;
use ipath_profile::Profile;
use ipath_session::collect::Collector;
use ipath_session::session::Session;
use ipath_target::process::Pid;

/// A session with a collector for it.
pub(super) struct Looked {
    session: Session,
    collector: Collector,
}

impl Looked {
    /// A session to read. It is not changed.
    pub(super) fn of(session: Session) -> Self {
        let collector = Collector::of(session.process());
        Self { session, collector }
    }

    /// The process that is measured.
    pub(super) fn pid(&self) -> Pid {
        self.session.process().pid
    }

    /// True once the session no longer counts calls. False if that cannot be determined.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.session.over(), Ok(Some(_)))
    }

    /// The current profile. `None` if the session cannot be read at the moment, which is printed.
    pub(super) fn profile(&mut self, operation: &str) -> Option<Profile> {
        if let Err(error) = self.session.refresh() {
            let failure = error.failure(operation, self.session.process());
            warn(&failure.in_one_line());
            return None;
        }
        Some(self.collector.look(&self.session).0.clone())
    }
}
