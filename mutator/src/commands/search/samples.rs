//! What has been sampled, the latest most.

use std::collections::BTreeMap;

use patcher::Avma;

use ipath_sampling::sampling::SampledStack;
use ipath_sampling::search::{Cost, Stack};

/// What is a step older counts for so much less: a program does other things when it starts than later.
const FADING: f64 = 0.5;

type Key = (Vec<Avma>, usize);

/// Stacks with the time that was sampled at each.
#[derive(Default)]
pub(super) struct Samples {
    /// All of it.
    sampled: BTreeMap<Key, Cost>,
    faded: BTreeMap<Key, Cost>,
}

impl Samples {
    /// Takes in what has been sampled from the beginning until now, when a step ends.
    pub(super) fn take_in(&mut self, sampled: Vec<SampledStack>) {
        for cost in self.faded.values_mut() {
            *cost = *cost * FADING;
        }
        for stack in sampled {
            let now = Cost {
                cpu: stack.cpu,
                off: stack.waited,
            };
            let key = (stack.functions, stack.charged);
            let before = self.sampled.insert(key.clone(), now).unwrap_or_default();
            *self.faded.entry(key).or_default() += Cost {
                cpu: (now.cpu - before.cpu).max(0.0),
                // What waits stand for is estimated anew each time.
                off: (now.off - before.off).max(0.0),
            };
        }
    }

    /// The stacks.
    pub(super) fn stacks(&self) -> Vec<Stack> {
        let stack = |((functions, charged), cost): (&Key, &Cost)| Stack {
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

    #[test]
    fn what_was_sampled_last_counts_most() {
        let at = |function: u64, cpu: f64| SampledStack {
            functions: vec![Avma(function)],
            charged: 0,
            cpu,
            waited: 0.0,
            for_work: 0.0,
        };
        let mut samples = Samples::default();
        samples.take_in(vec![at(1, 80.0)]);
        samples.take_in(vec![at(1, 80.0), at(2, 30.0)]);
        samples.take_in(vec![at(1, 81.0), at(2, 60.0)]);
        let costs: Vec<f64> = samples.stacks().iter().map(|s| s.cost.cpu).collect();
        assert_eq!(costs, [21.0, 45.0]);
    }
}
