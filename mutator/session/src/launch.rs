//! Starting a program so that its functions can be instrumented before any code of it or its
//! libraries runs.
//!
//! The loader calls `_dl_debug_state` for debuggers when the list of loaded libraries changes. The second time
//! `r_state` is RT_CONSISTENT: every library of the start is mapped and relocated, and no constructor has run
//! (glibc elf/rtld.c, link.h `struct r_debug`; musl ldso/dynlink.c).

mod error;
mod loader;
mod program;

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::Arc;

use nix::sys::ptrace;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd;

pub use error::LaunchError;
pub use loader::{Arrived, Loader};
pub use program::{check, leads_to};

use ipath_target::inherited;
use ipath_target::process::{Pid, Process, Space, Tid};
use ipath_target::tracee::{Change, Stopped, TraceeError, block, leave_exec, seize_to_follow};
use loader::wait_for_trap;

/// A program that has been loaded and has not begun.
pub struct Launched {
    /// It, as a child of this process.
    pub child: Child,
    /// It, as a process.
    pub process: Process,
    /// Its only thread.
    pub stopped: Stopped,
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
    let parent = unistd::getpid();
    // Blocked, the signal at exec would not come (ptrace_event, include/linux/ptrace.h), nor what has it go on once it is followed.
    let of_use = [Signal::SIGTRAP, Signal::SIGCONT];
    let blocked = of_use.map(|signal| mask.contains(signal).then_some(signal));
    let mut at_exec = mask;
    of_use.into_iter().for_each(|signal| at_exec.remove(signal));
    let trace = move || {
        at_exec.thread_set_mask()?;
        inherited::give_back();
        ptrace::traceme()?;
        // Where this process has been killed meanwhile, another one has become parent and tracer, and would have the program stop at
        // its beginning for good.
        if unistd::getppid() != parent {
            // SAFETY: ends the child, and says nothing to who is gone.
            unsafe { libc::_exit(127) };
        }
        Ok(())
    };
    // SAFETY: between fork and exec only system calls are made.
    unsafe { command.pre_exec(trace) };
    let mut child = command.spawn().map_err(LaunchError::Exec)?;
    let result = to_start(&child, blocked.into_iter().flatten());
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

/// Runs a traced process that has just executed a program until the program is loaded. Its own code
/// has not begun then.
///
/// # Errors
/// The process has ended, or it cannot be read or controlled.
pub fn bring_to_start(process: &Process) -> Result<Stopped, LaunchError> {
    let space = Arc::new(Space::open(process)?);
    if let Some(loader) = Loader::of(&space)? {
        loader.run_until_loaded(unistd::Pid::from_raw(process.pid.0))?;
        return Ok(Stopped::adopt(&space)?);
    }
    let tid = Tid(process.pid.0);
    match leave_exec(tid)? {
        Change::Stopped(false) => Ok(Stopped::adopt(&space)?),
        Change::Signal(signal) => Ok(Stopped::adopt_at(&space, signal)?),
        other => Err(TraceeError::Unexpected(tid, format!("{other:?} after exec")).into()),
    }
}

/// Brings it to its start, with these signals blocked as well.
fn to_start(
    child: &Child,
    blocked: impl Iterator<Item = Signal>,
) -> Result<(Process, Stopped), LaunchError> {
    let pid = Pid(child.id() as i32);
    let raw = unistd::Pid::from_raw(pid.0);
    // The stop after exec.
    wait_for_trap(raw)?;
    seize_to_follow(Tid(pid.0))?;
    for signal in blocked {
        block(Tid(pid.0), signal as i32)?;
    }
    let process = Process::find(pid)?;
    process.check_program()?;
    let space = Arc::new(Space::open(&process)?);
    if let Some(loader) = Loader::of(&space)? {
        loader.run_until_loaded(raw)?;
    }
    Ok((process, Stopped::adopt(&space)?))
}
