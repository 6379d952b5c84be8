//! Placing and emitting trampolines.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use abi::count::CLAIM;
use patcher::emit::{CodePlace, CountCells, Emitted, Hooks, STONE};
use patcher::plan::RefuseReason;
use patcher::{Avma, FileOffset};

use super::Candidate;
use super::copies::room_of;
use crate::segment::{Document, RegionDoc};
use ipath_target::process::Mapping;
use ipath_target::process::maps::{free_place_in, free_range_near};
use ipath_target::process::modules::Module;

/// The stubs whose addresses are at the start of a region, in this order.
#[derive(Clone, Copy)]
enum Cell {
    Entry,
    Exit,
    Tail,
    Lend,
    Ender,
    EnderTail,
    Idle,
    Point,
    Count,
    Banks,
    Path,
    Slots,
    Span,
    SpanEnd,
    TimedPath,
    TimedPathEnd,
}

/// Size in bytes of the stub addresses at a region's start.
const CELLS: u64 = 8 * 16;
/// Alignment of trampolines in bytes.
const ALIGN: u64 = 16;
/// The smallest region in bytes. It leaves room for a few functions to be added later.
const SMALLEST: u64 = 64 * 1024;

/// The plan of trampoline memory: existing regions and new ones.
pub(super) struct Places {
    /// Regions, the existing ones first.
    pub(super) regions: Vec<RegionDoc>,
    /// All mappings of the process, new regions included.
    maps: Vec<Mapping>,
    /// Number of existing regions.
    existing: usize,
    /// Bytes of each region that are reserved for modules and not yet used.
    promised: Vec<u64>,
    /// The index of the region reserved for each module.
    by_module: HashMap<usize, usize>,
    /// Stepping stones, existing ones included.
    stones: BTreeSet<Avma>,
    /// New stepping stones by the punned jump that leads to them.
    by_jump: HashMap<Avma, Avma>,
    /// True if the first word of each thread's control block is its thread pointer, so that hooks
    /// can count without a call.
    pub(super) counts_inline: bool,
}

impl Places {
    /// A plan with the document's regions. `maps` are the mappings of the process.
    pub(super) fn new(document: &Document, maps: Vec<Mapping>) -> Self {
        let sites = document.functions.iter().flat_map(|f| &f.sites);
        let stones = sites.map(|s| s.stone).filter(|&stone| stone != Avma(0));
        Self {
            regions: document.regions.clone(),
            maps,
            existing: document.regions.len(),
            promised: vec![0; document.regions.len()],
            by_module: HashMap::new(),
            stones: stones.collect(),
            by_jump: HashMap::new(),
            counts_inline: false,
        }
    }

    /// True if each punned jump of the candidate has a free target, if it were the only one.
    pub(super) fn have_stones_for(&self, candidate: &Candidate) -> bool {
        let mut puns = puns(candidate);
        puns.all(|(_, targets)| targets.is_some_and(|t| self.find_stone(&t).is_some()))
    }

    /// Reserves room for the stepping stones of candidates before anything else takes the few
    /// possible places.
    pub(super) fn reserve_stones(&mut self, candidates: &[Candidate]) {
        for (jump, targets) in candidates.iter().flat_map(puns) {
            if let Some(stone) = targets.and_then(|t| self.stone_in(&t)) {
                self.stones.insert(stone);
                self.by_jump.insert(jump, stone);
            }
        }
    }

    /// Reserves room for a stepping stone at one of `targets`. `None` if there is no room.
    fn stone_in(&mut self, targets: &Range<Avma>) -> Option<Avma> {
        let (stone, is_held) = self.find_stone(targets)?;
        if !is_held {
            let start = (stone.0 - CELLS) & !(abi::PAGE - 1);
            let len = (stone.0 + STONE - start).next_multiple_of(abi::PAGE);
            self.plan_region(RegionDoc {
                start: Avma(start),
                len,
                used: len,
                ready: false,
                stones: true,
            });
        }
        Some(stone)
    }

    /// Finds a place for a stepping stone at one of `targets`. The flag is true if it is in an
    /// existing region. `None` if there is no place.
    fn find_stone(&self, targets: &Range<Avma>) -> Option<(Avma, bool)> {
        let held = self.regions.iter().filter(|r| r.stones);
        let held = held.map(|r| r.start.plus(CELLS)..r.start.plus(r.len - STONE + 1));
        for room in held {
            let room = room.start.max(targets.start)..room.end.min(targets.end);
            if room.is_empty() {
                continue;
            }
            let next = self
                .stones
                .range(room.clone())
                .map(|stone| stone.plus(STONE));
            let mut tried = std::iter::once(room.start).chain(next);
            if let Some(stone) = tried.find(|&at| room.contains(&at) && self.is_free(at)) {
                return Some((stone, true));
            }
        }
        free_place_in(&self.maps, targets, CELLS, STONE).map(|at| (at, false))
    }

    /// True if a stepping stone at `at` would overlap no other.
    fn is_free(&self, at: Avma) -> bool {
        let near = Avma(at.0.saturating_sub(STONE - 1))..at.plus(STONE);
        self.stones.range(near).next().is_none()
    }

    /// Adds a region to the plan.
    fn plan_region(&mut self, region: RegionDoc) {
        let range = region.extent().range();
        let at = self.maps.partition_point(|m| m.range.start < range.start);
        self.maps.insert(
            at,
            Mapping {
                range,
                read: true,
                write: false,
                execute: true,
                shared: false,
                offset: FileOffset(0),
                file: (String::new(), 0),
                name: String::new(),
            },
        );
        self.regions.push(region);
        self.promised.push(0);
    }

    /// Reserves room for all trampolines of the candidates of one module, if there is any.
    pub(super) fn reserve(&mut self, index: usize, module: &Module, candidates: &[&Candidate]) {
        let sites = candidates.iter().flat_map(|c| &c.plan.sites);
        let need: u64 = sites.map(|s| room_of(s).next_multiple_of(ALIGN)).sum();
        if let Some(at) = self.region_for(&module.code_range(), need) {
            self.promised[at] += need;
            self.by_module.insert(index, at);
        }
    }

    /// The index of a region with `need` free bytes within reach of `near`. Plans a new one if no
    /// region has room.
    fn region_for(&mut self, near: &Range<Avma>, need: u64) -> Option<usize> {
        let has_room = |(r, promised): (&RegionDoc, &u64)| {
            !r.stones && r.len - r.used >= need + promised && is_near(r, near)
        };
        if let Some(at) = self.regions.iter().zip(&self.promised).position(has_room) {
            return Some(at);
        }
        let len = (CELLS + need).max(SMALLEST).next_multiple_of(abi::PAGE);
        let start = free_range_near(&self.maps, near, len)?;
        self.plan_region(RegionDoc {
            start,
            len,
            used: CELLS,
            ready: false,
            stones: false,
        });
        Some(self.regions.len() - 1)
    }

    /// The regions that have yet to be mapped.
    pub(super) fn new_regions(&self) -> &[RegionDoc] {
        &self.regions[self.existing..]
    }

    /// Emits the code of a function's sites, in the order of the plan. `id` is the function's id.
    /// Returns the reason if the code cannot be placed.
    pub(super) fn emit(
        &mut self,
        candidate: &Candidate,
        id: u32,
    ) -> Result<Vec<(CodePlace, Emitted)>, RefuseReason> {
        let is_ender = candidate.role.has_ender_hooks();
        let sites = candidate.plan.sites.iter().map(|site| {
            let jump = candidate.bias.to_avma(site.window.start);
            let stone = self.by_jump.get(&jump).copied();
            if site.pun.is_some() && stone.is_none() {
                return Err(RefuseReason::PunOutOfReach);
            }
            let (trampoline, hooks) = self
                .take(candidate.module, room_of(site), (id, is_ender))
                .ok_or(RefuseReason::NoNearMemory)?;
            let place = CodePlace { trampoline, stone };
            let emitted = site.emit(candidate.bias, place, &hooks);
            Ok((place, emitted.map_err(|_| RefuseReason::OutOfReach)?))
        });
        sites.collect()
    }

    /// Takes room for a trampoline of the module. Returns its address and the hooks to give it.
    /// `None` if no room is left.
    fn take(
        &mut self,
        module: usize,
        len: u64,
        (id, is_ender): (u32, bool),
    ) -> Option<(Avma, Hooks)> {
        let region = self.regions.get_mut(*self.by_module.get(&module)?)?;
        let at = region.start.plus(region.used);
        let end = (region.used + len).next_multiple_of(ALIGN);
        if end > region.len {
            return None;
        }
        region.used = end;
        let cell = |cell: Cell| region.start.plus(8 * cell as u64);
        let hooks = if !is_ender {
            Hooks {
                entry_cell: cell(Cell::Entry),
                exit_cell: cell(Cell::Exit),
                tail_cell: cell(Cell::Tail),
                lend_cell: cell(Cell::Lend),
                point_cell: Some(cell(Cell::Point)),
                span_cells: Some([cell(Cell::Span), cell(Cell::SpanEnd)]),
                timed_path_cells: Some([cell(Cell::TimedPath), cell(Cell::TimedPathEnd)]),
                counts: Some(CountCells {
                    stub: cell(Cell::Count),
                    paths: cell(Cell::Path),
                    slots: cell(Cell::Slots),
                    table: self.counts_inline.then(|| cell(Cell::Banks)),
                    claim: CLAIM,
                }),
                id,
            }
        } else {
            // The target of an ender's tail call ends the calls as well.
            Hooks {
                entry_cell: cell(Cell::Idle),
                exit_cell: cell(Cell::Ender),
                tail_cell: cell(Cell::EnderTail),
                lend_cell: cell(Cell::Idle),
                point_cell: None,
                span_cells: None,
                timed_path_cells: None,
                counts: None,
                id,
            }
        };
        Some((at, hooks))
    }
}

/// The addresses and possible targets of a candidate's punned jumps. `None` instead of targets if
/// there are none.
fn puns(candidate: &Candidate) -> impl Iterator<Item = (Avma, Option<Range<Avma>>)> + '_ {
    candidate.plan.sites.iter().filter_map(|site| {
        let targets = site.pun.as_ref()?.targets(candidate.bias);
        Some((candidate.bias.to_avma(site.window.start), targets))
    })
}

/// True if jumps with a displacement of 32 bits can lead from anywhere in `near` to the region.
fn is_near(region: &RegionDoc, near: &Range<Avma>) -> bool {
    const REACH: u64 = (1 << 31) - (1 << 20);
    let low = region.start.min(near.start);
    let high = region.extent().end().max(near.end);
    high.0 - low.0 < REACH
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipath_target::process::maps::parse;

    #[test]
    fn what_is_promised_to_one_module_is_not_given_to_another() {
        let maps = parse("7f0000000000-7f0000010000 r-xp 00000000 00:00 0 \n");
        let near = Avma(0x7f00_0000_0000)..Avma(0x7f00_0001_0000);
        let mut places = Places::new(&Document::default(), maps);
        for (index, need) in [40_000, 40_000, 20_000].into_iter().enumerate() {
            let at = places.region_for(&near, need).expect("free memory");
            places.promised[at] += need;
            places.by_module.insert(index, at);
        }
        assert_eq!(places.by_module[&2], 0, "the rest of a region is used");
        for (index, need) in [40_000, 40_000, 20_000].into_iter().enumerate() {
            assert!(
                places.take(index, need, (0, false)).is_some(),
                "module {index}"
            );
        }
        assert_eq!(places.new_regions().len(), 2);
    }

    #[test]
    fn stepping_stones_share_pages_and_never_overlap() {
        let maps = parse("7f0000000000-7f0000010000 r-xp 00000000 00:00 0 \n");
        let mut places = Places::new(&Document::default(), maps);
        let mut stone = |start: u64, count: u64| {
            let stone = places.stone_in(&(Avma(start)..Avma(start + count)));
            places.stones.extend(stone);
            stone.map(|stone| stone.0)
        };
        let at = 0x7f00_1000_0100;
        assert_eq!(stone(at, 1), Some(at));
        assert_eq!(stone(at, 1), None, "taken");
        assert_eq!(stone(at + 13, 1), None, "overlaps");
        assert_eq!(stone(at - 13, 27), None, "overlaps from below");
        assert_eq!(stone(at + 14, 1), Some(at + 14));
        assert_eq!(stone(at, 256), Some(at + 28));
        assert_eq!(stone(0x7f00_0000_8000, 256), None, "mapped");
        assert_eq!(stone(at - 0x3000, 1), Some(at - 0x3000), "not near those");
        // At the start of a page, the cells need the page before.
        assert_eq!(stone(0x7f00_2000_0000, 1), Some(0x7f00_2000_0000));
        let regions = places.new_regions().iter();
        let regions: Vec<_> = regions.map(|r| (r.start.0, r.len, r.used)).collect();
        let (page, two) = (abi::PAGE, 2 * abi::PAGE);
        let expected = [
            (0x7f00_1000_0000, page, page),
            (0x7f00_0fff_d000, page, page),
            (0x7f00_1fff_f000, two, two),
        ];
        assert_eq!(regions, expected);
        let near = Avma(0x7f00_0000_0000)..Avma(0x7f00_0001_0000);
        assert_eq!(places.region_for(&near, 100), Some(3), "a new one");
    }
}
