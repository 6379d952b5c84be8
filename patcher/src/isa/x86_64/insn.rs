//! Properties and effects of instructions.

use std::fmt;

use iced_x86::{
    Code, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};

use crate::isa::Control;

/// A decoded instruction with its address.
#[derive(Clone, Copy, Debug, Default)]
#[repr(transparent)]
pub struct Insn(pub(super) Instruction);

/// A register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reg(pub(super) Register);

/// The longest instruction, in bytes.
pub const LONGEST_INSN: u64 = 15;
/// The shortest call, in bytes.
pub const SHORTEST_CALL: u64 = 2;

impl Insn {
    /// The address of the instruction.
    #[inline]
    pub fn at(&self) -> u64 {
        self.0.ip()
    }

    /// The address after the instruction.
    #[inline]
    pub fn end(&self) -> u64 {
        self.0.next_ip()
    }

    /// The length of the instruction in bytes.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "no instruction is empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if the bytes do not encode an instruction.
    #[inline]
    pub fn is_invalid(&self) -> bool {
        self.0.is_invalid()
    }

    /// The instruction's successor in the control flow.
    #[inline]
    pub fn control(&self) -> Control {
        match self.0.flow_control() {
            FlowControl::Next => Control::Next,
            FlowControl::UnconditionalBranch => Control::Jump,
            FlowControl::ConditionalBranch => Control::ConditionalJump,
            FlowControl::IndirectBranch => Control::IndirectJump,
            FlowControl::Call => Control::Call,
            FlowControl::IndirectCall => Control::IndirectCall,
            FlowControl::Return => Control::Return,
            FlowControl::Interrupt | FlowControl::XbeginXabortXend | FlowControl::Exception => {
                Control::Other
            }
        }
    }

    /// The register with the target of a jump; `None` for other instructions.
    pub fn jump_register(&self) -> Option<Reg> {
        let is_one = self.is_indirect_jump() && self.0.op0_kind() == OpKind::Register;
        let register = self.0.op0_register();
        (is_one && register.is_gpr64()).then_some(Reg(register))
    }

    /// True for an indirect jump whose target other code can read before it: from a register, or
    /// from memory at an address that does not depend on the stack or instruction pointer.
    pub fn is_comparable_jump(&self) -> bool {
        let base = self.0.memory_base();
        let is_fixed = base != Register::RIP && base != Register::RSP;
        let segment = self.0.segment_prefix();
        let is_plain = is_fixed && segment != Register::FS && segment != Register::GS;
        let is_memory = self.0.op0_kind() == OpKind::Memory;
        self.jump_register()
            .is_some_and(|Reg(r)| r != Register::RSP)
            || self.is_indirect_jump() && is_memory && is_plain
    }

    /// True if the instruction adds something to the register.
    pub fn adds_to(&self, Reg(register): Reg) -> bool {
        self.0.mnemonic() == Mnemonic::Add && self.0.op0_register() == register
    }

    /// The target of a direct branch or call; 0 for other instructions.
    #[inline]
    pub fn target(&self) -> u64 {
        self.0.near_branch_target()
    }

    /// True if the instruction is a direct or indirect call, or a system call.
    #[inline]
    pub fn is_call(&self) -> bool {
        matches!(
            self.0.flow_control(),
            FlowControl::Call | FlowControl::IndirectCall
        )
    }

    /// True if the instruction calls a function at a fixed address.
    #[inline]
    pub fn is_direct_call(&self) -> bool {
        self.0.is_call_near()
    }

    /// True if the instruction is a direct jump, conditional or not.
    #[inline]
    pub fn is_jump(&self) -> bool {
        matches!(
            self.0.flow_control(),
            FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
        )
    }

    /// True if the instruction is a direct jump, or an `xbegin`, which names the address for an
    /// aborted transaction.
    #[inline]
    pub fn is_branch(&self) -> bool {
        self.is_jump() || self.0.mnemonic() == Mnemonic::Xbegin
    }

    /// True if the instruction jumps to an address in a register or in memory.
    #[inline]
    pub fn is_indirect_jump(&self) -> bool {
        self.0.code() == Code::Jmp_rm64
    }

    /// True if the instruction is a return.
    #[inline]
    pub fn is_return(&self) -> bool {
        self.0.flow_control() == FlowControl::Return
    }

    /// True if the instruction is a system call.
    #[inline]
    pub fn is_system_call(&self) -> bool {
        self.0.code() == Code::Syscall
    }

    /// True if the instruction is a `hlt`, which marks a place that control should never reach.
    #[inline]
    pub fn is_halt(&self) -> bool {
        self.0.code() == Code::Hlt
    }

    /// True if the instruction is a direct jump with a 32-bit displacement.
    #[inline]
    pub fn is_long_jump(&self) -> bool {
        self.0.is_jmp_near() || self.0.is_jcc_near()
    }

    /// True if the instruction is an `endbr64`, or `endbr32` in its place: control may arrive here
    /// from anywhere.
    #[inline]
    pub fn is_landing_marker(&self) -> bool {
        matches!(self.0.code(), Code::Endbr64 | Code::Endbr32)
    }

    /// True if the instruction does nothing.
    #[inline]
    pub fn is_no_op(&self) -> bool {
        self.0.mnemonic() == Mnemonic::Nop
    }

    /// True if the instruction is filler between functions or before aligned code.
    #[inline]
    pub fn is_padding(&self) -> bool {
        matches!(self.0.mnemonic(), Mnemonic::Nop | Mnemonic::Int3)
    }

    /// True if the instruction never continues at the next instruction.
    #[inline]
    pub fn ends_block(&self) -> bool {
        matches!(
            self.0.flow_control(),
            FlowControl::UnconditionalBranch
                | FlowControl::IndirectBranch
                | FlowControl::Return
                | FlowControl::Exception
        ) && self.0.code() != Code::Int3
            || self.0.code() == Code::Hlt
    }

    /// True if the bytes from `at` on, in its middle, do the same without atomicity.
    ///
    /// A program that knows it is single-threaded jumps to the byte after a lock prefix.
    #[inline]
    pub fn is_unlocked_at(&self, at: u64) -> bool {
        self.0.has_lock_prefix() && self.0.ip() + 1 == at
    }

    /// The address that a rip-relative `lea` computes; `None` for other instructions.
    #[inline]
    pub fn formed_address(&self) -> Option<u64> {
        let forms = self.0.mnemonic() == Mnemonic::Lea && self.0.is_ip_rel_memory_operand();
        forms.then(|| self.0.ip_rel_memory_address())
    }

    /// The address of the rip-relative memory operand; `None` if the instruction has none.
    #[inline]
    pub fn named_word(&self) -> Option<u64> {
        let is_one = self.0.is_ip_rel_memory_operand();
        is_one.then(|| self.0.ip_rel_memory_address())
    }

    /// The immediate that the instruction moves; `None` for other instructions. In a program with a
    /// fixed address, this may be an address.
    #[inline]
    pub fn moved_number(&self) -> Option<u64> {
        let is_number = self.0.mnemonic() == Mnemonic::Mov
            && matches!(
                self.0.op1_kind(),
                OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64
            );
        is_number.then(|| self.0.immediate(1))
    }

    /// The immediate that the instruction moves to a register and that may be the address of a
    /// table; `None` for other instructions.
    pub fn table_number(&self) -> Option<u64> {
        let insn = &self.0;
        let is_moved = insn.mnemonic() == Mnemonic::Mov && insn.op0_kind() == OpKind::Register;
        let is_number = (1..insn.op_count()).any(|op| insn.op_kind(op) == OpKind::Immediate32);
        (is_moved && is_number).then(|| u64::from(insn.immediate32()))
    }

    /// The address of the table in an operand `[index*8 + table]`; `None` if the instruction has no
    /// such operand.
    pub fn indexed_table(&self) -> Option<u64> {
        let insn = &self.0;
        let memory = (0..insn.op_count()).any(|op| insn.op_kind(op) == OpKind::Memory);
        (memory
            && insn.memory_base() == Register::None
            && insn.memory_index() != Register::None
            && insn.memory_index_scale() == 8)
            .then(|| insn.memory_displacement64())
    }

    /// True if the instruction pushes a rip-relative word, as the first stub of a linkage table
    /// does.
    pub fn pushes_named_word(&self) -> bool {
        self.0.mnemonic() == Mnemonic::Push && self.0.is_ip_rel_memory_operand()
    }

    /// The register that the instruction pushes; `None` if it pushes none.
    #[inline]
    pub fn pushed(&self) -> Option<Reg> {
        let is_push = self.0.mnemonic() == Mnemonic::Push && self.0.op0_kind() == OpKind::Register;
        is_push.then(|| Reg(self.0.op0_register()))
    }

    /// The register that the instruction pops; `None` if it pops none.
    #[inline]
    pub fn popped(&self) -> Option<Reg> {
        let is_pop = self.0.mnemonic() == Mnemonic::Pop && self.0.op0_kind() == OpKind::Register;
        is_pop.then(|| Reg(self.0.op0_register()))
    }

    /// True if the instruction pushes the frame pointer.
    pub fn pushes_frame_pointer(&self) -> bool {
        self.0.mnemonic() == Mnemonic::Push && self.0.op0_register() == Register::RBP
    }

    /// True if the instruction sets the frame pointer to the stack pointer.
    pub fn makes_frame_pointer(&self) -> bool {
        let insn = &self.0;
        insn.mnemonic() == Mnemonic::Mov
            && (insn.op0_register(), insn.op1_register()) == (Register::RBP, Register::RSP)
    }

    /// True if the instruction stores the frame pointer right below the return address.
    ///
    /// `height` is the distance from the stack pointer before it up to the return address, in
    /// bytes.
    pub fn saves_frame_pointer(&self, height: i64) -> bool {
        let insn = &self.0;
        let is_below_return_address = || {
            insn.memory_base() == Register::RSP
                && insn.memory_index() == Register::None
                && insn.memory_displacement64() as i64 == height - super::WORD
        };
        match insn.mnemonic() {
            Mnemonic::Push => insn.op0_register() == Register::RBP && height == 0,
            Mnemonic::Mov => insn.op1_register() == Register::RBP && is_below_return_address(),
            _ => false,
        }
    }

    /// True if the instruction typically begins a function and is rare elsewhere.
    pub fn begins_function(&self) -> bool {
        const KEPT: [Register; 6] = [
            Register::RBX,
            Register::RBP,
            Register::R12,
            Register::R13,
            Register::R14,
            Register::R15,
        ];
        let insn = &self.0;
        match insn.mnemonic() {
            Mnemonic::Push => {
                insn.op0_kind() == OpKind::Register && KEPT.contains(&insn.op0_register())
            }
            Mnemonic::Sub => insn.op0_register() == Register::RSP,
            _ => self.is_landing_marker(),
        }
    }

    /// True if the instruction writes the word that a following return would pop, as in a
    /// retpoline.
    pub fn sets_top_of_stack(&self) -> bool {
        let insn = &self.0;
        let is_top = insn.op_count() > 0
            && insn.op0_kind() == OpKind::Memory
            && insn.memory_base() == Register::RSP
            && insn.memory_index() == Register::None
            && insn.memory_displacement64() == 0;
        let writes = !matches!(insn.mnemonic(), Mnemonic::Cmp | Mnemonic::Test);
        is_top && writes || insn.mnemonic() == Mnemonic::Push
    }

    /// True if the instruction loads the stack pointer from rcx, which holds the stack pointer of
    /// another frame in GCC's code for `__builtin_eh_return`.
    pub fn enters_frame_of_handler(&self) -> bool {
        let insn = &self.0;
        insn.mnemonic() == Mnemonic::Mov
            && insn.op0_register() == Register::RSP
            && insn.op1_register() == Register::RCX
    }

    /// The value that the instruction sets the first argument's register to.
    ///
    /// `None` if it does not set the register. The inner value is an address or an immediate, if
    /// known.
    pub fn sets_first_argument(&self) -> Option<Option<u64>> {
        let insn = &self.0;
        let sets = insn.op_count() > 0 && insn.op0_register().full_register() == Register::RDI;
        sets.then(|| self.formed_address().or_else(|| self.moved_number()))
    }

    /// True if the instruction references memory below the stack pointer.
    pub fn is_below_stack_pointer(&self) -> bool {
        self.0.memory_base() == Register::RSP && (self.0.memory_displacement64() as i64) < 0
    }
}

impl fmt::Display for Insn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Queries on instructions that need more than the decoded form.
pub struct Facts(pub(super) InstructionInfoFactory);

impl Default for Facts {
    fn default() -> Self {
        Self(InstructionInfoFactory::new())
    }
}

impl Facts {
    /// The change of the stack pointer by `insn` if control continues after it, in bytes.
    ///
    /// `None` if the stack pointer is set, or changed by an unknown amount. A call counts as 0,
    /// because the callee restores it.
    pub fn stack_change(&mut self, insn: &Insn) -> Option<i64> {
        let is_call = insn.is_call();
        let insn = &insn.0;
        let is_to_rsp = insn.op_count() > 0
            && insn.op0_kind() == OpKind::Register
            && insn.op0_register() == Register::RSP;
        match insn.mnemonic() {
            _ if is_call => Some(0),
            Mnemonic::Add if is_to_rsp => immediate(insn),
            Mnemonic::Sub if is_to_rsp => immediate(insn).map(i64::wrapping_neg),
            Mnemonic::Lea if is_to_rsp => {
                let is_plain =
                    insn.memory_base() == Register::RSP && insn.memory_index() == Register::None;
                is_plain.then_some(insn.memory_displacement64() as i64)
            }
            Mnemonic::Pop if is_to_rsp => None,
            _ => match i64::from(insn.stack_pointer_increment()) {
                0 if self.writes(insn, Register::RSP) => None,
                by => Some(by),
            },
        }
    }

    /// The result of [`Facts::stack_change`], for code whose unwind rows follow the stack pointer.
    ///
    /// This is faster: it examines only instructions with the stack pointer as an operand in full.
    pub fn described_stack_change(&mut self, insn: &Insn) -> Option<i64> {
        let of = &insn.0;
        let is_named = (0..of.op_count().min(2)).any(|operand| {
            of.op_kind(operand) == OpKind::Register
                && of.op_register(operand).full_register() == Register::RSP
        });
        match of.mnemonic() {
            Mnemonic::Leave | Mnemonic::Enter => None,
            _ if is_named => self.stack_change(insn),
            _ if insn.is_call() => Some(0),
            _ => Some(of.stack_pointer_increment().into()),
        }
    }

    /// True if `insn` writes the frame pointer or a part of it.
    pub fn writes_frame_pointer(&mut self, insn: &Insn) -> bool {
        self.writes(&insn.0, Register::RBP)
    }

    /// True if `insn` writes the register or a part of it.
    pub(super) fn writes(&mut self, insn: &Instruction, register: Register) -> bool {
        let is_write = |access| {
            matches!(
                access,
                OpAccess::Write
                    | OpAccess::CondWrite
                    | OpAccess::ReadWrite
                    | OpAccess::ReadCondWrite
            )
        };
        let used = self.0.info(insn).used_registers();
        used.iter()
            .any(|u| u.register().full_register() == register && is_write(u.access()))
    }
}

/// The second operand of an instruction on a 64-bit register, sign-extended. `None` if it is not an
/// immediate.
fn immediate(insn: &Instruction) -> Option<i64> {
    matches!(
        insn.op1_kind(),
        OpKind::Immediate8to64 | OpKind::Immediate32to64 | OpKind::Immediate8 | OpKind::Immediate32
    )
    .then(|| insn.immediate(1) as i64)
}
