//! Code that runs from a copy while its edges or paths are counted.
//!
//! A region is a function that calls nothing ([`Whole`]), or the part of an outermost loop that
//! calls nothing ([`CallFree`]), with all loops in it. Control enters it only at the function's
//! entry or the loop's header. The copy has the counters between its instructions, so a count costs
//! one increment. The way into the copy is patched there. It is also patched at the headers of the
//! loops in it, for threads that are in one of these loops when the patches are written.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::addr::{Avma, Svma};
use crate::flow::ModuleContext;
use crate::image::Image;
use crate::isa::{
    self, BankRegister, CFA_AT_ENTRY, Control, Dispatch, Displaced, Height, Insn, PathEntry,
    PathRow, Registers, SavedFlags,
};

use super::call_free::CallFree;
use super::counter::Transfer;
use super::counting::Counting;
use super::function::Inside;
use super::graph::{Block, BlockEnd, BlockId, EdgeId, EdgeKind, Node};
use super::liveness::{Free, Liveness};
use super::loops::LoopId;
use super::path_step::{CountersKind, PathHeader, PathStep};
use super::tally::Tally;
use super::traffic::{OfRegions, Traffic};
use super::whole::Whole;

/// A loop or a function that runs from a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// The instructions, by address.
    pub insns: Vec<Moved>,
    /// The ways in, ascending: the headers of loops, and the entry of the function if it is copied
    /// as a whole.
    pub headers: Vec<Header>,
    /// What is counted in the region, each with the address of its instruction.
    pub tallies: Vec<(Svma, Tally)>,
    /// The register of the bank in the copy.
    pub bank: BankRegister,
    /// The edges of the segments that lead into the region.
    pub entering: Vec<EdgeId>,
    /// Blocks that also run at their original addresses, after a call in the loop.
    shared: Vec<Range<Svma>>,
    /// For a function: the distance from the stack pointer to the canonical frame address before
    /// each instruction, in bytes.
    heights: BTreeMap<Svma, Height>,
}

/// The header of a loop of a region, or the entry of the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The address of its first instruction.
    pub at: Svma,
    /// What the way into the copy may overwrite.
    pub free: Free,
    /// The path on which an activation may be here; `None` if paths are not followed, and at the
    /// entry, where a path begins.
    pub path: Option<PathHeader>,
    /// True for the entry of the function.
    pub is_entry: bool,
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
    /// True if it leaves the function. It then runs at its original address.
    pub is_exit: bool,
}

impl Moved {
    /// The addresses to which its copy may jump.
    pub fn targets(&self) -> impl Iterator<Item = Svma> + '_ {
        let jump = self.displaced.jump_target().filter(|_| !self.is_exit);
        let tabled = self
            .dispatch
            .iter()
            .flat_map(|of| of.targets().iter().copied());
        jump.into_iter().chain(tabled)
    }
}

/// The maximum number of instructions of a region times its headers. Each header has copies of all
/// instructions.
const MOST_INSNS: usize = 2048;
/// The maximum size of the tables of a region's jumps times its headers, in bytes. Each copy has
/// tables of its own.
const MOST_TABLES: usize = 1 << 16;

impl Region {
    /// The regions of a function with these counters of edges, which pay if it has this `traffic`.
    pub fn of_edges(
        (image, context, inside): (&Image<'_>, &ModuleContext<'_>, &Inside),
        counting: &Counting,
        traffic: Traffic<'_>,
    ) -> Vec<Self> {
        let counters = counting.counters.iter();
        let tallies = counters.map(|count| (count.at, Tally::Count(count.counter)));
        Self::all((image, context, inside), tallies.collect(), (None, traffic))
    }

    /// The regions of a function with these steps of paths, which pay if it has this `traffic`.
    /// `headers` are those of loops at which the paths are known.
    pub fn of_paths(
        (image, context, inside): (&Image<'_>, &ModuleContext<'_>, &Inside),
        (steps, headers): (&[(Svma, PathStep)], &[PathHeader]),
        traffic: Traffic<'_>,
    ) -> Vec<Self> {
        let tallies = steps.iter().map(|&(at, step)| (at, Tally::Path(step)));
        let paths = (Some(headers), traffic);
        Self::all((image, context, inside), tallies.collect(), paths)
    }

    fn all(
        (image, context, inside): (&Image<'_>, &ModuleContext<'_>, &Inside),
        tallies: Vec<(Svma, Tally)>,
        (paths, traffic): (Option<&[PathHeader]>, Traffic<'_>),
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
            traffic: OfRegions::new(traffic),
            live,
        };
        let mut found: Vec<Self> = Vec::new();
        let mut taken: BTreeSet<BlockId> = BTreeSet::new();
        if let Some((blocks, region)) = finder.function() {
            taken.extend(blocks);
            found.push(region);
        }
        // A loop precedes those in it, or is found in their place.
        let mut ids: Vec<LoopId> = (0..loops.loops().len() as u32).map(LoopId).collect();
        ids.sort_by_key(|id| loops.loops()[id.index()].depth);
        for id in ids {
            let blocks: Vec<BlockId> = loops.blocks(id).collect();
            if blocks.iter().any(|block| taken.contains(block)) {
                continue;
            }
            if let Some((blocks, region)) = finder.region(id) {
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

    /// True if what is counted at this instruction is counted only in the copies.
    pub fn has_all_of(&self, at: Svma) -> bool {
        let is_shared = || self.shared.iter().any(|range| range.contains(&at));
        self.index_of(at).is_some() && !is_shared()
    }

    /// True if paths are followed.
    pub fn follows(&self) -> bool {
        self.bank.follows()
    }

    /// The addresses of original code at which control may continue, each once.
    pub fn exits(&self) -> BTreeSet<Svma> {
        let targets = self.insns.iter().flat_map(|insn| {
            let displaced = &insn.displaced;
            let next = displaced.falls_through().then(|| displaced.end());
            insn.targets().chain(next)
        });
        let outside = targets.filter(|&to| self.index_of(to).is_none());
        let own = self.insns.iter().filter(|insn| insn.is_exit);
        outside.chain(own.map(|insn| insn.displaced.at)).collect()
    }

    /// The place of the frame before the instruction at `at`. A function that is jumped to is at
    /// its entry.
    pub fn height(&self, at: Svma) -> Height {
        let known = self.heights.get(&at).copied();
        known.unwrap_or(CFA_AT_ENTRY as Height)
    }

    /// True if the frame is known at all places where a function is left: at instructions of the
    /// function, or as at its entry.
    fn has_heights(&self) -> bool {
        self.insns.iter().all(|insn| {
            let displaced = &insn.displaced;
            let own = self.height(displaced.at);
            let next = displaced.falls_through().then(|| displaced.end());
            let mut to = insn.targets().chain(next);
            to.all(|to| self.heights.contains_key(&to) || own == CFA_AT_ENTRY as Height)
        })
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

/// True if a copy can do this. Copies do not compare the target of a jump. Of the steps of a path,
/// they can change the sum, or count the path and begin another one. Copies of functions can do all
/// steps. A path that is counted needs a counter of its own.
fn is_simple(tally: &Tally, is_of_function: bool) -> bool {
    if matches!(tally.transfer(), Transfer::LeadsTo(_)) {
        return false;
    }
    let Tally::Path(step) = tally else {
        return true;
    };
    let row = step.row();
    let is_one = match row.kind {
        PathRow::ADDS => true,
        PathRow::RESTARTS => step.counters == CountersKind::Each,
        _ => is_of_function && step.counters == CountersKind::Each,
    };
    is_one && row.fits()
}

/// True if one of the instructions, which ascend, is at `at`.
fn is_in(insns: &[Insn], at: Svma) -> bool {
    insns.binary_search_by_key(&at.0, Insn::at).is_ok()
}

/// What regions consist of.
struct Parts {
    insns: Vec<Insn>,
    tallies: Vec<(Svma, Tally)>,
    headers: Vec<Header>,
}

struct Finder<'a, 'd> {
    image: &'a Image<'d>,
    context: &'a ModuleContext<'a>,
    inside: &'a Inside,
    tallies: Vec<(Svma, Tally)>,
    /// The paths at headers of loops; `None` if no paths are followed.
    paths: Option<&'a [PathHeader]>,
    traffic: OfRegions<'a>,
    live: Liveness,
}

impl Finder<'_, '_> {
    /// The loop as a region, and the blocks of that. `None` if it cannot run from a copy, or if
    /// nothing is counted in it.
    fn region(&self, id: LoopId) -> Option<(Vec<BlockId>, Region)> {
        let Inside { flow, graph, loops } = self.inside;
        if !loops.loops()[id.index()].is_reducible {
            return None;
        }
        let is_copied = |block: BlockId| self.may_be_copied(graph.block(block), false);
        let part = CallFree::of(graph, loops, id, is_copied)?;
        let Parts {
            insns,
            tallies,
            headers,
        } = self.parts(&part.blocks, false)?;
        let free = |at: Svma| self.live.free_before(flow, graph, at);
        let bank = if self.paths.is_some() {
            BankRegister::for_paths(&insns)?
        } else {
            let all_free = insns.iter().map(|insn| free(Svma(insn.at())).registers);
            let all_free = all_free.reduce(Registers::and).unwrap_or_default();
            let flags = SavedFlags {
                at_entry: headers.iter().any(|header| !header.free.flags),
                at_counts: tallies.iter().any(|(_, tally)| !tally.free().flags),
            };
            BankRegister::choose(&insns, all_free, flags)?
        };
        let shared = part.shared.iter().map(|&id| graph.block(id).range.clone());
        let region = Region {
            insns: self.all_moved(&insns, headers.len())?,
            entering: self.traffic.entering(&insns),
            headers,
            tallies,
            bank,
            shared: shared.collect(),
            heights: BTreeMap::new(),
        };
        self.pays(&region).then_some((part.blocks, region))
    }

    /// The function as a region, and its blocks. `None` as for [`Self::region`].
    fn function(&self) -> Option<(Vec<BlockId>, Region)> {
        let whole = Whole::of(self.inside, |block| self.may_be_copied(block, true))?;
        let Parts {
            insns,
            tallies,
            headers,
        } = self.parts(&whole.blocks, true)?;
        let bank = BankRegister::for_function(&insns, self.paths.is_some())?;
        let region = Region {
            insns: self.all_moved(&insns, headers.len())?,
            entering: self.traffic.entering(&insns),
            headers,
            tallies,
            bank,
            shared: Vec::new(),
            heights: whole.heights,
        };
        let is_one = region.has_heights() && self.pays(&region);
        is_one.then_some((whole.blocks, region))
    }

    /// True if a copy of `region` takes less time than hooks.
    fn pays(&self, region: &Region) -> bool {
        let own = self.tallies.iter().enumerate();
        let own = own.filter(|(_, (at, _))| region.index_of(*at).is_some());
        let counts = own.map(|(index, (at, _))| (index, !region.has_all_of(*at)));
        let counts: Vec<(usize, bool)> = counts.collect();
        self.traffic.pays(&region.entering, &counts)
    }

    /// The instructions, counts and headers of a region with these blocks. `None` if it is too
    /// large, if nothing is counted in it, or if not all of that can be done in a copy.
    fn parts(&self, blocks: &[BlockId], is_of_function: bool) -> Option<Parts> {
        let Inside { flow, graph, loops } = self.inside;
        let blocks = blocks.iter().map(|&block| graph.block(block));
        let insns = blocks.flat_map(|b| &flow.insns[b.insns.clone()]);
        let mut insns: Vec<Insn> = insns.cloned().collect();
        insns.sort_by_key(Insn::at);
        let tallies = self.tallies.iter().filter(|(at, _)| is_in(&insns, *at));
        let tallies: Vec<(Svma, Tally)> = tallies.copied().collect();
        let inner = loops.loops().iter().map(|l| graph.block(l.header).first);
        let inner: BTreeSet<Svma> = inner.filter(|&at| is_in(&insns, at)).collect();
        let free = |at: Svma| self.live.free_before(flow, graph, at);
        let inner = inner.into_iter().map(|at| self.header(at, free(at)));
        let mut headers: Vec<Header> = inner.collect::<Option<_>>()?;
        if is_of_function {
            headers.push(Header {
                at: flow.entry,
                free: free(flow.entry),
                path: None,
                is_entry: true,
            });
            headers.sort_by_key(|header| header.at);
        }
        let is_simple = |(_, tally): &(Svma, Tally)| is_simple(tally, is_of_function);
        let is_small = insns.len() * headers.len() <= MOST_INSNS;
        let is_one = !tallies.is_empty() && is_small && tallies.iter().all(is_simple);
        is_one.then_some(Parts {
            insns,
            tallies,
            headers,
        })
    }

    /// The instructions of a region with so many headers. `None` if one cannot be copied, or if
    /// they have too large tables.
    fn all_moved(&self, insns: &[Insn], headers: usize) -> Option<Vec<Moved>> {
        let is_inside = |at: Svma| is_in(insns, at);
        let moved = insns.iter().map(|insn| self.moved(insn, is_inside));
        let moved: Vec<Moved> = moved.collect::<Option<_>>()?;
        let tables = moved.iter().filter_map(|insn| insn.dispatch.as_ref());
        let tables = tables.map(Dispatch::table_len).sum::<usize>();
        (tables * headers <= MOST_TABLES).then_some(moved)
    }

    /// The header at `at`. `None` if paths are followed, and that there is not known.
    fn header(&self, at: Svma, free: Free) -> Option<Header> {
        let path = match self.paths {
            None => None,
            Some(paths) => Some(*paths.iter().find(|path| path.at == at)?),
        };
        let header = Header {
            at,
            free,
            path,
            is_entry: false,
        };
        let is_usable = path.is_none() || header.entry(0, Avma(0)).is_some();
        is_usable.then_some(header)
    }

    /// True if the instructions of a block may run from a copy: they are certain, they call
    /// nothing, and all addresses to which they lead are known. Those of a function may leave it.
    fn may_be_copied(&self, block: &Block, is_of_function: bool) -> bool {
        let flow = &self.inside.flow;
        let is_plain = match block.end {
            BlockEnd::FallsThrough | BlockEnd::Jump | BlockEnd::Conditional | BlockEnd::Switch => {
                true
            }
            BlockEnd::Return | BlockEnd::TailCall => is_of_function,
            _ => false,
        };
        let restartable = |at: Svma| self.context.restartable.iter().any(|r| r.contains(&at));
        let mut insns = flow.insns[block.insns.clone()].iter();
        is_plain
            && block.is_certain
            && insns.all(|insn| {
                let at = Svma(insn.at());
                let leaves = flow.leaves.iter().any(|leave| leave.at == at);
                if is_of_function && leaves {
                    return !restartable(at);
                }
                let is_direct = match insn.control() {
                    Control::Next | Control::Jump | Control::ConditionalJump => true,
                    Control::IndirectJump => self.dispatch(insn).is_some(),
                    _ => false,
                };
                let is_label = flow.is_mark(at.0) && !flow.is_only_switched(at.0);
                let is_entry = flow.is_entry(at.0) && !is_of_function;
                let is_other = is_entry || is_label || leaves;
                is_direct && !is_other && !restartable(at)
            })
    }

    /// An instruction of a region, which has the addresses that `is_inside` is true for.
    fn moved(&self, insn: &Insn, is_inside: impl Fn(Svma) -> bool) -> Option<Moved> {
        let at = Svma(insn.at());
        let bytes = self.image.bytes(at, insn.len() as u64)?;
        let mut leaves = self.inside.flow.leaves.iter();
        let is_exit = leaves.any(|leave| leave.at == at) && insn.ends_block();
        let is_switch = insn.control() == Control::IndirectJump && !is_exit;
        let dispatch = if is_switch {
            Some(self.over_free(insn, self.dispatch(insn)?, is_inside)?)
        } else {
            None
        };
        Some(Moved {
            displaced: Displaced::of(insn, bytes).ok()?,
            lowered: isa::lowered(insn),
            dispatch,
            is_exit,
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
