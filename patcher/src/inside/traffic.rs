//! How often control enters a region, and how often its counts run there.

use std::cell::OnceCell;
use std::collections::HashMap;

use crate::addr::Svma;
use crate::isa::Insn;

use super::graph::{BlockEnd, BlockId, EdgeId, Graph, Node};
use super::loops::Loops;
use super::weights::expected;

/// A copy is not made if control is expected to enter it so many times as often as it counts.
const DOUBT: u64 = 4;
/// With less measured traffic, it is estimated: the code may run more often later.
const ENOUGH: u64 = 10_000;

/// The edges of a function, and how often control was transferred along them.
#[derive(Clone, Copy, Debug)]
pub struct Traffic<'a> {
    /// The segments, as blocks ([`Counting::segments`](super::Counting::segments)).
    pub segments: &'a Graph,
    /// For each counter or step of a path, the edge of the segments whose transfers it counts.
    pub edges: &'a [EdgeId],
    /// The number of transfers along each edge of the segments. `None` if they are not known.
    pub measured: Option<&'a [u64]>,
}

/// The traffic of the regions of one function.
pub(super) struct OfRegions<'a> {
    traffic: Traffic<'a>,
    /// The segments that end with the instruction at an address. A block may begin with an empty
    /// one.
    by_last: HashMap<Svma, Vec<BlockId>>,
    expected: OnceCell<Vec<u64>>,
}

impl<'a> OfRegions<'a> {
    pub(super) fn new(traffic: Traffic<'a>) -> Self {
        let mut by_last: HashMap<Svma, Vec<BlockId>> = HashMap::new();
        for id in traffic.segments.block_ids() {
            let segment = traffic.segments.block(id);
            // A hub has the address of one of several jumps.
            if !(segment.insns.is_empty() && segment.end == BlockEnd::Switch) {
                by_last.entry(segment.last).or_default().push(id);
            }
        }
        Self {
            traffic,
            by_last,
            expected: OnceCell::new(),
        }
    }

    /// The edges that lead to these instructions, which ascend, from others.
    pub(super) fn entering(&self, insns: &[Insn]) -> Vec<EdgeId> {
        let segments = self.traffic.segments;
        let is_in = |id: BlockId| {
            let last = segments.block(id).last;
            let is_own = self.by_last.get(&last).is_some_and(|of| of.contains(&id));
            is_own && insns.binary_search_by_key(&last.0, Insn::at).is_ok()
        };
        let own = insns.iter().filter_map(|i| self.by_last.get(&Svma(i.at())));
        let arriving = own
            .flatten()
            .flat_map(|&id| segments.arriving(Node::Block(id)));
        let from_outside = arriving.copied().filter(|&edge| {
            let from = segments.edge(edge).from.block();
            from.is_none_or(|from| !is_in(from))
        });
        let mut entering: Vec<EdgeId> = from_outside.collect();
        entering.sort_unstable();
        entering
    }

    /// True if counts run more often in a copy than control enters it along these edges. Where too
    /// little is measured, the copy also pays if they are not expected to run much less often.
    ///
    /// `counts` has the index of each counter of the copy, and true if it also runs at its original
    /// address, after the copy was left.
    pub(super) fn pays(&self, entering: &[EdgeId], counts: &[(usize, bool)]) -> bool {
        let measured = self.traffic.measured;
        let measured = measured.map(|measured| self.sums(measured, entering, counts));
        match measured.filter(|(entries, runs)| *entries.max(runs) >= ENOUGH) {
            Some((entries, runs)) => runs > entries,
            None => {
                let segments = self.traffic.segments;
                let expected = self
                    .expected
                    .get_or_init(|| expected(segments, &Loops::of(segments)));
                let (entries, runs) = self.sums(expected, entering, counts);
                runs.saturating_mul(DOUBT) > entries
            }
        }
    }

    /// How often control enters a copy, and how often its counts run there.
    fn sums(&self, transfers: &[u64], entering: &[EdgeId], counts: &[(usize, bool)]) -> (u64, u64) {
        let transfers = |edge: EdgeId| transfers.get(edge.index()).copied().unwrap_or(0);
        let entries = entering.iter().map(|&edge| transfers(edge));
        let entries = entries.fold(0, u64::saturating_add);
        let runs = counts.iter().filter_map(|&(index, is_shared)| {
            let runs = transfers(*self.traffic.edges.get(index)?);
            // Each entry may follow a run at the original address.
            let outside = if is_shared { entries } else { 0 };
            Some(runs.saturating_sub(outside))
        });
        (entries, runs.fold(0, u64::saturating_add))
    }
}
