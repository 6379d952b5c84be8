//! The public interface: measuring a process from another program.

use std::ffi::OsString;
use std::fmt;
use std::process::Child;
use std::sync::Arc;

use ipath_profile::{COUNT, Profile};
use ipath_target::process::{Pid, Process, ProcessError};
use ipath_target::tracee::TraceeError;
use nix::sys::signal::SigSet;
use patcher::select::{Pattern, PatternError};

use crate::collect::Collector;
use crate::counter::NoEvent;
use crate::launch::{LaunchError, Launched};
use crate::metric::Metric;
use crate::session::{
    self, Answering, Selected, Session, SessionError, Where, select_in, select_stopped,
};

/// The functions to measure, the metrics, and how paths are kept. New fields in later versions have
/// defaults.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Patterns of functions, as in the command's option `-f`.
    pub functions: Vec<String>,
    /// Metrics by name: `wall`, `cpu`, `arg1`, ... Calls are always counted.
    pub metrics: Vec<String>,
    /// The maximum number of distinct paths.
    pub max_paths: u64,
    /// The number of innermost callers to keep; 0 for all.
    pub depth: u64,
    /// True to fold recursion.
    pub collapse_recursion: bool,
    /// Keep paths apart by thread.
    pub per_thread: bool,
    /// Put a breakpoint on a function without room for a jump. Each call of it then costs a signal.
    pub allow_traps: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            functions: Vec::new(),
            metrics: vec!["wall".to_owned()],
            max_paths: session::MAX_PATHS,
            depth: 0,
            collapse_recursion: false,
            per_thread: false,
            allow_traps: false,
        }
    }
}

impl Options {
    /// Measures the time of functions that match these patterns.
    pub fn of_functions<T: Into<String>>(patterns: impl IntoIterator<Item = T>) -> Self {
        Self {
            functions: patterns.into_iter().map(Into::into).collect(),
            ..Self::default()
        }
    }

    fn for_session(&self) -> Result<session::Options, Error> {
        let names = self.metrics.iter().filter(|name| *name != COUNT);
        let metric =
            |name: &String| Metric::asked(name).map_err(|cause| Error::Metric(name.clone(), cause));
        Ok(session::Options {
            metrics: names.map(metric).collect::<Result<_, _>>()?,
            max_paths: self.max_paths,
            depth: self.depth,
            collapse_recursion: self.collapse_recursion,
            per_thread: self.per_thread,
            named: self.functions.clone(),
            ..session::Options::default()
        })
    }
}

/// Why something could not be measured.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The pattern is invalid.
    Pattern(String, PatternError),
    /// There is no metric of this name, or it cannot be measured here.
    Metric(String, NoEvent),
    /// There is no such process, or it cannot be inspected.
    Process(ProcessError),
    /// No function matches these patterns.
    NoFunction(Vec<String>),
    /// The program could not be started.
    Launch(LaunchError),
    /// The session could not be created or changed. The process is as it was before.
    Session(SessionError),
    /// The process could not be resumed.
    Tracee(TraceeError),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pattern(pattern, cause) => write!(f, "pattern '{pattern}': {cause}"),
            Self::Metric(name, cause) => write!(f, "metric {name}: {cause}"),
            Self::Process(cause) => cause.fmt(f),
            Self::NoFunction(patterns) => write!(f, "no function matches {}", patterns.join(", ")),
            Self::Launch(cause) => cause.fmt(f),
            Self::Session(cause) => cause.fmt(f),
            Self::Tracee(cause) => cause.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<SessionError> for Error {
    fn from(cause: SessionError) -> Self {
        Self::Session(cause)
    }
}

/// A process with measured functions. Dropping it removes the probes.
pub struct Measured {
    session: Session,
    collector: Collector,
    /// Answers the runtime's requests for unwind rules for as long as this lives.
    _answering: Answering,
    /// True once [`Self::detach`] has been called. Dropping then does nothing.
    is_out: bool,
}

/// Measures functions of a running process. It is stopped for milliseconds.
///
/// # Errors
/// The options are invalid, no function matches, or the process cannot be changed. Nothing of the
/// session then remains in the process.
pub fn attach(pid: u32, options: &Options) -> Result<Measured, Error> {
    let pid = i32::try_from(pid).map_or(Pid(0), Pid);
    let process = Process::find(pid).map_err(Error::Process)?;
    let for_session = options.for_session()?;
    let patterns = patterns(&options.functions)?;
    let mut selected = select_in(&process, &patterns, for_session.wanted())?;
    prepare(&mut selected, options, &for_session)?;
    let (session, _) = Session::create(&process, &for_session, selected, Where::Running)?;
    Ok(Measured::new(session))
}

/// Starts a program and measures functions of it from its first instruction on. The caller must
/// wait for the child.
///
/// # Errors
/// The options are invalid, the program cannot be started, or no function matches. The program has
/// then not begun to run.
pub fn launch(program: &[OsString], options: &Options) -> Result<(Child, Measured), Error> {
    let for_session = options.for_session()?;
    let patterns = patterns(&options.functions)?;
    let mask = SigSet::thread_get_mask().unwrap_or_else(|_| SigSet::empty());
    let Launched {
        mut child,
        process,
        mut stopped,
    } = crate::launch::launch(program, mask, |_| ()).map_err(Error::Launch)?;
    let created = (|| {
        let space = Arc::clone(stopped.space());
        let wanted = for_session.wanted();
        let mut selected = select_stopped(space, &patterns, wanted, Some(&mut stopped), false)?;
        prepare(&mut selected, options, &for_session)?;
        let held = Where::Stopped(&mut stopped);
        let (session, _) = Session::create(&process, &for_session, selected, held)?;
        Ok(session)
    })();
    match created {
        Ok(session) => {
            let measured = Measured::new(session);
            stopped.resume().map_err(Error::Tracee)?;
            Ok((child, measured))
        }
        Err(error) => {
            // The program has not begun, and must not run unmeasured. It may have ended.
            let _ = child.kill();
            drop(stopped);
            let _ = child.wait();
            Err(error)
        }
    }
}

impl Measured {
    fn new(session: Session) -> Self {
        let process = session.process();
        Self {
            collector: Collector::of(process),
            _answering: Answering::begin(process, None, true),
            session,
            is_out: false,
        }
    }

    /// Measures further functions.
    ///
    /// # Errors
    /// As for [`attach`]. Functions that are measured already stay measured.
    pub fn add<T: AsRef<str>>(&mut self, functions: &[T]) -> Result<(), Error> {
        let patterns = patterns(functions)?;
        let selected = self.session.select(&patterns, None)?;
        check(&selected, functions)?;
        self.session.add("add", selected)?;
        Ok(())
    }

    /// Stops measuring functions. Their paths stay in the profile.
    ///
    /// # Errors
    /// No measured function matches, or the process cannot be changed.
    pub fn remove<T: AsRef<str>>(&mut self, functions: &[T]) -> Result<(), Error> {
        let matching = self.session.matching(&patterns(functions)?)?;
        let functions_in = &self.session.document().functions;
        if !matching.iter().any(|&id| functions_in[id].is_in()) {
            return Err(Error::NoFunction(texts(functions)));
        }
        self.session.remove(&matching)?;
        Ok(())
    }

    /// The profile so far.
    pub fn profile(&mut self) -> Profile {
        self.collector.profile(&self.session)
    }

    /// Removes all probes, and returns the complete profile.
    ///
    /// # Errors
    /// The process cannot be changed. Run `ipath detach PID` later.
    pub fn detach(mut self) -> Result<Profile, Error> {
        self.is_out = true;
        self.session.detach()?;
        Ok(self.collector.profile(&self.session))
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        if !self.is_out {
            // A caller that needs the result calls `detach`.
            let _ = self.session.detach();
        }
    }
}

fn texts<T: AsRef<str>>(functions: &[T]) -> Vec<String> {
    functions.iter().map(|f| f.as_ref().to_owned()).collect()
}

fn patterns<T: AsRef<str>>(functions: &[T]) -> Result<Vec<Pattern>, Error> {
    let parse = |text: &T| {
        let text = text.as_ref();
        Pattern::parse(text).map_err(|cause| Error::Pattern(text.to_owned(), cause))
    };
    functions.iter().map(parse).collect()
}

fn prepare(
    selected: &mut Selected,
    options: &Options,
    for_session: &session::Options,
) -> Result<(), Error> {
    selected.complete(&[], options.allow_traps, &for_session.items());
    check(selected, &options.functions)
}

fn check<T: AsRef<str>>(selected: &Selected, functions: &[T]) -> Result<(), Error> {
    if selected.selection.count() == 0 {
        return Err(Error::NoFunction(texts(functions)));
    }
    Ok(())
}
