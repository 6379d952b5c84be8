//! In which order sites are written.
//!
//! Whoever writes them may be killed between any two, and the program runs on with the first ones
//! alone. So the beginnings of the order must all be as safe as the whole: a jump into the middle of
//! a window is led away before that window is overwritten, and a window is overwritten before what it
//! leaves over takes another site's landing. Taking out goes the other way round.

use std::collections::BTreeSet;

use super::ladder::{Draft, Ladder};
use super::point::Effect;

impl Ladder<'_, '_> {
    /// Is there an order in which the sites can be written?
    pub(super) fn is_orderly(&self) -> bool {
        let depends = |s: &Draft| s.landing.is_some() || !s.strays.is_empty();
        !self.sites.iter().any(depends) || sorted(self.sites.len(), &self.needs()).is_some()
    }

    /// The indexes of the sites, which are ascending, in the order in which they are written: by
    /// address where nothing else is needed.
    pub(super) fn order(&self) -> Vec<usize> {
        let count = self.sites.len();
        let needs = self.needs();
        // Jumps to the entry better miss its hook from the first call on, but nothing breaks where
        // one does not.
        let mut wishes = needs.clone();
        let entered = |s: &Draft| s.points.iter().any(|p| p.effect == Effect::Entry);
        if let Some(entry) = self.sites.iter().position(entered) {
            let loops = &self.ground.flow.reentries;
            let loops = loops.iter().filter_map(|at| self.site_at(at.0));
            wishes.extend(loops.filter(|&at| at != entry).map(|at| (at, entry)));
        }
        let order = sorted(count, &wishes).or_else(|| sorted(count, &needs));
        debug_assert!(order.is_some(), "every step kept the sites orderly");
        order.unwrap_or_else(|| (0..count).collect())
    }

    /// Pairs of sites of which the first must be written before the second.
    fn needs(&self) -> Vec<(usize, usize)> {
        let mut needs = Vec::new();
        for (index, site) in self.sites.iter().enumerate() {
            let jumps = site.strays.iter().filter_map(|&at| self.site_at(at));
            needs.extend(jumps.map(|from| (from, index)));
            let host = site.landing.and_then(|at| self.site_at(at));
            needs.extend(host.map(|host| (host, index)));
        }
        needs
    }

    fn site_at(&self, at: u64) -> Option<usize> {
        self.sites.iter().position(|s| s.window.contains(&at))
    }
}

/// The numbers below `count`, each first of a pair in `before` ahead of its second, and otherwise as
/// ascending as can be; `None` where the pairs go round in a circle.
fn sorted(count: usize, before: &[(usize, usize)]) -> Option<Vec<usize>> {
    let mut open = vec![0; count];
    for &(_, second) in before {
        open[second] += 1;
    }
    let mut ready: BTreeSet<usize> = (0..count).filter(|&i| open[i] == 0).collect();
    let mut order = Vec::with_capacity(count);
    while let Some(first) = ready.pop_first() {
        order.push(first);
        for &(_, second) in before.iter().filter(|pair| pair.0 == first) {
            open[second] -= 1;
            if open[second] == 0 {
                ready.insert(second);
            }
        }
    }
    (order.len() == count).then_some(order)
}

#[cfg(test)]
mod tests {
    use super::sorted;

    #[test]
    fn what_must_come_first_does_and_the_rest_ascends() {
        assert_eq!(sorted(4, &[]), Some(vec![0, 1, 2, 3]));
        assert_eq!(sorted(4, &[(3, 0), (2, 1)]), Some(vec![2, 1, 3, 0]));
        assert_eq!(sorted(3, &[(2, 0), (2, 0), (0, 1)]), Some(vec![2, 0, 1]));
    }

    #[test]
    fn circles_have_no_order() {
        assert_eq!(sorted(2, &[(0, 1), (1, 0)]), None);
        assert_eq!(sorted(1, &[(0, 0)]), None);
    }
}
