//! Recipes for the frames of all calls in code without unwind entries that are loaded with it.

use std::collections::BTreeMap;
use std::ops::Deref;

use super::bounds::unless_too_large;
use super::contradicted::contradicted;
use super::described::described;
use super::fibers::fiber_roots;
use super::go_frames;
use super::module::ModuleContext;
use super::recipe::{Recipe, recipes};
use crate::addr::Svma;
use crate::function::FunctionKind;
use crate::image::Image;

/// The maximum number of functions that are analyzed in a module: a second's work.
const FUNCTIONS: usize = 50_000;

/// The recipes of calls by return address: in code without loaded unwind entries, and in code with
/// entries that the instructions contradict. The sources are Go's runtime tables, the contents
/// `debug_frame` of the section `.debug_frame`, otherwise the instructions. `context` is used only
/// for Go programs, and if there is code without loaded unwind entries, but not too much of it.
pub fn frames<'d>(
    image: &Image<'d>,
    context: &impl Deref<Target = ModuleContext<'d>>,
    debug_frame: Option<&[u8]>,
) -> BTreeMap<Svma, Recipe> {
    let gaps = image.uncovered_calls();
    let mut found = BTreeMap::new();
    let mut is_by_demand = false;
    if !gaps.is_empty() {
        // If the module is too large, single calls are looked up on demand (`asked.rs`).
        let unnamed = unless_too_large(image, context);
        is_by_demand = unnamed.is_none();
        found = unnamed.unwrap_or_default();
        found.extend(
            fiber_roots(image)
                .into_iter()
                .map(|at| (at, Recipe::Outermost)),
        );
    }
    let functions = image.functions().overlapping(&gaps);
    let called = functions.iter().filter(|f| f.kind != FunctionKind::Ifunc);
    let mut looked_at = 0;
    for function in called {
        let stated = image.pclntab().and_then(|table| {
            let function = table.function_at(function.range.start)?;
            go_frames::recipes(image, table, &function)
        });
        let named = match stated {
            Some(stated) => stated,
            None if looked_at < FUNCTIONS && !is_by_demand => {
                looked_at += 1;
                recipes(image, context, function)
            }
            None => continue,
        };
        let is_bare = |after: Svma| image.fde(Svma(after.0.wrapping_sub(1))).is_none();
        found.extend(named.into_iter().filter(|(after, _)| is_bare(*after)));
    }
    found.extend(contradicted(image));
    // The compiler's statement takes precedence over the analysis of its code.
    if let Some(section) = debug_frame {
        found.extend(described(image, section));
    }
    if image.pclntab().is_some() || go_frames::is_of_go(image) {
        found.extend(go_frames::outermost(image, context));
    }
    found
}
