//! The part of a measured path's off-CPU time in which it waited for work, by samples.

use std::collections::{BTreeMap, BTreeSet};

use patcher::Avma;

use ipath_sampling::sampling::SampledStack;

/// The sampled callers of one measured function, the nearest first, in lexicographic order.
#[derive(Default)]
struct Stacks(Vec<(Vec<Avma>, Off)>);

/// Time off a processor, in nanoseconds.
#[derive(Clone, Copy, Default)]
struct Off {
    /// The part in which a thread waited for work.
    for_work: f64,
    /// The whole time in which a thread waited.
    all: f64,
}

/// The sampled stacks by measured function.
#[derive(Default)]
pub(super) struct ForWork {
    stacks: BTreeMap<Avma, Stacks>,
    /// True if waits were sampled.
    sees_waits: bool,
}

impl ForWork {
    /// Groups the sampled stacks by their innermost measured function.
    pub(super) fn of(
        sampled: &[SampledStack],
        measured: &BTreeSet<Avma>,
        sees_waits: bool,
    ) -> Self {
        let mut found: BTreeMap<Avma, Stacks> = BTreeMap::new();
        for stack in sampled {
            let innermost = stack.functions.iter().position(|f| measured.contains(f));
            let all = stack.for_work + stack.waited;
            if let Some(at) = innermost
                && all > 0.0
            {
                let callers = stack.functions[at + 1..].to_vec();
                let for_work = stack.for_work;
                let stacks = found.entry(stack.functions[at]).or_default();
                stacks.0.push((callers, Off { for_work, all }));
            }
        }
        for stacks in found.values_mut() {
            stacks.0.sort_by(|(a, _), (b, _)| a.cmp(b));
        }
        Self {
            stacks: found,
            sees_waits,
        }
    }

    /// True if waits were sampled and none of them was in this function.
    pub(super) fn never_waits(&self, function: Avma) -> bool {
        self.sees_waits && !self.stacks.contains_key(&function)
    }

    /// The share of waiting for work in the off-CPU time of a function with these callers, the
    /// nearest first. It is the share in the sampled stacks that have the longest common prefix
    /// with these callers. 0 if no wait in the function was sampled.
    pub(super) fn share(&self, function: Avma, callers: &[Avma]) -> f64 {
        let Some(Stacks(stacks)) = self.stacks.get(&function) else {
            return 0.0;
        };
        let agree = |other: &[Avma]| {
            let same = callers.iter().zip(other);
            same.take_while(|(a, b)| a == b).count()
        };
        // The stacks with the longest common prefix are adjacent to the position where this one
        // would be.
        let place = stacks.partition_point(|(other, _)| other[..] < *callers);
        let beside = [place.checked_sub(1), Some(place)].into_iter().flatten();
        let beside = beside.filter_map(|at| stacks.get(at));
        let farthest = beside.map(|(other, _)| agree(other)).max().unwrap_or(0);
        let is_one = |(other, _): &&(Vec<Avma>, Off)| agree(other) == farthest;
        let before = stacks[..place].iter().rev().take_while(is_one);
        let after = stacks[place..].iter().take_while(is_one);
        let sum = before
            .chain(after)
            .fold(Off::default(), |sum, (_, off)| Off {
                for_work: sum.for_work + off.for_work,
                all: sum.all + off.all,
            });
        sum.for_work / sum.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(of: &[u64]) -> Vec<Avma> {
        of.iter().copied().map(Avma).collect()
    }

    #[test]
    fn each_path_has_the_share_of_the_stacks_that_are_most_like_it() {
        let at = |functions: &[u64], waited: f64, for_work: f64| SampledStack {
            functions: addresses(functions),
            charged: 0,
            cpu: 0.0,
            waited,
            for_work,
        };
        // 7 waits: in 1 for work, in 2 for an answer.
        let sampled = [
            at(&[6, 7, 1, 9], 0.0, 30.0),
            at(&[7, 1, 9], 0.0, 20.0),
            at(&[7, 2, 8, 9], 4.0, 0.0),
            at(&[5, 1, 9], 3.0, 1.0),
        ];
        let measured = BTreeSet::from([Avma(7), Avma(1), Avma(9)]);
        let found = ForWork::of(&sampled, &measured, true);
        let share = |function, callers: &[u64]| found.share(Avma(function), &addresses(callers));
        assert_eq!(share(7, &[1, 9]), 1.0);
        assert_eq!(share(7, &[2, 8, 9]), 0.0);
        assert_eq!(share(7, &[2, 4]), 0.0);
        assert_eq!(share(1, &[9]), 0.25);
        // An unknown caller gets the share of the whole function.
        assert_eq!(share(7, &[3]), 50.0 / 54.0);
        assert_eq!(share(9, &[]), 0.0);
    }
}
