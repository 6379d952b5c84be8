//! The bodies of inlined copies: the connected parts of their code at which executions begin.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::addr::Svma;
use crate::flow::Flow;
use crate::isa::Insn;

use super::graph::{BlockId, EdgeKind, Graph, Node};
use super::inlined::{Bodiless, Body, InlinedCopy};

/// The segments of a function, with what copies of functions need to know of them.
pub(super) struct Segments<'a> {
    pub(super) flow: &'a Flow,
    /// The segments, with edges from calls to landing pads.
    pub(super) graph: &'a Graph,
    /// The basic block of each segment.
    pub(super) blocks: &'a [BlockId],
    /// The control-flow graph of the function.
    pub(super) whole: &'a Graph,
}

impl Segments<'_> {
    fn insns(&self, of: BlockId) -> &[Insn] {
        &self.flow.insns[self.graph.block(of).insns.clone()]
    }

    fn has_call(&self, of: BlockId) -> bool {
        self.insns(of).iter().any(Insn::is_call)
    }

    /// The segments to which control goes from `of`.
    fn next(&self, of: BlockId) -> impl Iterator<Item = Node> + '_ {
        let leaving = self.graph.leaving(Node::Block(of)).iter();
        leaving.map(|&id| self.graph.edge(id).to)
    }

    fn previous(&self, of: BlockId) -> impl Iterator<Item = Node> + '_ {
        let arriving = self.graph.arriving(Node::Block(of)).iter();
        arriving.map(|&id| self.graph.edge(id).from)
    }

    /// The segments in the ranges of a copy. Segments without instructions are in no range.
    fn covered(&self, copy: &InlinedCopy) -> BTreeSet<BlockId> {
        let is_in = |&id: &BlockId| {
            // A landing marker belongs to the code behind it.
            let at = self.graph.block(id).first;
            !self.insns(id).is_empty() && copy.ranges.iter().any(|range| range.contains(&at))
        };
        self.graph.block_ids().filter(is_in).collect()
    }

    /// The gaps between these segments.
    fn gaps(&self, covered: &BTreeSet<BlockId>) -> BTreeSet<BlockId> {
        let is_plain = |&id: &BlockId| {
            let mut next = self.next(id);
            let to_block = matches!(next.next(), Some(Node::Block(_)));
            to_block && next.next().is_none() && !self.has_call(id) && !covered.contains(&id)
        };
        let mut gaps: BTreeSet<BlockId> = self.graph.block_ids().filter(is_plain).collect();
        loop {
            let is_inside = |node: Node| {
                let block = node.block();
                block.is_some_and(|block| covered.contains(&block) || gaps.contains(&block))
            };
            let is_left = |&&id: &&BlockId| {
                let is_between = self.previous(id).all(is_inside) && self.next(id).all(is_inside);
                !is_between || self.previous(id).next().is_none()
            };
            let left: Vec<BlockId> = gaps.iter().filter(is_left).copied().collect();
            if left.is_empty() {
                break;
            }
            for id in left {
                gaps.remove(&id);
            }
        }
        // An endless loop of other code leads nowhere.
        let all = gaps.clone();
        gaps.retain(|&id| {
            let mut at = id;
            for _ in 0..=all.len() {
                match self.next(at).next() {
                    Some(Node::Block(next)) if covered.contains(&next) => return true,
                    Some(Node::Block(next)) => at = next,
                    _ => return false,
                }
            }
            false
        });
        gaps
    }

    /// Other code that finds the handler of an exception in the copy: control comes from calls of
    /// the copy, and goes on in the copy, or leaves the function in a call that never returns.
    fn dispatch(&self, inside: &BTreeSet<BlockId>) -> BTreeSet<BlockId> {
        let never_returns = |id: BlockId| self.next(id).all(|node| node == Node::Exit);
        let is_other =
            |id: &BlockId| !inside.contains(id) && (!self.has_call(*id) || never_returns(*id));
        let thrown = self.graph.edges().iter().filter(|edge| {
            let from = edge.from.block();
            edge.kind == EdgeKind::Arrival && from.is_some_and(|from| inside.contains(&from))
        });
        let mut work: Vec<BlockId> = thrown.filter_map(|edge| edge.to.block()).collect();
        let mut found = BTreeSet::new();
        while let Some(id) = work.pop() {
            if is_other(&id) && found.insert(id) {
                work.extend(self.next(id).filter_map(Node::block));
            }
        }
        loop {
            let is_inside = |node: Node| {
                let block = node.block();
                block.is_some_and(|block| inside.contains(&block) || found.contains(&block))
            };
            let is_left = |&&id: &&BlockId| {
                let is_end = self.has_call(id);
                !self.previous(id).all(is_inside) || !(is_end || self.next(id).all(is_inside))
            };
            let left: Vec<BlockId> = found.iter().filter(is_left).copied().collect();
            if left.is_empty() {
                break;
            }
            for id in left {
                found.remove(&id);
            }
        }
        let is_inside = |node: Node| node.block().is_some_and(|block| inside.contains(&block));
        let leads_back = found.iter().any(|&id| self.next(id).any(is_inside));
        if leads_back { found } else { BTreeSet::new() }
    }

    /// The connected parts of these segments.
    fn pieces(&self, of: &BTreeSet<BlockId>) -> Vec<BTreeSet<BlockId>> {
        let mut left = of.clone();
        let mut found = Vec::new();
        while let Some(first) = left.pop_first() {
            let (mut piece, mut work) = (BTreeSet::from([first]), vec![first]);
            while let Some(at) = work.pop() {
                let beside = self.next(at).chain(self.previous(at));
                for block in beside.filter_map(Node::block) {
                    if left.remove(&block) {
                        piece.insert(block);
                        work.push(block);
                    }
                }
            }
            found.push(piece);
        }
        found
    }

    /// The segments of a piece at which control enters it.
    fn entries(&self, piece: &BTreeSet<BlockId>) -> Vec<BlockId> {
        let is_outside = |node: Node| node.block().is_none_or(|block| !piece.contains(&block));
        let of_piece = piece.iter().copied();
        of_piece
            .filter(|&id| self.previous(id).any(is_outside))
            .collect()
    }

    /// The address of the first instruction in the piece that is in a call or in a loop of it.
    fn call_or_loop(&self, piece: &BTreeSet<BlockId>) -> Option<Svma> {
        let call = piece.iter().find(|&&id| self.has_call(id));
        let mut left = piece.clone();
        // Removes segments without predecessors until none is left, or only loops.
        loop {
            let is_first = |&&id: &&BlockId| {
                let mut before = self.previous(id).filter_map(Node::block);
                before.all(|block| !left.contains(&block))
            };
            let first: Vec<BlockId> = left.iter().filter(is_first).copied().collect();
            if first.is_empty() {
                break;
            }
            for id in first {
                left.remove(&id);
            }
        }
        let found = call.or(left.first());
        found.map(|&id| self.graph.block(id).range.start)
    }

    /// The body of a copy.
    pub(super) fn body(&self, copy: &InlinedCopy) -> Result<Body, Bodiless> {
        let covered = self.covered(copy);
        let gaps = self.gaps(&covered);
        let mut all: BTreeSet<BlockId> = covered.union(&gaps).copied().collect();
        all.append(&mut self.dispatch(&all));
        let pieces = self.pieces(&all);
        // The debug information may say nothing of executions but where the code begins.
        let is_marked = copy.entry.is_some_and(|entry| copy.marks.contains(&entry));
        let number = match (&pieces[..], copy.entry.filter(|_| is_marked)) {
            ([], _) => return Err(Bodiless::Empty),
            ([_], None) => 0,
            (_, None) => return Err(Bodiless::NoEntry),
            (pieces, Some(entry)) => self.piece_of(pieces, entry)?,
        };
        let piece = &pieces[number];
        let entries = self.entries(piece);
        let entry = match entries[..] {
            [entry] => entry,
            [] => return Err(Bodiless::Empty),
            [_, second, ..] => {
                return Err(Bodiless::SecondEntry(self.graph.block(second).range.start));
            }
        };
        let at = self.graph.block(entry).first;
        let others = pieces.iter().enumerate();
        let others = others.filter(|(other, _)| *other != number);
        let others: Vec<&BTreeSet<BlockId>> = others.map(|(_, piece)| piece).collect();
        if let Some(at) = others.iter().find_map(|piece| self.call_or_loop(piece)) {
            return Err(Bodiless::Scattered(at));
        }
        let mut segments = piece.clone();
        if let Some(before) = self.comes_back(piece, entry) {
            let begin = copy.entry.filter(|_| is_marked);
            let is_before = begin.and_then(|begin| self.whole.block_at(begin));
            if is_before.is_none_or(|block| block == self.blocks[entry.index()]) {
                return Err(Bodiless::Repeats(at));
            }
            // The copy begins with a loop. Its arrivals from outside are told from the others.
            segments.extend(before);
        }
        if is_marked {
            self.check_marks(copy, &segments, &others)?;
        } else {
            if self.returns_plainly(piece, entry) {
                return Err(Bodiless::Repeats(at));
            }
            self.check_positions(copy, &segments, at)?;
        }
        let count =
            |of: &mut dyn Iterator<Item = &BlockId>| of.map(|&id| self.insns(id).len()).sum();
        Ok(Body {
            entry: at,
            gaps: count(&mut piece.difference(&covered)),
            outside: count(&mut others.iter().flat_map(|piece| piece.intersection(&covered))),
            segments,
        })
    }

    /// The piece that an execution which begins at `entry` enters: the instruction is in it, or
    /// control goes from there to its first instruction without a choice.
    fn piece_of(&self, pieces: &[BTreeSet<BlockId>], entry: Svma) -> Result<usize, Bodiless> {
        let elsewhere = Bodiless::BeginsElsewhere(entry);
        let block = self.whole.block_at(entry).ok_or(elsewhere)?;
        let start_of = |piece: &BTreeSet<BlockId>| {
            let entries = self.entries(piece);
            entries.first().copied()
        };
        let with = |wanted: BlockId, from: Svma| {
            let numbered = pieces.iter().enumerate();
            let there = numbered.filter_map(|(number, piece)| {
                let start = start_of(piece)?;
                let at = self.graph.block(start).first;
                let is_it = self.blocks[start.index()] == wanted;
                let holds = piece.iter().any(|&id| {
                    let range = &self.graph.block(id).range;
                    range.contains(&entry)
                });
                // Nearest behind the begin, unless it holds the begin itself.
                is_it.then_some((!holds, at < from, at, number))
            });
            there.min().map(|(_, _, _, number)| number)
        };
        if let Some(found) = with(block, entry) {
            return Ok(found);
        }
        let leaving = self.whole.leaving(Node::Block(block));
        match leaving {
            [only] => {
                let next = self.whole.edge(*only).to.block().ok_or(elsewhere)?;
                let found = with(next, self.whole.block(next).range.start).ok_or(elsewhere)?;
                let piece = &pieces[found];
                // All other ways to that block come from the body.
                let mut sources = self.whole.arriving(Node::Block(next)).iter();
                let comes = sources.all(|&id| match self.whole.edge(id).from {
                    Node::Block(from) if from == block => true,
                    Node::Block(from) => {
                        let mut inside = piece.iter();
                        inside.any(|id| self.blocks[id.index()] == from)
                    }
                    _ => false,
                });
                if comes { Ok(found) } else { Err(elsewhere) }
            }
            _ => Err(elsewhere),
        }
    }

    /// The segments without instructions before the first one of a piece, if control returns to it
    /// from inside. `None` if it does not.
    fn comes_back(&self, piece: &BTreeSet<BlockId>, entry: BlockId) -> Option<BTreeSet<BlockId>> {
        let is_inside = |node: Node| node.block().is_some_and(|block| piece.contains(&block));
        if self.previous(entry).any(is_inside) {
            return Some(BTreeSet::new());
        }
        let before = self.previous(entry).filter_map(Node::block);
        let before = before.filter(|&id| self.insns(id).is_empty());
        let before: BTreeSet<BlockId> = before.collect();
        let comes = before.iter().any(|&id| self.previous(id).any(is_inside));
        comes.then_some(before)
    }

    /// True if control returns from a piece to its first segment through other code without a
    /// choice. Such code may be a part of a loop of the copy.
    fn returns_plainly(&self, piece: &BTreeSet<BlockId>, entry: BlockId) -> bool {
        let mut left: BTreeSet<BlockId> = BTreeSet::new();
        let exits = piece.iter().flat_map(|&id| self.next(id));
        let mut work: Vec<BlockId> = exits.filter_map(Node::block).collect();
        while let Some(at) = work.pop() {
            if at == entry {
                return true;
            }
            let next: Vec<Node> = self.next(at).collect();
            let is_plain = next.len() == 1 && !self.has_call(at) && !piece.contains(&at);
            if is_plain && left.insert(at) {
                work.extend(next.into_iter().filter_map(Node::block));
            }
        }
        false
    }

    /// The copies that share code with another copy of the same function: control enters one from
    /// the other and from elsewhere. Compilers merge the ends of calls so (cross-jumping).
    pub(super) fn shared(
        &self,
        copies: &[InlinedCopy],
        bodies: &[Result<Body, Bodiless>],
    ) -> Vec<Option<Bodiless>> {
        let mut found = vec![None; copies.len()];
        for (number, body) in bodies.iter().enumerate() {
            let Ok(body) = body else { continue };
            let siblings = copies.iter().zip(bodies).enumerate();
            let siblings = siblings.filter(|(other, (copy, _))| {
                *other != number && copy.function == copies[number].function
            });
            let siblings = siblings.filter_map(|(other, (_, of))| Some((other, of.as_ref().ok()?)));
            let siblings: Vec<(usize, &Body)> = siblings
                .filter(|(_, of)| of.segments.is_disjoint(&body.segments))
                .collect();
            let mut from = BTreeSet::new();
            let mut is_entered_else = false;
            let outside = |node: &Node| node.block().is_none_or(|b| !body.segments.contains(&b));
            let mut work: Vec<Node> = body
                .segments
                .iter()
                .flat_map(|&id| self.previous(id))
                .collect();
            let mut seen = BTreeSet::new();
            work.retain(outside);
            while let Some(node) = work.pop() {
                let Some(block) = node.block() else {
                    is_entered_else = true;
                    continue;
                };
                if self.insns(block).is_empty() && seen.insert(block) {
                    work.extend(self.previous(block).filter(outside));
                    continue;
                }
                match siblings.iter().find(|(_, of)| of.segments.contains(&block)) {
                    Some((other, _)) => drop(from.insert(*other)),
                    None if self.insns(block).is_empty() => {}
                    None => is_entered_else = true,
                }
            }
            if is_entered_else && !from.is_empty() {
                for other in from.into_iter().chain([number]) {
                    found[other] = Some(Bodiless::Shared(body.entry));
                }
            }
        }
        found
    }

    /// Executions begin once in the copy, by the marks of the compiler.
    fn check_marks(
        &self,
        copy: &InlinedCopy,
        body: &BTreeSet<BlockId>,
        others: &[&BTreeSet<BlockId>],
    ) -> Result<(), Bodiless> {
        let mut marks: BTreeMap<Svma, isize> = BTreeMap::new();
        let all = body.iter().chain(others.iter().copied().flatten());
        let ranges: Vec<&Range<Svma>> = all.map(|&id| &self.graph.block(id).range).collect();
        let is_here =
            |at: &Svma| Some(*at) == copy.entry || ranges.iter().any(|range| range.contains(at));
        for &at in copy.marks.iter().filter(|at| is_here(at)) {
            *marks.entry(at).or_default() += 1;
        }
        for at in &copy.others {
            if let Some(count) = marks.get_mut(at) {
                *count -= 1;
            }
        }
        if let Some(entry) = copy.entry
            && let Some(count) = marks.get_mut(&entry)
        {
            *count -= 1;
        }
        let second = marks.into_iter().find(|(_, count)| *count > 0);
        second.map_or(Ok(()), |(at, _)| Err(Bodiless::Duplicated(at)))
    }

    /// Executions begin once in the copy: its first source position does not come again. Compilers
    /// that unroll a loop around the copy repeat it.
    fn check_positions(
        &self,
        copy: &InlinedCopy,
        body: &BTreeSet<BlockId>,
        entry: Svma,
    ) -> Result<(), Bodiless> {
        let positions = &copy.positions;
        let position_at = |at: Svma| {
            let after = positions.partition_point(|&(start, _)| start <= at);
            after.checked_sub(1).map(|before| positions[before].1)
        };
        let first = position_at(entry);
        let mut last = first;
        for &id in body {
            for insn in self.insns(id) {
                let at = Svma(insn.at());
                let now = position_at(at);
                if at != entry && now == first && last != first {
                    return Err(Bodiless::Duplicated(at));
                }
                last = now;
            }
        }
        Ok(())
    }
}
