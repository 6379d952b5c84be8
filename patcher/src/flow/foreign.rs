//! Short branches out of neighbouring functions.

use std::ops::Range;

use crate::addr::Svma;
use crate::image::Image;
use crate::isa::{SHORT_BRANCH, SHORT_REACH, short_target};

use super::graph::Flow;
use super::sweep;

/// A byte that looks like a branch is taken for one where its function begins further away than
/// this. Nearer functions are decoded to find out.
const FURTHEST: u64 = 1 << 16;

/// May a branch with an 8-bit displacement that stands outside the function land strictly inside
/// `window`? Branches with 32 bits are the business of the scan over the module.
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

/// Does an instruction begin at `at`, as far as decoding its function from the start tells?
fn begins_instruction(image: &Image<'_>, at: u64) -> bool {
    let Some(function) = image.functions().containing(Svma(at)) else {
        return true;
    };
    let range = function.start..function.start.plus(function.size);
    if at - function.start.0 > FURTHEST {
        return true;
    }
    match sweep::linear(image, &[range]) {
        // Data in the neighbour: its instructions are not known.
        Some(swept) if !swept.complete => true,
        Some(swept) => swept.insns.binary_search_by_key(&at, |i| i.at()).is_ok(),
        None => true,
    }
}
