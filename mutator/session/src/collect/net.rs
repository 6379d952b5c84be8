//! Checks whole paths against the code.

use abi::segment::ROOT_OVERFLOW;
use patcher::Avma;

use super::edges::Below;
use super::frames::Frames;
use super::paths::New;
use ipath_profile::{CONTRADICTED, Verdict};

/// The cause of paths that are incomplete because an exception was being delivered.
const REPLACED_FRAME: &str = "replaced-frame";

/// The verdicts on the nodes of the tree. A node's verdict is that on the path from the root to it,
/// so paths with common callers share the work.
#[derive(Default)]
pub(super) struct Net {
    /// The verdicts by node number. `None` for a node that has not been checked.
    nodes: Vec<Option<OfNode>>,
}

/// The verdict on the path from the root to a node.
#[derive(Clone, Copy, Default)]
struct OfNode {
    verdict: Verdict,
    /// True if a frame of the path other than the outermost one is being replaced.
    is_replaced: bool,
}

/// The result of checking a path against the code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Checked {
    pub(super) verdict: Verdict,
    /// The index in the stack of the first contradicted call site, counted from the function
    /// outwards. `None` if no call site is contradicted.
    pub(super) contradicted: Option<usize>,
    /// The reason why the path is incomplete although the walk reached a root. `None` if the check
    /// found none.
    pub(super) cause: Option<&'static str>,
}

impl Net {
    /// Checks a new path. `entry` is the run-time address of its function. `None` for the entry
    /// that stands for paths without room.
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
        // The outermost frame need not follow a call: it is a root, or the path is incomplete
        // there.
        let judge =
            |frames: &mut Frames, at: usize| frames.judge(new.stack[at], below(at), at == last);
        let known = |&node: &u32| self.nodes.get(node as usize).copied().flatten();
        let first = new.nodes.iter().position(|node| known(node).is_some());
        let first = first.unwrap_or(new.nodes.len());
        let mut found = new.nodes.get(first).and_then(known).unwrap_or_default();
        for at in (0..first).rev() {
            if at < last {
                // The edge between this call site and its function's caller.
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
