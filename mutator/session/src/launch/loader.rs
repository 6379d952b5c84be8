//! The loader of a program, and its notification that libraries are loaded.

use std::io;
use std::sync::Arc;

use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd;
use patcher::Avma;
use patcher::isa::BREAKPOINT;

use super::error::LaunchError;
use crate::arch::loader_call;
use ipath_symbols::images;
use ipath_target::arch::code::PAST_BREAKPOINT;
use ipath_target::process::modules::modules;
use ipath_target::process::{Process, Space, Tid};
use ipath_target::tracee::{
    CallCode, Change, Remote, Stopped, TRAP_BIT, TraceeError, block, followed, next, registers,
    set_registers, step, to_call,
};

/// The place at which a program has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// At the notification that every library is loaded. None of their code has run.
    Loaded,
    /// At an earlier notification.
    Loading,
    /// At a trap of its own.
    Elsewhere,
}

/// The loader of a program that has just been executed.
pub struct Loader {
    space: Arc<Space>,
    /// The address at which the notification is caught.
    report: Avma,
    /// The address of `r_state`. `None` if it is not known.
    state: Option<Avma>,
    /// The way in which the notification is caught.
    by: By,
    /// The original bytes of the function.
    original: Vec<u8>,
    /// The state of SIGTRAP in the program.
    trap: TrapState,
}

/// The way in which the loader's notification is caught.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// By a system call without effect, written over the function. The tracer stops at calls
    /// (PTRACE_SYSCALL). If the tracer is killed, the program passes through the call.
    Call,
    /// By a breakpoint, if the function has no room for more. The program dies if the tracer is
    /// killed.
    Trap,
}

/// The state of SIGTRAP in a program. At a breakpoint the kernel unblocks the signal, and no longer
/// ignores it (`force_sig_info_to_task`, kernel/signal.c).
struct TrapState {
    is_blocked: bool,
    is_ignored: bool,
}

impl TrapState {
    /// The state of SIGTRAP in a process at its beginning. Neither blocked nor ignored if it cannot
    /// be read.
    fn of(process: &Process) -> Self {
        let [blocked, ignored] = process.signals().unwrap_or_default();
        Self {
            is_blocked: blocked & TRAP_BIT != 0,
            is_ignored: ignored & TRAP_BIT != 0,
        }
    }

    /// Restores the state in a process that has stopped at a breakpoint. With `is_end`, the signal
    /// is ignored again too.
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
    /// The loader of the program in an address space. `None` if it has no loader, or one without
    /// notifications.
    ///
    /// # Errors
    /// The process cannot be read.
    pub fn of(space: &Arc<Space>) -> Result<Option<Self>, LaunchError> {
        let process = space.process();
        let maps = space.maps()?;
        let modules = modules(process, &maps);
        let found = images::in_loader(process, &modules, ["_dl_debug_state"]);
        let Some(report) = found.and_then(|[report]| report) else {
            return Ok(None);
        };
        let state = images::loader_state(process, space.memory(), &modules);
        let mut there = [0; loader_call::ROOM];
        let read = space.memory().read(report, &mut there);
        read.map_err(|e| unexpected(Tid(process.pid.0), &e))?;
        let (report, by, len) = match loader_call::place(&there) {
            Some(skipped) => (
                report.plus(skipped as u64),
                By::Call,
                loader_call::CODE.len(),
            ),
            None => (report, By::Trap, 1),
        };
        let mut original = vec![0; len];
        let read = space.memory().read(report, &mut original);
        read.map_err(|e| unexpected(Tid(process.pid.0), &e))?;
        Ok(Some(Self {
            space: Arc::clone(space),
            report,
            state,
            by,
            original,
            trap: TrapState::of(process),
        }))
    }

    /// Writes to the place of the notification while the program is stopped.
    fn write(&self, bytes: &[u8]) -> Result<(), TraceeError> {
        let mut stopped = Stopped::adopt(&self.space)?;
        let written = stopped.text().write(self.report, bytes);
        stopped.leave();
        written.map_err(|e| unexpected(Tid(self.space.process().pid.0), &e))
    }

    /// Makes a stopped program stop at the loader's notification.
    ///
    /// # Errors
    /// The loader's code cannot be written.
    pub fn arm(&self) -> Result<(), TraceeError> {
        let pid = self.space.process().pid;
        match self.by {
            By::Call => {
                followed::set_call(pid, Some(self.call()));
                self.write(&loader_call::CODE)
            }
            By::Trap => {
                followed::set_breakpoint(pid, Some(self.report));
                self.write(&[BREAKPOINT])
            }
        }
    }

    /// The address at which a program stops in the system call.
    fn call(&self) -> Avma {
        self.report.plus(loader_call::RETURN as u64)
    }

    /// Makes the tracer no longer expect the system call or the breakpoint.
    fn forget(&self) {
        let pid = self.space.process().pid;
        followed::set_call(pid, None);
        followed::set_breakpoint(pid, None);
    }

    /// Restores the loader's code.
    ///
    /// # Errors
    /// The loader's code cannot be written.
    fn disarm(&self) -> Result<(), TraceeError> {
        self.forget();
        self.write(&self.original)
    }

    /// Restores the loader's code in a stopped program that may have reached it meanwhile.
    ///
    /// # Errors
    /// The loader's code cannot be written, or a thread cannot be moved out of it.
    pub fn disarm_stopped(&self, stopped: &mut Stopped) -> Result<(), TraceeError> {
        self.forget();
        if self.by == By::Call {
            // Do this before the code is removed, as in `arrived_by_call`.
            let code = self.report..self.report.plus(self.original.len() as u64);
            let mut threads = stopped.threads();
            threads.try_for_each(|thread| thread.leave_code(&code))?;
        }
        let written = stopped.text().write(self.report, &self.original);
        written.map_err(|e| unexpected(Tid(self.space.process().pid.0), &e))?;
        if self.by == By::Trap {
            let mut threads = stopped.threads();
            threads.try_for_each(|thread| thread.step_back(self.report))?;
        }
        Ok(())
    }

    /// Returns the state of a program that has stopped at the end of a system call. `None` if the
    /// call is not the loader's notification. Once the program is loaded, the loader's code is
    /// restored.
    ///
    /// # Errors
    /// The program cannot be read or led back.
    pub fn arrived_by_call(&self) -> Result<Option<Arrived>, TraceeError> {
        let tid = Tid(self.space.process().pid.0);
        let failed = |e| TraceeError::Registers(tid, e);
        let mut at = registers(tid).map_err(failed)?;
        if self.by != By::Call || at.is_at_beginning() || at.pc() != self.call().0 {
            return Ok(None);
        }
        if !self.is_consistent()? {
            return Ok(Some(Arrived::Loading));
        }
        // Set before the code is removed: if ipath is killed in between, the program repeats the
        // call.
        at.set_pc(self.report.0);
        // No call is in progress that a stop could restart.
        at.leave_call();
        set_registers(tid, &at).map_err(failed)?;
        self.disarm()?;
        Ok(Some(Arrived::Loaded))
    }

    /// True if the loader's list of libraries is consistent, or if its state is not known.
    fn is_consistent(&self) -> Result<bool, TraceeError> {
        const CONSISTENT: u8 = 0;
        let mut state = [CONSISTENT];
        if let Some(place) = self.state {
            let tid = Tid(self.space.process().pid.0);
            let read = self.space.memory().read(place, &mut state);
            read.map_err(|e| unexpected(tid, &e))?;
        }
        Ok(state[0] == CONSISTENT)
    }

    /// Returns the state of a program that has stopped at a trap. The loader's code is restored.
    ///
    /// # Errors
    /// The program cannot be read or reset.
    pub fn arrived(&self) -> Result<Arrived, TraceeError> {
        let tid = Tid(self.space.process().pid.0);
        let failed = |e| TraceeError::Registers(tid, e);
        self.disarm()?;
        let mut at = registers(tid).map_err(failed)?;
        if self.by != By::Trap || at.pc() != self.report.0 + PAST_BREAKPOINT {
            self.trap.restore(&self.space, true)?;
            return Ok(Arrived::Elsewhere);
        }
        at.set_pc(self.report.0);
        set_registers(tid, &at).map_err(failed)?;
        let is_loaded = self.is_consistent()?;
        self.trap.restore(&self.space, is_loaded)?;
        if is_loaded {
            Ok(Arrived::Loaded)
        } else {
            Ok(Arrived::Loading)
        }
    }

    /// Moves a program that is still being loaded past the notification, and makes it stop at the
    /// next one.
    ///
    /// # Errors
    /// The program has ended, or cannot be controlled.
    pub fn pass(&self) -> Result<(), TraceeError> {
        let tid = Tid(self.space.process().pid.0);
        step(tid)?;
        self.arm()
    }

    /// Runs the program to the loader's notification that everything is loaded, or to an earlier
    /// trap of its own. Fails if the program ends before, or cannot be controlled.
    pub(super) fn run_until_loaded(&self, raw: unistd::Pid) -> Result<(), LaunchError> {
        let tid = Tid(raw.as_raw());
        let resumed = |e| TraceeError::Resume(tid, e);
        self.arm()?;
        let mut signal = 0;
        loop {
            to_call(tid, signal).map_err(resumed)?;
            signal = 0;
            match next(tid)? {
                Change::Call => match self.arrived_by_call()? {
                    Some(Arrived::Loaded) => return Ok(()),
                    Some(Arrived::Loading | Arrived::Elsewhere) | None => {}
                },
                Change::Signal(libc::SIGTRAP) if self.by == By::Trap => match self.arrived()? {
                    // A trap of the program's own, which the program handles.
                    Arrived::Loaded | Arrived::Elsewhere => return Ok(()),
                    Arrived::Loading => self.pass()?,
                },
                Change::Signal(other) => signal = other,
                Change::Ended => return Err(LaunchError::Ended(status(raw))),
                Change::Stopped(_) | Change::Replaced | Change::Other(_) | Change::None => {}
            }
        }
    }
}

/// The exit status of a child that has ended and is not reaped yet, as a shell reports it: its
/// status, or 128 + N for signal N. 0 for a process that is not a child of this one.
fn status(raw: unistd::Pid) -> i32 {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT | WaitPidFlag::WNOHANG;
    match waitid(Id::Pid(raw), flags) {
        Ok(WaitStatus::Exited(_, status)) => status,
        Ok(WaitStatus::Signaled(_, signal, _)) => 128 + signal as i32,
        // It is not our child; its parent knows its status.
        _ => 0,
    }
}

fn unexpected(tid: Tid, error: &io::Error) -> TraceeError {
    TraceeError::Unexpected(
        tid,
        format!("loader: {}", ipath_base::error::io_text(error)),
    )
}
