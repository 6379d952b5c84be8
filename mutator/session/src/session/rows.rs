//! Rows of a session's document, looked up.

use patcher::Avma;

use super::Candidate;
use crate::segment::{Document, ModuleDoc, Role, Witness};
use ipath_symbols::debuginfod::hex;
use ipath_symbols::images::OpenImage;
use ipath_target::process::Mapping;
use ipath_target::process::modules::Module;

/// What makes way for functions that come in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Way {
    /// Ids of what is taken out.
    pub(super) out: Vec<usize>,
    /// Ids of what will not come in again.
    pub(super) retired: Vec<usize>,
}

/// The id of the row that a candidate has already. `None` if it is new, or stands for the exits of
/// another row alone.
pub(super) fn row_of(document: &Document, candidate: &Candidate) -> Option<usize> {
    if candidate.exits_of.is_some() {
        return None;
    }
    let place = Some(candidate.place());
    document.functions.iter().position(|f| {
        let is_same = f.role == candidate.role && !f.is_retired();
        // Others may carry other points.
        is_same && f.role != Role::Carrier && document.place_of(f) == place
    })
}

/// True if the session follows stacks that Go's runtime moves.
pub(super) fn follows_goroutines(document: &Document) -> bool {
    let mut functions = document.functions.iter();
    functions.any(|f| f.role == Role::Witness(Witness::Moves))
}

/// True if the file of a module is what is mapped at `at`.
pub(super) fn is_mapped(maps: &[Mapping], at: Avma, module: &ModuleDoc) -> bool {
    let there = maps.iter().find(|m| m.contains(at));
    // The document of another build of ipath may not name the file. The mapping is not the file's
    // either if the program has copied its code to anonymous memory.
    let is_copy = |m: &Mapping| m.execute && m.file.1 == 0;
    there.is_some_and(|m| m.file == module.file || module.file.0.is_empty() || is_copy(m))
}

/// True if a module of the session is this one: by build id, else by when its file was written.
pub(super) fn is_same_file(known: &ModuleDoc, module: &Module, image: &OpenImage) -> bool {
    let is_same = match (&known.build_id, image.image.build_id()) {
        (Some(known), Some(build_id)) => *known == hex(build_id),
        (None, None) => known.stamp == image.stamp(),
        _ => false,
    };
    is_same && known.file == module.file()
}
