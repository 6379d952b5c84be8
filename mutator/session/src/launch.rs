//! Starts a program so that its functions can be instrumented before any code of it or its
//! libraries runs.
//!
//! The loader calls `_dl_debug_state` for debuggers when the list of loaded libraries changes. The
//! second time, `r_state` is RT_CONSISTENT: every initial library is mapped and relocated, and no
//! constructor has run (glibc elf/rtld.c, link.h `struct r_debug`; musl ldso/dynlink.c).

mod error;
mod loader;
mod program;

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::panic::resume_unwind;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::SigSet;
use nix::unistd;

pub use error::LaunchError;
pub use loader::{Arrived, Loader};
pub use program::{check, leads_to};

use ipath_target::fault_injection::step;
use ipath_target::inherited;
use ipath_target::process::{Pid, Presence, Process, Space, Tid};
use ipath_target::tracee::{
    Change, Stopped, TraceeError, leave_exec, run_to_exec, seize_before_exec,
};

/// A program that has been loaded and has not begun.
pub struct Launched {
    /// The child of this process that runs the program.
    pub child: Child,
    /// The process that the program runs in.
    pub process: Process,
    /// The process's only thread.
    pub stopped: Stopped,
}

/// Starts a program, and stops it when its libraries are loaded and none of their code has run. It
/// begins with `mask` as its signal mask; `prepare` sets up its standard files.
///
/// # Errors
/// The program cannot be executed, inspected or traced, or it ends while it is being loaded.
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
    let mut child = execute(command, mask)?;
    let begin = || {
        let process = Process::find(Pid(child.id() as i32))?;
        process.check_program()?;
        let stopped = bring_to_start(&process)?;
        Ok((process, stopped))
    };
    match begin() {
        Ok((process, stopped)) => Ok(Launched {
            child,
            process,
            stopped,
        }),
        Err(error) => {
            // The error may be the first sign of the program's end.
            let ended = status_if_ended(&mut child);
            let _ = child.kill();
            let _ = child.wait();
            Err(ended.map_or(error, LaunchError::Ended))
        }
    }
}

/// The exit status of a child that has ended or is about to end, as given by [`shell_status`].
/// `None` if the child lives.
pub fn status_if_ended(child: &mut Child) -> Option<i32> {
    /// The time that the system may take to report the end.
    const MOMENT: Duration = Duration::from_millis(200);
    const PAUSE: Duration = Duration::from_millis(1);
    let process = Process::find(Pid(child.id() as i32));
    if process.is_ok_and(|process| process.settled() == Presence::Here) {
        return None;
    }
    let begin = Instant::now();
    while begin.elapsed() < MOMENT {
        if let Some(status) = child.try_wait().ok()? {
            return Some(shell_status(status));
        }
        thread::sleep(PAUSE);
    }
    None
}

/// The exit status of a program as a shell reports it: its own status, or 128 + N for signal N.
pub fn shell_status(status: ExitStatus) -> i32 {
    let killed = || status.signal().map(|signal| 128 + signal);
    status.code().or_else(killed).unwrap_or(1)
}

/// Executes the command's program in a child that this thread traces, and leaves it stopped after
/// execve(2).
///
/// The child is traced before it calls execve, which another thread of this process waits for. A
/// child that asked to be traced (PTRACE_TRACEME) could stop at a signal before execve: this thread
/// would have to resume it, and would still wait for its call.
fn execute(mut command: Command, mask: SigSet) -> Result<Child, LaunchError> {
    let (own, childs) = UnixStream::pair().map_err(LaunchError::Exec)?;
    let fds = (childs.as_raw_fd(), own.as_raw_fd());
    let prepare = move || {
        mask.thread_set_mask()?;
        inherited::give_back();
        await_tracer(fds);
        step("execute");
        Ok(())
    };
    // SAFETY: between fork and exec only system calls are made.
    unsafe { command.pre_exec(prepare) };
    let spawn = move || {
        let spawned = command.spawn();
        // Now only the child has this end.
        drop(childs);
        spawned
    };
    let (spawned, traced) = thread::scope(|scope| {
        let spawning = thread::Builder::new().spawn_scoped(scope, spawn)?;
        let traced = trace(own);
        let spawned = spawning.join();
        Ok((spawned.unwrap_or_else(|p| resume_unwind(p)), traced))
    })
    .map_err(LaunchError::Exec)?;
    let mut child = spawned.map_err(LaunchError::Exec)?;
    let Err(error) = traced else {
        return Ok(child);
    };
    let _ = child.kill();
    let status = child.wait().map_err(LaunchError::Exec)?;
    match error {
        Some(error) => Err(error.into()),
        None => Err(LaunchError::Ended(shell_status(status))),
    }
}

/// In the child: waits until it is traced. Ends it if its parent has ended. `fds` are the child's
/// end of the connection and the parent's.
fn await_tracer((own, parents): (RawFd, RawFd)) {
    let pid = std::process::id().to_ne_bytes();
    let mut answer = [0u8; 1];
    // SAFETY: only system calls, with live buffers. The parent's end is a copy of this process, of
    // which nothing else knows.
    unsafe {
        libc::close(parents);
        let sent = libc::write(own, pid.as_ptr().cast(), pid.len());
        let mut received = -1;
        while sent > 0 && received < 0 {
            received = libc::read(own, answer.as_mut_ptr().cast(), 1);
            if received < 0 && Errno::last() != Errno::EINTR {
                break;
            }
        }
        if received <= 0 {
            libc::_exit(127);
        }
    }
}

/// Traces the child at the other end of the connection, and lets it execute its program.
///
/// # Errors
/// It cannot be traced; `None` if it has ended or was never begun.
fn trace(mut own: UnixStream) -> Result<(), Option<TraceeError>> {
    let mut pid = [0; 4];
    own.read_exact(&mut pid).map_err(|_| None)?;
    let tid = Tid(i32::from_ne_bytes(pid));
    let traced = seize_before_exec(tid).and_then(|()| {
        // Fails if the child has been killed, which is seen next.
        let _ = own.write_all(&[1]);
        run_to_exec(tid)
    });
    traced.map_err(|error| Some(error).filter(|e| !matches!(e, TraceeError::ThreadGone(_))))
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
        Change::Stopped(_) => Ok(Stopped::adopt(&space)?),
        Change::Signal(signal) => Ok(Stopped::adopt_at(&space, signal)?),
        other => Err(TraceeError::Unexpected(tid, format!("{other:?} after exec")).into()),
    }
}
