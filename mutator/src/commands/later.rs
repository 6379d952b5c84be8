//! Processes of a job whose sessions are created while the others are measured.

use super::kind::Failed;
use super::live::Live;
use crate::failure::Failure;
use ipath_session::session::Changed;
use ipath_target::process::Process;

/// A new session. `None` if the follower creates it.
type Made = Result<Option<(Live, Changed)>, Failure>;

/// Processes with a thread that waits in vfork(2), by their ranks or process ids. Such a thread
/// cannot be stopped before its child ends or calls exec.
pub(super) struct Later<'a> {
    waiting: Vec<(u32, Process)>,
    create: Box<dyn FnMut(&Process) -> Made + 'a>,
}

impl<'a> Later<'a> {
    /// Keeps these processes until they can be stopped. `create` then creates their sessions.
    /// Returns `None` without a process.
    pub(super) fn new(
        waiting: Vec<(u32, Process)>,
        create: impl FnMut(&Process) -> Made + 'a,
    ) -> Option<Self> {
        (!waiting.is_empty()).then(|| Self {
            waiting,
            create: Box::new(create),
        })
    }

    /// True if no process waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Creates a session in each process that no longer waits, and forgets the process.
    pub(super) fn begin(&mut self) -> Vec<(u32, Process, Made)> {
        let is_ready = |(_, process): &mut (u32, Process)| !process.waits_for_child();
        let ready = self.waiting.extract_if(.., is_ready);
        let made = ready.map(|(number, process)| {
            let made = (self.create)(&process);
            (number, process, made)
        });
        made.collect()
    }

    /// Failures for the processes that waited to the end.
    pub(super) fn give_up(self) -> Vec<Failed> {
        const WHY: &str = "it waited for a child of vfork(2) until the end";
        let waiting = self.waiting.into_iter();
        let failed = waiting.map(|(number, process)| {
            let failure = Failure::new("attach", process.pid, WHY);
            (number, process, failure)
        });
        failed.collect()
    }
}
