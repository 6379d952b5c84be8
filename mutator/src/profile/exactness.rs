//! How far the code agrees with the paths.

use serde::{Deserialize, Serialize};

/// What the code says of a call and the frame below it. In ascending order of doubt, so that the
/// verdict on a path is the largest of those on its edges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The call leads to the function of the frame below, directly or through a linkage stub.
    #[default]
    Proven,
    /// It leads there by tail calls or jumps that the code has.
    Explained,
    /// It goes through a pointer, or its code cannot be read: nothing speaks against it.
    Possible,
    /// It cannot have led there.
    Contradicted,
}

/// The cause of incomplete paths with an edge that the code contradicts.
pub const CONTRADICTED: &str = "contradicted";

/// Calls by the verdict on their paths. The calls beyond the limit of paths are in none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exactness {
    /// Calls on paths whose every edge is proven.
    pub proven: u64,
    /// Calls on paths with an edge that is only possible.
    pub possible: u64,
    /// Calls on paths whose edges are proven or explained by tail calls.
    pub explained: u64,
    /// Calls on paths with an edge that the code contradicts.
    pub contradicted: u64,
}

impl Exactness {
    /// The calls with this verdict.
    pub fn of(&mut self, verdict: Verdict) -> &mut u64 {
        match verdict {
            Verdict::Proven => &mut self.proven,
            Verdict::Explained => &mut self.explained,
            Verdict::Possible => &mut self.possible,
            Verdict::Contradicted => &mut self.contradicted,
        }
    }

    /// Adds the calls of another profile.
    pub fn add(&mut self, other: &Self) {
        for (sum, calls) in [
            (&mut self.proven, other.proven),
            (&mut self.possible, other.possible),
            (&mut self.explained, other.explained),
            (&mut self.contradicted, other.contradicted),
        ] {
            *sum = sum.saturating_add(calls);
        }
    }

    /// Takes out the calls of an earlier profile of the same session.
    pub fn take(&mut self, earlier: &Self) {
        for (sum, calls) in [
            (&mut self.proven, earlier.proven),
            (&mut self.possible, earlier.possible),
            (&mut self.explained, earlier.explained),
            (&mut self.contradicted, earlier.contradicted),
        ] {
            *sum = sum.saturating_sub(calls);
        }
    }

    /// The calls of all verdicts.
    pub fn calls(&self) -> u64 {
        [
            self.proven,
            self.possible,
            self.explained,
            self.contradicted,
        ]
        .into_iter()
        .fold(0, u64::saturating_add)
    }
}
