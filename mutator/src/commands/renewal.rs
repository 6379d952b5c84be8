//! Handles an exec in a measured program. `run` measures the new program from its first
//! instruction. `attach` reports it as not measured.

use crate::commands::failures::SessionFailure;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use patcher::select::{Pattern, Spot};

use super::replaced::{exe, replaced};
use crate::failure::Failure;
use ipath_session::launch::bring_to_start;
use ipath_session::session::{
    Changed, Departures, Options, Selection, Session, SessionError, Where, select_stopped,
};
use ipath_target::process::{Process, Tid};
use ipath_target::tracee::{Executed, leave, see_exec, tracing};

/// The request to repeat after an exec.
pub(super) struct Again {
    /// The name of the command in messages.
    pub(super) operation: &'static str,
    pub(super) patterns: Vec<Pattern>,
    pub(super) spots: Vec<Spot>,
    pub(super) options: Options,
    /// True if breakpoints may be used.
    pub(super) allows_traps: bool,
    /// The most functions that are instrumented.
    pub(super) most: usize,
}

/// The progress of an exec.
#[derive(Default)]
enum Stage {
    /// No exec since the last look.
    #[default]
    Nothing,
    /// A thread is making the call.
    UnderWay,
    /// The program is measured again.
    Renewed(Box<(Session, Changed)>),
    /// The program is not measured; the note to show.
    Left(String),
}

/// The result of a look.
pub(super) enum Looked {
    /// The session is unchanged.
    Nothing,
    /// Another program may replace this one in a moment.
    UnderWay,
    /// The session of the program that was executed.
    Renewed(Box<(Session, Changed)>),
}

/// Watches the program of a session for execs.
pub(super) struct Renewal {
    /// The path of the program's file at the start.
    exe: String,
    /// `None` if no executed program is to be measured again.
    again: Option<Again>,
    stage: Mutex<Stage>,
    /// True once the watching has ended.
    is_over: AtomicBool,
    /// True once an executed program has been measured.
    has_renewed: AtomicBool,
}

impl Renewal {
    /// A renewal for the program that the process runs now.
    pub(super) fn of(process: &Process, again: Option<Again>) -> Arc<Self> {
        Arc::new(Self {
            exe: exe(process).unwrap_or_default(),
            again,
            stage: Mutex::default(),
            is_over: AtomicBool::new(false),
            has_renewed: AtomicBool::new(false),
        })
    }

    /// True if an executed program has been measured.
    pub(super) fn has_renewed(&self) -> bool {
        self.has_renewed.load(Ordering::Acquire)
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the change since the last look.
    pub(super) fn look(&self) -> Looked {
        let mut stage = self.stage();
        match std::mem::take(&mut *stage) {
            Stage::Nothing => Looked::Nothing,
            Stage::Renewed(renewed) => Looked::Renewed(renewed),
            kept @ Stage::UnderWay => {
                *stage = kept;
                Looked::UnderWay
            }
            kept @ Stage::Left(_) => {
                *stage = kept;
                Looked::Nothing
            }
        }
    }

    /// Stops measuring executed programs again. Waits up to 20 s for an exec that is in progress,
    /// and returns the change since the last look.
    pub(super) fn end(&self) -> Looked {
        const PATIENCE: Duration = Duration::from_secs(20);
        const PAUSE: Duration = Duration::from_millis(1);
        self.is_over.store(true, Ordering::Release);
        let until = Instant::now() + PATIENCE;
        loop {
            match self.look() {
                Looked::UnderWay if Instant::now() < until => sleep(PAUSE),
                found => return found,
            }
        }
    }

    /// The note on an executed program that is not measured. `None` if there is none.
    pub(super) fn left(&self) -> Option<String> {
        match &*self.stage() {
            Stage::Left(said) => Some(said.clone()),
            _ => None,
        }
    }

    /// Follows an exec of one thread to its result. Runs on the tracing thread.
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
        let is_wanted = !self.is_over.load(Ordering::Acquire);
        let Some(again) = self.again.as_ref().filter(|_| is_wanted) else {
            // The error does not matter: the process has ended.
            let _ = leave(Tid(process.pid.0));
            return Stage::Left(replaced(&self.exe, &by));
        };
        match again.measure(process) {
            Ok(made) => {
                self.has_renewed.store(true, Ordering::Release);
                Stage::Renewed(Box::new(made))
            }
            Err(failure) => Stage::Left(format!(
                "{} ({})",
                replaced(&self.exe, &by),
                failure.in_one_line()
            )),
        }
    }
}

impl Again {
    /// The options for a program with these functions. If the program has no requested function,
    /// the patterns wait for its libraries.
    fn options_for(&self, selection: &Selection) -> Options {
        let mut options = self.options.clone();
        if options.pending.is_empty() && selection.count() == 0 {
            options.pending = self.patterns.iter().map(|p| p.text().to_owned()).collect();
        }
        options
    }

    /// Measures a traced program that has just been executed, and detaches from it.
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
            let count = selected.selection.count();
            if count > self.most {
                let cause = format!("{count} functions match, and --yes is not given");
                return Err(unknown(cause));
            }
            let options = self.options_for(&selected.selection);
            let held = Where::Stopped(&mut stopped);
            let made = Session::create(process, &options, selected, held);
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
