//! The registers and flags that an instruction reads, and those that it overwrites.

use iced_x86::{
    FlowControl, Instruction, InstructionInfoOptions, Mnemonic, OpAccess, Register, RflagsBits,
};

use super::insn::{Facts, Insn, Reg};

/// A set of general-purpose registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Registers(pub(super) u16);

/// A set of values: general-purpose registers and status flags.
///
/// Bits 0 to 15 stand for the registers by their numbers, the next ones for the six flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Values(u32);

/// The values that an instruction, or several in a row, reads and overwrites.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// The values that may be read before they are overwritten.
    pub read: Values,
    /// The values that are certainly overwritten as a whole.
    pub replaced: Values,
}

/// The number of general-purpose registers.
const REGISTERS: u32 = 16;
/// The status flags, in the decoder's notation.
const STATUS: u32 = RflagsBits::OF
    | RflagsBits::SF
    | RflagsBits::ZF
    | RflagsBits::AF
    | RflagsBits::CF
    | RflagsBits::PF;
/// The status flags as values.
const FLAGS: Values = Values(STATUS << REGISTERS);
/// The stack pointer, which is never free.
const STACK_POINTER: u16 = 1 << 4;

// The flags are the lowest bits of the notation, so the shift above keeps them all.
const _: () = assert!(STATUS == (1 << 6) - 1);

impl Registers {
    /// The number of registers in the set.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// True if the set has no register.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The registers in both sets.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// True if the set has the register.
    pub fn contains(self, register: Reg) -> bool {
        self.0 & (1 << register.number()) != 0
    }

    /// The registers of the set, in the order of their numbers.
    pub fn iter(self) -> impl Iterator<Item = Reg> {
        (0..REGISTERS)
            .filter(move |number| self.0 & (1 << number) != 0)
            .map(|number| Reg(Register::RAX + number))
    }
}

impl Reg {
    /// The number of the general-purpose register, as encoded in instructions.
    pub fn number(self) -> usize {
        self.0.number()
    }
}

impl Values {
    /// No value.
    pub const NONE: Self = Self(0);
    /// All registers and flags.
    pub const ALL: Self = Self(FLAGS.0 | ((1 << REGISTERS) - 1));

    /// The values in this set or in `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The values in this set that `other` lacks.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The registers that are not in the set, without the stack pointer.
    pub fn other_registers(self) -> Registers {
        Registers(!(self.0 as u16) & !STACK_POINTER)
    }

    /// True if the set has a status flag.
    pub fn has_flags(self) -> bool {
        self.0 & FLAGS.0 != 0
    }

    /// Any set of values.
    #[cfg(test)]
    pub(crate) fn of_bits(bits: u32) -> Self {
        Self(bits & Self::ALL.0)
    }

    /// The bits that stand for the values.
    #[cfg(test)]
    pub(crate) fn bits(self) -> u32 {
        self.0
    }
}

impl Uses {
    /// All values may be read, and none is certainly overwritten.
    pub const UNKNOWN: Self = Self {
        read: Values::ALL,
        replaced: Values::NONE,
    };

    /// The values that may be read later, before the instruction, if `after` may be after it.
    pub fn before(self, after: Values) -> Values {
        self.read.or(after.without(self.replaced))
    }

    /// The uses of this instruction and then of what `next` describes.
    #[must_use]
    pub fn then(self, next: Self) -> Self {
        Self {
            read: self.before(next.read),
            replaced: self.replaced.or(next.replaced),
        }
    }
}

impl Facts {
    /// The values that `insn` reads and overwrites.
    ///
    /// After a call, a system call or an interrupt, other code reads registers: a callee, the
    /// kernel, a handler or an unwinder. Callers of functions of the same file may rely on any
    /// register that these do not write. So such an instruction reads all, and overwrites nothing.
    pub fn uses(&mut self, insn: &Insn) -> Uses {
        let insn = &insn.0;
        if is_read_by_others(insn) {
            return Uses::UNKNOWN;
        }
        let mut uses = Uses::default();
        let info = self
            .0
            .info_options(insn, InstructionInfoOptions::NO_MEMORY_USAGE);
        for used in info.used_registers() {
            let register = used.register();
            let full = register.full_register();
            if !full.is_gpr64() {
                continue;
            }
            let value = Values(1 << full.number());
            match used.access() {
                OpAccess::None | OpAccess::NoMemAccess => {}
                // A write of 32 bits clears the upper half. A shorter one keeps the rest.
                OpAccess::Write if register.size() < 4 => {}
                OpAccess::Write if !may_keep_result(insn) => {
                    uses.replaced = uses.replaced.or(value);
                }
                _ => uses.read = uses.read.or(value),
            }
        }
        let flags = |bits: u32| Values((bits & STATUS) << REGISTERS);
        uses.read = uses.read.or(flags(insn.rflags_read()));
        if !may_keep_flags(insn) {
            uses.replaced = uses.replaced.or(flags(insn.rflags_modified()));
        }
        uses
    }
}

/// True if other code, or the processor in an unusual state, may read any register after `insn`.
fn is_read_by_others(insn: &Instruction) -> bool {
    let is_plain = matches!(
        insn.flow_control(),
        FlowControl::Next
            | FlowControl::ConditionalBranch
            | FlowControl::UnconditionalBranch
            | FlowControl::IndirectBranch
    );
    let is_enclave = matches!(insn.mnemonic(), Mnemonic::Enclu | Mnemonic::Enclv);
    !is_plain || is_enclave || insn.is_invalid() || insn.is_privileged()
}

/// True if `insn` may leave the register that it names as its result as it is. Such an instruction
/// does nothing without a shadow stack.
fn may_keep_result(insn: &Instruction) -> bool {
    matches!(insn.mnemonic(), Mnemonic::Rdsspd | Mnemonic::Rdsspq)
}

/// True if `insn` may leave the flags as they are: with a count of 0 in a register.
fn may_keep_flags(insn: &Instruction) -> bool {
    let is_repeated = insn.has_rep_prefix() || insn.has_repne_prefix();
    let is_shift = matches!(
        insn.mnemonic(),
        Mnemonic::Rcl
            | Mnemonic::Rcr
            | Mnemonic::Rol
            | Mnemonic::Ror
            | Mnemonic::Sal
            | Mnemonic::Sar
            | Mnemonic::Shl
            | Mnemonic::Shld
            | Mnemonic::Shr
            | Mnemonic::Shrd
    );
    let count = insn.op_count().checked_sub(1);
    let is_by_register = count.is_some_and(|count| insn.op_register(count) == Register::CL);
    is_repeated && insn.is_string_instruction() || is_shift && is_by_register
}
