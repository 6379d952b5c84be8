//! What an instruction is and does, as far as the analysis asks.

use iced_x86::{
    Code, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};

/// Is it a call, direct or not?
pub fn is_call(insn: &Instruction) -> bool {
    matches!(
        insn.flow_control(),
        FlowControl::Call | FlowControl::IndirectCall
    )
}

/// By how many bytes the stack pointer is higher after `insn`, where that runs on. `None` where it is set,
/// or changed by something that is not known. A call's callee leaves it as it was.
pub fn stack_change(factory: &mut InstructionInfoFactory, insn: &Instruction) -> Option<i64> {
    let is_to_rsp = insn.op_count() > 0
        && insn.op0_kind() == OpKind::Register
        && insn.op0_register() == Register::RSP;
    match insn.mnemonic() {
        _ if is_call(insn) => Some(0),
        Mnemonic::Add if is_to_rsp => immediate(insn),
        Mnemonic::Sub if is_to_rsp => immediate(insn).map(i64::wrapping_neg),
        Mnemonic::Lea if is_to_rsp => {
            let is_plain =
                insn.memory_base() == Register::RSP && insn.memory_index() == Register::None;
            is_plain.then_some(insn.memory_displacement64() as i64)
        }
        Mnemonic::Pop if is_to_rsp => None,
        _ => match i64::from(insn.stack_pointer_increment()) {
            0 if writes(factory, insn, Register::RSP) => None,
            by => Some(by),
        },
    }
}

/// Does `insn` write the register or a part of it?
pub fn writes(
    factory: &mut InstructionInfoFactory,
    insn: &Instruction,
    register: Register,
) -> bool {
    let is_write = |access| {
        matches!(
            access,
            OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
        )
    };
    let used = factory.info(insn).used_registers();
    used.iter()
        .any(|u| u.register().full_register() == register && is_write(u.access()))
}

/// The second operand, where it is a number.
fn immediate(insn: &Instruction) -> Option<i64> {
    matches!(
        insn.op1_kind(),
        OpKind::Immediate8to64 | OpKind::Immediate32to64 | OpKind::Immediate8 | OpKind::Immediate32
    )
    .then(|| insn.immediate(1) as i64)
}

/// Is it a direct jump, conditional or not?
pub fn is_jump(insn: &Instruction) -> bool {
    matches!(
        insn.flow_control(),
        FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
    )
}

/// `endbr64`, or `endbr32` in its place: control may arrive here from anywhere.
pub fn is_landing_marker(insn: &Instruction) -> bool {
    matches!(insn.code(), Code::Endbr64 | Code::Endbr32)
}

/// Is it what fills up between functions and before what is aligned?
pub fn is_padding(insn: &Instruction) -> bool {
    matches!(insn.mnemonic(), Mnemonic::Nop | Mnemonic::Int3)
}

/// The address that a rip-relative `lea` forms.
pub fn formed_address(insn: &Instruction) -> Option<u64> {
    (insn.mnemonic() == Mnemonic::Lea && insn.is_ip_rel_memory_operand())
        .then(|| insn.ip_rel_memory_address())
}

/// Does nothing ever run after `insn` on its account?
pub fn ends_block(insn: &Instruction) -> bool {
    matches!(
        insn.flow_control(),
        FlowControl::UnconditionalBranch
            | FlowControl::IndirectBranch
            | FlowControl::Return
            | FlowControl::Exception
    ) && insn.code() != Code::Int3
        || insn.code() == Code::Hlt
}
