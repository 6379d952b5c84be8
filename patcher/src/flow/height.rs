//! Stack heights and locations of the caller's frame pointer before each instruction. They are
//! derived from the instructions alone, for code without unwind rules.

use super::graph::Flow;
use crate::isa::{CallerFramePointer, Calls, Facts, Insn, Places, StackState};
#[cfg(test)]
use crate::looks;

/// Stack heights of one function: the state before each instruction of [`Flow::insns`]; `None` if
/// no path reaches it.
pub struct Heights(Vec<Option<StackState>>);

impl Heights {
    /// Follows every path of `flow` from its entry.
    ///
    /// If control arrives other than by a direct branch, nothing is known, except after jump
    /// tables. Each jump through a table may lead to any address in the function's tables. At the
    /// code where Go recovers from a panic, the frame is as at the function's calls.
    pub fn of(flow: &Flow, calls: Calls) -> Self {
        let mut states: Vec<Option<StackState>> = vec![None; flow.insns.len()];
        let mut work = Vec::new();
        let mut facts = Facts::default();
        let arrive =
            |states: &mut Vec<Option<StackState>>, work: &mut Vec<usize>, at, state: StackState| {
                #[cfg(test)]
                looks::add(1);
                let Some(index) = flow.index_of(at) else {
                    return;
                };
                // Calls that never return seem to fall through into the code that grows the stack.
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
            arrive(&mut states, &mut work, mark, StackState::default());
        }
        arrive(
            &mut states,
            &mut work,
            flow.ranges[0].start.0,
            StackState::ENTRY,
        );
        let mut recovered = flow.recovered.iter();
        let mut through_tables = None;
        loop {
            while let Some(index) = work.pop() {
                let insn = &flow.insns[index];
                let Some(before) = states[index] else {
                    continue;
                };
                let after = before.after(&mut facts, insn, calls);
                if insn.is_jump() {
                    arrive(&mut states, &mut work, insn.target(), after);
                }
                if insn.is_indirect_jump() && !is_tail_call(flow, insn, after) {
                    let joined = through_tables.map_or(after, |known: StackState| known.or(after));
                    // The state can only become less precise, so it changes rarely, no matter how
                    // many jumps there are.
                    if through_tables != Some(joined) {
                        through_tables = Some(joined);
                        for &at in &flow.switched {
                            arrive(&mut states, &mut work, at, joined);
                        }
                    }
                }
                if !insn.ends_block() {
                    arrive(&mut states, &mut work, insn.end(), after);
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

    /// The stack pointer before the instruction at `index` relative to the entry, in bytes.
    ///
    /// It is negative after the stack has grown. `None` if it is not known, or differs between
    /// paths.
    pub fn before(&self, index: usize) -> Option<i64> {
        self.state(index)?.stack_pointer()
    }

    /// The frame pointer before the instruction at `index` relative to the stack pointer at the
    /// entry, in bytes. `None` if it is not known to point into the stack.
    pub fn frame_pointer_before(&self, index: usize) -> Option<i64> {
        self.state(index)?.frame_pointer()
    }

    /// The location of the caller's frame pointer before the instruction at `index`;
    /// [`CallerFramePointer::Unknown`] if no path reaches it.
    pub fn caller_frame_pointer_before(&self, index: usize) -> CallerFramePointer {
        self.state(index)
            .map_or_else(Default::default, |s| s.caller())
    }

    /// The places of the realigned frame's parts before the instruction at `index`. `None` if the
    /// frame is not realigned, or its parts are not all known.
    pub fn realigned_before(&self, index: usize) -> Option<Places> {
        self.state(index)?.realigned()
    }

    /// True if the return address has been popped before the instruction at `index`: it may be
    /// anywhere then. An outermost function has no return address, so it is excluded.
    pub fn is_above_entry(&self, index: usize) -> bool {
        let is_above = self.before(index).is_some_and(|height| height > 0);
        is_above && self.caller_frame_pointer_before(index) != CallerFramePointer::Zeroed
    }

    fn state(&self, index: usize) -> Option<StackState> {
        self.0.get(index).copied().flatten()
    }
}

/// True if the instruction before `at` computes the address `at`. Code passes its own address to
/// others this way (V8's calls of C functions) and continues there.
fn is_own_place(flow: &Flow, at: u64) -> bool {
    let before = flow
        .insns
        .partition_point(|insn| insn.at() < at)
        .checked_sub(1);
    let before = before.map(|index| &flow.insns[index]);
    before.is_some_and(|insn| insn.end() == at && insn.formed_address() == Some(at))
}

/// The facts common to all calls with the largest stack, among the known `states`.
///
/// Go's compiler allocates the whole frame of a function at once. Earlier calls only grow the
/// stack.
fn at_calls(flow: &Flow, states: &[Option<StackState>]) -> StackState {
    let calls = flow.insns.iter().zip(states).filter(|(i, _)| i.is_call());
    let known: Vec<StackState> = calls.filter_map(|(_, state)| *state).collect();
    let lowest = known.iter().filter_map(|state| state.stack_pointer()).min();
    let there = known
        .into_iter()
        .filter(|s| lowest.is_some() && s.stack_pointer() == lowest);
    there.reduce(StackState::or).unwrap_or_default()
}

/// True if the jump leaves the function. It does so through a table of other functions, or through
/// a pointer after the function's frame has been removed.
fn is_tail_call(flow: &Flow, insn: &Insn, after: StackState) -> bool {
    flow.jumps.is_away(insn.at())
        || after.stack_pointer() == Some(0) && flow.jumps.is_by_pointer(insn.at())
}

#[cfg(test)]
mod tests;
