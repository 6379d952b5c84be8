//! Sums of the control flow inside functions.

use rustc_hash::FxHashMap;

use crate::profile::Inside;

/// The graphs of the sum: for each function, their indexes in the sum's list.
#[derive(Clone, Debug, Default)]
pub(super) struct Graphs(FxHashMap<usize, Vec<usize>>);

impl Graphs {
    /// Adds the graphs of a profile to those of the sum. `functions` has the index in the sum for
    /// each function of the profile. Different graphs of one function are kept apart, as counts of
    /// one cannot be added to those of the other.
    pub(super) fn add(&mut self, sum: &mut Vec<Inside>, graphs: &[Inside], functions: &[usize]) {
        for graph in graphs {
            let function = functions[graph.function];
            let known = self.0.entry(function).or_default();
            match known.iter().find(|&&at| sum[at].has_graph_of(graph, 0)) {
                Some(&at) => {
                    sum[at].combine(graph, u64::saturating_add);
                    sum[at].complete_positions(graph);
                }
                None => {
                    known.push(sum.len());
                    sum.push(Inside {
                        function,
                        ..graph.clone()
                    });
                }
            }
        }
    }
}
