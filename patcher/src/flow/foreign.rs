//! Branches from other functions.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::addr::Svma;
use crate::image::Image;
use crate::isa::{Insn, SHORT_BRANCH, SHORT_REACH, short_target};

use super::graph::Flow;
use super::module::ModuleContext;
use super::scan::{LongBranch, branches_within};
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

/// The maximum size of a module's text in which branches are verified, in bytes. In a larger one,
/// all that look like branches count.
const MOST_TEXT: u64 = 32 << 20;

/// The addresses in `wanted`, which ascend, to which code outside the function may branch with a
/// 32-bit displacement. Starts of functions count without a check.
pub fn targets_of_foreign_branches(
    image: &Image<'_>,
    context: &ModuleContext<'_>,
    flow: &Flow,
    wanted: &[Svma],
) -> BTreeSet<Svma> {
    let text = image.segments().iter().filter(|segment| segment.execute);
    let sizes = text.map(|segment| segment.range.end.0.saturating_sub(segment.range.start.0));
    if sizes.fold(0, u64::saturating_add) > MOST_TEXT {
        return wanted.iter().copied().collect();
    }
    let mut neighbors: BTreeMap<Svma, Option<Flow>> = BTreeMap::new();
    let own = flow.ranges.iter();
    let own = own.flat_map(|range| branches_within(image, range, wanted));
    let others = context.crossing_to(image, wanted).into_iter();
    let foreign = own.chain(others).filter(|&LongBranch { end, .. }| {
        let last = Svma(end.0 - 1);
        if flow.contains(last.0) {
            // The branches of the function itself are known from its flow.
            return is_in_doubt(flow, last);
        }
        let Some(extent) = image.functions().containing(last) else {
            return true;
        };
        let neighbor = neighbors.entry(extent.start).or_insert_with(|| {
            let is_near = extent.size <= FURTHEST;
            let function = image.functions().function_at(extent.start);
            let function = function.filter(|_| is_near)?;
            Flow::of(image, context, &function)
        });
        let is_none = |flow: &Flow| {
            let insn = instruction_at(flow, last);
            insn.is_some_and(|insn| insn.end() != end.0) && !is_in_doubt(flow, last)
        };
        !neighbor.as_ref().is_some_and(is_none)
    });
    let is_start = |to: &&Svma| {
        let extent = image.functions().containing(**to);
        extent.is_some_and(|extent| extent.start == **to)
    };
    let starts = wanted.iter().filter(is_start).copied();
    foreign.map(|branch| branch.to).chain(starts).collect()
}

/// The instruction that contains the byte at `at`.
fn instruction_at(flow: &Flow, at: Svma) -> Option<&Insn> {
    let after = flow.insns.partition_point(|insn| insn.at() <= at.0);
    let insn = &flow.insns[after.checked_sub(1)?];
    (at.0 < insn.end()).then_some(insn)
}

/// True if the byte at `at` is not certainly a part of an instruction of the function, or if that
/// may be data.
fn is_in_doubt(flow: &Flow, at: Svma) -> bool {
    let insn = instruction_at(flow, at);
    flow.doubt.is_some() || !insn.is_some_and(|insn| flow.is_certain(insn.at()))
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
        Some(swept) => swept.insns.binary_search_by_key(&at, Insn::at).is_ok(),
        None => true,
    }
}
