//! The stack pointer and the frame pointer on the path from a return address to the end of a
//! function.

use iced_x86::{Code, Mnemonic, OpKind, Register};

use super::WORD;
use super::insn::{Facts, Insn};

/// An address relative to a register's value at the return address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackPlace {
    /// The stack pointer's value at the return address plus this many bytes.
    Stack(i64),
    /// The frame pointer's value at the return address plus this many bytes.
    Frame(i64),
    /// Unknown.
    Unknown,
}

/// The known register values before an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameState {
    /// The stack pointer.
    pub stack_pointer: StackPlace,
    /// The frame pointer.
    pub frame_pointer: FramePointer,
}

/// The value of the frame pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FramePointer {
    /// The frame pointer's value at the return address.
    Kept,
    /// The word at this address.
    Loaded(StackPlace),
    /// Any other value.
    Other,
}

impl StackPlace {
    /// The address `bytes` bytes higher.
    pub fn plus(self, bytes: i64) -> Self {
        match self {
            Self::Stack(at) => Self::Stack(at + bytes),
            Self::Frame(at) => Self::Frame(at + bytes),
            Self::Unknown => Self::Unknown,
        }
    }
}

impl FrameState {
    /// The state at a call's return address.
    pub const AFTER_CALL: Self = Self {
        stack_pointer: StackPlace::Stack(0),
        frame_pointer: FramePointer::Kept,
    };

    /// The state after an instruction, after its return for a call; `None` if the code ends with
    /// the instruction.
    pub fn after(self, facts: &mut Facts, of: &Insn) -> Option<Self> {
        let insn = &of.0;
        if insn.is_invalid() || matches!(insn.code(), Code::Hlt | Code::Int3) {
            return None;
        }
        if of.is_call() {
            return Some(self);
        }
        let loaded = |from: StackPlace| Self {
            stack_pointer: from.plus(WORD),
            frame_pointer: FramePointer::Loaded(from),
        };
        let is_pop = insn.mnemonic() == Mnemonic::Pop && insn.op0_register() == Register::RBP;
        if is_pop {
            return Some(loaded(self.stack_pointer));
        }
        let is_kept = self.frame_pointer == FramePointer::Kept;
        let frame = is_kept.then_some(StackPlace::Frame(0));
        let from_register = || match (insn.op1_kind(), insn.op1_register()) {
            (OpKind::Register, Register::RBP) => frame,
            _ => None,
        };
        let address = || {
            let at = insn.memory_displacement64() as i64;
            match (insn.memory_base(), insn.memory_index()) {
                (Register::RBP, Register::None) => Some(frame?.plus(at)),
                (Register::RSP, Register::None) => Some(self.stack_pointer.plus(at)),
                _ => None,
            }
        };
        let is_of_rsp = insn.op0_register() == Register::RSP;
        let moved = match insn.mnemonic() {
            Mnemonic::Leave => return Some(loaded(frame.unwrap_or(StackPlace::Unknown))),
            Mnemonic::Mov if is_of_rsp => from_register(),
            Mnemonic::Lea if is_of_rsp => address(),
            _ => {
                let by = facts.stack_change(of);
                by.map(|by| self.stack_pointer.plus(by))
            }
        };
        Some(Self {
            stack_pointer: moved.unwrap_or(StackPlace::Unknown),
            frame_pointer: if facts.writes(insn, Register::RBP) {
                FramePointer::Other
            } else {
                self.frame_pointer
            },
        })
    }
}
