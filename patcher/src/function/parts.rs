//! Which function a split-off part belongs to.

use std::collections::HashMap;
use std::ops::Range;

use super::names::{is_numbered, owner_of_part};
use crate::addr::Svma;
use crate::elf::ElfFile;
use crate::isa::{Control, decode};

/// Something with a name that may be a part or have parts.
pub(super) struct Candidate<'d> {
    pub(super) range: Range<Svma>,
    pub(super) name: &'d str,
    /// The source file the name is local to; 0 for none.
    pub(super) file: u32,
    pub(super) index: u32,
}

/// Pairs of part and owner, ordered by part: indexes of `candidates`.
///
/// Several static functions can have one name, and so can their parts: then the source file
/// decides, and where that does not, the jumps. A part that no function can be found for is a
/// function of its own.
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

/// The owner of `part` among the functions `named` so, ordered by source file.
fn pick<'c, 'd>(
    jumps: &mut Jumps<'_, 'd>,
    named: &'c [Candidate<'d>],
    part: &Candidate<'d>,
) -> Option<&'c Candidate<'d>> {
    /// With more functions of one name the search for jumps takes too long.
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
    // LLVM's hot-cold splitting makes functions that are called; those are no parts.
    if is_numbered(part.name) {
        let found = jumps.between(&near.range, &part.range);
        return (found.jumps || !found.calls).then_some(near);
    }
    Some(near)
}

/// Replaces owners that are parts themselves by theirs.
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
    /// Bytes that may still be decoded.
    budget: u64,
}

#[derive(Default)]
struct Links {
    jumps: bool,
    calls: bool,
}

impl Jumps<'_, '_> {
    /// True if code of `from` jumps to `to` or calls it, directly.
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
