//! Looking up rows of a session's document.

use patcher::Avma;

use super::Candidate;
use crate::segment::{Document, ModuleDoc, Role, Witness};
use ipath_symbols::images::OpenImage;
use ipath_target::process::Mapping;
use ipath_target::process::modules::Module;

/// The functions that make way for those that come in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Way {
    /// Ids of the functions to take out.
    pub(super) out: Vec<usize>,
    /// Ids of the functions that will not come in again.
    pub(super) retired: Vec<usize>,
    /// Ids of the rows whose sites are given up, because their functions are laid out anew.
    pub(super) given_up: Vec<usize>,
}

/// The id of a candidate's existing row. `None` if it is new, if it only adds exits to another row,
/// or if it lays rows out anew.
pub(super) fn row_of(document: &Document, candidate: &Candidate) -> Option<usize> {
    if candidate.exits_of.is_some() || candidate.relaid.is_some() {
        return None;
    }
    let place = Some(candidate.place());
    document.functions.iter().position(|f| {
        let is_same = f.role == candidate.role && !f.is_retired();
        // Carriers of the same function may carry different points.
        is_same && f.role != Role::Carrier && document.place_of(f) == place
    })
}

/// True if the session follows, or has followed, stacks that Go's runtime moves.
pub(super) fn follows_goroutines(document: &Document) -> bool {
    let mut functions = document.functions.iter();
    functions.any(|f| f.role == Role::Witness(Witness::Moves))
}

/// True if the module's file is mapped at `at`, or anonymous executable memory that may be a copy
/// of its code.
pub(super) fn is_mapped(maps: &[Mapping], at: Avma, module: &ModuleDoc) -> bool {
    let there = maps.iter().find(|m| m.contains(at));
    // The document of another build of ipath may not name the file. The mapping is not the file's
    // either if the program has copied its code to anonymous memory.
    let is_copy = |m: &Mapping| m.execute && m.file.1 == 0;
    there.is_some_and(|m| m.file == module.file || module.file.0.is_empty() || is_copy(m))
}

/// True if the session's module is this one: see [`ModuleDoc::is_of`].
pub(super) fn is_same_file(known: &ModuleDoc, module: &Module, image: &OpenImage) -> bool {
    known.is_of(&module.file(), image)
}
