//! Room for the long jump of a springboard.

use std::ops::Range;

use crate::addr::Svma;
use crate::isa::{JUMP, LONGEST_INSN, SHORT_JUMP, SHORT_REACH};

use super::check::Ground;
use super::draft::Draft;
use super::ladder::Ladder;
use super::padding;
use super::point::Tactic;

impl Ladder<'_, '_> {
    /// The address of five unused bytes that a short jump at the start of `window` can reach;
    /// `None` if there are none.
    ///
    /// They are in padding, or in the rest of another site's window after its own jump. If there is
    /// neither, a new window is opened for the landing alone.
    pub(super) fn landing(&mut self, window: &Range<u64>) -> Option<u64> {
        let from = window.start + SHORT_JUMP;
        let reach = from.saturating_sub(SHORT_REACH - 1)..from + SHORT_REACH - 1;
        self.in_padding(window, &reach)
            .or_else(|| self.in_sites(window, &reach))
            .or_else(|| self.in_new_site(window, &reach))
    }

    fn in_padding(&self, window: &Range<u64>, reach: &Range<u64>) -> Option<u64> {
        let Ground {
            image,
            context,
            flow,
            ..
        } = self.ground;
        let (_, near) = flow.insns_in(&(reach.start.saturating_sub(LONGEST_INSN)..reach.end));
        let own = near.iter().filter(|i| i.ends_block());
        let own = own.map(|i| i.end()..self.padded(i.end()));
        let before = flow
            .ranges
            .iter()
            .filter(|r| reach.contains(&r.start.0.wrapping_sub(JUMP)))
            .filter_map(|r| padding::usable_before(image, context, flow, r.start.0));
        own.chain(before).find_map(|padding| {
            // Search from the end, because an exit before the padding uses its first bytes.
            let last = padding.end.checked_sub(JUMP)?;
            (padding.start..=last).rev().find(|&at| {
                reach.contains(&at)
                    && self.is_free(window, at)
                    && self.sites.overlapping(&(at..at + JUMP)).next().is_none()
                    && self.is_unshared(at)
            })
        })
    }

    fn in_sites(&self, window: &Range<u64>, reach: &Range<u64>) -> Option<u64> {
        self.sites
            .overlapping(reach)
            .find_map(|site| self.left_over(site, window, reach))
    }

    /// The first address for a long jump in the window of `site` after the site's own jump, within
    /// `reach` and clear of `window`. `None` if there is none.
    fn left_over(&self, site: &Draft, window: &Range<u64>, reach: &Range<u64>) -> Option<u64> {
        let used = match site.tactic {
            Tactic::Retarget | Tactic::Pun | Tactic::Trap => return None,
            Tactic::Springboard => SHORT_JUMP,
            Tactic::Window | Tactic::Padding => JUMP,
        };
        let last = site.window.end.checked_sub(JUMP)?;
        (site.window.start + used..=last)
            .find(|&at| reach.contains(&at) && self.is_free(window, at))
    }

    /// Opens a window twice as long as a jump, or lengthens an existing one. Returns the address
    /// for the second jump; `None` if no window is safe.
    fn in_new_site(&mut self, window: &Range<u64>, reach: &Range<u64>) -> Option<u64> {
        let flow = self.ground.flow;
        if flow.doubt.is_some() {
            return None;
        }
        let (_, near) = flow.insns_in(reach);
        // The nearest place affects the locality of the code least.
        let mut starts: Vec<u64> = near.iter().map(|i| i.at()).collect();
        starts.sort_by_key(|at| at.abs_diff(window.start));
        starts.into_iter().find_map(|start| {
            let room = self.room(start)?;
            let is_host = |s: &Draft| s.window.start == start && s.tactic == Tactic::Window;
            let blocked =
                self.sites.is_reserved(&room) || !self.sites.overlapping(&room).all(is_host);
            let meets = room.start < window.end && window.start < room.end;
            let at = start + JUMP;
            if blocked || meets || !reach.contains(&at) {
                return None;
            }
            let found = self
                .ground
                .displace(&room)
                .ok()
                .filter(|f| f.strays.is_empty())?;
            let old = self.sites.starting_at(start);
            let points = old.map(|s| s.points.clone()).unwrap_or_default();
            self.sites.remove(start);
            self.sites.insert(Draft {
                window: room,
                tactic: Tactic::Window,
                points,
                landing: None,
                displaced: found.displaced,
                strays: found.strays,
            });
            Some(at)
        })
    }

    /// The range of whole instructions from `start` on that has room for two jumps. `None` if there
    /// is none.
    fn room(&self, start: u64) -> Option<Range<u64>> {
        let flow = self.ground.flow;
        let mut end = start;
        for insn in &flow.insns[flow.index_of(start)?..] {
            if insn.at() != end || !self.same_range(start, end) {
                return None;
            }
            end = insn.end();
            if end - start >= 2 * JUMP {
                return Some(start..end);
            }
            if insn.ends_block() {
                return None;
            }
        }
        None
    }

    fn is_free(&self, window: &Range<u64>, at: u64) -> bool {
        clear(window, at) && !self.sites.is_reserved(&(at..at + JUMP))
    }

    /// True if no other function overlaps a landing at `at`.
    fn is_unshared(&self, at: u64) -> bool {
        let functions = self.ground.image.functions();
        (at..at + JUMP)
            .all(|at| self.ground.flow.contains(at) || functions.containing(Svma(at)).is_none())
    }
}

/// True if a long jump at `at` does not overlap `range`.
fn clear(range: &Range<u64>, at: u64) -> bool {
    range.end <= at || at + JUMP <= range.start
}
