//! The registers and flags that code before an instruction may overwrite.

use crate::addr::Svma;
use crate::flow::Flow;
use crate::isa::{Facts, Insn, Registers, Uses, Values};

use super::graph::{Block, BlockId, Edge, EdgeKind, Graph, Node};

/// The registers and flags that are dead just before an instruction: on each path, each one is
/// overwritten as a whole before it is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Free {
    /// The general-purpose registers, never the stack pointer.
    pub registers: Registers,
    /// True if all six status flags are dead.
    pub flags: bool,
}

/// The registers and flags that are live at the end of each block.
///
/// All are live before a call, a system call and an interrupt, and where control leaves the
/// function. Control that arrives from outside, such as at a landing pad, needs nothing else: it
/// comes from a call.
///
/// Control that leaves another instruction without an edge is not considered, such as by a signal
/// handler that continues elsewhere, or by the end of a restartable sequence.
#[derive(Clone, Debug)]
pub struct Liveness {
    after: Vec<Values>,
}

impl Liveness {
    /// The liveness in the function with this `flow` and `graph`.
    pub fn of(flow: &Flow, graph: &Graph) -> Self {
        let mut facts = Facts::default();
        let uses = graph.blocks().iter();
        let uses: Vec<Uses> = uses
            .map(|block| uses_of(&flow.insns[block.insns.clone()], block, &mut facts))
            .collect();
        let is_unknown = |edge: Edge| skips_prefix(flow, graph, edge);
        Self {
            after: after_blocks(graph, &uses, is_unknown),
        }
    }

    /// The registers and flags that are dead just before the instruction at `at`: none if no block
    /// of `graph` has an instruction there.
    pub fn free_before(&self, flow: &Flow, graph: &Graph, at: Svma) -> Free {
        let found = graph.block_at(at).zip(flow.index_of(at.0));
        let Some((id, index)) = found else {
            return Free::default();
        };
        let block = graph.block(id);
        let insns = &flow.insns[index..block.insns.end.max(index)];
        let uses = uses_of(insns, block, &mut Facts::default());
        let live = uses.before(self.after[id.index()]);
        Free {
            registers: live.other_registers(),
            flags: !live.has_flags(),
        }
    }
}

/// The uses of `insns`, the last instructions of `block`.
fn uses_of(insns: &[Insn], block: &Block, facts: &mut Facts) -> Uses {
    if !block.is_certain {
        return Uses::UNKNOWN;
    }
    let all = insns.iter().rev();
    all.fold(Uses::default(), |next, insn| facts.uses(insn).then(next))
}

/// True if control that takes `edge` may run the instruction before its target without a lock
/// prefix. The graph has no node for this instruction ([`Insn::is_unlocked_at`]).
fn skips_prefix(flow: &Flow, graph: &Graph, edge: Edge) -> bool {
    let is_branch = matches!(edge.kind, EdgeKind::Taken | EdgeKind::Table);
    let target = edge.to.block().map(|to| graph.block(to).insns.start);
    let before = target.and_then(|first| first.checked_sub(1));
    let before = before.map(|index| &flow.insns[index]);
    is_branch && before.is_some_and(|insn| insn.is_unlocked_at(insn.at() + 1))
}

/// The values that are live at the end of each block: the least solution.
///
/// `uses` are the uses of each block as a whole. All values are live on an edge to the virtual exit
/// and on one that `is_unknown`.
fn after_blocks(graph: &Graph, uses: &[Uses], is_unknown: impl Fn(Edge) -> bool) -> Vec<Values> {
    let mut after = vec![Values::NONE; uses.len()];
    let mut before: Vec<Values> = uses.iter().map(|uses| uses.read).collect();
    let mut work: Vec<BlockId> = graph.block_ids().collect();
    let mut is_waiting = vec![true; uses.len()];
    while let Some(id) = work.pop() {
        let index = id.index();
        is_waiting[index] = false;
        for &edge in graph.leaving(Node::Block(id)) {
            let edge = graph.edge(edge);
            let live = match edge.to {
                Node::Block(to) if !is_unknown(edge) => before[to.index()],
                _ => Values::ALL,
            };
            after[index] = after[index].or(live);
        }
        let live = uses[index].before(after[index]);
        if live == before[index] {
            continue;
        }
        before[index] = live;
        let arriving = graph.arriving(Node::Block(id)).iter();
        for from in arriving.filter_map(|&edge| graph.edge(edge).from.block()) {
            if !std::mem::replace(&mut is_waiting[from.index()], true) {
                work.push(from);
            }
        }
    }
    after
}

#[cfg(test)]
mod tests;
