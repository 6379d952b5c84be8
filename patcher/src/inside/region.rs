//! Loops that run from a copy while their edges are counted.
//!
//! A region is an outermost loop without calls, with all loops in it. Control enters it only at its
//! header. The copy has the counters between its instructions, so a count costs one increment. The
//! way into the copy is patched at the header. It is also patched at the headers of the loops in
//! it, for threads that are in one of these loops when the patches are written.

use std::collections::BTreeSet;

use crate::addr::Svma;
use crate::flow::ModuleContext;
use crate::image::Image;
use crate::isa::{self, BankRegister, Control, Displaced, Insn, Registers, SavedFlags};

use super::counter::{Counter, Transfer};
use super::counting::Counting;
use super::function::Inside;
use super::graph::{Block, BlockEnd, BlockId};
use super::liveness::{Free, Liveness};
use super::loops::LoopId;

/// A loop that runs from a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// The instructions, by address.
    pub insns: Vec<Moved>,
    /// The first instructions of the headers, ascending. The way into the copy may overwrite what
    /// is free before them.
    pub headers: Vec<(Svma, Free)>,
    /// The counters in the region, each with the address of its instruction.
    pub counters: Vec<(Svma, Counter)>,
    /// The register of the bank in the copy.
    pub bank: BankRegister,
}

/// An instruction of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The instruction in its form for any other address.
    pub displaced: Displaced,
    /// Its encoding for a lower stack pointer, if that differs.
    pub lowered: Option<Vec<u8>>,
}

/// The maximum number of instructions in the copies of one region, of which there is one for each
/// header.
const MOST_INSNS: usize = 2048;

impl Region {
    /// The regions of a function with these counters.
    pub fn all(
        image: &Image<'_>,
        context: &ModuleContext<'_>,
        inside: &Inside,
        counting: &Counting,
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
            counting,
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

    /// The counters of this instruction for these transfers.
    pub fn counters_at(&self, at: Svma, transfer: Transfer) -> impl Iterator<Item = Counter> + '_ {
        let counters = self.counters.iter();
        let counters = counters.filter(move |(of, c)| *of == at && c.transfer == transfer);
        counters.map(|&(_, counter)| counter)
    }

    /// The addresses outside of the region at which control may continue, each once.
    pub fn exits(&self) -> BTreeSet<Svma> {
        let targets = self.insns.iter().flat_map(|insn| {
            let insn = &insn.displaced;
            let next = insn.falls_through().then(|| insn.end());
            insn.jump_target().into_iter().chain(next)
        });
        targets.filter(|&to| self.index_of(to).is_none()).collect()
    }
}

struct Finder<'a, 'd> {
    image: &'a Image<'d>,
    context: &'a ModuleContext<'a>,
    inside: &'a Inside,
    counting: &'a Counting,
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
        let counters = self.counting.counters.iter();
        let counters = counters.filter(|count| is_inside(count.at));
        let counters: Vec<(Svma, Counter)> = counters.map(|c| (c.at, c.counter)).collect();
        let inner = loops.loops().iter().filter(|l| {
            let header = graph.block(l.header);
            is_inside(header.first)
        });
        let free = |at: Svma| self.live.free_before(flow, graph, at);
        let headers: BTreeSet<Svma> = inner.map(|l| graph.block(l.header).first).collect();
        let headers: Vec<(Svma, Free)> = headers.into_iter().map(|at| (at, free(at))).collect();
        if counters.is_empty() || insns.len() * headers.len() > MOST_INSNS {
            return None;
        }
        let all_free = insns.iter().map(|insn| free(Svma(insn.at())).registers);
        let all_free = all_free.reduce(Registers::and).unwrap_or_default();
        let flags = SavedFlags {
            at_entry: headers.iter().any(|(_, free)| !free.flags),
            at_counts: counters.iter().any(|(_, counter)| !counter.free.flags),
        };
        let bank = BankRegister::choose(&insns, all_free, flags)?;
        let insns = insns.iter().map(|insn| self.moved(insn));
        Some(Region {
            insns: insns.collect::<Option<_>>()?,
            headers,
            counters,
            bank,
        })
    }

    /// True if the instructions of a block may run from a copy: they are certain, they call
    /// nothing, and all addresses to which they lead are known.
    fn may_be_copied(&self, block: &Block) -> bool {
        let flow = &self.inside.flow;
        let is_plain = matches!(
            block.end,
            BlockEnd::FallsThrough | BlockEnd::Jump | BlockEnd::Conditional
        );
        let restartable = |at: Svma| self.context.restartable.iter().any(|r| r.contains(&at));
        let mut insns = flow.insns[block.insns.clone()].iter();
        is_plain
            && block.is_certain
            && insns.all(|insn| {
                let at = Svma(insn.at());
                let leaves = flow.leaves.iter().any(|leave| leave.at == at);
                let is_direct = matches!(
                    insn.control(),
                    Control::Next | Control::Jump | Control::ConditionalJump
                );
                let is_other = flow.is_entry(at.0) || flow.is_mark(at.0) || leaves;
                is_direct && !is_other && !restartable(at)
            })
    }

    fn moved(&self, insn: &Insn) -> Option<Moved> {
        let bytes = self.image.bytes(Svma(insn.at()), insn.len() as u64)?;
        Some(Moved {
            displaced: Displaced::of(insn, bytes).ok()?,
            lowered: isa::lowered(insn),
        })
    }
}
