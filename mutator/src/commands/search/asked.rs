//! What a search is asked for.

use std::time::Duration;

use crate::cli::Show;
use ipath_profile::merge::PathsOf;
use ipath_sampling::search::Bounds;

/// What a search is to be like.
pub(in crate::commands) struct Searching<'a> {
    pub(super) operation: &'static str,
    pub(super) bounds: Bounds,
    /// How long one look is.
    pub(super) step: Duration,
    pub(super) allow_traps: bool,
    /// Determines if equal paths of several processes are one.
    pub(super) paths_of: PathsOf,
    pub(super) show: &'a Show,
    /// The columns for one line a step. `None` if steps are printed in full.
    pub(super) brief: Option<usize>,
}
