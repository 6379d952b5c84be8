//! Direct branches.

use iced_x86::{Instruction, Mnemonic};

use crate::insn::is_jump;

/// A direct branch of the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Branch {
    /// Where it lands.
    pub to: u64,
    /// The address of the branch instruction.
    pub from: u64,
}

/// The direct branches among `insns`, sorted by where they land.
pub(super) fn branches(insns: &[Instruction]) -> Vec<Branch> {
    let mut branches: Vec<_> = insns
        .iter()
        .filter(|insn| is_jump(insn) || insn.mnemonic() == Mnemonic::Xbegin)
        .map(|insn| Branch {
            to: insn.near_branch_target(),
            from: insn.ip(),
        })
        .collect();
    branches.sort_unstable();
    branches
}
