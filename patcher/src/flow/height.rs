//! How high the stack is at each instruction, and where the caller's frame pointer is, from the
//! instructions alone: for code without unwind rules.

use super::graph::Flow;
use crate::isa::{CallerFramePointer, Calls, Facts, Insn, Places, StackState};
#[cfg(test)]
use crate::looks;

/// Stack heights of one function.
pub struct Heights(Vec<Option<StackState>>);

impl Heights {
    /// Follows every path of `flow` from its entry. Where control arrives otherwise than by a direct
    /// branch nothing is known, except from jump tables: any of the function's may lead to any place
    /// that one of them names. Where Go recovers the frame is as at the function's other calls.
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
                    // Few states can follow one another here, however many jumps there are.
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

    /// Bytes by which the stack pointer has moved since the entry when the instruction of this
    /// index runs. They are negative for a stack that has grown. `None` where they are not known,
    /// or not the same on every path.
    pub fn before(&self, index: usize) -> Option<i64> {
        self.state(index)?.stack_pointer()
    }

    /// The same for the frame pointer where it points into the stack.
    pub fn frame_pointer_before(&self, index: usize) -> Option<i64> {
        self.state(index)?.frame_pointer()
    }

    /// Where the caller's frame pointer is when the instruction of this index runs.
    pub fn caller_frame_pointer_before(&self, index: usize) -> CallerFramePointer {
        self.state(index)
            .map_or_else(Default::default, |s| s.caller())
    }

    /// The places of the realigned frame's parts before the instruction at `index`.
    pub fn realigned_before(&self, index: usize) -> Option<Places> {
        self.state(index)?.realigned()
    }

    /// Has the return address been taken off the stack before the instruction of this index? It may be put anywhere
    /// then. Where nothing has called the function, there is none.
    pub fn is_above_entry(&self, index: usize) -> bool {
        let is_above = self.before(index).is_some_and(|height| height > 0);
        is_above && self.caller_frame_pointer_before(index) != CallerFramePointer::Zeroed
    }

    fn state(&self, index: usize) -> Option<StackState> {
        self.0.get(index).copied().flatten()
    }
}

/// True if the instruction before `at` forms the address `at`. The code passes its own address to
/// others this way (V8's calls of C functions) and continues there.
fn is_own_place(flow: &Flow, at: u64) -> bool {
    let before = flow
        .insns
        .partition_point(|insn| insn.at() < at)
        .checked_sub(1);
    let before = before.map(|index| &flow.insns[index]);
    before.is_some_and(|insn| insn.end() == at && insn.formed_address() == Some(at))
}

/// What holds at all those calls at which the stack is largest, as far as `states` knows. Go's compiler gives a
/// function all of its frame at once. Before that only what has the stack grow is called.
fn at_calls(flow: &Flow, states: &[Option<StackState>]) -> StackState {
    let calls = flow.insns.iter().zip(states).filter(|(i, _)| i.is_call());
    let known: Vec<StackState> = calls.filter_map(|(_, state)| *state).collect();
    let lowest = known.iter().filter_map(|state| state.stack_pointer()).min();
    let there = known
        .into_iter()
        .filter(|s| lowest.is_some() && s.stack_pointer() == lowest);
    there.reduce(StackState::or).unwrap_or_default()
}

/// Does it jump out of the function: through a table of other functions, or by a pointer with nothing of the
/// function's own left on the stack?
fn is_tail_call(flow: &Flow, insn: &Insn, after: StackState) -> bool {
    flow.jumps.is_away(insn.at())
        || after.stack_pointer() == Some(0) && flow.jumps.is_by_pointer(insn.at())
}

#[cfg(test)]
mod tests;
