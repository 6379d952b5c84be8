//! Rewrites one instruction so that it does the same at another address.
//!
//! An instruction that does not depend on its address is copied byte for byte, including prefixes.
//! A rip-relative operand keeps its encoding with a new displacement. Direct branches take their
//! longest form. A call pushes its original return address and jumps, so that the stack holds the
//! address that the unwinder and the program expect.

mod far;

use iced_x86::{
    Code, ConstantOffsets, Decoder, DecoderOptions, Encoder, FlowControl, Instruction, OpKind,
    Register,
};

use super::decoding::first;
use super::insn::Insn;
use super::patch::JUMP;
use crate::addr::Svma;

use far::FarAccess;
pub(super) use far::{BACK_OVER_RED_ZONE, SKIP_RED_ZONE};

/// Reasons why an instruction cannot be executed at another address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Immovable {
    /// The kernel or the processor depends on its address, or it leaves the window by a special
    /// transfer of control.
    Special,
    /// The instruction's bytes do not decode as one instruction.
    Undecodable,
}

/// An instruction moved from its original address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Displaced {
    /// The instruction's original address.
    pub at: Svma,
    /// The instruction's original bytes.
    pub bytes: Vec<u8>,
    /// The instruction's form in the trampoline.
    pub(super) form: Form,
}

/// The form of an instruction in a trampoline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// The original bytes.
    Copy,
    /// The original bytes with another 32-bit displacement.
    RipRelative {
        /// The offset of the displacement in the instruction, in bytes.
        offset: usize,
        /// The address of the operand.
        target: Svma,
        /// The form for an operand that the displacement cannot reach; `None` if there is none.
        far: Option<FarAccess>,
    },
    /// `jmp target`.
    Jump {
        /// The address that it jumps to.
        target: Svma,
    },
    /// `0f 8x`: a jump on condition `x`.
    Conditional {
        /// The address that it jumps to if taken.
        target: Svma,
        /// The second opcode byte.
        opcode: u8,
    },
    /// `loop`, `jrcxz` and similar jumps, which exist with an 8-bit displacement only.
    Counted {
        /// The address that it jumps to if taken.
        target: Svma,
    },
    /// `call target`.
    Call {
        /// The address that it calls.
        target: Svma,
    },
    /// A call through a register or memory: the return address is pushed, and this jump follows.
    CallThrough {
        /// The encoded jump.
        jump: Vec<u8>,
        /// The offset of the displacement in `jump` and the operand's address; `None` if the jump
        /// is not rip-relative.
        rip_relative: Option<(usize, Svma)>,
    },
}

/// The length of a jump with a 32-bit displacement, in bytes.
const LONG: usize = JUMP as usize;
/// `mov dword [rsp + 4], imm32`, without the immediate.
pub(super) const HIGH_HALF: [u8; 4] = [0xc7, 0x44, 0x24, 0x04];
/// The length of code that pushes a return address, both halves, in bytes.
const PUSH_RETURN: usize = 1 + 4 + HIGH_HALF.len() + 4;

impl Displaced {
    /// Chooses the form of `insn`, which is encoded as `bytes`. Otherwise returns the reason why it
    /// cannot be moved.
    pub fn of(insn: &Insn, bytes: &[u8]) -> Result<Self, Immovable> {
        Ok(Self {
            form: form(&insn.0, bytes)?,
            at: Svma(insn.at()),
            bytes: bytes.to_vec(),
        })
    }

    /// The original address of the next instruction.
    pub fn end(&self) -> Svma {
        self.at.plus(self.bytes.len() as u64)
    }

    /// True if the instruction is a call.
    pub fn is_call(&self) -> bool {
        matches!(self.form, Form::Call { .. } | Form::CallThrough { .. })
    }

    /// The original target of a direct jump; `None` for other instructions.
    pub fn jump_target(&self) -> Option<Svma> {
        match self.form {
            Form::Jump { target } | Form::Conditional { target, .. } | Form::Counted { target } => {
                Some(target)
            }
            _ => None,
        }
    }

    /// True if the instruction is a conditional jump.
    pub fn is_conditional(&self) -> bool {
        matches!(self.form, Form::Conditional { .. } | Form::Counted { .. })
    }

    /// For a jump: true if it changes only the program counter, so that it may run twice. False for
    /// `loop`, which also decrements a counter, and for the other jumps of its form.
    pub fn is_repeatable(&self) -> bool {
        !matches!(self.form, Form::Counted { .. })
    }

    /// True if control can continue after the instruction's form in the trampoline. False for a
    /// call, which returns to the original code.
    pub fn falls_through(&self) -> bool {
        match self.form {
            Form::Jump { .. } | Form::Call { .. } | Form::CallThrough { .. } => false,
            Form::Copy | Form::RipRelative { .. } => !first(&self.bytes, self.at).ends_block(),
            Form::Conditional { .. } | Form::Counted { .. } => true,
        }
    }

    /// An upper bound of the length of the instruction's form in the trampoline, in bytes.
    pub fn max_len(&self) -> usize {
        match &self.form {
            Form::Copy => self.bytes.len(),
            Form::RipRelative { far, .. } => {
                let far = far.as_ref().map_or(0, FarAccess::max_len);
                self.bytes.len().max(far)
            }
            Form::Jump { .. } => LONG,
            Form::Conditional { .. } => 1 + LONG,
            Form::Counted { .. } => self.bytes.len() + 2 + LONG,
            Form::Call { .. } => PUSH_RETURN + LONG,
            Form::CallThrough { jump, .. } => PUSH_RETURN + jump.len(),
        }
    }
}

fn offsets(at: u64, bytes: &[u8]) -> ConstantOffsets {
    let mut decoder = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE);
    // The decoder knows the offsets only of the instruction that it decoded last.
    let insn = decoder.decode();
    decoder.get_constant_offsets(&insn)
}

fn form(insn: &Instruction, bytes: &[u8]) -> Result<Form, Immovable> {
    if insn.is_invalid() || bytes.len() != insn.len() {
        return Err(Immovable::Undecodable);
    }
    match insn.flow_control() {
        FlowControl::Next => {}
        FlowControl::Return => {
            let near = matches!(insn.code(), Code::Retnq | Code::Retnq_imm16);
            return if near {
                Ok(Form::Copy)
            } else {
                Err(Immovable::Special)
            };
        }
        FlowControl::UnconditionalBranch => {
            return match insn.code() {
                Code::Jmp_rel8_64 | Code::Jmp_rel32_64 => Ok(Form::Jump {
                    target: Svma(insn.near_branch_target()),
                }),
                _ => Err(Immovable::Special),
            };
        }
        FlowControl::ConditionalBranch => return conditional(insn),
        FlowControl::Call if insn.code() == Code::Call_rel32_64 => {
            return Ok(Form::Call {
                target: Svma(insn.near_branch_target()),
            });
        }
        FlowControl::IndirectCall if insn.code() == Code::Call_rm64 => return call_through(insn),
        FlowControl::IndirectBranch if insn.code() == Code::Jmp_rm64 => {}
        // These include system calls. To restart one, the kernel continues two bytes before the
        // saved program counter, which must not be inside another instruction.
        _ => return Err(Immovable::Special),
    }
    if !insn.is_ip_rel_memory_operand() {
        return Ok(Form::Copy);
    }
    if insn.memory_base() != Register::RIP {
        return Err(Immovable::Special);
    }
    let offsets = offsets(insn.ip(), bytes);
    if offsets.displacement_size() != 4 {
        return Err(Immovable::Undecodable);
    }
    let target = Svma(insn.ip_rel_memory_address());
    Ok(Form::RipRelative {
        offset: offsets.displacement_offset(),
        target,
        far: FarAccess::of(insn),
    })
}

fn conditional(insn: &Instruction) -> Result<Form, Immovable> {
    let target = Svma(insn.near_branch_target());
    if insn.is_jcc_short_or_near() {
        // Both number the conditions in the order of the processor's encoding; iced's 0 means none.
        let condition = (insn.condition_code() as u8)
            .checked_sub(1)
            .ok_or(Immovable::Special)?;
        return Ok(Form::Conditional {
            target,
            opcode: 0x80 | condition,
        });
    }
    match insn.code() {
        Code::Loop_rel8_64_RCX
        | Code::Loop_rel8_64_ECX
        | Code::Loope_rel8_64_RCX
        | Code::Loope_rel8_64_ECX
        | Code::Loopne_rel8_64_RCX
        | Code::Loopne_rel8_64_ECX
        | Code::Jrcxz_rel8_64
        | Code::Jecxz_rel8_64 => Ok(Form::Counted { target }),
        _ => Err(Immovable::Special),
    }
}

fn call_through(insn: &Instruction) -> Result<Form, Immovable> {
    let mut jump = *insn;
    jump.set_code(Code::Jmp_rm64);
    if insn.op0_kind() == OpKind::Register && insn.op0_register() == Register::RSP {
        return Err(Immovable::Special);
    }
    let rip_relative = insn.is_ip_rel_memory_operand();
    if rip_relative && insn.memory_base() != Register::RIP {
        return Err(Immovable::Special);
    }
    // The return address is pushed before the jump reads its operand.
    if insn.op0_kind() == OpKind::Memory && insn.memory_base() == Register::RSP {
        let displacement = insn.memory_displacement64().wrapping_add(8) as i64;
        i32::try_from(displacement).map_err(|_| Immovable::Special)?;
        jump.set_memory_displacement64(displacement as u64);
        jump.set_memory_displ_size(if i8::try_from(displacement).is_ok() {
            1
        } else {
            8
        });
    }
    let mut encoder = Encoder::new(64);
    encoder
        .encode(&jump, insn.ip())
        .map_err(|_| Immovable::Undecodable)?;
    let offset = encoder.get_constant_offsets().displacement_offset();
    let rip_relative = rip_relative.then(|| (offset, Svma(insn.ip_rel_memory_address())));
    Ok(Form::CallThrough {
        jump: encoder.take_buffer(),
        rip_relative,
    })
}

#[cfg(test)]
mod tests;
