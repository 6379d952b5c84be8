//! Where trampolines go, and what they are.

use std::collections::HashMap;
use std::ops::Range;

use patcher::Avma;
use patcher::emit::{Emitted, Hooks};
use patcher::plan::RefuseReason;

use super::Candidate;
use crate::process::Mapping;
use crate::process::maps::free_range_near;
use crate::process::modules::Module;
use crate::segment::RegionDoc;

/// Bytes at a region's start that hold the addresses of the stubs.
const CELLS: u64 = 16;
/// Trampolines start at multiples of this.
const ALIGN: u64 = 16;
/// Smallest region, so that a few functions can be added later without another.
const SMALLEST: u64 = 64 * 1024;

/// Trampoline memory as it is planned: existing regions and new ones.
pub(super) struct Places {
    /// Regions, the existing ones first.
    pub(super) regions: Vec<RegionDoc>,
    /// How many of them exist.
    existing: usize,
    /// Bytes of each region that are promised to modules and not taken yet.
    promised: Vec<u64>,
    by_module: HashMap<usize, usize>,
}

impl Places {
    pub(super) fn new(regions: &[RegionDoc]) -> Self {
        Self {
            regions: regions.to_vec(),
            existing: regions.len(),
            promised: vec![0; regions.len()],
            by_module: HashMap::new(),
        }
    }

    /// Finds room for all trampolines of the candidates of one module, where there is any.
    pub(super) fn reserve(
        &mut self,
        maps: &[Mapping],
        index: usize,
        module: &Module,
        candidates: &[&Candidate],
    ) {
        let sites = candidates.iter().flat_map(|c| &c.plan.sites);
        let need: u64 = sites
            .map(|s| (s.max_len() as u64).next_multiple_of(ALIGN))
            .sum();
        if let Some(at) = self.region_for(maps, &module.code_range(), need) {
            self.promised[at] += need;
            self.by_module.insert(index, at);
        }
    }

    /// The index of a region with `need` free bytes within reach of `near`, a new one where none of
    /// those there are has.
    fn region_for(&mut self, maps: &[Mapping], near: &Range<Avma>, need: u64) -> Option<usize> {
        let has_room = |(r, promised): (&RegionDoc, &u64)| {
            r.len - r.used >= need + promised && is_near(r, near)
        };
        if let Some(at) = self.regions.iter().zip(&self.promised).position(has_room) {
            return Some(at);
        }
        let len = (CELLS + need).max(SMALLEST).next_multiple_of(abi::PAGE);
        // Regions planned a moment ago are not in the maps yet.
        let mut taken = maps.to_vec();
        for region in self.regions.iter().skip(self.existing) {
            if let Some(mapping) = maps.first() {
                let range = Avma(region.start)..Avma(region.start + region.len);
                taken.push(Mapping {
                    range,
                    name: String::new(),
                    ..mapping.clone()
                });
            }
        }
        taken.sort_by_key(|m| m.range.start);
        let start = free_range_near(&taken, near, len)?;
        self.regions.push(RegionDoc {
            start: start.0,
            len,
            used: CELLS,
            ready: false,
        });
        self.promised.push(0);
        Some(self.regions.len() - 1)
    }

    /// The regions that have to be mapped.
    pub(super) fn new_regions(&self) -> &[RegionDoc] {
        &self.regions[self.existing..]
    }

    /// The sites of a function with the addresses of their trampolines; why they cannot be had
    /// there.
    pub(super) fn emit(
        &mut self,
        candidate: &Candidate,
        id: u32,
    ) -> Result<Vec<(Avma, Emitted)>, RefuseReason> {
        let sites = candidate.plan.sites.iter().map(|site| {
            let (at, hooks) = self
                .take(candidate.module, site.max_len() as u64, id)
                .ok_or(RefuseReason::NoNearMemory)?;
            let emitted = site.emit(candidate.bias, at, &hooks);
            Ok((at, emitted.map_err(|_| RefuseReason::OutOfReach)?))
        });
        sites.collect()
    }

    /// Room for a trampoline of the module, and the hooks to give it.
    fn take(&mut self, module: usize, len: u64, id: u32) -> Option<(Avma, Hooks)> {
        let region = self.regions.get_mut(*self.by_module.get(&module)?)?;
        let at = region.start + region.used;
        let end = (region.used + len).next_multiple_of(ALIGN);
        if end > region.len {
            return None;
        }
        region.used = end;
        let hooks = Hooks {
            entry_cell: Avma(region.start),
            exit_cell: Avma(region.start + 8),
            id,
        };
        Some((Avma(at), hooks))
    }
}

fn is_near(region: &RegionDoc, near: &Range<Avma>) -> bool {
    const REACH: u64 = (1 << 31) - (1 << 20);
    let low = region.start.min(near.start.0);
    let high = (region.start + region.len).max(near.end.0);
    high - low < REACH
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::maps::parse;

    #[test]
    fn what_is_promised_to_one_module_is_not_given_to_another() {
        let maps = parse("7f0000000000-7f0000010000 r-xp 00000000 00:00 0 \n");
        let near = Avma(0x7f00_0000_0000)..Avma(0x7f00_0001_0000);
        let mut places = Places::new(&[]);
        for (index, need) in [40_000, 40_000, 20_000].into_iter().enumerate() {
            let at = places.region_for(&maps, &near, need).expect("free memory");
            places.promised[at] += need;
            places.by_module.insert(index, at);
        }
        assert_eq!(places.by_module[&2], 0, "the rest of a region is used");
        for (index, need) in [40_000, 40_000, 20_000].into_iter().enumerate() {
            assert!(places.take(index, need, 0).is_some(), "module {index}");
        }
        assert_eq!(places.new_regions().len(), 2);
    }
}
