//! Effects of instructions on the stack pointer and the frame pointer.

use iced_x86::{Mnemonic, OpKind, Register};

use super::insn::{Facts, Insn};
use super::realigned::{Around, Places, Realigned, Restored};
use crate::isa::{CallerFramePointer, Calls};

/// The known state before an instruction, in bytes relative to the stack pointer at the function's
/// entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackState {
    /// The stack pointer; `None` if it is not known.
    rsp: Option<i64>,
    /// The frame pointer; `None` if it is not known to point into the stack.
    rbp: Option<i64>,
    /// The location of the caller's frame pointer.
    caller: CallerFramePointer,
    /// The state of a realigned frame, whose distance from the entry's stack pointer is not fixed.
    realigned: Realigned,
}

impl StackState {
    /// The state at the function's entry.
    pub const ENTRY: Self = Self {
        rsp: Some(0),
        rbp: None,
        caller: CallerFramePointer::InPlace,
        realigned: Realigned::NONE,
    };

    /// The facts that hold in both states.
    pub fn or(self, other: Self) -> Self {
        let same = |a: Option<i64>, b| a.filter(|_| a == b);
        Self {
            rsp: same(self.rsp, other.rsp),
            rbp: same(self.rbp, other.rbp),
            caller: if self.caller == other.caller {
                self.caller
            } else {
                CallerFramePointer::Unknown
            },
            realigned: self.realigned.or(other.realigned),
        }
    }

    /// The stack pointer, if known.
    pub fn stack_pointer(&self) -> Option<i64> {
        self.rsp
    }

    /// The frame pointer, if it is known to point into the stack.
    pub fn frame_pointer(&self) -> Option<i64> {
        self.rbp
    }

    /// The location of the caller's frame pointer.
    pub fn caller(&self) -> CallerFramePointer {
        self.caller
    }

    /// The locations of the parts of a realigned frame, if it is one.
    pub fn realigned(&self) -> Option<Places> {
        self.realigned.places()
    }

    /// The state after `insn`.
    pub fn after(self, facts: &mut Facts, insn: &Insn, calls: Calls) -> Self {
        after(facts, insn, self, calls)
    }
}

fn after(facts: &mut Facts, insn: &Insn, before: StackState, calls: Calls) -> StackState {
    let around = Around {
        rsp: before.rsp,
        has_caller: before.caller == CallerFramePointer::InPlace,
        calls_keep: calls == Calls::Keep,
    };
    let (realigned, restored) = before.realigned.after(facts, insn, &around);
    let mut after = from_entry(facts, insn, before, calls);
    after.realigned = realigned;
    let Restored { rsp, caller } = restored;
    after.rsp = after.rsp.or(rsp);
    if caller {
        after.caller = CallerFramePointer::InPlace;
    }
    after
}

/// The state after an instruction, relative to the entry's stack pointer.
fn from_entry(facts: &mut Facts, of: &Insn, before: StackState, calls: Calls) -> StackState {
    let insn = &of.0;
    let StackState {
        rsp,
        rbp,
        realigned,
        ..
    } = before;
    let caller = caller_frame_pointer(facts, of, before);
    let copies = |to, from| {
        insn.mnemonic() == Mnemonic::Mov
            && insn.op_count() == 2
            && insn.op0_kind() == OpKind::Register
            && insn.op1_kind() == OpKind::Register
            && insn.op0_register() == to
            && insn.op1_register() == from
    };
    if copies(Register::RBP, Register::RSP) {
        return StackState {
            rsp,
            rbp: rsp,
            caller,
            realigned,
        };
    }
    if copies(Register::RSP, Register::RBP) {
        return StackState {
            rsp: rbp,
            rbp,
            caller,
            realigned,
        };
    }
    match insn.mnemonic() {
        Mnemonic::Leave => {
            return StackState {
                rsp: rbp.map(|at| at + 8),
                rbp: None,
                caller,
                realigned,
            };
        }
        Mnemonic::Lea
            if insn.op0_register() == Register::RSP && insn.memory_base() == Register::RBP =>
        {
            let from = rbp.filter(|_| insn.memory_index() == Register::None);
            let by = insn.memory_displacement64() as i64;
            return StackState {
                rsp: from.map(|at| at + by),
                rbp,
                caller,
                realigned,
            };
        }
        _ => {}
    }
    let by = facts
        .stack_change(of)
        .filter(|_| calls == Calls::Keep || !of.is_call());
    StackState {
        rsp: rsp.zip(by).map(|(at, by)| at + by),
        rbp: rbp.filter(|_| of.is_call() || !facts.writes(insn, Register::RBP)),
        caller,
        realigned,
    }
}

/// The location of the caller's frame pointer after an instruction.
fn caller_frame_pointer(facts: &mut Facts, of: &Insn, before: StackState) -> CallerFramePointer {
    let insn = &of.0;
    use CallerFramePointer::{At, InPlace, Unknown, Zeroed};
    let is_rbp = |operand: u32| {
        insn.op_kind(operand) == OpKind::Register && insn.op_register(operand) == Register::RBP
    };
    let clears = matches!(insn.mnemonic(), Mnemonic::Xor | Mnemonic::Sub)
        && insn.op1_kind() == OpKind::Register
        && insn.op0_register() == insn.op1_register()
        && insn.op0_register().full_register() == Register::RBP;
    match (before.caller, insn.mnemonic()) {
        (InPlace, Mnemonic::Push) if is_rbp(0) => before.rsp.map_or(InPlace, |at| At(at - 8)),
        (InPlace, Mnemonic::Mov) if is_rbp(1) && insn.op0_kind() == OpKind::Memory => {
            let is_plain = insn.memory_index() == Register::None;
            let base = before
                .rsp
                .filter(|_| is_plain && insn.memory_base() == Register::RSP);
            base.map_or(InPlace, |at| At(at + insn.memory_displacement64() as i64))
        }
        (InPlace, _) if clears => Zeroed,
        (At(at), Mnemonic::Pop) if is_rbp(0) && before.rsp == Some(at) => InPlace,
        (At(at), Mnemonic::Leave) if before.rbp == Some(at) => InPlace,
        (At(at), Mnemonic::Mov) if is_rbp(0) && insn.op1_kind() == OpKind::Memory => {
            let is_plain = insn.memory_index() == Register::None;
            let from = match insn.memory_base() {
                Register::RSP if is_plain => before.rsp,
                Register::RBP if is_plain => before.rbp,
                _ => None,
            };
            let from = from.map(|from| from + insn.memory_displacement64() as i64);
            if from == Some(at) { InPlace } else { At(at) }
        }
        (InPlace | Zeroed, _) if facts.writes(insn, Register::RBP) => Unknown,
        (same, _) => same,
    }
}
