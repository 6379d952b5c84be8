//! Code with a frame description but no symbol: the static functions of a stripped file.

use std::ops::Range;

use crate::addr::Svma;
use crate::elf::ElfFile;
use crate::isa::{Insn, decode};
use crate::tables::Unwind;

/// The ranges of functions that none of `named` covers. `named` is ordered by start.
pub(super) fn unnamed(
    file: &ElfFile<'_>,
    unwind: &Unwind<'_>,
    named: &[Range<Svma>],
) -> Vec<Range<Svma>> {
    let plts: Vec<Range<Svma>> = file
        .sections()
        .iter()
        .filter(|s| s.is_plt())
        .map(|s| s.range())
        .collect();
    let mut found = Vec::new();
    let mut covered_to = Svma(0);
    let mut next = 0;
    for range in unwind.ranges() {
        while let Some(before) = named.get(next).filter(|n| n.start <= range.start) {
            covered_to = covered_to.max(before.end);
            next += 1;
        }
        let is_stub = plts.iter().any(|p| p.contains(&range.start));
        let is_known = range.start < covered_to;
        let Some(segment) = file.segment_at(range.start).filter(|s| s.execute) else {
            continue;
        };
        let end = range.end.min(segment.file_end());
        if is_known || is_stub || end <= range.start {
            continue;
        }
        // A description can begin before its symbol. The bytes before the symbol are a function
        // only if they are more than padding.
        let end = named.get(next).map_or(end, |n| n.start.min(end));
        let is_partial = end < range.end;
        let range = range.start..end;
        let only_pads = || is_partial && insns(file, &range).all(|i| i.is_padding());
        let is_plt = || plts.is_empty() && starts_as_plt(file, &range);
        if !only_pads() && !is_plt() {
            found.push(range);
        }
    }
    found
}

fn insns<'d>(file: &ElfFile<'d>, range: &Range<Svma>) -> impl Iterator<Item = Insn> + 'd {
    let bytes = file
        .bytes(range.start, range.end.0 - range.start.0)
        .unwrap_or_default();
    decode(bytes, range.start)
}

/// True if a linkage table starts at `range`, in a file without section headers. A stub begins with
/// a jump through an entry. The table itself begins with a push and a jump of this kind.
fn starts_as_plt(file: &ElfFile<'_>, range: &Range<Svma>) -> bool {
    let jumps = |i: &Insn| i.is_indirect_jump() && i.named_word().is_some();
    let mut insns = insns(file, range).filter(|i| !i.is_landing_marker());
    match insns.next() {
        Some(push) if push.pushes_named_word() => insns.next().is_some_and(|i| jumps(&i)),
        first => first.is_some_and(|i| jumps(&i)),
    }
}
