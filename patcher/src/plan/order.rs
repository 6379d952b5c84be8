//! The order in which sites are written.
//!
//! The writer may be killed between any two sites, and the program then runs on with the first ones
//! alone. So every prefix of the order must be as safe as the whole. A jump into the middle of a
//! window is diverted before that window is overwritten. A window that hosts another site's landing
//! is overwritten before the landing is. Undoing reverses the order.

use std::collections::{BTreeSet, HashMap};

use super::draft::Draft;
use super::ladder::Ladder;
use super::point::Effect;
use super::sites::Mark;
#[cfg(test)]
use crate::looks;

/// The maximum number of dependent sites that are followed from a change. A larger group counts as
/// a cycle.
const MOST_FOLLOWED: usize = 1000;

/// The progress of the search through the sites that a site depends on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Visit {
    Open,
    Done,
}

impl Ladder<'_, '_> {
    /// True if the sites still have a safe write order, provided that they had one before `mark`.
    /// Any new cycle contains a site that was added since then.
    pub(super) fn is_orderly(&self, mark: Mark) -> bool {
        let mut visits = HashMap::new();
        let added = self.sites.added_since(mark);
        let mut added = added.filter(|site| !is_free(site));
        added.all(|site| self.is_orderly_from(site, &mut visits))
    }

    /// True if no cycle contains `site` or its dependencies.
    fn is_orderly_from<'s>(&'s self, site: &'s Draft, visits: &mut HashMap<u64, Visit>) -> bool {
        let mut work = vec![(site, false)];
        while let Some((site, is_left)) = work.pop() {
            let start = site.window.start;
            if is_left {
                visits.insert(start, Visit::Done);
                continue;
            }
            match visits.get(&start) {
                Some(Visit::Open) => return false,
                Some(Visit::Done) => continue,
                None if visits.len() >= MOST_FOLLOWED => return false,
                None => visits.insert(start, Visit::Open),
            };
            work.push((site, true));
            // A site without dependencies is on no cycle.
            work.extend(self.first(site).filter(|s| !is_free(s)).map(|s| (s, false)));
        }
        true
    }

    /// The direct dependencies of `site`: the sites that must be written before it.
    fn first<'s>(&'s self, site: &'s Draft) -> impl Iterator<Item = &'s Draft> {
        let places = site.strays.iter().copied().chain(site.landing);
        #[cfg(test)]
        let places = places.inspect(|_| looks::add(1));
        places.filter_map(|at| self.sites.holding(at))
    }

    /// The sites in write order: by address, except for dependencies. `None` if the dependencies
    /// form a cycle.
    pub(super) fn order(&self) -> Option<Vec<&Draft>> {
        let sites: Vec<&Draft> = self.sites.iter().collect();
        let index = |site: &Draft| {
            let start = site.window.start;
            sites.partition_point(|s| s.window.start < start)
        };
        let needs = sites.iter().enumerate();
        let needs = needs.flat_map(|(to, site)| self.first(site).map(move |s| (s, to)));
        let needs: Vec<(usize, usize)> = needs.map(|(from, to)| (index(from), to)).collect();
        // Jumps to the entry should bypass its hook from the first call on, but it is harmless if
        // one does not.
        let mut wishes = needs.clone();
        let entered = |s: &&Draft| s.points.iter().any(|p| p.effect == Effect::Entry);
        if let Some(entry) = sites.iter().position(entered) {
            let loops = self.ground.flow.reentries.iter();
            let loops = loops.filter_map(|at| Some(index(self.sites.holding(at.0)?)));
            wishes.extend(loops.filter(|&at| at != entry).map(|at| (at, entry)));
        }
        let count = sites.len();
        let order = sorted(count, &wishes).or_else(|| sorted(count, &needs))?;
        Some(order.into_iter().map(|index| sites[index]).collect())
    }
}

/// True if the site has no dependencies.
fn is_free(site: &Draft) -> bool {
    site.strays.is_empty() && site.landing.is_none()
}

/// The numbers below `count` in topological order, as ascending as possible.
///
/// Each pair in `before` puts its first number ahead of its second. `None` if the pairs form a
/// cycle.
fn sorted(count: usize, before: &[(usize, usize)]) -> Option<Vec<usize>> {
    let mut open = vec![0; count];
    let mut after = vec![Vec::new(); count];
    for &(first, second) in before {
        open[second] += 1;
        after[first].push(second);
    }
    let mut ready: BTreeSet<usize> = (0..count).filter(|&i| open[i] == 0).collect();
    let mut order = Vec::with_capacity(count);
    while let Some(first) = ready.pop_first() {
        order.push(first);
        for &second in &after[first] {
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
    use crate::flow::{Flow, ModuleContext};
    use crate::function::Function;
    use crate::image::Image;
    use crate::oracle::Folder;
    use crate::plan::draft::Draft;
    use crate::plan::ladder::Ladder;
    use crate::plan::{Allowed, Effects, RefuseReason, Tactic, plan_allowed};

    /// Each return ends a sequence of five bytes. Each sequence has in its middle a jump into the
    /// middle of the other. There is no other room.
    const CIRCLE: &str = "
        .globl circle, _start
        .type circle, @function
        .type _start, @function
        circle: mov $39, %eax; syscall
        cmp $1, %edi; je 3f
        inc %ecx; 1: je 2f; ret
        3: inc %edx; 2: jne 1b; ret
        .size circle, . - circle
        _start: call circle
        hlt
        .size _start, . - _start
        .section .note.GNU-stack, \"\", @progbits\n";

    /// Calls `check` with the inputs for planning [`CIRCLE`].
    fn with_circle(check: impl FnOnce(&Image<'_>, &ModuleContext<'_>, &Function)) {
        let folder = Folder::new();
        let flags = ["-nostdlib", "-static-pie"];
        let data = folder.build("cc", &flags, &[("circle.s", CIRCLE)]);
        let image = Image::parse(&data).expect("an ELF image");
        let mut functions = image.functions().iter();
        let function = functions.find(|f| f.linkage == "circle");
        check(
            &image,
            &ModuleContext::new(&image),
            &function.expect("is there"),
        );
    }

    const WITHOUT_PUNS: Allowed = Allowed {
        puns: false,
        moved_calls: true,
    };

    #[test]
    fn sites_that_need_each_other_first_are_not_made() {
        with_circle(|image, context, function| {
            let want = Effects {
                entry: true,
                exits: true,
            };
            let plan = plan_allowed(image, context, function, want, WITHOUT_PUNS);
            let refused = Some(RefuseReason::BranchIntoWindow);
            let exits: Vec<_> = plan.exits.iter().map(|exit| exit.outcome.err()).collect();
            assert_eq!(exits, [refused, refused]);
            assert_eq!(plan.entry.outcome, Ok(Tactic::Window));
            assert_eq!(plan.sites.len(), 1);
        });
    }

    #[test]
    fn a_plan_without_an_order_is_refused() {
        with_circle(|image, context, function| {
            let flow = Flow::of(image, context, function).expect("has bytes");
            let mut ladder = Ladder::new(image, context, &flow, WITHOUT_PUNS);
            for leave in &flow.leaves {
                let window = leave.at.0 - 4..leave.at.0 + 1;
                let found = ladder.ground.displace(&window).expect("is safe");
                assert_eq!(found.strays.len(), 1);
                ladder.sites.insert(Draft {
                    window,
                    tactic: Tactic::Window,
                    points: Vec::new(),
                    landing: None,
                    displaced: found.displaced,
                    strays: found.strays,
                });
            }
            assert!(ladder.order().is_none());
            assert_eq!(ladder.into_sites(), None);
        });
    }

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
