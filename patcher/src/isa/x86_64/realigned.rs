//! Frames that GCC aligns at run time, with arguments or variable-size arrays on the stack:
//!
//! ```text
//! lea  8(%rsp), %r10     the canonical frame address, in a register
//! and  $-32, %rsp
//! push -8(%r10)          a copy of the return address
//! push %rbp
//! mov  %rsp, %rbp
//! push %r10              the canonical frame address, at a fixed distance from rbp
//! ```
//!
//! The distance from rbp to the entry's stack pointer is not fixed. The saved registers are at
//! fixed distances from the aligned address.

use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use super::WORD;
use super::insn::{Facts, Insn};

/// The known state of a realigned frame before an instruction. Places are relative to the address
/// that `and` has put into the stack pointer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Realigned {
    /// The register that holds the canonical frame address; `None` if no register does.
    cfa_in: Option<Register>,
    /// The place that rsp points to, in bytes; `None` if it is not known.
    rsp: Option<i64>,
    /// The place that rbp points to, in bytes; `None` if it is not known.
    rbp: Option<i64>,
    /// The place of the saved canonical frame address, in bytes; `None` if it is not saved.
    cfa_at: Option<i64>,
    /// The place of the saved caller's rbp, in bytes; `None` if it is not saved.
    caller_at: Option<i64>,
}

/// `cfa = *(rbp + cfa_at)`, `rbp = *(rbp + 8 * caller_frame_pointer)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    /// The distance from rbp to the word with the canonical frame address, in bytes.
    pub cfa_at: i32,
    /// The distance from rbp to the word with the caller's rbp, in words.
    pub caller_frame_pointer: i16,
}

/// The state before an instruction that does not depend on the realigned frame.
pub struct Around {
    /// The stack pointer relative to the entry's, in bytes; `None` if it is not known.
    pub rsp: Option<i64>,
    /// True if rbp holds the caller's value.
    pub has_caller: bool,
    /// True if calls preserve the stack pointer.
    pub calls_keep: bool,
}

/// Registers that an instruction restores from the realigned frame.
#[derive(Clone, Copy, Default)]
pub struct Restored {
    /// The stack pointer relative to the entry's, in bytes; `None` if it is not restored.
    pub rsp: Option<i64>,
    /// True if rbp holds the caller's value again.
    pub caller: bool,
}

impl Realigned {
    /// The state in which nothing is known.
    pub const NONE: Self = Self {
        cfa_in: None,
        rsp: None,
        rbp: None,
        cfa_at: None,
        caller_at: None,
    };

    /// The facts that hold in both states.
    pub fn or(self, other: Self) -> Self {
        fn same<T: PartialEq>(a: Option<T>, b: Option<T>) -> Option<T> {
            if a == b { a } else { None }
        }
        Self {
            cfa_in: same(self.cfa_in, other.cfa_in),
            rsp: same(self.rsp, other.rsp),
            rbp: same(self.rbp, other.rbp),
            cfa_at: same(self.cfa_at, other.cfa_at),
            caller_at: same(self.caller_at, other.caller_at),
        }
    }

    /// The places of the frame's parts; `None` unless the frame is complete.
    pub fn places(&self) -> Option<Places> {
        let (rbp, cfa_at, caller_at) = (self.rbp?, self.cfa_at?, self.caller_at?);
        Some(Places {
            cfa_at: i32::try_from(cfa_at - rbp).ok()?,
            caller_frame_pointer: i16::try_from((caller_at - rbp) / WORD).ok()?,
        })
    }

    /// The state after the instruction `of`, and the registers that it restores.
    pub fn after(self, facts: &mut Facts, of: &Insn, around: &Around) -> (Self, Restored) {
        let insn = &of.0;
        if self == Self::default() && insn.mnemonic() != Mnemonic::Lea {
            return Default::default();
        }
        let mut after = self;
        let mut restored = Restored::default();
        let to = |operand: u32| match insn.op_kind(operand) {
            OpKind::Register if insn.op_count() > operand => Some(insn.op_register(operand)),
            _ => None,
        };
        let copies = insn.mnemonic() == Mnemonic::Mov && insn.op_count() == 2;
        let (first, second) = (to(0), if insn.op_count() > 1 { to(1) } else { None });
        let is_cfa = |register: Option<Register>| register.is_some() && register == self.cfa_in;
        match insn.mnemonic() {
            _ if of.is_call() => {
                after.rsp = self.rsp.filter(|_| around.calls_keep);
                after.cfa_in = self.cfa_in.filter(|&register| is_kept(register));
                return (after, restored);
            }
            Mnemonic::Lea if first == Some(Register::RSP) => {
                let is_plain = insn.memory_index() == Register::None;
                let displacement = insn.memory_displacement64() as i64;
                if is_plain && is_cfa(Some(insn.memory_base())) {
                    restored.rsp = Some(WORD + displacement);
                    return (Self::default(), restored);
                }
                after.rsp = self.place(insn);
                return (after, restored);
            }
            Mnemonic::Lea
                if insn.memory_base() == Register::RSP
                    && insn.memory_index() == Register::None
                    && around
                        .rsp
                        .map(|at| at + insn.memory_displacement64() as i64)
                        == Some(WORD) =>
            {
                let is_new = first.filter(|r| r.size() == 8 && *r != Register::RBP);
                after.cfa_in = is_new.or(self.cfa_in.filter(|_| first != self.cfa_in));
                return (after, restored);
            }
            Mnemonic::And if first == Some(Register::RSP) => {
                let aligned = Self {
                    cfa_in: self.cfa_in,
                    rsp: self.cfa_in.map(|_| 0),
                    ..Self::default()
                };
                return (aligned, restored);
            }
            Mnemonic::Push => {
                after.rsp = self.rsp.map(|at| at - WORD);
                if is_cfa(first) {
                    after.cfa_at = after.rsp.or(self.cfa_at);
                } else if first == Some(Register::RBP) && around.has_caller {
                    after.caller_at = after.rsp.or(self.caller_at);
                }
                return (after, restored);
            }
            Mnemonic::Mov
                if copies && first == Some(Register::RBP) && second == Some(Register::RSP) =>
            {
                after.rbp = self.rsp;
                return (after, restored);
            }
            Mnemonic::Mov if copies && first == Some(Register::RSP) => {
                if is_cfa(second) {
                    restored.rsp = Some(WORD);
                    return (Self::default(), restored);
                }
                after.rsp = self.rbp.filter(|_| second == Some(Register::RBP));
                return (after, restored);
            }
            Mnemonic::Mov if insn.op0_kind() == OpKind::Memory && is_cfa(second) => {
                after.cfa_at = self.place(insn).or(self.cfa_at);
                return (after, restored);
            }
            Mnemonic::Mov
                if insn.op1_kind() == OpKind::Memory
                    && self.cfa_at.is_some()
                    && self.place(insn) == self.cfa_at =>
            {
                after.cfa_in = first.filter(|register| register.size() == 8);
                return (after, restored);
            }
            Mnemonic::Pop => {
                if self.rsp.is_some() && self.rsp == self.cfa_at {
                    after.cfa_in = first;
                } else if is_cfa(first) {
                    after.cfa_in = None;
                }
                if first == Some(Register::RBP) {
                    restored.caller = self.rsp.is_some() && self.rsp == self.caller_at;
                    after.rbp = None;
                }
                after.rsp = self
                    .rsp
                    .map(|at| at + WORD)
                    .filter(|_| first != Some(Register::RSP));
                return (after, restored);
            }
            Mnemonic::Leave => {
                restored.caller = self.rbp.is_some() && self.rbp == self.caller_at;
                after.rsp = self.rbp.map(|at| at + WORD);
                after.rbp = None;
                return (after, restored);
            }
            _ => {}
        }
        let by = facts.stack_change(of);
        after.rsp = self.rsp.zip(by).map(|(at, by)| at + by);
        after.rbp = self.rbp.filter(|_| !facts.writes(insn, Register::RBP));
        let is_left = |register: &Register| !facts.writes(insn, *register);
        after.cfa_in = self.cfa_in.filter(is_left);
        (after, restored)
    }

    /// The place of the memory operand of `insn`; `None` unless it is at a fixed distance.
    fn place(&self, insn: &Instruction) -> Option<i64> {
        let base = match insn.memory_base() {
            Register::RSP => self.rsp,
            Register::RBP => self.rbp,
            _ => None,
        };
        let base = base.filter(|_| insn.memory_index() == Register::None)?;
        Some(base + insn.memory_displacement64() as i64)
    }
}

/// True if calls preserve the register (psABI 3.2.1).
fn is_kept(register: Register) -> bool {
    matches!(
        register,
        Register::RBX | Register::R12 | Register::R13 | Register::R14 | Register::R15
    )
}
