//! What the document says of refused functions and of modules.

use patcher::Bias;
use patcher::plan::RefuseReason;

use super::rows::{is_same_file, row_of};
use super::{Candidate, Changed, Refusal};
use crate::segment::{Document, ModuleDoc, RefusedDoc, Role};
use ipath_symbols::debuginfod::hex;
use ipath_symbols::images::OpenImage;
use ipath_target::process::modules::Module;

/// Notes down that a function cannot be instrumented; nobody has asked for a witness.
pub(super) fn refuse_candidate(
    document: &mut Document,
    modules: &[Module],
    candidate: &Candidate,
    reason: Refusal,
    changed: &mut Changed,
) {
    let known = candidate.exits_of.or_else(|| row_of(document, candidate));
    let is_in = known.is_some_and(|id| document.functions[id].is_in());
    let function = candidate.role.is_measured().then(|| {
        let start = candidate.plan.function.range.start;
        (&candidate.name, start, Role::Measured)
    });
    let points = candidate
        .points
        .iter()
        .map(|p| (&p.name, p.at, Role::Point));
    for (name, address, role) in function.into_iter().chain(points) {
        let refused = (name.clone(), reason.clone());
        if is_in && role.is_measured() {
            changed.unchanged.push(refused);
            continue;
        }
        changed.refused.push(refused);
        let module = module_id(document, modules, candidate);
        add_refused(
            document,
            RefusedDoc {
                name: name.clone(),
                module,
                address,
                reason: reason.to_string(),
                role,
            },
        );
    }
}

/// Notes that a function of the session is refused.
pub(super) fn refuse_known(document: &mut Document, id: usize, reason: RefuseReason) {
    let function = &document.functions[id];
    add_refused(
        document,
        RefusedDoc {
            name: function.name.clone(),
            module: function.module,
            address: function.address,
            reason: reason.to_string(),
            role: function.role,
        },
    );
}

pub(super) fn add_refused(document: &mut Document, refused: RefusedDoc) {
    if !document.refused.contains(&refused) {
        document.refused.push(refused);
    }
}

/// Forgets what was in the way of functions that are in now.
pub(super) fn forget_refusals(document: &mut Document) {
    let functions = &document.functions;
    let is_in = |r: &RefusedDoc| {
        let mut of_place = functions
            .iter()
            .filter(|f| f.module == r.module && f.address == r.address);
        of_place.any(|f| f.is_in() && f.role == r.role)
    };
    document.refused.retain(|r| !is_in(r));
}

pub(super) fn module_id(
    document: &mut Document,
    modules: &[Module],
    candidate: &Candidate,
) -> usize {
    id_of_module(
        document,
        &modules[candidate.module],
        candidate.image,
        candidate.bias,
    )
}

/// The number of a module, which it gets where it has none yet.
pub(super) fn id_of_module(
    document: &mut Document,
    module: &Module,
    image: &OpenImage,
    bias: Bias,
) -> usize {
    let known =
        |m: &ModuleDoc| m.path == module.path && m.bias == bias && is_same_file(m, module, image);
    if let Some(id) = document.modules.iter().position(known) {
        return id;
    }
    document.modules.push(ModuleDoc {
        path: module.path.clone(),
        build_id: image.image.build_id().map(hex),
        bias,
        code: module.code_range(),
        file: module.file(),
        stamp: image.stamp(),
        is_gone: false,
    });
    document.modules.len() - 1
}
