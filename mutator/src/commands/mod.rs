//! The commands: from parsed arguments to an exit status.

mod attach;
mod change;
mod demo;
mod doctor;
mod export;
mod list;
mod measure;
mod panics;
mod remarks;
mod run;
mod source;
mod status;
mod watch;

use std::io::Write;
use std::process::ExitCode;

use crate::cli::{Cli, Command};
use crate::error::Failure;
use crate::outlet::is_nobody;
use crate::printable::Page;
use crate::process::{Pid, Process, take_name};
use crate::segment::SegmentError;
use crate::session::{Session, SessionError};
use remarks::warn;

/// Does what the command line says.
pub fn run(cli: Cli) -> ExitCode {
    panics::keep();
    take_name();
    finish(panics::caught("the command", || obey(cli)))
}

fn obey(cli: Cli) -> Result<ExitCode, Failure> {
    let result = match cli.command {
        Command::Attach {
            pid,
            measure,
            show,
            keep,
        } => attach::attach(Pid(pid), &measure, &show, keep),
        Command::Run {
            measure,
            show,
            program,
        } => return run::run(&measure, &show, &program),
        Command::List {
            target,
            patterns,
            json,
            all_modules,
        } => list::list(&target, &patterns, json, all_modules),
        Command::Status { clean: true, .. } => status::clean(),
        Command::Status { pid, .. } => status::status(pid.map(Pid)),
        Command::Top { pid, show } => attach::top(Pid(pid), &show),
        Command::Add { pid, patterns } => change::add(Pid(pid), &patterns),
        Command::Remove { pid, patterns } => change::remove(Pid(pid), &patterns),
        Command::Snapshot { pid, output } => change::snapshot(Pid(pid), &output),
        Command::Detach { pid, output } => change::detach(Pid(pid), output.as_deref()),
        Command::Report { file } => export::report(&file),
        Command::Export {
            file,
            to,
            output,
            metric,
            sites,
        } => export::export(&file, to, &output, metric.as_deref(), sites),
        Command::Doctor { pid } => return doctor::doctor(pid.map(Pid)),
        Command::Demo { show } => demo::demo(&show),
        Command::DemoTarget => demo::target(),
    };
    result.map(|()| ExitCode::SUCCESS)
}

fn finish(result: Result<ExitCode, Failure>) -> ExitCode {
    remarks::finish();
    match result {
        Ok(code) => code,
        Err(failure) => {
            let mut err = std::io::stderr().lock();
            // Nobody is left to tell where standard error is closed.
            let _ = writeln!(err, "ipath: {failure}");
            if let Some(hint) = failure.hint_text() {
                let _ = writeln!(err, "hint: {hint}");
            }
            ExitCode::FAILURE
        }
    }
}

/// Finds a process that can be worked on.
fn find(operation: &str, pid: Pid) -> Result<Process, Failure> {
    let failure = |e: crate::process::ProcessError| {
        let hint = e.hint();
        Failure::of(operation, e).maybe_hint(hint)
    };
    Process::find(pid).map_err(failure)
}

/// The session of a process; of one that has ended too, as long as its segment is there.
fn open_session(operation: &str, pid: Pid) -> Result<Session, Failure> {
    open_by(operation, pid, Session::open)
}

/// The same, for a command that is to change it.
fn open_to_change(operation: &str, pid: Pid) -> Result<Session, Failure> {
    open_by(operation, pid, Session::open_to_change)
}

fn open_by(
    operation: &str,
    pid: Pid,
    open: fn(&Process) -> Result<Session, SessionError>,
) -> Result<Session, Failure> {
    let process = match Process::find(pid) {
        Ok(process) => process,
        Err(error) => {
            let mut named = crate::segment::named().into_iter();
            let Some((_, process)) = named.find(|(_, p)| p.pid == pid) else {
                return Err(Failure::of(operation, error));
            };
            process
        }
    };
    open(&process).map_err(|error| {
        let is_missing = matches!(error, SessionError::Segment(SegmentError::Missing));
        let failure = error.failure(operation, &process);
        if is_missing {
            failure.hint(format!("begin one with `ipath attach {pid} -f FUNC`"))
        } else {
            failure
        }
    })
}

/// Writes text to standard output; a reader that has closed it wants no more.
fn print(page: &Page) -> Result<(), Failure> {
    print_data(page.as_str().as_bytes())
}

/// Writes data for other programs to standard output, as it is.
fn print_data(data: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(data).and_then(|()| out.flush()) {
        Err(error) if !is_nobody(&error) && !is_lost_terminal(&error) => Err(Failure::new(
            "write",
            "standard output",
            crate::error::io_text(&error),
        )),
        _ => Ok(()),
    }
}

fn is_lost_terminal(error: &std::io::Error) -> bool {
    use std::os::fd::AsFd;
    let kind =
        || nix::sys::stat::fstat(std::io::stdout().as_fd()).map(|s| s.st_mode & libc::S_IFMT);
    error.raw_os_error() == Some(libc::EIO) && kind() == Ok(libc::S_IFCHR)
}
