//! The samples of a search, weighted by age.

use std::collections::BTreeMap;

use patcher::Avma;

use ipath_sampling::sampling::SampledStack;
use ipath_sampling::search::{Cost, Stack};

/// The weight of samples decreases by this factor per step. A program does other things at its
/// start than later.
const FADING: f64 = 0.5;

/// The functions of a stack, and the index of the one that its time is charged to.
type StackKey = (Vec<Avma>, usize);

/// Stacks with the sampled time of each.
#[derive(Default)]
pub(super) struct Samples {
    /// The total time, without decay.
    sampled: BTreeMap<StackKey, Cost>,
    /// The time with decay.
    faded: BTreeMap<StackKey, Cost>,
}

impl Samples {
    /// Takes in all samples from the start up to now, the end of a step. Stacks that differ only in
    /// generated code have the same functions, and count together.
    pub(super) fn take_in(&mut self, sampled: Vec<SampledStack>) {
        for cost in self.faded.values_mut() {
            *cost = *cost * FADING;
        }
        let mut together: BTreeMap<StackKey, Cost> = BTreeMap::new();
        for stack in sampled {
            let key = (stack.functions, stack.charged);
            *together.entry(key).or_default() += Cost {
                cpu: stack.cpu,
                off: stack.waited,
            };
        }
        for (key, now) in together {
            let before = self.sampled.insert(key.clone(), now).unwrap_or_default();
            *self.faded.entry(key).or_default() += Cost {
                cpu: (now.cpu - before.cpu).max(0.0),
                // Sampled waits are extrapolated again each time.
                off: (now.off - before.off).max(0.0),
            };
        }
    }

    /// The sampled stacks, with the decayed time of each.
    pub(super) fn stacks(&self) -> Vec<Stack> {
        let stack = |((functions, charged), cost): (&StackKey, &Cost)| Stack {
            functions: functions.clone(),
            charged: *charged,
            cost: *cost,
        };
        self.faded.iter().map(stack).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(function: u64, cpu: f64) -> SampledStack {
        SampledStack {
            functions: vec![Avma(function)],
            charged: 0,
            cpu,
            waited: 0.0,
            for_work: 0.0,
        }
    }

    #[test]
    fn equal_stacks_count_together() {
        let mut samples = Samples::default();
        samples.take_in(vec![at(1, 80.0), at(2, 1.0), at(1, 3.0)]);
        samples.take_in(vec![at(1, 80.0), at(2, 1.0), at(1, 4.0)]);
        let costs: Vec<f64> = samples.stacks().iter().map(|s| s.cost.cpu).collect();
        assert_eq!(costs, [42.5, 0.5]);
    }

    #[test]
    fn what_was_sampled_last_counts_most() {
        let mut samples = Samples::default();
        samples.take_in(vec![at(1, 80.0)]);
        samples.take_in(vec![at(1, 80.0), at(2, 30.0)]);
        samples.take_in(vec![at(1, 81.0), at(2, 60.0)]);
        let costs: Vec<f64> = samples.stacks().iter().map(|s| s.cost.cpu).collect();
        assert_eq!(costs, [21.0, 45.0]);
    }
}
