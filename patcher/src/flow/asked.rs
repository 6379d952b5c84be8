//! Recipes of single calls.
//!
//! Some modules have too much code to find the recipes of all calls. Other calls are described in
//! the unwind tables by the frame pointer, although the stack pointer would do.

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

/// The maximum size of a function that is analyzed for one call, in bytes.
const LARGEST_FUNCTION: u64 = 2 << 20;

/// The recipes of the calls that return to the addresses in `asked`, which are ascending, by return
/// address; some may be missing.
///
/// Each address comes with the distance from the stack pointer up to the frame pointer that a walk
/// saw, in bytes.
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

/// The recipes of those calls in `asked` that have no unwind entry and whose functions restore the
/// frame pointer.
///
/// `asked` are return addresses, ascending, each with the distance from the stack pointer up to the
/// frame pointer that a walk saw, in bytes. The result is by return address and includes further
/// calls in the same frames. This is cheap.
pub fn frames_seen(image: &Image<'_>, asked: &[(Svma, i64)]) -> BTreeMap<Svma, Recipe> {
    let is_bare = |after: Svma| image.fde(before(after)).is_none();
    let is_asked = |after| asked.binary_search_by_key(&after, |call| call.0).is_ok();
    let mut found = BTreeMap::new();
    for &(after, distance) in asked.iter().filter(|call| is_bare(call.0)) {
        let recipes = by_epilogue(|at| image.bytes_from(at), after, distance);
        // An observation at the call itself takes precedence over a conclusion from another.
        let is_own = |at: Svma| at == after || !is_asked(at) && is_bare(at);
        found.extend(recipes.into_iter().filter(|&(at, _)| is_own(at)));
    }
    found
}

/// The recipe of a call in code that is in no file, such as generated code. `None` if the
/// instructions do not show that its function has a frame pointer.
///
/// The call returns to `after`. A walk saw the frame pointer `distance` bytes above the stack
/// pointer. `bytes` returns the code from an address on. The code may be replaced by other code
/// with different frames. So the recipe states only that it has a frame pointer.
pub fn frame_seen<'d>(
    bytes: impl Fn(Svma) -> Option<&'d [u8]>,
    after: Svma,
    distance: i64,
) -> Option<Recipe> {
    let found = by_epilogue(bytes, after, distance);
    (!found.is_empty()).then_some(BY_FRAME_POINTER)
}

/// The recipes of calls in the function at `entry`, each with the return address. Empty unless the
/// function lacks unwind entries, saves the frame pointer at once, and restores it. This is cheap.
pub fn frames_called(image: &Image<'_>, entry: Svma) -> Vec<(Svma, Recipe)> {
    if image.fde(entry).is_some() {
        return Vec::new();
    }
    let mut found = by_entry(|at| image.bytes_from(at), entry);
    found.retain(|call| image.fde(before(call.0)).is_none());
    found
}

/// The recipes of calls in the function around the call that returns to `after`, each with the
/// return address. Empty unless that function lacks unwind entries, sets up a frame pointer at
/// once, and begins within 16 KiB before the call. This is cheap.
pub fn frames_around(image: &Image<'_>, after: Svma) -> Vec<(Svma, Recipe)> {
    /// The number of bytes before the call that are searched.
    const FURTHEST: u64 = 16 << 10;
    /// The maximum number of function beginnings tried in the bytes searched.
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

/// The target of the call that returns to `after`, and those of calls and tail calls in the code
/// that can run after it; only fixed addresses of code in the file, in no certain order.
pub fn callees_seen(image: &Image<'_>, after: Svma) -> Vec<Svma> {
    let mut found = callees(|at| image.bytes_from(at), after);
    let at = Svma(after.0.wrapping_sub(CALL));
    let call = one(image, at).filter(|insn| insn.is_call() && insn.end() == after.0);
    found.extend(call.map(|call| Svma(call.target())));
    found.retain(|&at| image.is_code(at));
    found
}

/// The targets of the calls and tail calls in the function at `entry`; only fixed addresses of code
/// in the file, in no certain order.
pub fn callees_of(image: &Image<'_>, entry: Svma) -> Vec<Svma> {
    let mut found = callees(|at| image.bytes_from(at), entry);
    found.retain(|&at| image.is_code(at));
    found
}

/// The address of the last byte of the call that returns to `after`.
fn before(after: Svma) -> Svma {
    Svma(after.0.wrapping_sub(1))
}

/// The total size of the function's parts, in bytes.
fn size(function: &Function) -> u64 {
    let ranges = function.ranges();
    ranges.map(|range| range.end.0 - range.start.0).sum()
}

/// The recipes of calls in a function without unwind entries, each with the return address.
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

/// The recipes by the stack pointer for those of `calls`, in a function with unwind entries, that
/// the entries describe by the frame pointer. Each comes with the return address.
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
