//! How an instruction uses the stack, apart from pushing and popping.

use iced_x86::{Code, Instruction, Mnemonic, OpKind, Register};

use super::insn::Insn;

/// The explicit use of the stack by an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackUse {
    /// It has no operand with the stack or the frame pointer, or it only moves the stack pointer by
    /// a constant.
    None,
    /// It accesses memory at this distance from the stack pointer, in bytes.
    FromStackPointer(i32),
    /// It accesses memory at this distance from the register that may be the frame pointer.
    FromFramePointer(i32),
    /// It uses that register otherwise, apart from saving and restoring it.
    OfFramePointer,
    /// `mov rbp, rsp`.
    MakesFramePointer,
    /// It uses the stack pointer in another way.
    Unknown,
}

impl StackUse {
    /// The use by `insn`.
    pub fn of(Insn(insn): &Insn) -> Self {
        let names = |register: Register| {
            (0..insn.op_count()).any(|op| {
                insn.op_kind(op) == OpKind::Register
                    && insn.op_register(op).full_register() == register
            })
        };
        if names(Register::RSP) {
            return of_stack_pointer(insn);
        }
        let (base, index) = (insn.memory_base(), insn.memory_index());
        let has_memory = (0..insn.op_count()).any(|op| insn.op_kind(op) == OpKind::Memory);
        let is_address = insn.mnemonic() == Mnemonic::Lea;
        let is_of = |register: Register| {
            has_memory && [base, index].iter().any(|r| r.full_register() == register)
        };
        let by = i32::try_from(insn.memory_displacement64() as i64);
        let is_plain = index == Register::None && !is_address;
        match insn.mnemonic() {
            Mnemonic::Enter => return Self::Unknown,
            Mnemonic::Leave => return Self::None,
            _ => {}
        }
        if is_of(Register::RSP) {
            let by = by.ok().filter(|_| is_plain && base == Register::RSP);
            return by.map_or(Self::Unknown, Self::FromStackPointer);
        }
        let saves = matches!(insn.mnemonic(), Mnemonic::Push | Mnemonic::Pop);
        if names(Register::RBP) && !saves {
            return Self::OfFramePointer;
        }
        if is_of(Register::RBP) {
            let by = by.ok().filter(|_| is_plain && base == Register::RBP);
            return by.map_or(Self::OfFramePointer, Self::FromFramePointer);
        }
        Self::None
    }
}

/// The use by an instruction that names the stack pointer as a register.
fn of_stack_pointer(insn: &Instruction) -> StackUse {
    let is_stack_pointer = |op| insn.op_register(op) == Register::RSP;
    match insn.code() {
        Code::Add_rm64_imm8 | Code::Add_rm64_imm32 | Code::Sub_rm64_imm8 | Code::Sub_rm64_imm32
            if is_stack_pointer(0) =>
        {
            StackUse::None
        }
        Code::Mov_rm64_r64 | Code::Mov_r64_rm64
            if insn.op0_register() == Register::RBP && is_stack_pointer(1) =>
        {
            StackUse::MakesFramePointer
        }
        _ => StackUse::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::Svma;
    use crate::isa::first;

    fn of(bytes: &[u8]) -> StackUse {
        StackUse::of(&first(bytes, Svma(0x1000)))
    }

    #[test]
    fn uses_of_the_stack_are_told_apart() {
        assert_eq!(of(&[0x48, 0x83, 0xec, 0x18]), StackUse::None, "sub rsp, 24");
        assert_eq!(of(&[0x53]), StackUse::None, "push rbx");
        assert_eq!(of(&[0x55]), StackUse::None, "push rbp");
        assert_eq!(of(&[0xc9]), StackUse::None, "leave");
        assert_eq!(of(&[0x48, 0x89, 0xe5]), StackUse::MakesFramePointer);
        let load = of(&[0x8b, 0x44, 0x24, 0xf8]);
        assert_eq!(load, StackUse::FromStackPointer(-8), "mov eax, [rsp - 8]");
        let store = of(&[0x89, 0x7d, 0xec]);
        assert_eq!(
            store,
            StackUse::FromFramePointer(-20),
            "mov [rbp - 20], edi"
        );
        assert_eq!(of(&[0x48, 0x89, 0xe0]), StackUse::Unknown, "mov rax, rsp");
        let address = of(&[0x48, 0x8d, 0x44, 0x24, 0x88]);
        assert_eq!(address, StackUse::Unknown, "lea rax, [rsp - 120]");
        let indexed = of(&[0x88, 0x44, 0x0c, 0x88]);
        assert_eq!(indexed, StackUse::Unknown, "mov [rsp + rcx - 120], al");
        let address = of(&[0x48, 0x8d, 0x45, 0xf0]);
        assert_eq!(address, StackUse::OfFramePointer, "lea rax, [rbp - 16]");
        assert_eq!(
            of(&[0x48, 0x83, 0xe4, 0xe0]),
            StackUse::Unknown,
            "and rsp, -32"
        );
    }
}
