//! Functions that run from a copy as a whole: those that call nothing on their way to an exit.
//!
//! All blocks from which control reaches an exit are in the copy. Others, such as a call of
//! `abort`, are outside. The registers that the copy needs are saved below the frame, in words that
//! are in the red zone at each instruction (psABI 3.2.2): the function's frame must be small, and
//! it must access its stack only by addresses that are known.

use std::collections::BTreeMap;

use crate::addr::Svma;
use crate::flow::{Flow, Heights};
use crate::isa::{CFA_AT_ENTRY, Calls, StackUse, WORDS_BELOW};

use super::function::Inside;
use super::graph::{Block, BlockId, EdgeKind, Graph, Node};

/// The blocks of a function that runs from a copy as a whole.
pub(super) struct Whole {
    /// The blocks, ascending.
    pub(super) blocks: Vec<BlockId>,
    /// For each of the function's instructions whose frame is known, the distance from the stack
    /// pointer to the canonical frame address before it, in bytes.
    pub(super) heights: BTreeMap<Svma, i32>,
}

impl Whole {
    /// The blocks of the function with this inside. `may_be_copied` says which blocks may run from
    /// a copy. `None` if it cannot run from a copy as a whole.
    pub(super) fn of(inside: &Inside, may_be_copied: impl Fn(&Block) -> bool) -> Option<Self> {
        let Inside { flow, graph, .. } = inside;
        let blocks = to_exits(graph);
        if !is_entered_once(flow, graph, &blocks)
            || !blocks.iter().all(|&id| may_be_copied(graph.block(id)))
        {
            return None;
        }
        let states = Heights::of(flow, Calls::Keep);
        let insns = blocks.iter().flat_map(|&id| graph.block(id).insns.clone());
        let uses = insns.map(|index| (index, StackUse::of(&flow.insns[index])));
        let uses: Vec<(usize, StackUse)> = uses.collect();
        let has_frame_pointer = uses
            .iter()
            .any(|(_, of)| *of == StackUse::MakesFramePointer);
        let leaves_words = |&(index, of): &(usize, StackUse)| {
            let lowest = match of {
                StackUse::None | StackUse::MakesFramePointer => 0,
                StackUse::FromStackPointer(by) => i64::from(by) - height(&states, index)?,
                StackUse::OfFramePointer | StackUse::FromFramePointer(_) if !has_frame_pointer => 0,
                StackUse::FromFramePointer(by) => {
                    let frame_pointer = states.frame_pointer_before(index)?;
                    i64::from(by) + frame_pointer - CFA_AT_ENTRY
                }
                StackUse::OfFramePointer | StackUse::Unknown => return None,
            };
            let words = i64::from(WORDS_BELOW);
            (lowest >= words && -height(&states, index)? >= words).then_some(())
        };
        let all_leave_words = uses.iter().all(|of| leaves_words(of).is_some());
        let heights = flow.insns.iter().enumerate().filter_map(|(index, insn)| {
            let height = i32::try_from(height(&states, index)?).ok()?;
            Some((Svma(insn.at()), height))
        });
        all_leave_words.then(|| Self {
            heights: heights.collect(),
            blocks,
        })
    }
}

/// See [`Whole::heights`].
fn height(states: &Heights, index: usize) -> Option<i64> {
    Some(CFA_AT_ENTRY - states.before(index)?)
}

/// The blocks from which control reaches an exit of the function, ascending.
fn to_exits(graph: &Graph) -> Vec<BlockId> {
    let mut found = vec![false; graph.blocks().len()];
    let mut work = vec![Node::Exit];
    while let Some(node) = work.pop() {
        for &edge in graph.arriving(node) {
            if let Some(from) = graph.edge(edge).from.block()
                && !std::mem::replace(&mut found[from.index()], true)
            {
                work.push(Node::Block(from));
            }
        }
    }
    graph.block_ids().filter(|id| found[id.index()]).collect()
}

/// True if control enters these blocks only by calls of the function, and comes back to its first
/// instruction neither by a jump nor because that leaves the function, at its original address.
fn is_entered_once(flow: &Flow, graph: &Graph, blocks: &[BlockId]) -> bool {
    let is_inside = |id: BlockId| blocks.binary_search(&id).is_ok();
    let entry = graph.block_at(flow.entry);
    let arrivals = graph.leaving(Node::Entry).iter();
    let mut arrivals = arrivals.map(|&edge| graph.edge(edge));
    let only_calls = arrivals.all(|edge| match edge.kind {
        EdgeKind::Call => edge.to.block() == entry,
        _ => edge.to.block().is_none_or(|to| !is_inside(to)),
    });
    let leaves_at_once = flow.leaves.iter().any(|leave| leave.at == flow.entry);
    only_calls
        && !leaves_at_once
        && flow.reentries.is_empty()
        && entry
            .is_some_and(|entry| is_inside(entry) && graph.arriving(Node::Block(entry)).len() == 1)
}
