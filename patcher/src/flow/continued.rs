//! The instructions that belong to a function of which only the start is known. After a call that
//! does not return, another function may begin, or a part of one.
//!
//! Code after a call belongs to the function if the stack is aligned at the call, and the call is
//! known to return or the code leads to a return or a jump to another function with the stack
//! pointer as at the entry. If another function began after the call, then at its return the stack
//! pointer would be as at the call, lower than at the entry.

use super::graph::Flow;
use super::height::Heights;
use super::past_arguments::returns_past_arguments;
use crate::addr::Svma;
use crate::isa::{CFA_AT_ENTRY, CallerFramePointer, Insn, STACK_ALIGNMENT};

/// The instructions of a function, by their indexes in [`Flow::insns`].
pub struct Own {
    /// True for instructions that certainly belong to the function, provided that its start is
    /// correct.
    pub is_own: Vec<bool>,
    /// True if the start leads to a return, or to a tail call of a known function, with the stack
    /// as at the entry.
    pub returns: bool,
}

impl Own {
    /// Follows `flow`. `heights` are its stack heights under the assumption that every call
    /// returns.
    ///
    /// `returns` is true for calls that are known to return. `is_function` is true for known starts
    /// of functions.
    pub fn of(
        flow: &Flow,
        heights: &Heights,
        returns: impl Fn(&Insn) -> bool,
        is_function: impl Fn(Svma) -> bool,
    ) -> Self {
        let leads_back = leads_back(flow, heights, is_function);
        let mut is_own = vec![false; flow.insns.len()];
        let start = flow.index_of(flow.ranges[0].start.0);
        let mut work: Vec<usize> = start.into_iter().collect();
        let mut has_switched = false;
        while let Some(index) = work.pop() {
            if std::mem::replace(&mut is_own[index], true) {
                continue;
            }
            let insn = &flow.insns[index];
            let next = successors(flow, index).filter(|&to| {
                let is_after_call = insn.is_call() && flow.insns[to].at() == insn.end();
                !is_after_call || is_aligned(heights, index) && (leads_back[to] || returns(insn))
            });
            work.extend(next);
            if flow.is_switch(insn) && !has_switched {
                has_switched = true;
                // More entries of a table may have been read than it has.
                work.extend(switched(flow).filter(|&to| leads_back[to]));
            }
        }
        let returns = start.is_some_and(|index| leads_back[index]);
        Self { is_own, returns }
    }

    /// The function's own calls in `flow`, each with the kind of code after it.
    pub fn calls<'f>(&'f self, flow: &'f Flow) -> impl Iterator<Item = (&'f Insn, AfterCall)> {
        let own = flow.insns.iter().zip(&self.is_own);
        let calls = own.filter(|(insn, is_own)| **is_own && insn.is_call());
        calls.map(|(call, _)| (call, self.after_call(flow, call)))
    }

    /// True if the function has calls of its own, and the stack is aligned at each.
    pub fn is_aligned(&self, flow: &Flow, heights: &Heights) -> bool {
        let own = flow
            .insns
            .iter()
            .enumerate()
            .filter(|(i, _)| self.is_own[*i]);
        let calls: Vec<usize> = own
            .filter(|(_, insn)| insn.is_call())
            .map(|c| c.0)
            .collect();
        !calls.is_empty() && calls.iter().all(|&index| is_aligned(heights, index))
    }

    fn after_call(&self, flow: &Flow, call: &Insn) -> AfterCall {
        let first = flow.insns.partition_point(|insn| insn.at() < call.end());
        let is_padded = flow.insns.get(first).is_some_and(Insn::is_padding);
        let next = flow.insns[first..].iter().find(|insn| !insn.is_padding());
        let Some(next) = next.filter(|next| is_padded || next.at() == call.end()) else {
            return AfterCall::Nothing;
        };
        let is_own = flow
            .index_of(next.at())
            .is_some_and(|index| self.is_own[index]);
        if is_own && !flow.is_target(next.at()) && !flow.is_mark(next.at()) {
            AfterCall::Own
        } else {
            AfterCall::Unclear
        }
    }
}

/// The kind of code after a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum AfterCall {
    /// Code of the function that is reached in no other way: the call returns.
    Own,
    /// No code of the function: the call does not return.
    Nothing,
    /// Code that is also reached in other ways, or that belongs to another function.
    Unclear,
}

/// For each instruction, true if it leads to a return, or to a tail call of a known function, with
/// the stack as at the entry.
fn leads_back(flow: &Flow, heights: &Heights, is_function: impl Fn(Svma) -> bool) -> Vec<bool> {
    let mut before = vec![Vec::new(); flow.insns.len()];
    let mut found = vec![false; flow.insns.len()];
    let mut switches = Vec::new();
    let mut work = Vec::new();
    for (index, insn) in flow.insns.iter().enumerate() {
        let is_return = insn.is_return();
        let is_tail_call = || tail_call(flow, heights, index).is_some_and(&is_function);
        let takes_arguments = || returns_past_arguments(flow, heights, index).is_some();
        let is_back = is_return || takes_arguments();
        if is_back && is_as_at_entry(heights, index) || is_tail_call() {
            work.push(index);
        }
        if !insn.is_call() || is_aligned(heights, index) {
            for to in successors(flow, index) {
                before[to].push(index);
            }
        }
        if flow.is_switch(insn) {
            switches.push(index);
        }
    }
    let mut through_tables = vec![false; flow.insns.len()];
    switched(flow).for_each(|index| through_tables[index] = true);
    while let Some(index) = work.pop() {
        if !std::mem::replace(&mut found[index], true) {
            work.extend(&before[index]);
            // Each jump through a table may lead there.
            if through_tables[index] {
                work.append(&mut switches);
            }
        }
    }
    found
}

/// True if the stack pointer and the caller's frame pointer before the instruction at `index` are
/// as at the entry.
pub fn is_as_at_entry(heights: &Heights, index: usize) -> bool {
    let caller = heights.caller_frame_pointer_before(index);
    heights.before(index) == Some(0) && caller == CallerFramePointer::InPlace
}

/// The target of the instruction at `index`, if it jumps out of the function with the stack as it
/// was at the entry; otherwise `None`.
pub fn tail_call(flow: &Flow, heights: &Heights, index: usize) -> Option<Svma> {
    let insn = &flow.insns[index];
    let is_out = insn.is_jump() && !flow.contains(insn.target());
    (is_out && is_as_at_entry(heights, index)).then(|| Svma(insn.target()))
}

/// True if the stack at the call at `index` is lower than at the entry, and aligned as at every
/// call (psABI 3.2.2). From a wrong start, it would not seem to be.
fn is_aligned(heights: &Heights, index: usize) -> bool {
    match heights.before(index) {
        Some(height) => height < 0 && (height - CFA_AT_ENTRY) % STACK_ALIGNMENT == 0,
        // A realigned frame is aligned by definition.
        None => heights.realigned_before(index).is_some(),
    }
}

/// The instructions at which the function continues after a jump through one of its tables.
fn switched(flow: &Flow) -> impl Iterator<Item = usize> {
    let targets = flow.switched.iter();
    targets.filter_map(|&at| flow.index_of(at))
}

fn successors(flow: &Flow, index: usize) -> impl Iterator<Item = usize> {
    let insn = &flow.insns[index];
    let to = insn.is_jump().then(|| insn.target());
    let on = (!insn.ends_block()).then(|| insn.end());
    [to, on]
        .into_iter()
        .flatten()
        .filter_map(|at| flow.index_of(at))
}
