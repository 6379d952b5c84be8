//! The loader of a program: where it reports that libraries are there.

use std::io;
use std::sync::Arc;

use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd;
use patcher::Avma;

use super::error::LaunchError;
use crate::images;
use crate::process::modules::modules;
use crate::process::{Process, Space, Tid};
use crate::tracee::{CallCode, Remote, Stopped, TRAP_BIT, TraceeError, block, followed, step};

/// What a debugger puts there.
const BREAKPOINT: u8 = 0xcc;

/// Where a program has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// At the report that every library is there, and none of its code has run.
    Loaded,
    /// At one before that.
    Loading,
    /// At a trap of its own.
    Elsewhere,
}

/// The loader of a program that has just been executed.
pub struct Loader {
    space: Arc<Space>,
    /// Where it reports.
    report: Avma,
    /// `r_state` of its report, where that is known.
    state: Option<Avma>,
    /// What stands where it reports.
    original: [u8; 1],
    /// What becomes of SIGTRAP in the program.
    trap: TrapState,
}

/// A breakpoint has the kernel unblock SIGTRAP where it is blocked, and forget that it is ignored (`force_sig_info_to_task`, kernel/signal.c).
struct TrapState {
    is_blocked: bool,
    is_ignored: bool,
}

impl TrapState {
    /// That of a process at its beginning.
    fn of(process: &Process) -> Self {
        let [blocked, ignored] = process.signals().unwrap_or_default();
        Self {
            is_blocked: blocked & TRAP_BIT != 0,
            is_ignored: ignored & TRAP_BIT != 0,
        }
    }

    /// Has it so again in a process that has stopped at a breakpoint, and by its end has it ignored.
    fn restore(&self, space: &Arc<Space>, is_end: bool) -> Result<(), TraceeError> {
        if self.is_blocked {
            let tid = Tid(space.process().pid.0);
            block(tid, libc::SIGTRAP)?;
        }
        if !self.is_ignored || !is_end {
            return Ok(());
        }
        let maps = space.maps().map_err(TraceeError::Process)?;
        let code = CallCode::find(space.process(), &maps, space.memory())?;
        let mut stopped = Stopped::adopt(space)?;
        let ignored =
            Remote::new(&code, &mut stopped).and_then(|mut thread| thread.ignore(libc::SIGTRAP));
        stopped.leave();
        ignored
    }
}

impl Loader {
    /// That of the program in an address space; none of a program without one, or where it does not report.
    ///
    /// # Errors
    /// The process cannot be read.
    pub fn of(space: &Arc<Space>) -> Result<Option<Self>, LaunchError> {
        let process = space.process();
        let maps = space.maps()?;
        let modules = modules(process, &maps);
        let found = images::in_loader(process, &modules, &["_dl_debug_state"]);
        let Some(report) = found.and_then(|found| found[0]) else {
            return Ok(None);
        };
        let state = images::loader_state(process, space.memory(), &modules);
        let mut original = [0];
        let read = space.memory().read(report, &mut original);
        read.map_err(|e| unexpected(Tid(process.pid.0), &e))?;
        Ok(Some(Self {
            space: Arc::clone(space),
            report,
            state,
            original,
            trap: TrapState::of(process),
        }))
    }

    /// Writes where the loader reports, while the program is stopped.
    fn write(&self, bytes: &[u8]) -> Result<(), TraceeError> {
        let mut stopped = Stopped::adopt(&self.space)?;
        let written = stopped.text().write(self.report, bytes);
        stopped.leave();
        written.map_err(|e| unexpected(Tid(self.space.process().pid.0), &e))
    }

    /// Has a stopped program stop where the loader reports.
    ///
    /// # Errors
    /// It cannot be written there.
    pub fn arm(&self) -> Result<(), TraceeError> {
        followed::set_breakpoint(self.space.process().pid, Some(self.report));
        self.write(&[BREAKPOINT])
    }

    /// Has a program run on where the loader reports.
    ///
    /// # Errors
    /// It cannot be written there.
    fn disarm(&self) -> Result<(), TraceeError> {
        followed::set_breakpoint(self.space.process().pid, None);
        self.write(&self.original)
    }

    /// The same of a program that may have come there meanwhile.
    ///
    /// # Errors
    /// It cannot be written there, or the program cannot be led back.
    pub fn disarm_stopped(&self, stopped: &mut Stopped) -> Result<(), TraceeError> {
        followed::set_breakpoint(self.space.process().pid, None);
        let written = stopped.text().write(self.report, &self.original);
        written.map_err(|e| unexpected(Tid(self.space.process().pid.0), &e))?;
        let mut threads = stopped.threads();
        threads.try_for_each(|thread| thread.step_back(self.report))
    }

    /// Where a program is that has stopped at a trap; the loader is as it was.
    ///
    /// # Errors
    /// The program cannot be read or led back.
    pub fn arrived(&self) -> Result<Arrived, TraceeError> {
        const CONSISTENT: u8 = 0;
        let tid = Tid(self.space.process().pid.0);
        let raw = unistd::Pid::from_raw(tid.0);
        let registers = |e| TraceeError::Registers(tid, e);
        self.disarm()?;
        let mut at = ptrace::getregs(raw).map_err(registers)?;
        if at.rip != self.report.0 + 1 {
            self.trap.restore(&self.space, true)?;
            return Ok(Arrived::Elsewhere);
        }
        at.rip = self.report.0;
        ptrace::setregs(raw, at).map_err(registers)?;
        let mut state = [CONSISTENT];
        if let Some(place) = self.state {
            let read = self.space.memory().read(place, &mut state);
            read.map_err(|e| unexpected(tid, &e))?;
        }
        let is_loaded = state[0] == CONSISTENT;
        self.trap.restore(&self.space, is_loaded)?;
        match is_loaded {
            true => Ok(Arrived::Loaded),
            false => Ok(Arrived::Loading),
        }
    }

    /// Leads a program that is still being loaded past the report, and has it stop at the next one.
    ///
    /// # Errors
    /// It has ended, or cannot be led.
    pub fn pass(&self) -> Result<(), TraceeError> {
        let tid = Tid(self.space.process().pid.0);
        step(tid)?;
        self.arm()
    }

    /// Runs the program to the loader's report that everything is loaded.
    pub(super) fn run_until_loaded(&self, raw: unistd::Pid) -> Result<(), LaunchError> {
        let tid = Tid(raw.as_raw());
        self.arm()?;
        loop {
            ptrace::cont(raw, None).map_err(|e| TraceeError::Resume(tid, e))?;
            wait_for_trap(raw)?;
            match self.arrived()? {
                // A trap of the program's own; what it means is for the program to say.
                Arrived::Loaded | Arrived::Elsewhere => return Ok(()),
                Arrived::Loading => self.pass()?,
            }
        }
    }
}

fn unexpected(tid: Tid, error: &io::Error) -> TraceeError {
    TraceeError::Unexpected(tid, format!("loader: {}", crate::error::io_text(error)))
}

/// Waits for SIGTRAP; other signals are passed on.
pub(super) fn wait_for_trap(raw: unistd::Pid) -> Result<(), LaunchError> {
    let tid = Tid(raw.as_raw());
    loop {
        match waitpid(raw, Some(WaitPidFlag::__WALL)) {
            Ok(WaitStatus::Stopped(_, Signal::SIGTRAP)) => return Ok(()),
            Ok(WaitStatus::Stopped(_, signal)) => {
                ptrace::cont(raw, signal).map_err(|e| TraceeError::Resume(tid, e))?;
            }
            Ok(WaitStatus::Exited(_, status)) => return Err(LaunchError::Ended(status)),
            Ok(WaitStatus::Signaled(_, signal, _)) => {
                return Err(LaunchError::Ended(128 + signal as i32));
            }
            Ok(_) => ptrace::cont(raw, None).map_err(|e| TraceeError::Resume(tid, e))?,
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(TraceeError::Wait(tid, errno).into()),
        }
    }
}
