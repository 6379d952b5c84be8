//! The parameters of a search.

use std::time::Duration;

use crate::cli::Show;
use ipath_profile::merge::PathsOf;
use ipath_sampling::search::Bounds;

/// The parameters of a search.
pub(in crate::commands) struct Searching<'a> {
    /// The name of the command in messages.
    pub(super) operation: &'static str,
    pub(super) bounds: Bounds,
    /// The length of a step.
    pub(super) step: Duration,
    /// True if breakpoints may be used.
    pub(super) allow_traps: bool,
    /// The way in which equal paths of several processes are merged.
    pub(super) paths_of: PathsOf,
    pub(super) show: &'a Show,
    /// The terminal columns for steps on one line. `None` if steps are printed in full.
    pub(super) brief: Option<usize>,
}
