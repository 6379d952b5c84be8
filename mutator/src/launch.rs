//! Starting a program so that its functions can be instrumented before any code of it or its
//! libraries runs.
//!
//! The loader calls `_dl_debug_state` for debuggers when the list of loaded libraries changes. The second time
//! `r_state` is RT_CONSISTENT: every library of the start is mapped and relocated, and no constructor has run
//! (glibc elf/rtld.c, link.h `struct r_debug`; musl ldso/dynlink.c).

mod program;

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::Arc;

use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd;
use patcher::{Avma, Svma};

pub use program::check;

use crate::images;
use crate::inherited;
use crate::process::modules::modules;
use crate::process::{Pid, Process, ProcessError, Space};
use crate::tracee::{Stopped, TraceeError};

/// A program that has been loaded and has not begun.
pub struct Launched {
    /// It, as a child of this process.
    pub child: Child,
    /// It, as a process.
    pub process: Process,
    /// Its only thread.
    pub stopped: Stopped,
}

/// Why a program did not come to its start.
#[derive(Debug)]
pub enum LaunchError {
    /// It cannot be executed.
    Exec(io::Error),
    /// It ended while it was loaded, with this status: its loader says why.
    Ended(i32),
    /// It cannot be worked on.
    Process(ProcessError),
    /// It cannot be traced.
    Tracee(TraceeError),
}

impl std::fmt::Display for LaunchError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exec(error) => crate::error::io_text(error).fmt(f),
            Self::Ended(status) => write!(f, "it ended while it was loaded, with status {status}"),
            Self::Process(error) => error.fmt(f),
            Self::Tracee(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for LaunchError {}

impl From<ProcessError> for LaunchError {
    fn from(error: ProcessError) -> Self {
        Self::Process(error)
    }
}

impl From<TraceeError> for LaunchError {
    fn from(error: TraceeError) -> Self {
        Self::Tracee(error)
    }
}

/// Starts a program and stops it where its libraries are loaded and none of their code has run.
/// It begins with `mask` as its signal mask; `prepare` sets up its standard files.
pub fn launch(
    program: &[OsString],
    mask: SigSet,
    prepare: impl FnOnce(&mut Command),
) -> Result<Launched, LaunchError> {
    let (path, arguments) = program
        .split_first()
        .ok_or_else(|| LaunchError::Exec(io::Error::new(io::ErrorKind::NotFound, "no program")))?;
    let mut command = Command::new(path);
    command.args(arguments);
    prepare(&mut command);
    let trace = move || {
        mask.thread_set_mask()?;
        inherited::give_back();
        Ok(ptrace::traceme()?)
    };
    // SAFETY: between fork and exec only system calls are made.
    unsafe { command.pre_exec(trace) };
    let mut child = command.spawn().map_err(LaunchError::Exec)?;
    let result = to_start(&child);
    match result {
        Ok((process, stopped)) => Ok(Launched {
            child,
            process,
            stopped,
        }),
        Err(error) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(error)
        }
    }
}

fn to_start(child: &Child) -> Result<(Process, Stopped), LaunchError> {
    let pid = Pid(child.id() as i32);
    let raw = unistd::Pid::from_raw(pid.0);
    // The stop after exec.
    wait_for_trap(raw)?;
    let process = Process::find(pid)?;
    process.check_program()?;
    let space = Arc::new(Space::open(&process)?);
    if let Some(loader) = Loader::of(&space)? {
        loader.run_until_loaded(raw)?;
    }
    Ok((process, Stopped::adopt(&space)?))
}

/// Waits for SIGTRAP; other signals are passed on.
fn wait_for_trap(raw: unistd::Pid) -> Result<(), LaunchError> {
    let tid = crate::process::Tid(raw.as_raw());
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

/// The loader of a program that has just been executed.
struct Loader {
    space: Arc<Space>,
    /// Where it reports.
    report: Avma,
    /// `r_state` of its report, where that is known.
    state: Option<Avma>,
}

impl Loader {
    fn of(space: &Arc<Space>) -> Result<Option<Self>, LaunchError> {
        let process = space.process();
        const AT_BASE: u64 = 7;
        /// Offset of `r_state` in `struct r_debug`.
        const R_STATE: u64 = 24;
        let Some(base) = process.auxiliary(AT_BASE).filter(|&base| base != 0) else {
            return Ok(None);
        };
        let maps = space.maps()?;
        let modules = modules(process, &maps);
        let loader = modules.iter().find(|m| m.range.start.0 == base);
        let Some((module, image)) = loader.and_then(|m| Some((m, images::of_module(m).ok()?)))
        else {
            return Ok(None);
        };
        let Some(bias) = module.bias(image.image) else {
            return Ok(None);
        };
        let Ok(elf) = goblin::elf::Elf::parse(image.image.data()) else {
            return Ok(None);
        };
        let symbol = |name: &str| {
            let is_it = |s: &goblin::elf::Sym| elf.dynstrtab.get_at(s.st_name) == Some(name);
            let found = elf.dynsyms.iter().find(|s| s.st_shndx != 0 && is_it(s));
            found.map(|s| bias.to_avma(Svma(s.st_value)))
        };
        let Some(report) = symbol("_dl_debug_state") else {
            return Ok(None);
        };
        let state = symbol("_r_debug").map(|at| at.plus(R_STATE));
        Ok(Some(Self {
            space: Arc::clone(space),
            report,
            state,
        }))
    }

    /// Writes where the loader reports, while the program is stopped.
    fn write(&self, bytes: &[u8]) -> Result<(), TraceeError> {
        let mut stopped = Stopped::adopt(&self.space)?;
        let written = stopped.text().write(self.report, bytes);
        stopped.leave();
        let tid = crate::process::Tid(self.space.process().pid.0);
        written.map_err(|e| {
            TraceeError::Unexpected(tid, format!("loader: {}", crate::error::io_text(&e)))
        })
    }

    /// Runs the program to the loader's report that everything is loaded.
    fn run_until_loaded(&self, raw: unistd::Pid) -> Result<(), LaunchError> {
        const BREAKPOINT: u8 = 0xcc;
        const CONSISTENT: u8 = 0;
        let tid = crate::process::Tid(raw.as_raw());
        let registers = |e| TraceeError::Registers(tid, e);
        let io = |error: io::Error| {
            TraceeError::Unexpected(tid, format!("loader: {}", crate::error::io_text(&error)))
        };
        let mut original = [0];
        self.space
            .memory()
            .read(self.report, &mut original)
            .map_err(io)?;
        loop {
            self.write(&[BREAKPOINT])?;
            ptrace::cont(raw, None).map_err(|e| TraceeError::Resume(tid, e))?;
            wait_for_trap(raw)?;
            self.write(&original)?;
            let mut at = ptrace::getregs(raw).map_err(registers)?;
            if at.rip != self.report.0 + 1 {
                // A trap of the program's own; what it means is for the program to say.
                return Ok(());
            }
            at.rip = self.report.0;
            ptrace::setregs(raw, at).map_err(registers)?;
            let mut state = [CONSISTENT];
            if let Some(place) = self.state {
                self.space.memory().read(place, &mut state).map_err(io)?;
            }
            if state[0] == CONSISTENT {
                return Ok(());
            }
            ptrace::step(raw, None).map_err(registers)?;
            wait_for_trap(raw)?;
        }
    }
}
