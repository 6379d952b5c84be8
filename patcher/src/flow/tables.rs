//! Jump tables, over-approximated.
//!
//! Compilers jump through two kinds of table: 32-bit offsets from the table itself, whose address a
//! rip-relative `lea` forms, and 64-bit addresses. The latter are found by the scan over the
//! module's data, wherever they stand; the former are read behind every `lea` of the function for
//! as long as the entries land in the function. Reading too many only forbids some windows.

use std::collections::HashSet;

use iced_x86::{Code, FlowControl, Instruction, Mnemonic, OpKind, Register};

use crate::addr::Svma;
use crate::image::Image;

use super::{Branch, branches, ends_block};

/// So many steps are taken back from an indirect jump to find how its target was computed.
const MOST_STEPS: usize = 256;

/// No table is longer than this.
const MOST_ENTRIES: u64 = 1 << 16;

/// What the tables of a function say.
#[derive(Debug, Default)]
pub struct Targets {
    /// Where they can send control.
    pub landing: Vec<u64>,
    /// Is there an indirect jump that no table accounts for?
    pub unexplained: bool,
    /// Is there one that may go to a label whose address is taken?
    pub by_label: bool,
    /// Indirect jumps by a pointer: tail calls, or to a label.
    pub by_pointer: Vec<u64>,
}

/// How the target of an indirect jump is computed.
///
/// In ascending order of what is left open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shape {
    /// A 64-bit word from a place that is not indexed, or a register set elsewhere: a function
    /// pointer or a saved label.
    Pointer,
    /// A 64-bit word from an indexed place: a table of addresses.
    Addresses,
    /// A 32-bit table entry plus a base.
    Offsets,
    /// Arithmetic that is not understood.
    Unknown,
}

/// Reads the tables of the function that consists of `insns`.
///
/// `starts` tells whether an instruction of the function may start at an address: the first entry
/// that lands elsewhere is behind the table's end.
pub fn targets(image: &Image<'_>, insns: &[Instruction], starts: &impl Fn(u64) -> bool) -> Targets {
    let mut found = Targets::default();
    let jumps: Vec<usize> = (0..insns.len())
        .filter(|&i| is_indirect_jump(&insns[i]))
        .collect();
    if jumps.is_empty() {
        return found;
    }
    let branches = branches(insns);
    let mut offsets = false;
    for insn in insns {
        if let Some(table) = table_address(insn) {
            let before = found.landing.len();
            read_offsets(image, table, starts, &mut found.landing);
            offsets |= found.landing.len() > before;
        }
        if let Some(table) = indexed_absolute(insn) {
            read_addresses(image, table, starts, &mut found.landing);
        }
    }
    found.landing.sort_unstable();
    found.landing.dedup();
    for &jump in &jumps {
        let shape = shape(insns, &branches, jump);
        if shape == Shape::Pointer {
            found.by_pointer.push(insns[jump].ip());
        }
        found.by_label |= shape != Shape::Offsets || !offsets;
        found.unexplained |= match shape {
            Shape::Offsets => !offsets,
            Shape::Addresses | Shape::Pointer => false,
            Shape::Unknown => true,
        };
    }
    found
}

/// Is `insn` a `jmp` through a register or memory?
pub fn is_indirect_jump(insn: &Instruction) -> bool {
    insn.code() == Code::Jmp_rm64
}

/// The address a rip-relative `lea` forms.
pub fn table_address(insn: &Instruction) -> Option<u64> {
    (insn.mnemonic() == Mnemonic::Lea && insn.is_ip_rel_memory_operand())
        .then(|| insn.ip_rel_memory_address())
}

/// The address of the table in `[index*8 + table]`.
pub fn indexed_absolute(insn: &Instruction) -> Option<u64> {
    let memory = (0..insn.op_count()).any(|op| insn.op_kind(op) == OpKind::Memory);
    (memory
        && insn.memory_base() == Register::None
        && insn.memory_index() != Register::None
        && insn.memory_index_scale() == 8)
        .then(|| insn.memory_displacement64())
}

/// The address of a table of addresses that `insn` forms or reads.
pub fn named(insn: &Instruction) -> Option<u64> {
    let immediate = || {
        let moved = insn.mnemonic() == Mnemonic::Mov && insn.op0_kind() == OpKind::Register;
        let constant = (1..insn.op_count()).any(|op| insn.op_kind(op) == OpKind::Immediate32);
        (moved && constant).then(|| u64::from(insn.immediate32()))
    };
    table_address(insn)
        .or_else(|| indexed_absolute(insn))
        .or_else(immediate)
}

fn read_offsets(
    image: &Image<'_>,
    table: u64,
    starts: &impl Fn(u64) -> bool,
    landing: &mut Vec<u64>,
) {
    for index in 0..MOST_ENTRIES {
        let word = image
            .bytes(Svma(table.wrapping_add(4 * index)), 4)
            .and_then(<[u8]>::first_chunk);
        let Some(entry) = word.map(|w| i32::from_le_bytes(*w)) else {
            return;
        };
        let target = table.wrapping_add(i64::from(entry) as u64);
        if !starts(target) {
            return;
        }
        landing.push(target);
    }
}

fn read_addresses(
    image: &Image<'_>,
    table: u64,
    starts: &impl Fn(u64) -> bool,
    landing: &mut Vec<u64>,
) {
    for index in 0..MOST_ENTRIES {
        let word = image
            .bytes(Svma(table.wrapping_add(8 * index)), 8)
            .and_then(<[u8]>::first_chunk);
        match word.map(|w| u64::from_le_bytes(*w)) {
            Some(target) if starts(target) => landing.push(target),
            _ => return,
        }
    }
}

/// How the indirect jump at index `jump` gets its target, on all paths to it: the least understood
/// of their shapes. `branches` are the function's direct branches, sorted.
pub fn shape(insns: &[Instruction], branches: &[Branch], jump: usize) -> Shape {
    let insn = &insns[jump];
    if insn.op0_kind() == OpKind::Memory {
        return memory_shape(insn);
    }
    let start = Trace {
        index: jump,
        wanted: insn.op0_register(),
        added: Register::None,
    };
    let mut seen = HashSet::from([start]);
    let mut work = vec![start];
    let mut result = None;
    while let Some(trace) = work.pop() {
        for index in predecessors(insns, branches, trace.index) {
            match trace.over(insns, index) {
                Step::Found(shape) => result = result.max(Some(shape)),
                Step::On(next) if seen.len() < MOST_STEPS => {
                    work.extend(next.into_iter().flatten().filter(|&next| seen.insert(next)));
                }
                // Set further away, or by the caller. A sum has its table entry close by.
                Step::On(_) => {
                    result = result.max(Some(trace.unresolved()));
                    work.clear();
                    break;
                }
            }
        }
        if trace.index == 0 {
            result = result.max(Some(trace.unresolved()));
        }
    }
    result.unwrap_or(Shape::Pointer)
}

/// The instructions that can run right before the one at `index`.
fn predecessors(insns: &[Instruction], branches: &[Branch], index: usize) -> Vec<usize> {
    let at = insns[index].ip();
    let before = index
        .checked_sub(1)
        .filter(|&i| insns[i].next_ip() == at && !ends_block(&insns[i]));
    let first = branches.partition_point(|b| b.to < at);
    let sources = branches[first..].iter().take_while(|b| b.to == at);
    let sources = sources.filter_map(|b| insns.binary_search_by_key(&b.from, |i| i.ip()).ok());
    before.into_iter().chain(sources).collect()
}

/// Looking backwards for what makes up the target of an indirect jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Trace {
    index: usize,
    /// The register that holds the target.
    wanted: Register,
    /// The other summand, once the sum has been found.
    added: Register,
}

enum Step {
    Found(Shape),
    On([Option<Trace>; 2]),
}

impl Trace {
    /// Goes back over the instruction at `index`.
    fn over(self, insns: &[Instruction], index: usize) -> Step {
        let insn = &insns[index];
        let on = Self { index, ..self };
        let stay = Step::On([Some(on), None]);
        let called = matches!(
            insn.flow_control(),
            FlowControl::Call | FlowControl::IndirectCall
        );
        if called && self.wanted == Register::RAX && self.added == Register::None {
            return Step::Found(Shape::Pointer);
        }
        let moves_on = insn.flow_control() == FlowControl::Next;
        if !moves_on || insn.op_count() == 0 || insn.op0_kind() != OpKind::Register {
            return stay;
        }
        let written = insn.op0_register().full_register();
        if written != self.wanted && written != self.added {
            return stay;
        }
        let sum = self.added != Register::None;
        let source = |op| insn.op_register(op).full_register();
        let replaced = |by| match written == self.wanted {
            true => Self { wanted: by, ..on },
            false => Self { added: by, ..on },
        };
        match (insn.mnemonic(), insn.op1_kind()) {
            (Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push | Mnemonic::Bt, _) => stay,
            (Mnemonic::Add, OpKind::Register) if written == self.wanted && !sum => Step::On([
                Some(Self {
                    added: source(1),
                    ..on
                }),
                None,
            ]),
            (Mnemonic::Lea, _) if is_sum(insn) && written == self.wanted && !sum => {
                let (wanted, added) = (insn.memory_base(), insn.memory_index());
                Step::On([
                    Some(Self {
                        wanted,
                        added,
                        ..on
                    }),
                    None,
                ])
            }
            (Mnemonic::Add, OpKind::Memory) if !sum => Step::Found(Shape::Offsets),
            // Unoptimized code loads first and extends then.
            (Mnemonic::Movsxd | Mnemonic::Mov, OpKind::Memory)
                if sum && insn.memory_size().size() == 4 =>
            {
                Step::Found(Shape::Offsets)
            }
            (Mnemonic::Mov, OpKind::Memory) if !sum && insn.op0_register().size() == 8 => {
                Step::Found(memory_shape(insn))
            }
            (Mnemonic::Mov | Mnemonic::Movsxd, OpKind::Register) => {
                Step::On([Some(replaced(source(1))), None])
            }
            (Mnemonic::Cmovne | Mnemonic::Cmove, OpKind::Register) => {
                Step::On([Some(on), Some(replaced(source(1)))])
            }
            // A fixed label or function, which the scan over the text has. In a sum it is the
            // base, and the table entry is read further up.
            (Mnemonic::Lea, _) if insn.is_ip_rel_memory_operand() && !sum => {
                Step::Found(Shape::Pointer)
            }
            (Mnemonic::Lea, _) if insn.is_ip_rel_memory_operand() => stay,
            (
                Mnemonic::Mov,
                OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64,
            ) if !sum => Step::Found(Shape::Pointer),
            // The C library keeps pointers in long-lived places rotated and xored with a secret.
            (Mnemonic::Ror | Mnemonic::Rol, _) if !sum => stay,
            (Mnemonic::Xor, OpKind::Memory) if !sum && insn.segment_prefix() == Register::FS => {
                stay
            }
            (Mnemonic::Pop, _) if !sum => Step::Found(Shape::Pointer),
            _ if sum && written != self.wanted => stay,
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

/// `lea x, [y + z]`.
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
