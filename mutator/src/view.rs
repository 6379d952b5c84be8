//! The live view: what a session measures, in a terminal, while the program runs.
//!
//! [`State`] decides everything and knows no terminal; `draw` reads it; [`run`] joins both to a
//! terminal and to a [`Source`].

mod draw;
mod key;
mod layout;
mod line;
mod screen;
mod state;
#[cfg(test)]
mod tests;
mod tree;
mod watch;

pub use key::Key;
pub use state::{Action, Event, State};

use crate::profile::Profile;
use std::time::{Duration, Instant};
use std::{fmt, io};

/// What the view shows and changes.
pub trait Source {
    /// The numbers of this moment.
    ///
    /// # Errors
    /// One line; it is shown, and the next interval tries again.
    fn sample(&mut self) -> Result<Sample, String>;

    /// Instruments the functions that `pattern` matches; gives one line that says what was done.
    ///
    /// # Errors
    /// One line that says why nothing was.
    fn add(&mut self, pattern: &str) -> Result<String, String>;

    /// Takes the probes out of a function, by its index in the latest sample's
    /// [`Profile::functions`]; gives one line that says what was done.
    ///
    /// # Errors
    /// One line that says why it was not.
    fn remove(&mut self, function: usize) -> Result<String, String>;
}

/// One look at a session.
#[derive(Clone, Debug)]
pub struct Sample {
    /// All that is measured so far.
    pub profile: Profile,
    /// Why there is nothing more to come, when the target has ended.
    pub ended: Option<String>,
}

/// Why there is no view.
#[derive(Debug)]
pub enum ViewError {
    /// The terminal cannot be used.
    Terminal(io::Error),
}

impl fmt::Display for ViewError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Terminal(cause) => write!(f, "the terminal cannot be used: {cause}"),
        }
    }
}

impl std::error::Error for ViewError {}

impl From<io::Error> for ViewError {
    fn from(cause: io::Error) -> Self {
        Self::Terminal(cause)
    }
}

/// Shows `source` in the terminal of standard output, with a new sample every `interval`, until
/// the user quits, `deadline` passes, the source ends or SIGINT, SIGTERM, SIGHUP or SIGQUIT comes.
/// The terminal is as it was when this returns or panics.
///
/// These signals are blocked in the calling thread meanwhile and taken as they come; in a process
/// with further threads the caller blocks them there.
///
/// # Errors
/// The terminal cannot be used (any more).
pub fn run(
    source: &mut dyn Source,
    interval: Duration,
    deadline: Option<Instant>,
) -> Result<(), ViewError> {
    let mut keyboard = screen::Keyboard::open()?;
    let mut screen = screen::Screen::enter()?;
    let shown = watch::watch(
        &mut screen.terminal,
        &mut keyboard,
        source,
        interval,
        deadline,
    );
    Ok(shown?)
}
