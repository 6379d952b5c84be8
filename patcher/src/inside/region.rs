//! Loops that run from a copy while their edges or paths are counted.
//!
//! A region is an outermost loop without calls, with all loops in it. Control enters it only at its
//! header. The copy has the counters between its instructions, so a count costs one increment. The
//! way into the copy is patched at the header. It is also patched at the headers of the loops in
//! it, for threads that are in one of these loops when the patches are written.

use std::collections::BTreeSet;

use crate::addr::{Avma, Svma};
use crate::flow::ModuleContext;
use crate::image::Image;
use crate::isa::{
    self, BankRegister, Control, Dispatch, Displaced, Insn, PathEntry, PathRow, Registers,
    SavedFlags,
};

use super::counter::Transfer;
use super::counting::Counting;
use super::function::Inside;
use super::graph::{Block, BlockEnd, BlockId, EdgeKind, Node};
use super::liveness::{Free, Liveness};
use super::loops::LoopId;
use super::path_step::{CountersKind, PathHeader, PathStep};
use super::tally::Tally;

/// A loop that runs from a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// The instructions, by address.
    pub insns: Vec<Moved>,
    /// The headers, ascending.
    pub headers: Vec<Header>,
    /// What is counted in the region, each with the address of its instruction.
    pub tallies: Vec<(Svma, Tally)>,
    /// The register of the bank in the copy.
    pub bank: BankRegister,
}

/// The header of a loop of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The address of its first instruction.
    pub at: Svma,
    /// What the way into the copy may overwrite.
    pub free: Free,
    /// The path on which an activation may be here; `None` if paths are not followed.
    pub path: Option<PathHeader>,
}

/// An instruction of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The instruction in its form for any other address.
    pub displaced: Displaced,
    /// Its encoding for a lower stack pointer, if that differs.
    pub lowered: Option<Vec<u8>>,
    /// A jump to one of several addresses, by a jump table.
    pub dispatch: Option<Dispatch>,
}

impl Moved {
    /// The addresses to which it may jump.
    pub fn targets(&self) -> impl Iterator<Item = Svma> + '_ {
        let tabled = self
            .dispatch
            .iter()
            .flat_map(|of| of.targets().iter().copied());
        self.displaced.jump_target().into_iter().chain(tabled)
    }
}

/// The maximum number of instructions of a region times its headers. Each header has copies of all
/// instructions.
const MOST_INSNS: usize = 2048;
/// The maximum size of the tables of a region's jumps times its headers, in bytes. Each copy has
/// tables of its own.
const MOST_TABLES: usize = 1 << 16;

impl Region {
    /// The regions of a function with these counters of edges.
    pub fn of_edges(
        image: &Image<'_>,
        context: &ModuleContext<'_>,
        inside: &Inside,
        counting: &Counting,
    ) -> Vec<Self> {
        let counters = counting.counters.iter();
        let tallies = counters.map(|count| (count.at, Tally::Count(count.counter)));
        Self::all((image, context, inside), tallies.collect(), None)
    }

    /// The regions of a function with these steps of paths. `headers` are those of loops at which
    /// the paths are known.
    pub fn of_paths(
        image: &Image<'_>,
        context: &ModuleContext<'_>,
        inside: &Inside,
        (steps, headers): (&[(Svma, PathStep)], &[PathHeader]),
    ) -> Vec<Self> {
        let tallies = steps.iter().map(|&(at, step)| (at, Tally::Path(step)));
        Self::all((image, context, inside), tallies.collect(), Some(headers))
    }

    fn all(
        (image, context, inside): (&Image<'_>, &ModuleContext<'_>, &Inside),
        tallies: Vec<(Svma, Tally)>,
        paths: Option<&[PathHeader]>,
    ) -> Vec<Self> {
        let Inside { flow, loops, .. } = inside;
        // Go's runtime decides by the program counter where it may interrupt a goroutine.
        if flow.is_go() || flow.doubt.is_some() {
            return Vec::new();
        }
        let live = Liveness::of(flow, &inside.graph);
        let finder = Finder {
            image,
            context,
            inside,
            tallies,
            paths,
            live,
        };
        let mut found: Vec<Self> = Vec::new();
        // A loop precedes those in it, or is found in their place.
        let mut ids: Vec<LoopId> = (0..loops.loops().len() as u32).map(LoopId).collect();
        ids.sort_by_key(|id| loops.loops()[id.index()].depth);
        let mut taken: BTreeSet<BlockId> = BTreeSet::new();
        for id in ids {
            let blocks: Vec<BlockId> = loops.blocks(id).collect();
            if blocks.iter().any(|block| taken.contains(block)) {
                continue;
            }
            if let Some(region) = finder.region(id, &blocks) {
                taken.extend(blocks);
                found.push(region);
            }
        }
        found
    }

    /// The index of the instruction at `at`.
    pub fn index_of(&self, at: Svma) -> Option<usize> {
        self.insns
            .binary_search_by_key(&at, |i| i.displaced.at)
            .ok()
    }

    /// What is counted at this instruction for these transfers, in order.
    pub fn tallies_at(&self, at: Svma, transfer: Transfer) -> impl Iterator<Item = Tally> + '_ {
        let all = self.tallies.iter();
        let own = all.filter(move |(of, tally)| *of == at && tally.transfer() == transfer);
        own.map(|&(_, tally)| tally)
    }

    /// True if paths are followed.
    pub fn follows(&self) -> bool {
        self.bank.follows()
    }

    /// The addresses outside of the region at which control may continue, each once.
    pub fn exits(&self) -> BTreeSet<Svma> {
        let targets = self.insns.iter().flat_map(|insn| {
            let displaced = &insn.displaced;
            let next = displaced.falls_through().then(|| displaced.end());
            insn.targets().chain(next)
        });
        targets.filter(|&to| self.index_of(to).is_none()).collect()
    }
}

impl Header {
    /// The path for the way into the copy, if the function's counters are `base` higher. `slots` is
    /// the cell with the address of the table of slots.
    pub(crate) fn entry(&self, base: u32, slots: Avma) -> Option<PathEntry> {
        let path = self.path?;
        let key = path.frame.key(path.first + base);
        PathEntry::new((key, slots), path.paths, path.to_add)
    }
}

/// True if the step of a path is one that copies have: it changes the sum, or it ends a path with a
/// counter of its own and begins another one.
fn is_simple(tally: &Tally) -> bool {
    let Tally::Path(step) = tally else {
        return true;
    };
    let row = step.row();
    let is_one = match row.kind {
        PathRow::ADDS => true,
        PathRow::RESTARTS => step.counters == CountersKind::Each,
        _ => false,
    };
    is_one && row.fits()
}

struct Finder<'a, 'd> {
    image: &'a Image<'d>,
    context: &'a ModuleContext<'a>,
    inside: &'a Inside,
    tallies: Vec<(Svma, Tally)>,
    /// The paths at headers of loops; `None` if no paths are followed.
    paths: Option<&'a [PathHeader]>,
    live: Liveness,
}

impl Finder<'_, '_> {
    /// The loop as a region. `None` if it cannot run from a copy, or if nothing is counted in it.
    fn region(&self, id: LoopId, blocks: &[BlockId]) -> Option<Region> {
        let Inside { flow, graph, loops } = self.inside;
        let of = &loops.loops()[id.index()];
        let blocks: Vec<&Block> = blocks.iter().map(|&block| graph.block(block)).collect();
        if !of.is_reducible || !blocks.iter().all(|block| self.may_be_copied(block)) {
            return None;
        }
        let insns = blocks.iter().flat_map(|b| &flow.insns[b.insns.clone()]);
        let mut insns: Vec<Insn> = insns.cloned().collect();
        insns.sort_by_key(Insn::at);
        let is_inside = |at: Svma| insns.binary_search_by_key(&at.0, Insn::at).is_ok();
        let tallies = self.tallies.iter().filter(|(at, _)| is_inside(*at));
        let tallies: Vec<(Svma, Tally)> = tallies.copied().collect();
        let inner = loops.loops().iter().filter(|l| {
            let header = graph.block(l.header);
            is_inside(header.first)
        });
        let free = |at: Svma| self.live.free_before(flow, graph, at);
        let headers: BTreeSet<Svma> = inner.map(|l| graph.block(l.header).first).collect();
        let headers = headers.into_iter().map(|at| self.header(at, free(at)));
        let headers: Vec<Header> = headers.collect::<Option<_>>()?;
        if tallies.is_empty() || insns.len() * headers.len() > MOST_INSNS {
            return None;
        }
        let bank = if self.paths.is_some() {
            let mut all = tallies.iter();
            let all_simple = all.all(|(_, tally)| is_simple(tally));
            BankRegister::for_paths(&insns).filter(|_| all_simple)?
        } else {
            let all_free = insns.iter().map(|insn| free(Svma(insn.at())).registers);
            let all_free = all_free.reduce(Registers::and).unwrap_or_default();
            let flags = SavedFlags {
                at_entry: headers.iter().any(|header| !header.free.flags),
                at_counts: tallies.iter().any(|(_, tally)| !tally.free().flags),
            };
            BankRegister::choose(&insns, all_free, flags)?
        };
        let moved = insns.iter().map(|insn| self.moved(insn, is_inside));
        let moved: Vec<Moved> = moved.collect::<Option<_>>()?;
        let tables = moved.iter().filter_map(|insn| insn.dispatch.as_ref());
        let tables = tables.map(Dispatch::table_len).sum::<usize>();
        if tables * headers.len() > MOST_TABLES {
            return None;
        }
        Some(Region {
            insns: moved,
            headers,
            tallies,
            bank,
        })
    }

    /// The header at `at`. `None` if paths are followed, and that there is not known.
    fn header(&self, at: Svma, free: Free) -> Option<Header> {
        let path = match self.paths {
            None => None,
            Some(paths) => Some(*paths.iter().find(|path| path.at == at)?),
        };
        let header = Header { at, free, path };
        let is_usable = path.is_none() || header.entry(0, Avma(0)).is_some();
        is_usable.then_some(header)
    }

    /// True if the instructions of a block may run from a copy: they are certain, they call
    /// nothing, and all addresses to which they lead are known.
    fn may_be_copied(&self, block: &Block) -> bool {
        let flow = &self.inside.flow;
        let is_plain = matches!(
            block.end,
            BlockEnd::FallsThrough | BlockEnd::Jump | BlockEnd::Conditional | BlockEnd::Switch
        );
        let restartable = |at: Svma| self.context.restartable.iter().any(|r| r.contains(&at));
        let mut insns = flow.insns[block.insns.clone()].iter();
        is_plain
            && block.is_certain
            && insns.all(|insn| {
                let at = Svma(insn.at());
                let leaves = flow.leaves.iter().any(|leave| leave.at == at);
                let is_direct = match insn.control() {
                    Control::Next | Control::Jump | Control::ConditionalJump => true,
                    Control::IndirectJump => self.dispatch(insn).is_some(),
                    _ => false,
                };
                let is_label = flow.is_mark(at.0) && !flow.is_only_switched(at.0);
                let is_other = flow.is_entry(at.0) || is_label || leaves;
                is_direct && !is_other && !restartable(at)
            })
    }

    /// An instruction of a region, which has the addresses that `is_inside` is true for.
    fn moved(&self, insn: &Insn, is_inside: impl Fn(Svma) -> bool) -> Option<Moved> {
        let bytes = self.image.bytes(Svma(insn.at()), insn.len() as u64)?;
        let is_switch = insn.control() == Control::IndirectJump;
        let dispatch = if is_switch {
            Some(self.over_free(insn, self.dispatch(insn)?, is_inside)?)
        } else {
            None
        };
        Some(Moved {
            displaced: Displaced::of(insn, bytes).ok()?,
            lowered: isa::lowered(insn),
            dispatch,
        })
    }

    /// The block that ends with the jump `insn` by a table.
    fn switch(&self, insn: &Insn) -> Option<BlockId> {
        let graph = &self.inside.graph;
        let at = Svma(insn.at());
        graph.block_ids().find(|&id| {
            let block = graph.block(id);
            block.last == at && block.end == BlockEnd::Switch
        })
    }

    /// The jump as one to several known addresses. `None` if it is no such jump.
    fn dispatch(&self, insn: &Insn) -> Option<Dispatch> {
        let graph = &self.inside.graph;
        let block = self.switch(insn)?;
        let leaving = graph.leaving(Node::Block(block)).iter();
        let leaving = leaving.map(|&edge| graph.edge(edge));
        let targets = leaving.map(|edge| {
            let target = edge.to.block().filter(|_| edge.kind == EdgeKind::Table)?;
            Some(graph.block(target).range.start)
        });
        Dispatch::of(insn, targets.collect::<Option<_>>()?)
    }

    /// The jump, with whether its register must have its value again at targets in the region. It
    /// has that where the jump leaves the region. `None` if the flags are alive. After the address
    /// has been added up, nothing reads them.
    fn over_free(
        &self,
        insn: &Insn,
        mut dispatch: Dispatch,
        is_inside: impl Fn(Svma) -> bool,
    ) -> Option<Dispatch> {
        let Inside { flow, graph, .. } = self.inside;
        let before = self.switch(insn).and_then(|id| {
            let own = &flow.insns[graph.block(id).insns.clone()];
            own.len().checked_sub(2).map(|before| &own[before])
        });
        let is_sum = before.is_some_and(|before| before.adds_to(dispatch.register()));
        let free = |target: Svma| self.live.free_before(flow, graph, target);
        let mut targets = dispatch.targets().iter();
        let are_free = targets.all(|&target| free(target).flags || is_sum);
        let mut inside = dispatch.targets().iter().filter(|&&at| is_inside(at));
        let register = dispatch.register();
        dispatch.keeps = !inside.all(|&at| free(at).registers.contains(register));
        are_free.then_some(dispatch)
    }
}
