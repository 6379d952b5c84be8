//! What becomes of a session when its program executes a file: `run` goes on with the program that it has started when that
//! executes its own file anew. Of any other program it is said that it is not measured.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use patcher::select::{Pattern, Spot};

use super::replaced::{exe, file, is_shell, replaced};
use crate::error::Failure;
use crate::launch::bring_to_start;
use crate::process::{Process, Tid};
use crate::session::{Changed, Departures, Options, Session, SessionError, Where, select_stopped};
use crate::tracee::{Executed, leave, see_exec, tracing};

/// What is measured in a program again.
pub(super) struct Again {
    pub(super) operation: &'static str,
    pub(super) patterns: Vec<Pattern>,
    pub(super) spots: Vec<Spot>,
    pub(super) options: Options,
    pub(super) allows_traps: bool,
}

/// What has come of an exec.
#[derive(Default)]
enum Stage {
    /// There has been none since the last look.
    #[default]
    Nothing,
    /// It is being made.
    UnderWay,
    /// The program is measured again.
    Renewed(Box<(Session, Changed)>),
    /// It is not measured. What is to be said of it.
    Left(String),
}

/// What a look finds.
pub(super) enum Found {
    /// The session is what it was.
    Nothing,
    /// Another program may be in its place in a moment.
    UnderWay,
    /// The session of the same program, executed anew.
    Renewed(Box<(Session, Changed)>),
}

/// Sees to the program of a session as it executes a file.
pub(super) struct Renewal {
    /// Path of the program's file, and its device and inode.
    exe: String,
    file: Option<(u64, u64)>,
    /// None if nothing is measured again, whatever it executes.
    again: Option<Again>,
    stage: Mutex<Stage>,
    /// True once nobody watches any more.
    is_over: AtomicBool,
}

impl Renewal {
    /// Of the program that a process is now.
    pub(super) fn of(process: &Process, again: Option<Again>) -> Arc<Self> {
        let exe = exe(process).unwrap_or_default();
        Arc::new(Self {
            file: file(process),
            again: again.filter(|_| !is_shell(&exe)),
            exe,
            stage: Mutex::default(),
            is_over: AtomicBool::new(false),
        })
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What has come since the last look.
    pub(super) fn look(&self) -> Found {
        let mut stage = self.stage();
        match std::mem::take(&mut *stage) {
            Stage::Nothing => Found::Nothing,
            Stage::Renewed(renewed) => Found::Renewed(renewed),
            kept @ Stage::UnderWay => {
                *stage = kept;
                Found::UnderWay
            }
            kept @ Stage::Left(_) => {
                *stage = kept;
                Found::Nothing
            }
        }
    }

    /// Ends it: what is executed from now on is not measured again. Waits for an exec that is under way.
    pub(super) fn end(&self) -> Found {
        const PATIENCE: Duration = Duration::from_secs(20);
        const PAUSE: Duration = Duration::from_millis(1);
        self.is_over.store(true, Ordering::Release);
        let until = Instant::now() + PATIENCE;
        loop {
            match self.look() {
                Found::UnderWay if Instant::now() < until => sleep(PAUSE),
                found => return found,
            }
        }
    }

    /// What is to be said of a program that has been executed and is not measured.
    pub(super) fn left(&self) -> Option<String> {
        match &*self.stage() {
            Stage::Left(said) => Some(said.clone()),
            _ => None,
        }
    }

    /// What comes of an exec of one thread. Runs on the thread that traces.
    fn lead(&self, process: &Process, tid: Tid, go_on: &(dyn Fn() + Sync)) -> Stage {
        let failed = |why: String| {
            Stage::Left(format!(
                "{} may have executed another program: {why}",
                self.exe
            ))
        };
        match see_exec(process, tid, go_on) {
            Ok(Executed::Yes) => {}
            Ok(Executed::No | Executed::Ended) => return Stage::Nothing,
            Err(error) => return failed(error.to_string()),
        }
        let by = exe(process).unwrap_or_default();
        let is_same = self.file.is_some() && file(process) == self.file;
        let is_wanted = is_same && !self.is_over.load(Ordering::Acquire);
        let Some(again) = self.again.as_ref().filter(|_| is_wanted) else {
            // Whatever fails: it has ended.
            let _ = leave(Tid(process.pid.0));
            return Stage::Left(replaced(&self.exe, &by));
        };
        match again.measure(process) {
            Ok(made) => Stage::Renewed(Box::new(made)),
            Err(failure) => failed(failure.in_one_line()),
        }
    }
}

impl Again {
    /// Measures a traced program that has just been executed. It goes on, untraced.
    fn measure(&self, process: &Process) -> Result<(Session, Changed), Failure> {
        let unknown = |cause: String| Failure::new(self.operation, process.pid, cause);
        let failure = |e: SessionError| e.failure(self.operation, process);
        let mut stopped = bring_to_start(process).map_err(|e| unknown(e.to_string()))?;
        let mut made = || {
            let space = Arc::clone(stopped.space());
            let held = Some(&mut stopped);
            let wanted = self.options.wanted();
            let mut selected =
                select_stopped(space, &self.patterns, wanted, held, true).map_err(failure)?;
            selected.complete(&self.spots, self.allows_traps, &self.options.items());
            let held = Where::Stopped(&mut stopped);
            let made = Session::create(process, &self.options, selected, held);
            made.inspect(|(session, _)| session.note_begin())
                .map_err(failure)
        };
        let made = made();
        let resumed = stopped.resume().map_err(|e| unknown(e.to_string()));
        made.and_then(|made| resumed.map(|_| made))
    }
}

impl Departures for Renewal {
    fn executes(&self, process: &Process, tid: Tid, go_on: &(dyn Fn() + Sync)) {
        *self.stage() = Stage::UnderWay;
        let stage = tracing(|| self.lead(process, tid, go_on));
        *self.stage() = stage;
    }

    fn exits(&self, _: &Process, _: bool) {}
}
