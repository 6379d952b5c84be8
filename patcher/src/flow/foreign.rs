//! Branches from other functions.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::addr::Svma;
use crate::image::Image;
use crate::isa::{Insn, SHORT_BRANCH, SHORT_REACH, short_target};

use super::graph::Flow;
use super::scan::branches_to;
use super::sweep;

/// The maximum distance from a function's start at which the function is decoded to verify a
/// branch, in bytes. Beyond it, any byte that looks like a branch counts as one.
const FURTHEST: u64 = 1 << 16;

/// True if a branch with an 8-bit displacement outside the function may lead strictly inside
/// `window`. The scan over the module handles branches with 32-bit displacements.
pub fn foreign_short_branch(image: &Image<'_>, flow: &Flow, window: &Range<u64>) -> bool {
    let low = window.start.saturating_sub(SHORT_REACH);
    (low..window.end + SHORT_REACH - 1).any(|at| {
        if window.contains(&at) || flow.contains(at) {
            return false;
        }
        let bytes = image.bytes(Svma(at), SHORT_BRANCH);
        let bytes = bytes.and_then(<[u8]>::first_chunk);
        let Some(target) = bytes.and_then(|bytes| short_target(at, bytes)) else {
            return false;
        };
        window.start < target
            && target < window.end
            && has_instruction(image, at, |insn| insn.at() == at)
    })
}

/// Those of `wanted`, which ascend, to which branches with a 32-bit displacement outside the
/// function may lead. Reads the whole text.
pub fn targets_of_foreign_branches(
    image: &Image<'_>,
    flow: &Flow,
    wanted: &[Svma],
) -> BTreeSet<Svma> {
    let branches = branches_to(image, wanted).into_iter();
    let foreign = branches.filter(|(_, end)| {
        let last = end.0 - 1;
        // The flow has all branches of the function itself.
        !flow.contains(last) && has_instruction(image, last, |insn| insn.end() == end.0)
    });
    foreign.map(|(to, _)| to).collect()
}

/// True if there `is_one` among the instructions of the function that contains `at`, decoded from
/// its start, or if that cannot be decided.
fn has_instruction(image: &Image<'_>, at: u64, is_one: impl FnMut(&Insn) -> bool) -> bool {
    let Some(function) = image.functions().containing(Svma(at)) else {
        return true;
    };
    let range = function.start..function.start.plus(function.size);
    if at - function.start.0 > FURTHEST {
        return true;
    }
    match sweep::linear(image, &[range]) {
        // The neighbor contains data, so its instructions are not known.
        Some(swept) if !swept.complete => true,
        Some(swept) => swept.insns.iter().any(is_one),
        None => true,
    }
}
