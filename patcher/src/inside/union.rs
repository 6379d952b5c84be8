//! Disjoint sets of small numbers.

/// Disjoint sets of the numbers below a limit.
pub(super) struct Union(Vec<usize>);

impl Union {
    /// The numbers below `limit`, each in its own set.
    pub(super) fn new(limit: usize) -> Self {
        Self((0..limit).collect())
    }

    /// The representative of the set that contains `of`.
    pub(super) fn find(&mut self, mut of: usize) -> usize {
        while self.0[of] != of {
            self.0[of] = self.0[self.0[of]];
            of = self.0[of];
        }
        of
    }

    /// Merges the sets of both numbers. The representative of `into` represents the result.
    /// Returns false if it was one set before.
    pub(super) fn merge_into(&mut self, into: usize, of: usize) -> bool {
        let (into, of) = (self.find(into), self.find(of));
        self.0[of] = into;
        into != of
    }
}
