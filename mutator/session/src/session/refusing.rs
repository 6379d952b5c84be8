//! Entering refused functions and modules in the document.

use patcher::Bias;
use patcher::plan::RefuseReason;

use super::rows::{is_same_file, row_of};
use super::{Candidate, Changed, Refusal};
use crate::segment::{Document, ModuleDoc, RefusedDoc, Role};
use ipath_symbols::debuginfod::hex;
use ipath_symbols::images::OpenImage;
use ipath_target::process::modules::Module;

/// Records in the document and in `changed` that a candidate cannot be instrumented. For a function
/// that is in, records only in `changed` that its metrics cannot be changed. Witnesses and enders
/// are not recorded: they were not requested.
pub(super) fn refuse_candidate(
    document: &mut Document,
    modules: &[Module],
    candidate: &Candidate,
    reason: Refusal,
    changed: &mut Changed,
) {
    let known = candidate.exits_of.or_else(|| row_of(document, candidate));
    let is_in = known.is_some_and(|id| document.functions[id].is_in());
    let relaid = candidate.relaid.as_ref();
    let is_new = relaid.is_none_or(|relaid| !relaid.measures_already());
    let function = (candidate.role.is_measured() && is_new).then(|| {
        let start = candidate.plan.function.range.start;
        (&candidate.name, start, Role::Measured)
    });
    let points = candidate.points.iter().map(|p| (&p.name, p.at, p.role()));
    let counted = candidate.counted.as_ref();
    let counted = counted.filter(|_| relaid.is_none_or(|relaid| !relaid.counts_already()));
    let counted = counted.map(|c| (&c.name, candidate.plan.function.range.start, Role::Edges));
    for (name, address, role) in function.into_iter().chain(points).chain(counted) {
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

/// Records that a function of the session is refused.
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

/// Adds a refusal to the document, unless it is there already.
pub(super) fn add_refused(document: &mut Document, refused: RefusedDoc) {
    if !document.refused.contains(&refused) {
        document.refused.push(refused);
    }
}

/// Removes the refusals of functions that are in now.
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

/// The index of a candidate's module in the document. Adds the module if it is new.
pub(super) fn module_id(
    document: &mut Document,
    modules: &[Module],
    candidate: &Candidate,
) -> usize {
    id_of_module(
        document,
        &modules[candidate.module],
        &candidate.image,
        candidate.bias,
    )
}

/// The index of a module in the document. Adds the module if it is new.
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
        build_id: image.image().build_id().map(hex),
        bias,
        code: module.code_range(),
        file: module.file(),
        stamp: image.stamp(),
        is_gone: false,
    });
    document.modules.len() - 1
}
