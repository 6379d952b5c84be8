//! Labels that a table of addresses names: an interpreter jumps through such a table to the code of each instruction of
//! its own (`goto *table[opcode]`). A label has its address taken, as a function has, but no function begins there.

use std::ops::Range;

use super::graph::Flow;
use super::height::Heights;
use super::module::ModuleContext;
use super::tables::is_indirect_jump;
use super::trace::{self, Shape};
use crate::addr::Svma;
use crate::image::Image;

/// No table is longer than this.
const MOST_ENTRIES: u64 = 1 << 16;
/// Bytes of an entry.
const ENTRY: u64 = 8;

/// The tables of addresses that `flow` jumps through while its frame stands. A tail call leaves no frame, so these lead
/// to labels.
pub fn tables_of_labels(flow: &Flow, heights: &Heights) -> Vec<Svma> {
    let jumps = flow.insns.iter().enumerate();
    let jumps = jumps.filter(|(index, insn)| {
        is_indirect_jump(insn) && heights.before(*index).is_some_and(|height| height < 0)
    });
    let mut tables: Vec<Svma> = jumps
        .flat_map(|(index, _)| {
            let source = trace::source(&flow.insns, &flow.branches, index);
            let reads = match source.shape {
                Shape::Addresses => source.reads,
                _ => Vec::new(),
            };
            let tables = reads.into_iter();
            tables.filter_map(|read| trace::table_of(&flow.insns, &flow.branches, read))
        })
        .map(Svma)
        .collect();
    tables.sort_unstable();
    tables.dedup();
    tables
}

/// What `table` names, up to the first entry that is outside of `within`.
pub fn labels(
    image: &Image<'_>,
    context: &ModuleContext<'_>,
    table: Svma,
    within: &Range<Svma>,
) -> impl Iterator<Item = Svma> {
    let places = (0..MOST_ENTRIES).map(move |index| table.plus(ENTRY * index));
    let entries = places.map_while(move |at| context.word(image, at));
    entries.take_while(|to| within.contains(to))
}
