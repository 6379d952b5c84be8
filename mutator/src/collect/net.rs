//! The verdicts of the code on whole paths.

use abi::segment::ROOT_OVERFLOW;
use patcher::Avma;

use super::edges::Below;
use super::frames::Frames;
use super::paths::New;
use crate::profile::{CONTRADICTED, Verdict};

/// The cause of incomplete paths from the moment when an exception is delivered.
const REPLACED_FRAME: &str = "replaced-frame";

/// The verdicts on the nodes of the tree: of each, that on the path from the root to it. Paths that
/// share callers share the work.
#[derive(Default)]
pub(super) struct Net {
    nodes: Vec<Option<OfNode>>,
}

#[derive(Clone, Copy, Default)]
struct OfNode {
    verdict: Verdict,
    /// True if a frame of the path is being replaced, and not the outermost.
    is_replaced: bool,
}

/// What the code says of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Checked {
    pub(super) verdict: Verdict,
    /// The index in the stack of the first call site, from the function outwards, that is contradicted.
    pub(super) contradicted: Option<usize>,
    /// Why the path is incomplete though the walk has come to a root.
    pub(super) cause: Option<&'static str>,
}

impl Net {
    /// Checks a path that has not been seen before; `entry` is the address of its function.
    pub(super) fn check(
        &mut self,
        frames: &mut Frames,
        new: &New<'_>,
        entry: Avma,
    ) -> Option<Checked> {
        if new.root == ROOT_OVERFLOW {
            return None;
        }
        let below = |at: usize| match at.checked_sub(1) {
            Some(below) => Below::Site(new.stack[below]),
            None => Below::Entry(entry),
        };
        let last = new.stack.len().wrapping_sub(1);
        // A root need not follow a call, nor does what an incomplete path ends at.
        let judge =
            |frames: &mut Frames, at: usize| frames.judge(new.stack[at], below(at), at == last);
        let known = |&node: &u32| self.nodes.get(node as usize).copied().flatten();
        let first = new.nodes.iter().position(|node| known(node).is_some());
        let first = first.unwrap_or(new.nodes.len());
        let mut found = new.nodes.get(first).and_then(known).unwrap_or_default();
        for at in (0..first).rev() {
            if at < last {
                // The edge between this call site and the one that has called its function.
                found.verdict = found.verdict.max(judge(frames, at + 1));
                found.is_replaced |= frames.is_replaced(new.stack[at]);
            }
            self.set(new.nodes[at], found);
        }
        if found.is_replaced {
            return Some(Checked {
                verdict: Verdict::Possible,
                contradicted: None,
                cause: Some(REPLACED_FRAME),
            });
        }
        let mut verdict = found.verdict;
        if !new.stack.is_empty() {
            verdict = verdict.max(judge(frames, 0));
        }
        let is_contradicted = verdict == Verdict::Contradicted;
        let mut all = 0..new.stack.len();
        let mut find = || all.find(|&at| judge(frames, at) == Verdict::Contradicted);
        Some(Checked {
            verdict,
            contradicted: is_contradicted.then(&mut find).flatten(),
            cause: is_contradicted.then_some(CONTRADICTED),
        })
    }

    fn set(&mut self, node: u32, found: OfNode) {
        let at = node as usize;
        if self.nodes.len() <= at {
            self.nodes.resize(at + 1, None);
        }
        self.nodes[at] = Some(found);
    }
}
