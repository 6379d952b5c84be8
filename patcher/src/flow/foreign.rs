//! Short branches from neighboring functions.

use std::ops::Range;

use crate::addr::Svma;
use crate::image::Image;
use crate::isa::{SHORT_BRANCH, SHORT_REACH, short_target};

use super::graph::Flow;
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
        window.start < target && target < window.end && begins_instruction(image, at)
    })
}

/// True if an instruction begins at `at` when its function is decoded from the start, or if that
/// cannot be decided.
fn begins_instruction(image: &Image<'_>, at: u64) -> bool {
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
        Some(swept) => swept.insns.binary_search_by_key(&at, |i| i.at()).is_ok(),
        None => true,
    }
}
