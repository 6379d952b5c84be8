//! The source of an indirect jump's target, found by tracing backward from the jump.

use std::collections::HashSet;

use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::insn::{Facts, Insn};
use crate::isa::{Branch, JumpSource, Shape};

/// The maximum number of steps traced backward from an indirect jump.
const MOST_STEPS: usize = 256;

/// The source of the target of the indirect jump at index `jump` of `insns`, the function's
/// instructions by address. `branches` are the function's direct branches, sorted by target.
pub fn jump_source(insns: &[Insn], branches: &[Branch], jump: usize) -> JumpSource {
    let insn = &insns[jump].0;
    let mut reads = Vec::new();
    if insn.op0_kind() == OpKind::Memory {
        let shape = memory_shape(insn);
        reads.extend((shape == Shape::Addresses).then_some(jump));
        return JumpSource { shape, reads };
    }
    let start = Trace {
        index: jump,
        wanted: insn.op0_register(),
        added: Register::None,
    };
    let mut seen = HashSet::from([start]);
    let mut work = vec![start];
    let mut result = None;
    let mut indirect = None;
    while let Some(trace) = work.pop() {
        let mut before = predecessors(insns, branches, trace.index);
        if before.is_empty() && trace.index > 0 {
            // Control arrives by another jump through a table, if there is one.
            before.clone_from(indirect.get_or_insert_with(|| indirect_jumps(insns)));
        }
        for index in before {
            match trace.over(insns, index) {
                Step::Found(shape) => {
                    result = result.max(Some(shape));
                    reads.extend((shape == Shape::Addresses).then_some(index));
                }
                Step::On(next) if seen.len() < MOST_STEPS => {
                    work.extend(next.into_iter().flatten().filter(|&next| seen.insert(next)));
                }
                // The register is set further away, or by the caller. A sum has its table entry
                // close by.
                Step::On(_) => {
                    let shape = match indirect {
                        None => trace.unresolved(),
                        // Not all jumps through tables have been followed.
                        Some(_) => Shape::Unknown,
                    };
                    result = result.max(Some(shape));
                    work.clear();
                    break;
                }
            }
        }
        if trace.index == 0 {
            result = result.max(Some(trace.unresolved()));
        }
    }
    let shape = result.unwrap_or(Shape::Pointer);
    JumpSource { shape, reads }
}

/// The address of the table that the instruction at index `read` of `insns` reads from. `None` if
/// it is not known, or not the same on all paths.
pub fn table_of(insns: &[Insn], branches: &[Branch], read: usize) -> Option<u64> {
    let base = insns[read].0.memory_base();
    let displacement = insns[read].0.memory_displacement64();
    if base == Register::None {
        return Some(displacement);
    }
    let mut seen = HashSet::from([(read, base)]);
    let mut work = vec![(read, base)];
    let mut table = None;
    while let Some((index, register)) = work.pop() {
        let before = predecessors(insns, branches, index);
        // Control or the register's value comes from elsewhere.
        if before.is_empty() || index == 0 || seen.len() > MOST_STEPS {
            return None;
        }
        for index in before {
            match set_by(&insns[index], register) {
                Set::Not => work.extend(Some((index, register)).filter(|&next| seen.insert(next))),
                Set::Copied(from) => {
                    work.extend(Some((index, from)).filter(|&next| seen.insert(next)));
                }
                Set::To(address) if table.is_none_or(|known| known == address) => {
                    table = Some(address);
                }
                Set::To(_) | Set::Otherwise => return None,
            }
        }
    }
    table.map(|at| at.wrapping_add(displacement))
}

/// The effect of an instruction on a register.
pub(super) enum Set {
    /// The register is unchanged.
    Not,
    /// The register gets the value of another.
    Copied(Register),
    /// The register is set to this address.
    To(u64),
    /// The register is set to any other value.
    Otherwise,
}

pub(super) fn set_by(of: &Insn, register: Register) -> Set {
    const KEPT_BY_CALLS: [Register; 5] = [
        Register::RBX,
        Register::R12,
        Register::R13,
        Register::R14,
        Register::R15,
    ];
    if of.is_call() {
        return if KEPT_BY_CALLS.contains(&register) {
            Set::Not
        } else {
            Set::Otherwise
        };
    }
    let insn = &of.0;
    if !Facts::default().writes(insn, register) {
        return Set::Not;
    }
    let is_whole = insn.op0_kind() == OpKind::Register && insn.op0_register() == register;
    match (insn.mnemonic(), insn.op1_kind()) {
        (Mnemonic::Lea, _) if is_whole => of.formed_address().map_or(Set::Otherwise, Set::To),
        (Mnemonic::Mov, OpKind::Register) if is_whole => Set::Copied(insn.op1_register()),
        // A 32-bit move clears the upper half.
        (Mnemonic::Mov, OpKind::Immediate32) if insn.op0_register().full_register() == register => {
            Set::To(insn.immediate32().into())
        }
        _ => Set::Otherwise,
    }
}

/// The indexes of instructions that can run immediately before the one at `index`.
pub(super) fn predecessors(insns: &[Insn], branches: &[Branch], index: usize) -> Vec<usize> {
    let at = insns[index].at();
    let before = index
        .checked_sub(1)
        .filter(|&i| insns[i].end() == at && !insns[i].ends_block());
    let first = branches.partition_point(|b| b.to < at);
    let sources = branches[first..].iter().take_while(|b| b.to == at);
    let sources = sources.filter_map(|b| insns.binary_search_by_key(&b.from, Insn::at).ok());
    before.into_iter().chain(sources).collect()
}

/// The indexes of the indirect jumps.
fn indirect_jumps(insns: &[Insn]) -> Vec<usize> {
    let all = insns.iter().enumerate();
    let indirect = all.filter(|(_, insn)| insn.0.flow_control() == FlowControl::IndirectBranch);
    indirect.map(|(index, _)| index).collect()
}

/// The state of the backward trace for the target of an indirect jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Trace {
    /// The index of the instruction before which the state holds.
    index: usize,
    /// The register that holds the target.
    wanted: Register,
    /// The other summand, once the trace has found the sum.
    added: Register,
}

/// The result of tracing backward over one instruction.
enum Step {
    /// The instruction determines the shape.
    Found(Shape),
    /// The states in which the trace continues before the instruction.
    On([Option<Trace>; 2]),
}

impl Step {
    fn to(trace: Trace) -> Self {
        Self::On([Some(trace), None])
    }
}

impl Trace {
    /// Traces backward over the instruction at `index`.
    fn over(self, insns: &[Insn], index: usize) -> Step {
        let insn = &insns[index].0;
        let on = Self { index, ..self };
        let is_sum = self.added != Register::None;
        if insns[index].is_call() && self.wanted == Register::RAX && !is_sum {
            return Step::Found(Shape::Pointer);
        }
        let moves_on = insn.flow_control() == FlowControl::Next;
        if !moves_on || insn.op_count() == 0 || insn.op0_kind() != OpKind::Register {
            return Step::to(on);
        }
        let written = insn.op0_register().full_register();
        if written != self.wanted && written != self.added {
            return Step::to(on);
        }
        let copied = || {
            let by = insn.op1_register().full_register();
            if written == self.wanted {
                Self { wanted: by, ..on }
            } else {
                Self { added: by, ..on }
            }
        };
        match (insn.mnemonic(), insn.op1_kind()) {
            (Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push | Mnemonic::Bt, _) => Step::to(on),
            (Mnemonic::Mov | Mnemonic::Movsxd, OpKind::Register) => Step::to(copied()),
            (Mnemonic::Cmovne | Mnemonic::Cmove, OpKind::Register) => {
                Step::On([Some(on), Some(copied())])
            }
            _ if is_sum => on.over_summand(insn, written),
            _ => on.over_target(insn),
        }
    }

    /// Traces over an instruction that writes the register with the target.
    fn over_target(self, insn: &Instruction) -> Step {
        match (insn.mnemonic(), insn.op1_kind()) {
            (Mnemonic::Add, OpKind::Register) => Step::to(Self {
                added: insn.op1_register().full_register(),
                ..self
            }),
            (Mnemonic::Lea, _) if is_sum(insn) => Step::to(Self {
                wanted: insn.memory_base(),
                added: insn.memory_index(),
                ..self
            }),
            // A table entry, or a base reloaded from its spill slot. Other words may be parts of
            // pointers, for example to library functions that the loader calls.
            (Mnemonic::Add, OpKind::Memory) => Step::Found(match insn.memory_base() {
                Register::RSP | Register::RBP => Shape::Offsets,
                _ if insn.memory_index() != Register::None => Shape::Offsets,
                _ => Shape::Unknown,
            }),
            (Mnemonic::Mov, OpKind::Memory) if insn.op0_register().size() == 8 => {
                Step::Found(memory_shape(insn))
            }
            // A fixed label or function, which the scan over the text finds.
            (Mnemonic::Lea, _) if insn.is_ip_rel_memory_operand() => Step::Found(Shape::Pointer),
            (
                Mnemonic::Mov,
                OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64,
            ) => Step::Found(Shape::Pointer),
            // The C library stores long-lived pointers rotated and xored with a secret.
            (Mnemonic::Ror | Mnemonic::Rol, _) => Step::to(self),
            (Mnemonic::Xor, OpKind::Memory) if insn.segment_prefix() == Register::FS => {
                Step::to(self)
            }
            (Mnemonic::Pop, _) => Step::Found(Shape::Pointer),
            _ => Step::Found(Shape::Unknown),
        }
    }

    /// Traces over an instruction that writes `written`, which holds one of the summands.
    fn over_summand(self, insn: &Instruction, written: Register) -> Step {
        match (insn.mnemonic(), insn.op1_kind()) {
            // Unoptimized code first loads and then extends.
            (Mnemonic::Movsxd | Mnemonic::Mov, OpKind::Memory)
                if insn.memory_size().size() == 4 =>
            {
                Step::Found(Shape::Offsets)
            }
            // The base. The table entry is read earlier.
            (Mnemonic::Lea, _) if insn.is_ip_rel_memory_operand() => Step::to(self),
            _ if written != self.wanted => Step::to(self),
            _ => Step::Found(Shape::Unknown),
        }
    }

    fn unresolved(self) -> Shape {
        if self.added == Register::None {
            Shape::Pointer
        } else {
            Shape::Unknown
        }
    }
}

/// True for `lea x, [y + z]`.
fn is_sum(insn: &Instruction) -> bool {
    insn.memory_base() != Register::None
        && insn.memory_index() != Register::None
        && insn.memory_index_scale() == 1
        && insn.memory_displacement64() == 0
}

fn memory_shape(insn: &Instruction) -> Shape {
    if insn.memory_index() != Register::None && insn.memory_index_scale() == 8 {
        Shape::Addresses
    } else {
        Shape::Pointer
    }
}
