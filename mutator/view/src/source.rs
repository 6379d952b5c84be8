//! The source of the numbers in the view.

use std::sync::Arc;

use super::callees::Callees;
use super::choice::Finder;
use super::names::Names;
use ipath_profile::{Changed, Profile};

/// A source of samples that the view shows, and the operations of the view on it.
pub trait Source {
    /// Takes a sample.
    ///
    /// # Errors
    /// Returns one line. The view shows it and tries again after the next interval.
    fn sample(&mut self) -> Result<Sample<'_>, String>;

    /// Instruments the functions that `pattern` matches. Returns one line that describes the
    /// result.
    ///
    /// # Errors
    /// Returns one line with the reason that no function was instrumented.
    fn add(&mut self, pattern: &str) -> Result<String, String>;

    /// Returns the functions called by a function, given by its index in the latest sample's
    /// [`Profile::functions`].
    ///
    /// # Errors
    /// Returns one line with the reason that they are not known, or that there are none.
    fn callees(&mut self, function: usize) -> Result<Callees, String>;

    /// Instruments the callees. Returns one line that describes the result.
    ///
    /// # Errors
    /// Returns one line with the reason that no function was instrumented.
    fn add_callees(&mut self, callees: &Callees) -> Result<String, String>;

    /// Sets the metrics of a function, given by its index in the latest sample's
    /// [`Profile::functions`]. `metrics` is a comma-separated list of names. Returns one line that
    /// describes the result.
    ///
    /// # Errors
    /// Returns one line with the reason that the metrics were not changed.
    fn change(&mut self, function: usize, metrics: &str) -> Result<String, String>;

    /// Removes the probes from a function, given by its index in the latest sample's
    /// [`Profile::functions`]. Returns one line that describes the result.
    ///
    /// # Errors
    /// Returns one line with the reason that they were not removed.
    fn remove(&mut self, function: usize) -> Result<String, String>;

    /// Counts the edges of a function, given by its index in the latest sample's
    /// [`Profile::functions`]. If they are counted, stops that. Returns one line that describes the
    /// result.
    ///
    /// # Errors
    /// Returns one line with the reason that nothing was changed.
    fn edges(&mut self, function: usize) -> Result<String, String>;

    /// The functions of the process. They are determined in the background: call again if the
    /// result is `None`.
    fn names(&mut self) -> Option<Arc<Names>>;

    /// Starts sampling the process, to choose functions by the time they take.
    ///
    /// # Errors
    /// Returns one line with the reason that sampling is not possible.
    fn finder(&mut self) -> Result<Box<dyn Finder>, String>;

    /// Instruments the functions chosen in a [`Finder`], given by their patterns. Returns one line
    /// that describes the result.
    ///
    /// # Errors
    /// Returns one line with the reason that no function was instrumented.
    fn add_found(&mut self, patterns: &[String]) -> Result<String, String>;

    /// Writes the current profile to a file. Returns one line that describes the result.
    ///
    /// # Errors
    /// Returns one line with the reason that it was not written.
    fn write(&mut self, file: &str) -> Result<String, String>;
}

/// A sample of a session.
#[derive(Debug)]
pub struct Sample<'s> {
    /// The measurements of the session so far.
    pub profile: &'s Profile,
    /// The difference from the previous sample.
    pub changed: Changed,
    /// The state of the target, if it is not running (`stopped by SIGSTOP`). `None` if it runs.
    pub stands: Option<String>,
    /// The reason that no more samples will come, if the target has ended. `None` while more come.
    pub ended: Option<String>,
    /// The reason why it is not known whether more samples will come. `None` if it is known.
    pub doubt: Option<String>,
    /// The latest message since the previous sample. `None` if there is none.
    pub said: Option<String>,
}
