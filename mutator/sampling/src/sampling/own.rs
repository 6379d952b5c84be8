//! The code that ipath has mapped into a process: the runtime, and the trampolines of a session.

use ipath_session::segment::{RegionDoc, Segment};
use ipath_target::process::{Extent, Process};

/// The name of this code in lists of functions.
pub(super) const FUNCTION: &str = "measuring";
/// The name of this code in lists of modules.
pub(super) const MODULE: &str = "[ipath]";

/// The ranges of this code. Empty if the process has no session.
pub(super) fn extents(process: &Process) -> Vec<Extent> {
    let Ok(document) = Segment::open(process).and_then(|segment| segment.read_document()) else {
        return Vec::new();
    };
    let regions = document.regions.iter().map(RegionDoc::extent);
    regions.chain([document.image]).collect()
}
