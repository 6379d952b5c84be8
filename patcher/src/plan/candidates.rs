//! Windows that might be overwritten to reach one instruction.

use std::ops::Range;

use crate::addr::Svma;

use super::check::Ground;
use super::grow::Grow;
use super::ladder::Ladder;
use super::padding;
use super::point::Tactic;

impl Ladder<'_, '_> {
    /// Windows of at least `len` bytes around the instruction at `at`, in the order in which they
    /// are tried. First come instructions alone, then as few of them as padding allows. Where the
    /// function is in doubt, only that one instruction is taken.
    pub(super) fn windows(&self, at: u64, way: Grow, len: u64) -> Vec<(Range<u64>, Tactic)> {
        let flow = self.ground.flow;
        let Some(index) = flow.index_of(at) else {
            return Vec::new();
        };
        let insn = &flow.insns[index];
        let mut found = Vec::new();
        match way {
            Grow::Forward => found = self.windows_from(index, index, len),
            Grow::Around => {
                let mut first = index;
                loop {
                    found.extend(self.windows_from(first, index, len));
                    let start = flow.insns[first].at();
                    match self.index_before(first, at) {
                        Some(before) if insn.end() - start < len => first = before,
                        _ => break,
                    }
                }
            }
            Grow::Backward => {
                let end = insn.end();
                let padded = if insn.ends_block() {
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
                    let Some(before) = self.index_before(first, at) else {
                        break;
                    };
                    start = flow.insns[before].at();
                    first = before;
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

    /// Windows of at least `len` bytes from the instruction with the index `first` on that have the
    /// one with the index `within` in them.
    fn windows_from(&self, first: usize, within: usize, len: u64) -> Vec<(Range<u64>, Tactic)> {
        let flow = self.ground.flow;
        let at = flow.insns[first].at();
        let mut found = Vec::new();
        let mut last = within;
        let mut end = flow.insns[last].end();
        while end - at < len
            && let Some(after) = self.index_after(last, at)
        {
            end = flow.insns[after].end();
            last = after;
        }
        if end - at >= len {
            found.push((at..end, Tactic::Window));
        }
        // Shorter, where the function ends or a block does: with the padding after it.
        for insn in &flow.insns[within..=last] {
            let end = insn.end();
            if insn.ends_block() && end - at < len && at + len <= self.padded(end) {
                let alone = first == within;
                let tactic = if alone {
                    Tactic::Padding
                } else {
                    Tactic::Window
                };
                found.push((at..at + len, tactic));
            }
        }
        found
    }

    /// The index of the instruction that ends where the one with the index `first` begins, if a window
    /// around `at` may grow over it. Where the function is in doubt it may not.
    pub(super) fn index_before(&self, first: usize, at: u64) -> Option<usize> {
        let flow = self.ground.flow;
        let before = first.checked_sub(1)?;
        let insn = &flow.insns[before];
        let adjoins = insn.end() == flow.insns[first].at();
        (flow.doubt.is_none() && adjoins && self.same_range(insn.at(), at)).then_some(before)
    }

    /// The same for the one that begins where that with the index `last` ends.
    pub(super) fn index_after(&self, last: usize, at: u64) -> Option<usize> {
        let flow = self.ground.flow;
        let insn = flow.insns.get(last + 1)?;
        let adjoins = flow.insns[last].end() == insn.at();
        (flow.doubt.is_none() && adjoins && self.same_range(at, insn.at())).then_some(last + 1)
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
            ..
        } = self.ground;
        let end = padding::end(image, context, flow, start);
        if flow.ranges.iter().any(|r| r.end.0 == start) && end > start {
            return padding::usable_after(start..end).end;
        }
        // Padding can begin in the function and end after it.
        match flow
            .ranges
            .iter()
            .find(|r| r.end.0 > start && r.end.0 < end)
        {
            Some(range) => padding::usable_after(range.end.0..end).end,
            None => end,
        }
    }
}
