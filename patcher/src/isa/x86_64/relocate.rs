//! How one instruction is made to mean the same at another address.
//!
//! Whatever does not depend on its address is copied byte for byte, prefixes and all. A
//! rip-relative operand keeps its encoding with a new displacement. Direct branches take their
//! longest form. A call pushes its original return address and jumps, so that the stack shows the
//! address the unwinder and the program know.

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

/// Why an instruction cannot be executed anywhere but where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Immovable {
    /// The kernel or the processor looks at its address, or leaves the window by it.
    Special,
    /// Its bytes cannot be read as one instruction.
    Undecodable,
}

/// An instruction taken from its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Displaced {
    /// Where it stands originally.
    pub at: Svma,
    /// Its original bytes.
    pub bytes: Vec<u8>,
    /// How it is moved.
    pub(super) form: Form,
}

/// What an instruction becomes in a trampoline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// The same bytes.
    Copy,
    /// The same bytes with another 32-bit displacement.
    RipRelative {
        /// The byte offset of the displacement in the instruction.
        offset: usize,
        /// The address the operand names.
        target: Svma,
        /// What stands in where the displacement cannot reach; `None` where nothing can.
        far: Option<FarAccess>,
    },
    /// `jmp target`.
    Jump {
        /// Where it goes.
        target: Svma,
    },
    /// `0f 8x`: a jump on condition `x`.
    Conditional {
        /// Where it goes if taken.
        target: Svma,
        /// The second opcode byte.
        opcode: u8,
    },
    /// `loop`, `jrcxz` and the like, which have an 8-bit displacement only.
    Counted {
        /// Where it goes if taken.
        target: Svma,
    },
    /// `call target`.
    Call {
        /// Where it goes.
        target: Svma,
    },
    /// A call through a register or memory, as the jump that follows the push of the return
    /// address.
    CallThrough {
        /// The encoded jump.
        jump: Vec<u8>,
        /// The offset of the displacement in `jump` and its target, where it is rip-relative.
        rip_relative: Option<(usize, Svma)>,
    },
}

/// A jump with a long displacement.
const LONG: usize = JUMP as usize;
/// `mov dword [rsp + 4], imm32`, up to the number.
pub(super) const HIGH_HALF: [u8; 4] = [0xc7, 0x44, 0x24, 0x04];
/// The push of a return address, both halves.
const PUSH_RETURN: usize = 1 + 4 + HIGH_HALF.len() + 4;

impl Displaced {
    /// Decides how `insn`, whose bytes are `bytes`, is moved.
    pub fn of(insn: &Insn, bytes: &[u8]) -> Result<Self, Immovable> {
        Ok(Self {
            form: form(&insn.0, bytes)?,
            at: Svma(insn.at()),
            bytes: bytes.to_vec(),
        })
    }

    /// The address of the instruction after it.
    pub fn end(&self) -> Svma {
        self.at.plus(self.bytes.len() as u64)
    }

    /// Is it a call?
    pub fn is_call(&self) -> bool {
        matches!(self.form, Form::Call { .. } | Form::CallThrough { .. })
    }

    /// Where it jumps, if it is a direct jump.
    pub fn jump_target(&self) -> Option<Svma> {
        match self.form {
            Form::Jump { target } | Form::Conditional { target, .. } | Form::Counted { target } => {
                Some(target)
            }
            _ => None,
        }
    }

    /// Does it jump only if a condition holds?
    pub fn is_conditional(&self) -> bool {
        matches!(self.form, Form::Conditional { .. } | Form::Counted { .. })
    }

    /// Does it change nothing but where control goes, so that it may run once more? `loop` counts.
    pub fn is_repeatable(&self) -> bool {
        !matches!(self.form, Form::Counted { .. })
    }

    /// Can the instruction after it run next?
    pub fn falls_through(&self) -> bool {
        match self.form {
            Form::Jump { .. } | Form::Call { .. } | Form::CallThrough { .. } => false,
            Form::Copy | Form::RipRelative { .. } => !first(&self.bytes, self.at).ends_block(),
            Form::Conditional { .. } | Form::Counted { .. } => true,
        }
    }

    /// No form of it is longer than this many bytes.
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
    // The decoder answers only about the instruction it has read last.
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
        // System calls are among these: a restarted one is entered again two bytes before the
        // saved pc, which must not be in the middle of something else.
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
        // Both count the conditions in the order of the processor's encoding; iced's 0 is none.
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
