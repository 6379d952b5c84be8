//! Candidate windows to overwrite for one instruction.

use std::ops::Range;

use crate::addr::Svma;

use super::check::Ground;
use super::grow::Grow;
use super::ladder::Ladder;
use super::padding;
use super::point::Tactic;

impl Ladder<'_, '_> {
    /// Windows of at least `len` bytes around the instruction at `at`, each with its tactic, in the
    /// order to try. Empty if no instruction begins at `at`, or if there is no room.
    ///
    /// Windows of instructions alone come first, then windows with padding and as few instructions
    /// as possible. If the function is in doubt, a window contains only the instruction at `at`,
    /// and padding.
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
                // Windows that need no padding come first. With padding, a window that contains
                // more instructions than the exit counts as `Tactic::Window`.
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

    /// Windows of at least `len` bytes that start with the instruction at index `first` and contain
    /// the one at index `within`.
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
        // Shorter instruction sequences at the end of a block or of the function, with the padding
        // after them.
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

    /// The index of the adjacent instruction before index `first`, if a window around `at` may grow
    /// over it. `None` if not, and always if the function is in doubt.
    pub(super) fn index_before(&self, first: usize, at: u64) -> Option<usize> {
        let flow = self.ground.flow;
        let before = first.checked_sub(1)?;
        let insn = &flow.insns[before];
        let adjoins = insn.end() == flow.insns[first].at();
        (flow.doubt.is_none() && adjoins && self.same_range(insn.at(), at)).then_some(before)
    }

    /// The index of the adjacent instruction after index `last`, if a window around `at` may grow
    /// over it. `None` if not, and always if the function is in doubt.
    pub(super) fn index_after(&self, last: usize, at: u64) -> Option<usize> {
        let flow = self.ground.flow;
        let insn = flow.insns.get(last + 1)?;
        let adjoins = flow.insns[last].end() == insn.at();
        (flow.doubt.is_none() && adjoins && self.same_range(at, insn.at())).then_some(last + 1)
    }

    /// True if one range of the function contains both addresses.
    pub(super) fn same_range(&self, a: u64, b: u64) -> bool {
        self.ground
            .flow
            .ranges
            .iter()
            .any(|r| r.contains(&Svma(a)) && r.contains(&Svma(b)))
    }

    /// The address at which the padding from `start` on that this function may use ends; `start` if
    /// there is none.
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
        // Padding can start inside the function and end beyond it.
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
