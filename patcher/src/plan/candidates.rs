//! Windows that might be overwritten to reach one instruction.

use std::ops::Range;

use crate::addr::Svma;
use crate::flow::ends_block;

use super::Tactic;
use super::check::Ground;
use super::ladder::Ladder;
use super::padding;

/// Which way a window grows from the instruction that must be in it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Grow {
    /// Over the instructions behind, for an entry.
    Forward,
    /// Over the instructions before, for an exit.
    Backward,
}

impl Ladder<'_, '_> {
    /// Windows of at least `len` bytes around the instruction at `at`, in the order in which they
    /// are tried: instructions alone, then with as few of them as padding allows. Where the function
    /// is in doubt, only that one instruction is taken.
    pub(super) fn windows(&self, at: u64, way: Grow, len: u64) -> Vec<(Range<u64>, Tactic)> {
        let flow = self.ground.flow;
        let Some(index) = flow.index_of(at) else {
            return Vec::new();
        };
        let insn = &flow.insns[index];
        let sole = flow.doubt.is_some();
        let mut found = Vec::new();
        match way {
            Grow::Forward => {
                let mut end = insn.next_ip();
                let mut last = index;
                while end - at < len {
                    match flow.insns.get(last + 1) {
                        Some(next) if !sole && next.ip() == end && self.same_range(at, end) => {
                            end = next.next_ip();
                            last += 1;
                        }
                        _ => break,
                    }
                }
                if end - at >= len {
                    found.push((at..end, Tactic::Window));
                }
                // Shorter, where the function ends or a block does: with the padding behind it.
                for i in index..=last {
                    let end = flow.insns[i].next_ip();
                    if ends_block(&flow.insns[i]) && end - at < len && at + len <= self.padded(end)
                    {
                        found.push((at..at + len, Tactic::Padding));
                    }
                }
            }
            Grow::Backward => {
                let end = insn.next_ip();
                let padded = if ends_block(insn) {
                    self.padded(end)
                } else {
                    end
                };
                let mut start = at;
                let mut first = index;
                loop {
                    if start + len <= padded && start + len > end {
                        found.push((start..start + len, Tactic::Padding));
                    }
                    if end - start >= len {
                        found.push((start..end, Tactic::Window));
                        break;
                    }
                    match first.checked_sub(1).map(|i| &flow.insns[i]) {
                        Some(before)
                            if !sole
                                && before.next_ip() == start
                                && self.same_range(before.ip(), at) =>
                        {
                            start = before.ip();
                            first -= 1;
                        }
                        _ => break,
                    }
                }
                // A window that needs only instructions comes first, and what needs more of them
                // than the exit alone is a window as well.
                found.sort_by_key(|(window, tactic)| {
                    (*tactic != Tactic::Window, std::cmp::Reverse(window.start))
                });
                for (window, tactic) in &mut found {
                    if window.start != at {
                        *tactic = Tactic::Window;
                    }
                }
            }
        }
        found
    }

    pub(super) fn same_range(&self, a: u64, b: u64) -> bool {
        self.ground
            .flow
            .ranges
            .iter()
            .any(|r| r.contains(&Svma(a)) && r.contains(&Svma(b)))
    }

    /// The end of the padding that begins at `start`, as far as this function may use it.
    pub(super) fn padded(&self, start: u64) -> u64 {
        let Ground {
            image,
            context,
            flow,
        } = self.ground;
        let end = padding::end(image, context, flow, start);
        if flow.ranges.iter().any(|r| r.end.0 == start) && end > start {
            return padding::behind(start..end).end;
        }
        // Padding can begin in the function and end behind it.
        match flow
            .ranges
            .iter()
            .find(|r| r.end.0 > start && r.end.0 < end)
        {
            Some(range) => padding::behind(range.end.0..end).end,
            None => end,
        }
    }
}
