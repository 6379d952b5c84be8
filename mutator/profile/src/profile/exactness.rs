//! The agreement of the paths with the code.

use serde::{Deserialize, Serialize};

/// The verdict of the code on a call and the frame below it. The order is ascending doubt, so the
/// verdict on a path is the maximum over its edges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The call leads to the function of the frame below, directly or through a linkage stub.
    #[default]
    Proven,
    /// The call leads to the function of the frame below by tail calls or jumps in the code.
    Explained,
    /// The call goes through a pointer, or its code cannot be read. Nothing contradicts it.
    Possible,
    /// The call cannot have led to the frame below.
    Contradicted,
}

/// The name of a cause in [`Losses::causes`](super::Losses::causes): the path is incomplete because
/// the code contradicts an edge.
pub const CONTRADICTED: &str = "contradicted";

/// The number of calls by the verdict on their paths. Calls beyond the path limit have no verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exactness {
    /// The number of calls on paths with only proven edges.
    pub proven: u64,
    /// The number of calls on paths with an edge that is only possible, and no contradicted one.
    pub possible: u64,
    /// The number of calls on paths whose edges are proven or explained by tail calls, at least one
    /// of them explained.
    pub explained: u64,
    /// The number of calls on paths with a contradicted edge.
    pub contradicted: u64,
}

impl Exactness {
    /// The number of calls on paths with this verdict, to be changed.
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
        self.change(other, u64::saturating_add);
    }

    /// Subtracts the calls of an earlier profile of the same session.
    pub fn take(&mut self, earlier: &Self) {
        self.change(earlier, u64::saturating_sub);
    }

    fn change(&mut self, other: &Self, by: fn(u64, u64) -> u64) {
        for (calls, others) in [
            (&mut self.proven, other.proven),
            (&mut self.possible, other.possible),
            (&mut self.explained, other.explained),
            (&mut self.contradicted, other.contradicted),
        ] {
            *calls = by(*calls, others);
        }
    }

    /// The number of calls with any verdict.
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
