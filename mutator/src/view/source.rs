//! Where the view has its numbers from.

use crate::profile::{Changed, Profile};

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
}

/// One look at a session.
#[derive(Clone, Debug)]
pub struct Sample<'s> {
    /// All that is measured so far.
    pub profile: &'s Profile,
    /// What of it is not as it was in the sample before.
    pub changed: Changed,
    /// Why there is nothing more to come, when the target has ended.
    pub ended: Option<String>,
    /// Why it cannot be seen whether there is more to come.
    pub doubt: Option<String>,
}
