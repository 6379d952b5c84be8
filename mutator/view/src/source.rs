//! Where the view has its numbers from.

use std::sync::Arc;

use super::callees::Callees;
use super::choice::Finder;
use super::names::Names;
use ipath_profile::{Changed, Profile};

/// What the view shows and changes.
pub trait Source {
    /// The numbers of this moment.
    ///
    /// # Errors
    /// One line; it is shown, and the next interval tries again.
    fn sample(&mut self) -> Result<Sample<'_>, String>;

    /// Instruments the functions that `pattern` matches; gives one line that says what was done.
    ///
    /// # Errors
    /// One line that says why nothing was.
    fn add(&mut self, pattern: &str) -> Result<String, String>;

    /// The functions that a function, by its index in the latest sample's [`Profile::functions`], calls.
    ///
    /// # Errors
    /// One line that says why they are not known, or that there is none.
    fn callees(&mut self, function: usize) -> Result<Callees, String>;

    /// Instruments them; gives one line that says what was done.
    ///
    /// # Errors
    /// One line that says why nothing was.
    fn add_callees(&mut self, callees: &Callees) -> Result<String, String>;

    /// Has a function, by its index in the latest sample's [`Profile::functions`], measure the metrics of a list of names
    /// with commas, and no others; gives one line that says what was done.
    ///
    /// # Errors
    /// One line that says why it was not.
    fn change(&mut self, function: usize, metrics: &str) -> Result<String, String>;

    /// Takes the probes out of a function, by its index in the latest sample's
    /// [`Profile::functions`]; gives one line that says what was done.
    ///
    /// # Errors
    /// One line that says why it was not.
    fn remove(&mut self, function: usize) -> Result<String, String>;

    /// The functions of the process, which are found out meanwhile: none as long as that takes. To be asked again.
    fn names(&mut self) -> Option<Arc<Names>>;

    /// Begins to sample the process, for choosing functions from where its time goes.
    ///
    /// # Errors
    /// One line that says why that cannot be done.
    fn finder(&mut self) -> Result<Box<dyn Finder>, String>;

    /// Instruments functions that were chosen so, by their keys; gives one line that says what was done.
    ///
    /// # Errors
    /// One line that says why nothing was.
    fn add_found(&mut self, patterns: &[String]) -> Result<String, String>;

    /// Writes the profile of this moment to a file; gives one line that says so.
    ///
    /// # Errors
    /// One line that says why it was not.
    fn write(&mut self, file: &str) -> Result<String, String>;
}

/// One look at a session.
#[derive(Debug)]
pub struct Sample<'s> {
    /// All that is measured so far.
    pub profile: &'s Profile,
    /// What of it differs from the sample before.
    pub changed: Changed,
    /// How the target stands, where it does not run (`stopped by SIGSTOP`).
    pub stands: Option<String>,
    /// Why there is nothing more to come, when the target has ended.
    pub ended: Option<String>,
    /// Why it cannot be seen whether there is more to come.
    pub doubt: Option<String>,
    /// What there is to say since the sample before.
    pub said: Option<String>,
}
