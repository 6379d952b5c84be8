//! Code that has a frame description and no symbol: the static functions of a stripped file.

use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};

use crate::addr::Svma;
use crate::elf::ElfFile;
use crate::insn::is_padding;
use crate::tables::Unwind;

/// The ranges of functions that none of `named`, ordered by start, covers.
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
        // A description can begin before the symbol that it is for: what is left of it is a
        // function only if it does something.
        let end = named.get(next).map_or(end, |n| n.start.min(end));
        let is_partial = end < range.end;
        let range = range.start..end;
        let only_pads = || is_partial && insns(file, &range).all(|i| is_padding(&i));
        let is_plt = || plts.is_empty() && starts_as_plt(file, &range);
        if !only_pads() && !is_plt() {
            found.push(range);
        }
    }
    found
}

fn insns<'d>(file: &ElfFile<'d>, range: &Range<Svma>) -> impl Iterator<Item = Instruction> + 'd {
    let bytes = file
        .bytes(range.start, range.end.0 - range.start.0)
        .unwrap_or_default();
    let mut decoder = Decoder::with_ip(64, bytes, range.start.0, DecoderOptions::NONE);
    std::iter::from_fn(move || decoder.can_decode().then(|| decoder.decode()))
}

/// True if a linkage table starts there, in a file without section headers. Its stubs begin with
/// `jmp [rip + entry]`, the table as a whole with a push and such a jump.
fn starts_as_plt(file: &ElfFile<'_>, range: &Range<Svma>) -> bool {
    let jumps = |i: &Instruction| {
        i.flow_control() == FlowControl::IndirectBranch && i.is_ip_rel_memory_operand()
    };
    let mut insns = insns(file, range).filter(|i| i.mnemonic() != Mnemonic::Endbr64);
    match insns.next() {
        Some(push) if push.mnemonic() == Mnemonic::Push && push.is_ip_rel_memory_operand() => {
            insns.next().is_some_and(|i| jumps(&i))
        }
        first => first.is_some_and(|i| jumps(&i)),
    }
}
