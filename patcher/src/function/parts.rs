//! Assigns split-off parts to their functions.

use std::collections::HashMap;
use std::ops::Range;

use super::names::{is_numbered, owner_of_part};
use crate::addr::Svma;
use crate::elf::ElfFile;
use crate::isa::{Control, decode};

/// A named entry that may be a part or have parts.
pub(super) struct Candidate<'d> {
    pub(super) range: Range<Svma>,
    /// One of the entry's linkage names.
    pub(super) name: &'d str,
    /// The source file that the name is local to; 0 for none.
    pub(super) file: u32,
    /// The index of the entry in the table of functions.
    pub(super) index: u32,
}

/// Pairs of the index of a part and that of its owner ([`Candidate::index`]), ordered by part.
///
/// Several static functions can have the same name, and so can their parts. The source file decides
/// between them, otherwise the jumps. A part without an owner is a function of its own.
pub(super) fn owners<'d>(
    file: &ElfFile<'d>,
    candidates: impl Iterator<Item = Candidate<'d>> + Clone,
) -> Vec<(u32, u32)> {
    let parts: Vec<(&str, Candidate<'_>)> = candidates
        .clone()
        .filter_map(|c| Some((owner_of_part(c.name)?, c)))
        .collect();
    let mut by_name: HashMap<&str, Vec<Candidate<'_>>> = parts
        .iter()
        .map(|(owner, _)| (*owner, Vec::new()))
        .collect();
    if by_name.is_empty() {
        return Vec::new();
    }
    for candidate in candidates {
        if let Some(named) = by_name.get_mut(candidate.name) {
            named.push(candidate);
        }
    }
    for named in by_name.values_mut() {
        named.sort_by_key(|c| c.file);
    }
    let mut jumps = Jumps {
        file,
        budget: 64 << 20,
    };
    let mut owners: Vec<(u32, u32)> = Vec::new();
    for (owner, part) in &parts {
        let named = by_name.get(owner).map_or(&[][..], Vec::as_slice);
        let owner = pick(&mut jumps, named, part).filter(|o| o.index != part.index);
        owners.extend(owner.map(|o| (part.index, o.index)));
    }
    owners.sort_unstable();
    owners.dedup_by_key(|o| o.0);
    settle(&mut owners);
    owners
}

/// The owner of `part` among the functions in `named`, which have the owner's name and are ordered
/// by source file. `None` if neither the source file nor jumps decide.
fn pick<'c, 'd>(
    jumps: &mut Jumps<'_, 'd>,
    named: &'c [Candidate<'d>],
    part: &Candidate<'d>,
) -> Option<&'c Candidate<'d>> {
    /// The maximum number of functions with the same name for which the search for jumps is fast
    /// enough.
    const MOST_NAMESAKES: usize = 256;
    let from = named.partition_point(|c| c.file < part.file);
    let to = named.partition_point(|c| c.file <= part.file);
    let local = if part.file == 0 {
        &[]
    } else {
        &named[from..to]
    };
    let near = match (named, local) {
        ([only], _) | (_, [only]) => only,
        _ => {
            let all = named.get(..MOST_NAMESAKES).unwrap_or(named);
            let mut jumping = all
                .iter()
                .filter(|c| jumps.between(&c.range, &part.range).jumps);
            let first = jumping.next()?;
            return jumping.next().is_none().then_some(first);
        }
    };
    // LLVM's hot-cold splitting makes functions that are called; these are not parts.
    if is_numbered(part.name) {
        let found = jumps.between(&near.range, &part.range);
        return (found.jumps || !found.calls).then_some(near);
    }
    Some(near)
}

/// Replaces owners that are parts themselves by their owners.
fn settle(owners: &mut [(u32, u32)]) {
    const DEEPEST: usize = 4;
    for _ in 0..DEEPEST {
        for at in 0..owners.len() {
            let (part, owner) = owners[at];
            if let Ok(next) = owners.binary_search_by_key(&owner, |o| o.0)
                && owners[next].1 != part
            {
                owners[at].1 = owners[next].1;
            }
        }
    }
}

struct Jumps<'i, 'd> {
    file: &'i ElfFile<'d>,
    /// The number of bytes that may still be decoded.
    budget: u64,
}

#[derive(Default)]
struct Links {
    jumps: bool,
    calls: bool,
}

impl Jumps<'_, '_> {
    /// Finds out if direct jumps and calls lead from `from` to `to`. Both are false if the code
    /// cannot be read, or if the budget is used up.
    fn between(&mut self, from: &Range<Svma>, to: &Range<Svma>) -> Links {
        let mut found = Links::default();
        let len = from.end.0 - from.start.0;
        let Some(left) = self.budget.checked_sub(len) else {
            return found;
        };
        self.budget = left;
        let Some(bytes) = self.file.bytes(from.start, len) else {
            return found;
        };
        for insn in decode(bytes, from.start) {
            let hits = || to.contains(&Svma(insn.target()));
            match insn.control() {
                Control::Jump | Control::ConditionalJump => {
                    found.jumps |= hits();
                }
                Control::Call => found.calls |= hits(),
                _ => {}
            }
        }
        found
    }
}
