//! Puns: jumps whose displacement partly consists of the unchanged bytes after them.

use std::ops::Range;

use crate::addr::{Bias, Svma};
use crate::isa::{JUMP, Pun};

use super::check::Ground;
use super::draft::Draft;
use super::grow::Grow;
use super::ladder::{Ladder, Strays};
use super::point::{ProbePoint, Tactic};

impl Ladder<'_, '_> {
    /// Tries to divert the instruction at `at` by a punned jump. True if that succeeds.
    pub(super) fn pun(&mut self, at: u64, point: Option<ProbePoint>, way: Grow) -> bool {
        if !self.puns {
            return false;
        }
        let windows = self.short_windows(at, way);
        let doubt = self.ground.flow.doubt.is_some();
        let mut try_all = |strays| windows.iter().any(|w| self.place_pun(w, point, strays));
        try_all(Strays::Forbid) || !doubt && try_all(Strays::Lead)
    }

    /// The bytes that a punned jump at the start of `window` depends on. `None` if there are none,
    /// if the loader may change them, or if the jump has no possible target.
    pub(super) fn pun_of(&self, window: &Range<u64>) -> Option<Pun> {
        let Ground { image, context, .. } = self.ground;
        let whole = Svma(window.start).range(JUMP);
        let bytes = image.bytes(whole.start, JUMP)?;
        let kept = bytes.get((window.end - window.start) as usize..)?;
        let depends = Svma(window.end)..whole.end;
        if kept.is_empty() || context.is_relocated(&whole) {
            return None;
        }
        let pun = Pun::new(depends, kept.to_vec());
        let fixed = !image.is_position_independent();
        (!fixed || pun.targets(Bias(0)).is_some()).then_some(pun)
    }

    fn place_pun(
        &mut self,
        window: &Range<u64>,
        point: Option<ProbePoint>,
        strays: Strays,
    ) -> bool {
        let jump = window.start..window.start + JUMP;
        if !self.sites.is_clear(&jump) || self.pun_of(window).is_none() {
            return false;
        }
        let Ok(found) = self.ground.displace(window) else {
            return false;
        };
        let draft = Draft {
            window: window.clone(),
            tactic: Tactic::Pun,
            points: point.into_iter().collect(),
            landing: None,
            displaced: found.displaced,
            strays: found.strays,
        };
        self.attempt(|ladder| ladder.place(draft, strays))
    }

    /// Windows shorter than a jump around the instruction at `at`, longest first. A longer window
    /// leaves more possible targets for the jump.
    fn short_windows(&self, at: u64, way: Grow) -> Vec<Range<u64>> {
        let flow = self.ground.flow;
        let Some(index) = flow.index_of(at) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        let mut first = Some(index);
        while let Some(from) = first {
            let start = flow.insns[from].at();
            let mut last = Some(index);
            while let Some(to) = last {
                let end = flow.insns[to].end();
                if end - start >= JUMP {
                    break;
                }
                found.push(start..end);
                if flow.insns[to].ends_block() {
                    let padded = self.padded(end).min(start + JUMP - 1);
                    found.extend((end + 1..=padded).map(|end| start..end));
                }
                last = self.index_after(to, at).filter(|_| way != Grow::Backward);
            }
            let short = flow.insns[index].end() - start < JUMP;
            first = self
                .index_before(from, at)
                .filter(|_| short && way != Grow::Forward);
        }
        found.sort_by_key(|w| std::cmp::Reverse(w.end - w.start));
        found
    }
}
