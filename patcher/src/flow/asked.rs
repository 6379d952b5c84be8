//! The recipes of single calls: of those in code that there is too much of for all to be found, and of those that the
//! unwind tables describe by the frame pointer, where the stack pointer would do.

use std::collections::BTreeMap;

use super::bounds::unnamed_recipes_around;
use super::described;
use super::epilogue::{BY_FRAME_POINTER, by_entry, by_epilogue, callees};
use super::go_frames;
use super::graph::Flow;
use super::height::Heights;
use super::module::ModuleContext;
use super::recipe::{Recipe, by_stack_pointer, is_entered_elsewhere, recipes};
use super::sweep::one;
use crate::addr::Svma;
use crate::function::{Function, FunctionKind};
use crate::image::Image;
use crate::isa::{CALL, Calls, beginnings_with_frame_pointer};

/// Most bytes of a function that is analysed for one call in it.
const LARGEST_FUNCTION: u64 = 2 << 20;

/// The recipes of the calls that return to `asked`, ascending addresses, as far as there are any; each with the bytes
/// from the stack pointer to where the frame pointer was seen to point.
pub fn frames_of(
    image: &Image<'_>,
    context: &ModuleContext<'_>,
    asked: &[(Svma, i64)],
) -> BTreeMap<Svma, Recipe> {
    let mut found = BTreeMap::new();
    let mut unnamed = Vec::new();
    let mut rest = asked;
    while let Some(&(first, _)) = rest.first() {
        let Some(function) = image.functions().function_at(before(first)) else {
            unnamed.push(first);
            rest = &rest[1..];
            continue;
        };
        let in_it = rest
            .iter()
            .take_while(|call| function.contains(before(call.0)));
        let (calls, others) = rest.split_at(in_it.count().max(1));
        rest = others;
        if size(&function) > LARGEST_FUNCTION {
            continue;
        }
        if image.fde(before(first)).is_some() {
            found.extend(by_tables(image, context, &function, calls));
        } else if function.kind != FunctionKind::Ifunc {
            found.extend(by_instructions(image, context, &function));
        }
    }
    found.extend(unnamed_recipes_around(image, context, &unnamed));
    found.retain(|after, _| asked.binary_search_by_key(after, |call| call.0).is_ok());
    found
}

/// The recipes of those of these calls that have none in the unwind tables and whose functions restore the frame pointer;
/// each with the bytes from the stack pointer to where the frame pointer was seen to point. Those of further calls in their frames come
/// with them. Cheap.
pub fn frames_seen(image: &Image<'_>, asked: &[(Svma, i64)]) -> BTreeMap<Svma, Recipe> {
    let is_bare = |after: Svma| image.fde(before(after)).is_none();
    let is_asked = |after| asked.binary_search_by_key(&after, |call| call.0).is_ok();
    let mut found = BTreeMap::new();
    for &(after, distance) in asked.iter().filter(|call| is_bare(call.0)) {
        let recipes = by_epilogue(|at| image.bytes_from(at), after, distance);
        // What was seen of a call itself goes before what is concluded from another.
        let is_own = |at: Svma| at == after || !is_asked(at) && is_bare(at);
        found.extend(recipes.into_iter().filter(|&(at, _)| is_own(at)));
    }
    found
}

/// The recipe of a call in code that is in no file, and may be replaced by other code with frames of its own: only that
/// it has a frame pointer is shown. `bytes` are those of the code from an address on.
pub fn frame_seen<'d>(
    bytes: impl Fn(Svma) -> Option<&'d [u8]>,
    after: Svma,
    distance: i64,
) -> Option<Recipe> {
    let found = by_epilogue(bytes, after, distance);
    (!found.is_empty()).then_some(BY_FRAME_POINTER)
}

/// The recipes of calls of the function that is called at `entry`, as far as it has no unwind entries and saves the frame
/// pointer at once, and restores it. Cheap.
pub fn frames_called(image: &Image<'_>, entry: Svma) -> Vec<(Svma, Recipe)> {
    if image.fde(entry).is_some() {
        return Vec::new();
    }
    let mut found = by_entry(|at| image.bytes_from(at), entry);
    found.retain(|call| image.fde(before(call.0)).is_none());
    found
}

/// The recipes of calls of the function around the call that returns to `after`, where one that makes a frame pointer at
/// once leads there. Cheap.
pub fn frames_around(image: &Image<'_>, after: Svma) -> Vec<(Svma, Recipe)> {
    /// Bytes before the call that are looked at, and most beginnings in them.
    const FURTHEST: u64 = 16 << 10;
    const MOST_BEGINNINGS: usize = 4;
    let first = Svma(after.0.saturating_sub(FURTHEST));
    let code = image.bytes(first, after.0 - first.0).unwrap_or_default();
    let entries = beginnings_with_frame_pointer(code).map(|offset| first.plus(offset as u64));
    let mut found = entries
        .take(MOST_BEGINNINGS)
        .map(|entry| frames_called(image, entry));
    let is_around = |calls: &Vec<(Svma, Recipe)>| calls.iter().any(|call| call.0 == after);
    found.find(is_around).unwrap_or_default()
}

/// The function that the call which returns to `after` calls, and those that are called after it, where they are fixed.
pub fn callees_seen(image: &Image<'_>, after: Svma) -> Vec<Svma> {
    let mut found = callees(|at| image.bytes_from(at), after);
    let at = Svma(after.0.wrapping_sub(CALL));
    let call = one(image, at).filter(|insn| insn.is_call() && insn.end() == after.0);
    found.extend(call.map(|call| Svma(call.target())));
    found.retain(|&at| image.is_code(at));
    found
}

/// The functions that are called by the one at `entry`, where they are fixed.
pub fn callees_of(image: &Image<'_>, entry: Svma) -> Vec<Svma> {
    let mut found = callees(|at| image.bytes_from(at), entry);
    found.retain(|&at| image.is_code(at));
    found
}

/// Where the call that returns to `after` ends.
fn before(after: Svma) -> Svma {
    Svma(after.0.wrapping_sub(1))
}

/// Bytes of all its parts.
fn size(function: &Function) -> u64 {
    let ranges = function.ranges();
    ranges.map(|range| range.end.0 - range.start.0).sum()
}

/// The recipes of a function without unwind entries.
fn by_instructions(
    image: &Image<'_>,
    context: &ModuleContext<'_>,
    function: &Function,
) -> Vec<(Svma, Recipe)> {
    let stated = image.pclntab().and_then(|table| {
        let function = table.function_at(function.range.start)?;
        go_frames::recipes(image, table, &function)
    });
    stated.unwrap_or_else(|| recipes(image, context, function))
}

/// The recipes of calls of a function with unwind entries, by the stack pointer.
fn by_tables(
    image: &Image<'_>,
    context: &ModuleContext<'_>,
    function: &Function,
    calls: &[(Svma, i64)],
) -> Vec<(Svma, Recipe)> {
    let Some(flow) = Flow::of(image, context, function) else {
        return Vec::new();
    };
    let heights = Heights::of(&flow, Calls::Keep);
    if is_entered_elsewhere(&flow, &heights) {
        return Vec::new();
    }
    let recipe = |after: Svma, distance: i64| {
        let index = flow.insns.partition_point(|insn| insn.end() < after.0);
        let call = flow.insns.get(index)?;
        let is_it = call.is_call() && call.end() == after.0;
        let row = image.unwind().at_row(before(after), described::recipe)?;
        match row.filter(|_| is_it)? {
            Recipe::FromFramePointer(stated) => by_stack_pointer(&heights, index, stated, distance),
            _ => None,
        }
    };
    let found = calls.iter();
    found
        .filter_map(|&(after, distance)| Some((after, recipe(after, distance)?)))
        .collect()
}
