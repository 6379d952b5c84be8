//! How often control enters a region, and how often its counts run there.

use std::borrow::Cow;

use crate::addr::Svma;

use super::graph::{BlockEnd, BlockId, Edge, EdgeId, Graph};
use super::loops::Loops;
use super::weights::Weights;

/// A copy is not made if control is expected to enter it so many times as often as it counts.
const DOUBT: u64 = 4;

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

impl Traffic<'_> {
    /// The edges by which control comes to instructions for which `is_inside` is true, from
    /// others.
    pub(super) fn entering(&self, is_inside: impl Fn(Svma) -> bool) -> Vec<EdgeId> {
        let is_in = |segment: BlockId| {
            let segment = self.segments.block(segment);
            // A hub has the address of one of several jumps.
            let is_hub = segment.insns.is_empty() && segment.end == BlockEnd::Switch;
            !is_hub && is_inside(segment.last)
        };
        let edges = self.segments.edge_ids().filter(|&id| {
            let Edge { from, to, .. } = self.segments.edge(id);
            let is_from_outside = from.block().is_none_or(|from| !is_in(from));
            to.block().is_some_and(is_in) && is_from_outside
        });
        edges.collect()
    }

    /// True if counts run more often in a copy than control enters it along these edges. Without
    /// measured transfers, the copy also pays if they are not expected to run much less often.
    ///
    /// `counts` has the index of each counter of the copy, and true if it also runs at its original
    /// address, after the copy was left.
    pub(super) fn pays(
        &self,
        entering: &[EdgeId],
        counts: impl Iterator<Item = (usize, bool)>,
    ) -> bool {
        let (measured, doubt) = match self.measured {
            Some(measured) => (Cow::Borrowed(measured), 1),
            None => {
                let weights = Weights::new(self.segments, &Loops::of(self.segments), None);
                (Cow::Owned(weights.expected().to_vec()), DOUBT)
            }
        };
        let transfers = |edge: EdgeId| measured.get(edge.index()).copied().unwrap_or(0);
        let entries = entering.iter().map(|&edge| transfers(edge));
        let entries = entries.fold(0, u64::saturating_add);
        let runs = counts.filter_map(|(index, is_shared)| {
            let runs = transfers(*self.edges.get(index)?);
            // Each entry may follow a run at the original address.
            Some(if is_shared {
                runs.saturating_sub(entries)
            } else {
                runs
            })
        });
        let runs = runs.fold(0, u64::saturating_add);
        runs.saturating_mul(doubt) > entries
    }
}
