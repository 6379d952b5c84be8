//! The numbers of nodes before the mark.

use super::{NodeId, Span, Tree};
use ipath_profile::{Distribution, Gathered};

/// The numbers of a node from the start of the session to the mark.
#[derive(Clone, Debug, Default)]
pub(crate) struct Before {
    pub(crate) calls: u64,
    /// Values of the metric. Empty without a metric.
    pub(crate) values: Distribution,
}

impl Tree {
    /// The numbers of a node before the mark, with the values of `metric` (an index). `None` unless
    /// the span shown is the time since the mark.
    pub(crate) fn before(&self, node: NodeId, metric: Option<usize>) -> Option<Before> {
        if self.span() != Span::Mark {
            return None;
        }
        let shaped = self.shown();
        let mut calls = 0_u64;
        let mut values = Gathered::default();
        let mut stack = vec![node];
        while let Some(at) = stack.pop() {
            for path in shaped.paths_at(at).filter(|&path| self.kept[path]) {
                calls = calls.saturating_add(self.paths.calls_before(path));
                if let Some(own) = metric.and_then(|m| self.paths.values_before(path, m)) {
                    values.add(own);
                }
            }
            stack.extend(shaped.trie.children(at));
        }
        Some(Before {
            calls,
            values: values.all(),
        })
    }

    /// The length of the time from the start of the session to the mark, in nanoseconds. 0 without
    /// a mark.
    pub(crate) fn lasted_before(&self) -> u64 {
        self.paths.marked_at()
    }
}
