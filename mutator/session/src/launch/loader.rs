//! The loader of a program: where it reports that libraries are there.

use std::io;
use std::sync::Arc;

use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
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
    /// The way in which the notification is caught.
    by: By,
    /// The original bytes of the function.
    original: Vec<u8>,
    /// What becomes of SIGTRAP in the program.
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

    fn forget(&self) {
        let pid = self.space.process().pid;
        followed::set_call(pid, None);
        followed::set_breakpoint(pid, None);
    }

    /// Has a program run on where the loader reports.
    ///
    /// # Errors
    /// It cannot be written there.
    fn disarm(&self) -> Result<(), TraceeError> {
        self.forget();
        self.write(&self.original)
    }

    /// The same of a program that may have come there meanwhile.
    ///
    /// # Errors
    /// It cannot be written there, or the program cannot be led back.
    pub fn disarm_stopped(&self, stopped: &mut Stopped) -> Result<(), TraceeError> {
        self.forget();
        if self.by == By::Call {
            // Before the code is removed, as above.
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
/// status, or 128 + N for signal N.
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
