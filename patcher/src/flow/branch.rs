//! Direct branches.

use crate::isa::{Branch, Insn};

/// The direct branches among `insns`, sorted by target.
pub(super) fn branches(insns: &[Insn]) -> Vec<Branch> {
    let mut branches: Vec<_> = insns
        .iter()
        .filter(|insn| insn.is_branch())
        .map(|insn| Branch {
            to: insn.target(),
            from: insn.at(),
        })
        .collect();
    branches.sort_unstable();
    branches
}
