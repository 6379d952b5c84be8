//! Measurement inside a function: its control-flow graph, its loops, the edges to count, and the
//! numbers of its paths.
//!
//! A [`Graph`] has the basic blocks and edges of one function. [`Loops`] finds its loop nest, and
//! [`Dominators`] its dominator tree. [`Chords`] chooses the edges whose counts determine the
//! counts of all edges and blocks, and [`Counting`] makes counters of them. [`Place`] gives the
//! instruction at which an edge is counted. [`Liveness`] finds the registers and flags that code
//! before an instruction may overwrite. [`Numbering`] numbers the acyclic paths.
//!
//! The module knows no process. An activation that leaves the middle of a block by an exception, by
//! `longjmp` or by the end of its thread has no edge in the graph. [`Span`] gives the hooks that
//! time a loop or an [`InlinedCopy`].

mod bodies;
mod build;
mod call_free;
mod chords;
#[cfg(test)]
mod code;
mod counter;
mod counting;
mod cut;
mod depth_first;
mod divided;
mod dominators;
mod function;
mod graph;
mod hub;
mod inlined;
mod liveness;
mod loops;
mod never_returning;
mod numbering;
mod path_counting;
mod path_step;
mod path_table;
mod place;
#[cfg(test)]
mod random;
mod refuse;
mod region;
mod solve;
mod spans;
mod tally;
#[cfg(test)]
mod tests;
mod traffic;
mod union;
mod weights;
mod whole;

pub use chords::{Chords, Contradiction, Counts, check};
pub use counter::{Counter, Transfer};
pub use counting::{Count, Counting, NoPlace};
pub use cut::Cut;
pub use dominators::Dominators;
pub use function::{Inside, Part};
pub use graph::{Block, BlockEnd, BlockId, Edge, EdgeId, EdgeKind, Graph, Node};
pub use inlined::{Bodiless, InlinedCopy};
pub use liveness::{Free, Liveness};
pub use loops::{Loop, LoopId, Loops};
pub use never_returning::NeverReturning;
pub use numbering::{Action, Numbering};
pub use path_counting::{Followed, PathCall, PathCounting, Pathless, TripCounting};
pub use path_step::{CountersKind, FrameAddress, PathHeader, PathStep, TimedPaths};
pub use path_table::{End, Path, PathTable, Start, TooManyPaths};
pub use place::Place;
pub use refuse::Refusal;
pub use region::{Header, Moved, Region};
pub use solve::{Unsolved, solve};
pub use spans::{InlinedSpan, Span, SpanStep, Spanless};
pub use tally::Tally;
pub use traffic::Traffic;
