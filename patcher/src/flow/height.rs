//! How high the stack is at each instruction, and where the caller's frame pointer is, from the
//! instructions alone: for code without unwind rules.

use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register};

use super::graph::Flow;
use super::realigned::{Around, Places, Realigned, Restored};
use super::tables::is_indirect_jump;
use crate::insn::{ends_block, formed_address, is_call, is_jump, stack_change, writes};
#[cfg(test)]
use crate::looks;

/// What is known before an instruction, relative to the stack pointer at the function's entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    /// The stack pointer.
    rsp: Option<i64>,
    /// The frame pointer, where it points into the stack.
    rbp: Option<i64>,
    /// The frame pointer of the caller.
    caller: CallerFramePointer,
    /// The state of a realigned frame, which is not at a fixed distance from the entry's stack
    /// pointer.
    realigned: Realigned,
}

/// Where a function has the frame pointer of its caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CallerFramePointer {
    /// Still in rbp.
    InPlace,
    /// On the stack, relative to the stack pointer at the function's entry.
    At(i64),
    /// Nowhere: rbp has been set to 0, and no function has called this one.
    Zeroed,
    /// Not known.
    #[default]
    Unknown,
}

impl State {
    /// Nothing has happened yet.
    const ENTRY: Self = Self {
        rsp: Some(0),
        rbp: None,
        caller: CallerFramePointer::InPlace,
        realigned: Realigned::NONE,
    };

    /// What holds whichever of the two is true.
    fn or(self, other: Self) -> Self {
        let same = |a: Option<i64>, b| a.filter(|_| a == b);
        Self {
            rsp: same(self.rsp, other.rsp),
            rbp: same(self.rbp, other.rbp),
            caller: match self.caller == other.caller {
                true => self.caller,
                false => CallerFramePointer::Unknown,
            },
            realigned: self.realigned.or(other.realigned),
        }
    }
}

/// What a call does to the stack pointer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Calls {
    /// Anything: some functions take their arguments off the stack.
    MayMove,
    /// Nothing, as the psABI has it (3.2.2).
    Keep,
}

/// Stack heights of one function.
pub struct Heights(Vec<Option<State>>);

impl Heights {
    /// Follows every path of `flow` from its entry. Where control arrives otherwise than by a direct
    /// branch nothing is known, except from jump tables: any of the function's may lead to any place
    /// that one of them names. Where Go recovers the frame is as at the function's other calls.
    pub fn of(flow: &Flow, calls: Calls) -> Self {
        let mut states: Vec<Option<State>> = vec![None; flow.insns.len()];
        let mut work = Vec::new();
        let mut factory = InstructionInfoFactory::new();
        let arrive = |states: &mut Vec<Option<State>>, work: &mut Vec<usize>, at, state: State| {
            #[cfg(test)]
            looks::add(1);
            let Some(index) = flow.index_of(at) else {
                return;
            };
            // What calls that never return seem to run on into is where the stack is grown.
            if flow.is_go && at == flow.ranges[0].start.0 && states[index].is_some() {
                return;
            }
            let joined = states[index].map_or(state, |known| known.or(state));
            if states[index] != Some(joined) {
                states[index] = Some(joined);
                work.push(index);
            }
        };
        let is_unknown = |mark: &u64| {
            let is_switched = calls == Calls::Keep && flow.switched.binary_search(mark).is_ok();
            let is_recovered = flow.recovered.binary_search(mark).is_ok();
            !flow.is_entry(*mark) && !is_switched && !is_recovered && !is_own_place(flow, *mark)
        };
        for &mark in flow.marks.iter().filter(|mark| is_unknown(mark)) {
            arrive(&mut states, &mut work, mark, State::default());
        }
        arrive(&mut states, &mut work, flow.ranges[0].start.0, State::ENTRY);
        let mut recovered = flow.recovered.iter();
        let mut through_tables = None;
        loop {
            while let Some(index) = work.pop() {
                let insn = &flow.insns[index];
                let Some(before) = states[index] else {
                    continue;
                };
                let after = after(&mut factory, insn, before, calls);
                if is_jump(insn) {
                    arrive(&mut states, &mut work, insn.near_branch_target(), after);
                }
                if is_indirect_jump(insn) && !is_tail_call(flow, insn, after) {
                    let joined = through_tables.map_or(after, |known: State| known.or(after));
                    // Few states can follow one another here, however many jumps there are.
                    if through_tables != Some(joined) {
                        through_tables = Some(joined);
                        for &at in &flow.switched {
                            arrive(&mut states, &mut work, at, joined);
                        }
                    }
                }
                if !ends_block(insn) {
                    arrive(&mut states, &mut work, insn.next_ip(), after);
                }
            }
            let Some(&at) = recovered.next() else {
                break;
            };
            let state = at_calls(flow, &states);
            arrive(&mut states, &mut work, at, state);
        }
        Self(states)
    }

    /// Bytes by which the stack pointer has moved since the entry when the instruction of this
    /// index runs. They are negative for a stack that has grown. `None` where they are not known,
    /// or not the same on every path.
    pub fn before(&self, index: usize) -> Option<i64> {
        self.state(index)?.rsp
    }

    /// The same for the frame pointer where it points into the stack.
    pub fn frame_pointer_before(&self, index: usize) -> Option<i64> {
        self.state(index)?.rbp
    }

    /// Where the caller's frame pointer is when the instruction of this index runs.
    pub fn caller_frame_pointer_before(&self, index: usize) -> CallerFramePointer {
        self.state(index)
            .map_or_else(Default::default, |s| s.caller)
    }

    /// The places of the realigned frame's parts before the instruction at `index`.
    pub fn realigned_before(&self, index: usize) -> Option<Places> {
        self.state(index)?.realigned.places()
    }

    /// Has the return address been taken off the stack before the instruction of this index? It may be put anywhere
    /// then. Where nothing has called the function, there is none.
    pub fn is_above_entry(&self, index: usize) -> bool {
        let is_above = self.before(index).is_some_and(|height| height > 0);
        is_above && self.caller_frame_pointer_before(index) != CallerFramePointer::Zeroed
    }

    fn state(&self, index: usize) -> Option<State> {
        self.0.get(index).copied().flatten()
    }
}

/// True if the instruction before `at` forms the address `at`. The code passes its own address to
/// others this way (V8's calls of C functions) and continues there.
fn is_own_place(flow: &Flow, at: u64) -> bool {
    let before = flow
        .insns
        .partition_point(|insn| insn.ip() < at)
        .checked_sub(1);
    let before = before.map(|index| &flow.insns[index]);
    before.is_some_and(|insn| insn.next_ip() == at && formed_address(insn) == Some(at))
}

/// What holds at all those calls at which the stack is largest, as far as `states` knows. Go's compiler gives a
/// function all of its frame at once. Before that only what has the stack grow is called.
fn at_calls(flow: &Flow, states: &[Option<State>]) -> State {
    let calls = flow.insns.iter().zip(states).filter(|(i, _)| is_call(i));
    let known: Vec<State> = calls.filter_map(|(_, state)| *state).collect();
    let lowest = known.iter().filter_map(|state| state.rsp).min();
    let there = known
        .into_iter()
        .filter(|s| lowest.is_some() && s.rsp == lowest);
    there.reduce(State::or).unwrap_or_default()
}

/// Does it jump out of the function: through a table of other functions, or by a pointer with nothing of the
/// function's own left on the stack?
fn is_tail_call(flow: &Flow, insn: &Instruction, after: State) -> bool {
    flow.jumps.is_away(insn.ip()) || after.rsp == Some(0) && flow.jumps.is_by_pointer(insn.ip())
}

fn after(
    factory: &mut InstructionInfoFactory,
    insn: &Instruction,
    before: State,
    calls: Calls,
) -> State {
    let around = Around {
        rsp: before.rsp,
        has_caller: before.caller == CallerFramePointer::InPlace,
        calls_keep: calls == Calls::Keep,
    };
    let (realigned, restored) = before.realigned.after(factory, insn, &around);
    let mut after = from_entry(factory, insn, before, calls);
    after.realigned = realigned;
    let Restored { rsp, caller } = restored;
    after.rsp = after.rsp.or(rsp);
    if caller {
        after.caller = CallerFramePointer::InPlace;
    }
    after
}

/// The state after an instruction, relative to the entry's stack pointer.
fn from_entry(
    factory: &mut InstructionInfoFactory,
    insn: &Instruction,
    before: State,
    calls: Calls,
) -> State {
    let State {
        rsp,
        rbp,
        realigned,
        ..
    } = before;
    let caller = caller_frame_pointer(factory, insn, before);
    let copies = |to, from| {
        insn.mnemonic() == Mnemonic::Mov
            && insn.op_count() == 2
            && insn.op0_kind() == OpKind::Register
            && insn.op1_kind() == OpKind::Register
            && insn.op0_register() == to
            && insn.op1_register() == from
    };
    if copies(Register::RBP, Register::RSP) {
        return State {
            rsp,
            rbp: rsp,
            caller,
            realigned,
        };
    }
    if copies(Register::RSP, Register::RBP) {
        return State {
            rsp: rbp,
            rbp,
            caller,
            realigned,
        };
    }
    match insn.mnemonic() {
        Mnemonic::Leave => {
            return State {
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
            return State {
                rsp: from.map(|at| at + by),
                rbp,
                caller,
                realigned,
            };
        }
        _ => {}
    }
    let by = stack_change(factory, insn).filter(|_| calls == Calls::Keep || !is_call(insn));
    State {
        rsp: rsp.zip(by).map(|(at, by)| at + by),
        rbp: rbp.filter(|_| is_call(insn) || !writes(factory, insn, Register::RBP)),
        caller,
        realigned,
    }
}

/// Where the caller's frame pointer is after an instruction.
fn caller_frame_pointer(
    factory: &mut InstructionInfoFactory,
    insn: &Instruction,
    before: State,
) -> CallerFramePointer {
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
        (InPlace | Zeroed, _) if writes(factory, insn, Register::RBP) => Unknown,
        (same, _) => same,
    }
}

#[cfg(test)]
mod tests;
