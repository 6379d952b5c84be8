//! The table of offsets that an indirect jump uses, found by tracing backward from the jump.
//!
//! The target is the sum of the table's address and an entry, which is a 32-bit offset from the
//! table:
//!
//! ```text
//! lea    table(%rip), %rdx
//! movslq (%rdx, %rcx, 4), %rax
//! add    %rdx, %rax
//! jmp    *%rax
//! ```

use std::collections::HashSet;

use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use super::insn::Insn;
use super::jump_source::{Set, predecessors, set_by};
use crate::isa::Branch;

/// The maximum number of steps traced backward from an indirect jump.
const MOST_STEPS: usize = 256;

/// The maximum number of steps traced backward for the address of a table, which a function may
/// compute once at its start.
const MOST_STEPS_TO_TABLE: usize = 1 << 14;

/// The code of a function in which tables of offsets are traced.
pub struct OffsetTables<'a, B> {
    /// The instructions that may run, by address.
    pub insns: &'a [Insn],
    /// The function's direct branches, sorted.
    pub branches: &'a [Branch],
    /// A function of an instruction's address. It returns the indexes of the instructions after
    /// which control may arrive there other than by a direct branch. `None` if they are not known.
    pub other_arrivals: B,
}

/// A table of offsets that a jump uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OffsetTable {
    /// The address of the table, to which its entries are relative.
    pub base: u64,
    /// The address of the only entry that the jump reads. `None` if it may read all.
    pub only: Option<u64>,
}

impl<'b, B: Fn(u64) -> Option<&'b [usize]>> OffsetTables<'_, B> {
    /// The tables of offsets that the jump at index `jump` uses, ascending. `None` if the table is
    /// not known on all paths to the jump.
    pub fn of_jump(&self, jump: usize) -> Option<Vec<OffsetTable>> {
        let insn = &self.insns[jump].0;
        if insn.op0_kind() != OpKind::Register {
            return None;
        }
        let start = (jump, Wanted::Target(insn.op0_register()));
        let mut seen = HashSet::from([start]);
        let mut work = vec![start];
        let mut tables = Vec::new();
        while let Some((index, wanted)) = work.pop() {
            let before = self.before(index)?;
            if seen.len() > MOST_STEPS {
                return None;
            }
            for index in before {
                match wanted.over(self, index)? {
                    Step::Found(table) => tables.push(table),
                    Step::On(next) => {
                        work.extend(Some((index, next)).filter(|&next| seen.insert(next)));
                    }
                }
            }
        }
        tables.sort_unstable();
        tables.dedup();
        (!tables.is_empty()).then_some(tables)
    }

    /// The indexes of the instructions after which control may arrive at the one at `index`. `None`
    /// if it may arrive from elsewhere.
    fn before(&self, index: usize) -> Option<Vec<usize>> {
        let mut before = predecessors(self.insns, self.branches, index);
        let others = (self.other_arrivals)(self.insns[index].at());
        let is_known = index > 0 && (others.is_some() || !before.is_empty());
        before.extend(others.unwrap_or_default());
        is_known.then_some(before)
    }

    /// The place of the entries of which the instruction at `index` reads one into `register`.
    /// `None` if it does not, or if the place is not the same on all paths.
    fn entry_read(&self, index: usize, register: Register) -> Option<Entries> {
        let insn = &self.insns[index].0;
        let is_entry = matches!(insn.mnemonic(), Mnemonic::Movsxd | Mnemonic::Mov)
            && insn.op0_register().full_register() == register
            && insn.op1_kind() == OpKind::Memory
            && insn.memory_size().size() == 4;
        if !is_entry {
            return None;
        }
        if let Some(at) = self.insns[index].named_word() {
            return Some(Entries::One(at));
        }
        if insn.memory_index() == Register::None || insn.memory_index_scale() != 4 {
            return None;
        }
        let displacement = insn.memory_displacement64();
        Some(Entries::From(match insn.memory_base() {
            Register::None => displacement,
            base => self.value_before(index, base)?.wrapping_add(displacement),
        }))
    }

    /// The address in `register` before the instruction at index `before`. `None` if it is not the
    /// same on all paths.
    fn value_before(&self, before: usize, register: Register) -> Option<u64> {
        let mut seen = HashSet::from([(before, register)]);
        let mut work = vec![(before, register)];
        let mut found = None;
        while let Some((index, register)) = work.pop() {
            let before = self.before(index)?;
            if seen.len() > MOST_STEPS_TO_TABLE {
                return None;
            }
            for index in before {
                let next = match set_by(&self.insns[index], register) {
                    Set::Not => (index, register),
                    Set::Copied(from) => (index, from),
                    Set::To(address) if found.is_none_or(|known| known == address) => {
                        found = Some(address);
                        continue;
                    }
                    Set::To(_) | Set::Otherwise => return None,
                };
                work.extend(Some(next).filter(|&next| seen.insert(next)));
            }
        }
        found
    }
}

/// Entries of a table.
#[derive(Clone, Copy)]
enum Entries {
    /// One of those from this address on.
    From(u64),
    /// The one at this address.
    One(u64),
}

impl Entries {
    /// The table, if the entries are relative to `base`. `None` if they cannot be.
    fn relative_to(self, base: u64) -> Option<OffsetTable> {
        match self {
            Self::From(at) => (at == base).then_some(OffsetTable { base, only: None }),
            Self::One(at) => Some(OffsetTable {
                base,
                only: Some(at),
            }),
        }
    }
}

/// The registers with the parts of the target.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Wanted {
    /// The register holds the target.
    Target(Register),
    /// The target is the sum of two registers.
    Sum(Register, Register),
    /// The target is the sum of the register and this table's address.
    Entry(Register, u64),
}

enum Step {
    Found(OffsetTable),
    On(Wanted),
}

impl Wanted {
    /// Traces backward over the instruction at `index`. `None` if it is not understood.
    fn over<'b, B>(self, code: &OffsetTables<'_, B>, index: usize) -> Option<Step>
    where
        B: Fn(u64) -> Option<&'b [usize]>,
    {
        let of = &code.insns[index];
        let is_set = |register| !matches!(set_by(of, register), Set::Not);
        match self {
            Self::Target(target) if is_set(target) => {
                let next = sum(&of.0).or_else(|| moved(of, target).map(Self::Target));
                next.map(Step::On)
            }
            Self::Sum(a, b) if is_set(a) || is_set(b) => {
                let (set, other) = match (is_set(a), is_set(b)) {
                    (true, false) => (a, b),
                    (false, true) => (b, a),
                    _ => return None,
                };
                if let Some(entries) = code.entry_read(index, set) {
                    let base = code.value_before(index, other)?;
                    return entries.relative_to(base).map(Step::Found);
                }
                Some(Step::On(match set_by(of, set) {
                    Set::To(base) => Self::Entry(other, base),
                    _ => Self::Sum(moved(of, set)?, other),
                }))
            }
            Self::Entry(entry, base) if is_set(entry) => match code.entry_read(index, entry) {
                Some(entries) => entries.relative_to(base).map(Step::Found),
                None => Some(Step::On(Self::Entry(moved(of, entry)?, base))),
            },
            Self::Target(_) | Self::Sum(..) | Self::Entry(..) => Some(Step::On(self)),
        }
    }
}

/// The summands, if `insn` adds two registers.
fn sum(insn: &Instruction) -> Option<Wanted> {
    let is_lea = insn.mnemonic() == Mnemonic::Lea
        && insn.memory_base() != Register::None
        && insn.memory_index() != Register::None
        && insn.memory_index_scale() == 1
        && insn.memory_displacement64() == 0;
    if is_lea {
        return Some(Wanted::Sum(insn.memory_base(), insn.memory_index()));
    }
    let is_add = insn.mnemonic() == Mnemonic::Add
        && insn.op0_kind() == OpKind::Register
        && insn.op1_kind() == OpKind::Register
        && insn.op0_register().size() == 8;
    is_add.then(|| Wanted::Sum(insn.op0_register(), insn.op1_register()))
}

/// The register whose value, or whose sign-extended lower half, the instruction moves to
/// `register`.
fn moved(of: &Insn, register: Register) -> Option<Register> {
    let insn = &of.0;
    if insn.mnemonic() == Mnemonic::Cdqe && register == Register::RAX {
        return Some(register);
    }
    let is_move = insn.mnemonic() == Mnemonic::Movsxd
        || insn.mnemonic() == Mnemonic::Mov && insn.op0_register().size() == 8;
    let is_whole = insn.op0_kind() == OpKind::Register
        && insn.op0_register() == register
        && insn.op1_kind() == OpKind::Register;
    (is_move && is_whole).then(|| insn.op1_register().full_register())
}
