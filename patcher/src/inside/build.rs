//! The control-flow graph from the flow of a function.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;

use crate::addr::Svma;
use crate::flow::{
    Doubt, Flow, JumpTargets, ModuleContext, foreign_short_branch, targets_of_foreign_branches,
};
use crate::image::Image;
use crate::isa::{Control, Insn};

use super::graph::{Block, BlockEnd, BlockId, Edge, EdgeKind, Graph, Node};
use super::never_returning::NeverReturning;
use super::refuse::Refusal;

/// The maximum number of blocks.
const MOST_BLOCKS: usize = 1 << 16;

/// The maximum number of edges.
const MOST_EDGES: usize = 1 << 18;

/// The index of an instruction in [`Flow::insns`].
type Index = usize;

/// The control flow after an instruction.
struct After {
    /// The end of the block, if the instruction is its last one.
    end: BlockEnd,
    /// True if control can continue at the next instruction.
    falls_through: bool,
    /// Other targets in the function, ascending.
    targets: Vec<Index>,
    /// The kind of the edges to these targets.
    kind: EdgeKind,
    /// The kind of the edge out of the function; `None` if there is none.
    departure: Option<EdgeKind>,
}

impl Graph {
    /// The control-flow graph of the function with this `flow`.
    ///
    /// It has the instructions that control may reach. `calls` keeps the results for callees, so
    /// that graphs of the same image can share them. Fails if the flow is not known well enough, or
    /// if the function is too large.
    pub fn of(
        image: &Image<'_>,
        context: &ModuleContext<'_>,
        flow: &Flow,
        calls: &mut NeverReturning,
    ) -> Result<Self, Refusal> {
        match flow.doubt {
            Some(Doubt::IndirectJump) => return Err(Refusal::IndirectJump),
            Some(Doubt::DataInCode) => return Err(Refusal::DataInCode),
            None => {}
        }
        let long = |insn: &&Insn| insn.is_long_jump() || insn.is_direct_call();
        let mut own: Vec<u64> = flow.insns.iter().filter(long).map(Insn::target).collect();
        own.sort_unstable();
        let never_returns = |insn: &&Insn| {
            insn.is_call() && flow.is_live(insn.at()) && calls.is_call(image, context, insn)
        };
        let never = flow.insns.iter().filter(never_returns);
        let never = never.map(Insn::at).collect();
        let builder = Builder {
            image,
            context,
            flow,
            jumps: flow.jump_targets(image, context),
            own,
            never,
        };
        builder.build()
    }
}

struct Builder<'a, 'd> {
    image: &'a Image<'d>,
    context: &'a ModuleContext<'a>,
    flow: &'a Flow,
    jumps: BTreeMap<u64, JumpTargets>,
    /// The targets of the function's branches with a 32-bit displacement, sorted.
    own: Vec<u64>,
    /// The calls that never return.
    never: HashSet<u64>,
}

impl Builder<'_, '_> {
    fn build(self) -> Result<Graph, Refusal> {
        let flow = self.flow;
        let start = self.live(flow.ranges[0].start.0).ok_or(Refusal::Empty)?;
        let mut ends: BTreeMap<Index, After> = BTreeMap::new();
        for (index, insn) in self.live_insns() {
            let following = flow.insns.get(index + 1);
            if following.is_some_and(|next| next.at() < insn.end()) {
                return Err(Refusal::Overlapping);
            }
            ends.extend(self.after(index, insn)?.map(|after| (index, after)));
        }
        let mut arrivals = self.arrivals();
        let is_reached = self.reach(start, &mut arrivals, &ends);
        let ranges = self.ranges(start, &arrivals, &is_reached, &ends);
        if ranges.len() > MOST_BLOCKS {
            return Err(Refusal::TooLarge);
        }
        let block_of = |index: Index| {
            let after = ranges.partition_point(|range| range.start <= index);
            Node::Block(BlockId(after.saturating_sub(1) as u32))
        };
        let entry = |to: Index, kind| Edge {
            from: Node::Entry,
            to: block_of(to),
            kind,
        };
        let mut edges = vec![entry(start, EdgeKind::Call)];
        edges.extend(arrivals.iter().map(|&to| entry(to, EdgeKind::Arrival)));
        for (id, range) in (0..).map(BlockId).zip(&ranges) {
            let last = range.end - 1;
            self.add_edges(Node::Block(id), last, ends.get(&last), block_of, &mut edges);
            if edges.len() > MOST_EDGES {
                return Err(Refusal::TooLarge);
            }
        }
        let blocks = ranges.iter().map(|range| self.block(range, &ends));
        Ok(Graph::new(blocks.collect(), edges))
    }

    /// For each instruction, true if a path from `start` or from an arrival leads to it.
    ///
    /// Adds marks and starts of ranges to `arrivals` to which nothing else leads. Other
    /// instructions that no path reaches follow a call that never returns.
    fn reach(
        &self,
        start: Index,
        arrivals: &mut BTreeSet<Index>,
        ends: &BTreeMap<Index, After>,
    ) -> Vec<bool> {
        let mut is_reached = vec![false; self.flow.insns.len()];
        let mut reach = |from: Index| {
            let mut work = vec![from];
            let mut is_new = false;
            while let Some(index) = work.pop() {
                if std::mem::replace(&mut is_reached[index], true) {
                    continue;
                }
                is_new = true;
                let after = ends.get(&index);
                if after.is_none_or(|after| after.falls_through) {
                    work.extend(self.next(index));
                }
                work.extend(after.into_iter().flat_map(|after| &after.targets));
            }
            is_new
        };
        reach(start);
        for &arrival in arrivals.iter() {
            reach(arrival);
        }
        let starts = self.flow.ranges.iter().map(|range| range.start.0);
        let others: BTreeSet<u64> = self.flow.marks.iter().copied().chain(starts).collect();
        let others = others.into_iter().filter_map(|at| self.live(at));
        arrivals.extend(others.filter(|&index| reach(index)));
        is_reached
    }

    fn live_insns(&self) -> impl Iterator<Item = (Index, &Insn)> {
        let all = self.flow.insns.iter().enumerate();
        all.filter(|(_, insn)| self.flow.is_live(insn.at()))
    }

    /// The index of the reachable instruction at `at`.
    fn live(&self, at: u64) -> Option<Index> {
        let index = self.flow.index_of(at)?;
        self.flow.is_live(at).then_some(index)
    }

    /// The index of the instruction after the one at `index`, if control may reach it.
    fn next(&self, index: Index) -> Option<Index> {
        let end = self.flow.insns[index].end();
        let next = self.flow.insns.get(index + 1)?;
        (next.at() == end && self.flow.is_live(end)).then_some(index + 1)
    }

    /// The index of the target at `to`, an address in the function.
    ///
    /// A branch to the byte after a lock prefix executes the same instruction without the prefix.
    /// Its target is then the next instruction.
    fn target(&self, to: u64) -> Result<Index, Refusal> {
        if let Some(index) = self.live(to) {
            return Ok(index);
        }
        let before = self.flow.insns.partition_point(|insn| insn.at() < to);
        let locked = self.flow.insns[..before].last();
        let locked = locked.filter(|insn| insn.is_unlocked_at(to));
        let next = locked.and_then(|insn| self.live(insn.end()));
        next.ok_or(Refusal::Overlapping)
    }

    /// The control flow after the instruction; `None` if control always continues at the next one.
    fn after(&self, index: Index, insn: &Insn) -> Result<Option<After>, Refusal> {
        let mut after = After {
            end: BlockEnd::Trap,
            falls_through: false,
            targets: Vec::new(),
            kind: EdgeKind::Taken,
            departure: None,
        };
        match insn.control() {
            _ if insn.is_branch() => {
                after.end = BlockEnd::Jump;
                if self.flow.contains(insn.target()) {
                    after.targets.push(self.target(insn.target())?);
                } else {
                    after.departure = Some(EdgeKind::Taken);
                    after.end = BlockEnd::TailCall;
                }
                if !insn.ends_block() {
                    after.end = BlockEnd::Conditional;
                    after.falls_through = true;
                }
            }
            Control::IndirectJump => match self.jumps.get(&insn.at()) {
                // No table is there, and hooks could not tell where the jump leads.
                Some(JumpTargets::Own(_)) if !insn.is_comparable_jump() => {
                    return Err(Refusal::UnknownTable);
                }
                Some(JumpTargets::Own(targets)) => {
                    let targets = targets.iter().map(|&to| self.target(to));
                    let targets: BTreeSet<Index> = targets.collect::<Result<_, _>>()?;
                    after.targets = targets.into_iter().collect();
                    after.end = BlockEnd::Switch;
                    after.kind = EdgeKind::Table;
                }
                Some(JumpTargets::Shared) => return Err(Refusal::UnknownTable),
                Some(JumpTargets::Away) => {
                    after.end = BlockEnd::TailCall;
                    after.departure = Some(EdgeKind::Departure);
                }
                Some(JumpTargets::Pointer) | None => {
                    after.end = BlockEnd::PointerJump;
                    after.departure = Some(EdgeKind::Departure);
                }
            },
            Control::Return => {
                after.end = BlockEnd::Return;
                after.departure = Some(EdgeKind::Departure);
            }
            _ if insn.ends_block() => after.departure = Some(EdgeKind::Departure),
            _ if self.next(index).is_some() && !self.never.contains(&insn.at()) => {
                return Ok(None);
            }
            _ if insn.is_call() => {
                after.end = BlockEnd::NoReturn;
                after.departure = Some(EdgeKind::Departure);
            }
            _ => {
                after.end = BlockEnd::FallsOut;
                after.falls_through = true;
            }
        }
        Ok(Some(after))
    }

    /// The instructions at which control may arrive other than by an edge or a call of the
    /// function.
    fn arrivals(&self) -> BTreeSet<Index> {
        let (flow, image) = (self.flow, self.image);
        let mut found: BTreeSet<u64> = BTreeSet::new();
        let fdes = flow
            .ranges
            .iter()
            .filter_map(|range| image.fde(range.start));
        found.extend(fdes.flat_map(|fde| image.landing_pads(&fde)).map(|at| at.0));
        found.extend(self.context.goroutine_ends(image).iter().map(|at| at.0));
        found.extend(flow.recovery_points());
        let markers = flow.insns.iter().filter(|insn| insn.is_landing_marker());
        found.extend(markers.map(Insn::at));
        let has_pointer_jump = self.jumps.values().any(|to| *to == JumpTargets::Pointer);
        if flow.has_labels && has_pointer_jump {
            found.extend(flow.marks.iter().filter(|&&at| !flow.is_only_switched(at)));
        }
        let calls = flow.insns.iter().filter(|insn| insn.is_direct_call());
        let of_parts = calls.filter(|call| call.target() != call.end());
        found.extend(of_parts.map(Insn::target));
        for range in &flow.ranges {
            found.extend(self.targets_of_other_code(range));
        }
        found.remove(&flow.ranges[0].start.0);
        found.into_iter().filter_map(|at| self.live(at)).collect()
    }

    /// The addresses in `range` to which branches from other code lead.
    fn targets_of_other_code(&self, range: &Range<Svma>) -> Vec<u64> {
        let flow = self.flow;
        let all = self.context.branches.within(range.clone());
        let inner = all.filter(|to| *to != range.start && self.live(to.0).is_some());
        let own = |to: u64| {
            let first = self.own.partition_point(|&at| at < to);
            self.own[first..].iter().take_while(|&&at| at == to).count()
        };
        let foreign = inner.filter(|to| self.context.arrivals(self.image, *to) > own(to.0));
        let mut foreign: Vec<Svma> = foreign.collect();
        // The scan reads the text byte by byte, so in a large function some are none.
        if !foreign.is_empty() && flow.doubt.is_none() {
            let real = targets_of_foreign_branches(self.image, self.context, flow, &foreign);
            foreign.retain(|to| real.contains(to));
        }
        let mut found: Vec<u64> = foreign.into_iter().map(|to| to.0).collect();
        // Short branches are rare here, so all addresses are tested together first.
        let leads_inside = |window: &Range<u64>| foreign_short_branch(self.image, flow, window);
        if leads_inside(&(range.start.0..range.end.0)) {
            let (_, insns) = flow.insns_in(&(range.start.0 + 1..range.end.0));
            let starts = insns.iter().map(Insn::at);
            found.extend(starts.filter(|at| leads_inside(&(at - 1..at + 1))));
        }
        found
    }

    /// The instructions of each block, in address order.
    fn ranges(
        &self,
        start: Index,
        arrivals: &BTreeSet<Index>,
        is_reached: &[bool],
        ends: &BTreeMap<Index, After>,
    ) -> Vec<Range<Index>> {
        let mut begins = vec![false; is_reached.len()];
        begins[start] = true;
        arrivals.iter().for_each(|&index| begins[index] = true);
        let reached_ends = ends.iter().filter(|(index, _)| is_reached[**index]);
        for (_, after) in reached_ends {
            after.targets.iter().for_each(|&index| begins[index] = true);
        }
        let mut ranges: Vec<Range<Index>> = Vec::new();
        let mut is_open = false;
        for index in (0..is_reached.len()).filter(|&index| is_reached[index]) {
            let continues =
                is_open && !begins[index] && self.next(index.saturating_sub(1)) == Some(index);
            match ranges.last_mut() {
                Some(range) if continues && range.end == index => range.end += 1,
                _ => ranges.push(index..index + 1),
            }
            is_open = !ends.contains_key(&index);
        }
        ranges
    }

    fn block(&self, range: &Range<Index>, ends: &BTreeMap<Index, After>) -> Block {
        let insns = &self.flow.insns[range.clone()];
        let (head, last) = (&insns[0], &insns[insns.len() - 1]);
        let after_marker = insns.get(1).filter(|_| head.is_landing_marker());
        Block {
            range: Svma(head.at())..Svma(last.end()),
            insns: range.clone(),
            first: Svma(after_marker.unwrap_or(head).at()),
            last: Svma(last.at()),
            end: ends
                .get(&(range.end - 1))
                .map_or(BlockEnd::FallsThrough, |after| after.end),
            is_certain: insns.iter().all(|insn| self.flow.is_certain(insn.at())),
        }
    }

    /// Adds the edges from the block that ends with the instruction at `last`.
    fn add_edges(
        &self,
        from: Node,
        last: Index,
        after: Option<&After>,
        block_of: impl Fn(Index) -> Node,
        edges: &mut Vec<Edge>,
    ) {
        let mut add = |to, kind| edges.push(Edge { from, to, kind });
        if after.is_none_or(|after| after.falls_through) {
            let to = self.next(last).map_or(Node::Exit, &block_of);
            add(to, EdgeKind::FallThrough);
        }
        let Some(after) = after else { return };
        for &target in &after.targets {
            add(block_of(target), after.kind);
        }
        if let Some(kind) = after.departure {
            add(Node::Exit, kind);
        }
    }
}
