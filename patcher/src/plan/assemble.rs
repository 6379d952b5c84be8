//! Turns drafts into sites. The contents of a trampoline are known only once all drafts are placed.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::addr::Svma;
use crate::inside::Region;
use crate::isa::{Displaced, JUMP};

use super::draft::Draft;
use super::ladder::Ladder;
use super::point::{Effect, ProbePoint, Tactic};
use super::site::{Row, Site};

impl Ladder<'_, '_> {
    /// The sites in write order; `None` if no order is safe.
    pub fn into_sites(self) -> Option<Vec<Site>> {
        let order = self.order()?.into_iter();
        Some(order.map(|draft| self.site(draft)).collect())
    }

    fn site(&self, draft: &Draft) -> Site {
        let flow = self.ground.flow;
        let range = |r: &Range<u64>| Svma(r.start)..Svma(r.end);
        let landing = draft.landing.map(|at| at..at + JUMP);
        let hosted = self.sites.landings_in(&draft.window);
        let (rows, regions) = self.rows(draft);
        Site {
            window: range(&draft.window),
            tactic: draft.tactic,
            points: sorted(draft.points.iter().copied()),
            landing: landing.as_ref().map(range),
            pun: draft.depends().and_then(|_| self.pun_of(&draft.window)),
            hosted: hosted.map(|landing| range(&landing)).collect(),
            old: [
                self.original(&draft.window),
                landing.map(|l| self.original(&l)).unwrap_or_default(),
            ],
            entry: flow.ranges[0].start..flow.entry.plus(1),
            rows,
            regions,
            counters_from: 0,
            displaced: draft.displaced.clone(),
        }
    }

    fn original(&self, range: &Range<u64>) -> Vec<u8> {
        let bytes = self
            .ground
            .image
            .bytes(Svma(range.start), range.end - range.start);
        bytes.map(<[u8]>::to_vec).unwrap_or_default()
    }

    /// Copies of all overwritten code that jumps displaced by `draft` lead to, or jumps in other
    /// copies, transitively. Also the regions that are entered in the trampoline.
    fn rows(&self, draft: &Draft) -> (Vec<Row>, Vec<(u32, Arc<Region>)>) {
        let own: &[Displaced] = match draft.tactic {
            Tactic::Retarget => &[],
            _ => &draft.displaced,
        };
        let mut rows: Vec<Row> = Vec::new();
        let mut regions: BTreeMap<u32, Arc<Region>> = BTreeMap::new();
        let mut wanted: Vec<Svma> = self.leaving(&draft.displaced, own).collect();
        let mut enter = |points: &[ProbePoint], wanted: &mut Vec<Svma>| {
            let entered = points.iter().filter_map(|point| match point.effect {
                Effect::Enter(number) => Some(number),
                _ => None,
            });
            for number in entered {
                if let Some(region) = self.regions.get(number as usize)
                    && regions.insert(number, Arc::clone(region)).is_none()
                {
                    wanted.extend(region.exits());
                }
            }
        };
        enter(&draft.points, &mut wanted);
        while let Some(target) = wanted.pop() {
            if rows.iter().any(|row| row.displaced[0].at == target) {
                continue;
            }
            if let Some(row) = self.row(target) {
                wanted.extend(self.leaving(&row.displaced, &row.displaced));
                enter(&row.points, &mut wanted);
                rows.push(row);
            }
        }
        (rows, regions.into_iter().collect())
    }

    /// The targets of jumps among `displaced` that are outside of `own`. Any address of the entry
    /// is replaced by the entry point.
    fn leaving<'s>(
        &'s self,
        displaced: &'s [Displaced],
        own: &'s [Displaced],
    ) -> impl Iterator<Item = Svma> + 's {
        let flow = self.ground.flow;
        let entry = move |t: Svma| if flow.is_entry(t.0) { flow.entry } else { t };
        displaced
            .iter()
            .filter_map(Displaced::jump_target)
            .map(entry)
            .filter(|target| own.iter().all(|d| d.at != *target))
    }

    /// The rest of a window from `target` on, if a jump to `target` must bypass the window's patch;
    /// otherwise `None`.
    fn row(&self, target: Svma) -> Option<Row> {
        let draft = self.sites.holding(target.0);
        let draft = draft.filter(|s| s.tactic != Tactic::Retarget)?;
        let entered = |p: &ProbePoint| p.effect == Effect::Entry;
        if draft.window.start == target.0 && !draft.points.iter().any(entered) {
            return None;
        }
        let first = draft.displaced.iter().position(|d| d.at == target)?;
        let displaced = draft.displaced[first..].to_vec();
        let resume = Svma(draft.window.end);
        let points = draft.points.iter().copied().filter(|p| {
            let here = p.at == resume || displaced.iter().any(|d| d.at == p.at);
            here && !entered(p)
        });
        Some(Row {
            points: sorted(points),
            displaced,
            resume,
        })
    }
}

/// `points` in the order in which their hooks run.
fn sorted(points: impl Iterator<Item = ProbePoint>) -> Vec<ProbePoint> {
    let mut points: Vec<ProbePoint> = points.collect();
    points.sort_by_key(|p| (p.at, p.effect));
    points
}
