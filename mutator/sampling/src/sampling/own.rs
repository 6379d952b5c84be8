//! The code that ipath has put into a process: its runtime, and the trampolines of a session.

use ipath_session::segment::{RegionDoc, Segment};
use ipath_target::process::{Extent, Process};

/// What it is called among functions and modules.
pub(super) const FUNCTION: &str = "measuring";
pub(super) const MODULE: &str = "[ipath]";

/// Where it is; nowhere in a process without a session.
pub(super) fn extents(process: &Process) -> Vec<Extent> {
    let Ok(document) = Segment::open(process).and_then(|segment| segment.read_document()) else {
        return Vec::new();
    };
    let regions = document.regions.iter().map(RegionDoc::extent);
    regions.chain([document.image]).collect()
}
