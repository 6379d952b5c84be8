//! Where trampolines go, and what they are.

use std::collections::HashMap;
use std::ops::Range;

use patcher::Avma;
use patcher::emit::Hooks;

use super::{Candidate, SessionError};
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
    by_module: HashMap<usize, usize>,
}

impl Places {
    pub(super) fn new(regions: &[RegionDoc]) -> Self {
        Self {
            regions: regions.to_vec(),
            existing: regions.len(),
            by_module: HashMap::new(),
        }
    }

    /// Finds room for all trampolines of the candidates of one module.
    pub(super) fn reserve(
        &mut self,
        maps: &[Mapping],
        index: usize,
        module: &Module,
        candidates: &[&Candidate],
    ) -> Result<(), SessionError> {
        let sites = candidates.iter().flat_map(|c| &c.plan.sites);
        let need: u64 = sites
            .map(|s| (s.max_len() as u64).next_multiple_of(ALIGN))
            .sum();
        let near = module.code_range();
        let has_room = |r: &RegionDoc| r.len - r.used >= need && is_near(r, &near);
        if let Some(at) = self.regions.iter().position(has_room) {
            self.by_module.insert(index, at);
            return Ok(());
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
        let start = free_range_near(&taken, &near, len)
            .ok_or_else(|| SessionError::NoRoom(module.path.clone()))?;
        self.by_module.insert(index, self.regions.len());
        self.regions.push(RegionDoc {
            start: start.0,
            len,
            used: CELLS,
            ready: false,
        });
        Ok(())
    }

    /// The regions that have to be mapped.
    pub(super) fn new_regions(&self) -> &[RegionDoc] {
        &self.regions[self.existing..]
    }

    /// Room for a trampoline of the module, and the hooks to give it.
    pub(super) fn take(&mut self, module: usize, len: u64, id: u32) -> Option<(Avma, Hooks)> {
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
