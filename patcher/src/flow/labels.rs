//! Labels in a table of addresses: an interpreter jumps through the table to the code of each of
//! its instructions (`goto *table[opcode]`). The address of a label is taken like that of a
//! function, but no function begins there.

use std::ops::Range;

use super::graph::Flow;
use super::height::Heights;
use super::module::ModuleContext;
use crate::addr::Svma;
use crate::image::Image;
use crate::isa::{Shape, jump_source, table_of};

/// The maximum number of entries in a table.
const MOST_ENTRIES: u64 = 1 << 16;
/// The size of an entry, in bytes.
const ENTRY: u64 = 8;

/// The start addresses of the tables that `flow` jumps through while its frame exists, ascending. A
/// tail call leaves no frame, so these tables lead to labels.
pub fn tables_of_labels(flow: &Flow, heights: &Heights) -> Vec<Svma> {
    let jumps = flow.insns.iter().enumerate();
    let jumps = jumps.filter(|(index, insn)| {
        insn.is_indirect_jump() && heights.before(*index).is_some_and(|height| height < 0)
    });
    let mut tables: Vec<Svma> = jumps
        .flat_map(|(index, _)| {
            let source = jump_source(&flow.insns, &flow.branches, index);
            let reads = match source.shape {
                Shape::Addresses => source.reads,
                _ => Vec::new(),
            };
            let tables = reads.into_iter();
            tables.filter_map(|read| table_of(&flow.insns, &flow.branches, read))
        })
        .map(Svma)
        .collect();
    tables.sort_unstable();
    tables.dedup();
    tables
}

/// The labels in `table`, up to the first entry outside of `within`.
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
