//! Detaches from a process with LeakSanitizer before its leak check. The check starts a process
//! that attaches to all threads (PTRACE_ATTACH, compiler-rt's
//! sanitizer_stoptheworld_linux_libcdep.cpp). That fails if another process traces them: the
//! program would exit with an error and without its report.

use std::sync::{Arc, Mutex};

use super::shared::{Shared, lock, program_of};
use crate::session::Departures;
use ipath_target::process::{Process, Space, Tid};
use ipath_target::tracee::{Stopped, TraceeError, followed, tracing};

/// Detaches from processes as they exit.
pub(super) struct Letting(Arc<Mutex<Shared>>);

impl Letting {
    pub(super) fn of(shared: &Arc<Mutex<Shared>>) -> Arc<dyn Departures> {
        Arc::new(Self(Arc::clone(shared)))
    }
}

impl Departures for Letting {
    /// The tracer sees every exec itself.
    fn executes(&self, _: &Process, _: Tid, _: &(dyn Fn() + Sync)) {}

    fn exits(&self, process: &Process, goes_on: bool) {
        let pid = process.pid;
        let let_go = || {
            if followed::process_of(Tid(pid.0)).is_none() {
                return Ok(false);
            }
            let space = Arc::new(Space::open(process).map_err(TraceeError::Process)?);
            let stopped = Stopped::all(&space)?;
            followed::let_go(pid);
            lock(&self.0).let_go.insert(pid);
            stopped.resume().map(|_| true)
        };
        let done = tracing(let_go);
        let mut shared = lock(&self.0);
        match done {
            Ok(true) => shared.seen.let_go += u64::from(goes_on),
            // It was detached before, or it has ended first.
            Ok(false) | Err(TraceeError::Gone(_)) => {}
            Err(error) => {
                let why = format!(
                    "LeakSanitizer may fail in it, because ipath cannot release it: \
                    {error}"
                );
                shared.remarks.say(pid, program_of(process), &why, &why);
            }
        }
    }
}
