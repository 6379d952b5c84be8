//! The best step of a search so far, and the end of a search without progress.

use ipath_sampling::search::Cost;

/// Steps without a gain after which a search ends.
const GAINLESS: u32 = 6;
/// The smallest increase of the explained share that counts as a gain.
const GAIN: f64 = 0.01;

/// A later step may explain this much less and still replace the result: it measures in more
/// detail.
const LOSS: f64 = 0.05;

/// The result of the step with the highest rank.
pub(super) struct Best<T> {
    found: Option<(Rank, T)>,
    /// The number of latest steps in a row without a gain.
    gainless: u32,
    /// The most that a step beyond the overhead limit explained.
    beyond: f64,
}

/// The rank of a step. Steps within the overhead limit rank above distorted steps.
#[derive(Clone, Copy)]
struct Rank {
    is_within_limit: bool,
    explained: f64,
}

impl<T> Default for Best<T> {
    fn default() -> Self {
        Self {
            found: None,
            gainless: 0,
            beyond: 0.0,
        }
    }
}

impl<T> Best<T> {
    /// Stores the result of a step unless an earlier step explained more by over [`LOSS`]. A step
    /// beyond the overhead limit never replaces one within it.
    pub(super) fn offer(&mut self, found: T, explained: Cost, is_within_limit: bool) {
        let rank = Rank {
            is_within_limit,
            explained: explained.cpu + explained.off,
        };
        if !is_within_limit {
            self.beyond = self.beyond.max(rank.explained);
        }
        let most = match &self.found {
            Some((best, _)) if best.is_within_limit == rank.is_within_limit => best.explained,
            Some((best, _)) if best.is_within_limit => f64::INFINITY,
            _ => f64::NEG_INFINITY,
        };
        if rank.explained >= most + GAIN {
            self.gainless = 0
        } else {
            self.gainless += 1
        }
        if rank.explained >= most - LOSS {
            // Keeps the maximum, so that the losses of successive steps do not add up.
            let explained = rank.explained.max(most);
            self.found = Some((Rank { explained, ..rank }, found));
        }
    }

    /// True after [`GAINLESS`] steps in a row without a gain.
    pub(super) fn is_stuck(&self) -> bool {
        self.gainless >= GAINLESS
    }

    /// True if the best result is within the overhead limit, and a step beyond it explained more.
    pub(super) fn has_left_out(&self) -> bool {
        let best = self.found.as_ref().map(|(rank, _)| rank);
        best.is_some_and(|best| best.is_within_limit && self.beyond > best.explained)
    }

    /// The best result. `None` before the first step.
    pub(super) fn get(&self) -> Option<&T> {
        self.found.as_ref().map(|(_, found)| found)
    }

    /// The best result. `None` if there was no step.
    pub(super) fn into_inner(self) -> Option<T> {
        self.found.map(|(_, found)| found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn best(steps: &[(f64, f64, bool)]) -> Best<usize> {
        let mut best = Best::default();
        for (number, &(cpu, off, is_within_limit)) in steps.iter().enumerate() {
            best.offer(number, Cost { cpu, off }, is_within_limit);
        }
        best
    }

    #[test]
    fn the_result_is_the_step_that_explained_most() {
        let steps = [(0.2, 0.1, true), (0.5, 0.4, true), (0.87, 0.77, true)];
        let mut more = steps.to_vec();
        more.extend([(0.34, 0.0, true); 3]);
        assert_eq!(best(&more).into_inner(), Some(2));
        assert!(!best(&more).is_stuck());
        more.extend([(0.875, 0.77, true); 3]);
        assert!(best(&more).is_stuck());
        assert_eq!(best(&[]).into_inner(), None);
    }

    #[test]
    fn of_steps_that_explain_as_much_the_last_one_measures_most_closely() {
        assert_eq!(best(&[(1.0, 1.0, true); 3]).into_inner(), Some(2));
        assert_eq!(best(&[(0.0, 0.0, true); 2]).into_inner(), Some(1));
        let sinking: Vec<_> = (0..4)
            .map(|n| (0.9 - 0.04 * f64::from(n), 0.0, true))
            .collect();
        assert_eq!(best(&sinking).into_inner(), Some(1));
    }

    #[test]
    fn a_step_that_measuring_distorts_is_taken_only_if_there_is_no_other() {
        let costly = (0.9, 0.9, false);
        assert_eq!(best(&[costly, (0.1, 0.0, true)]).into_inner(), Some(1));
        assert_eq!(best(&[(0.1, 0.0, true), costly]).into_inner(), Some(0));
        assert_eq!(best(&[costly, (0.95, 0.9, false)]).into_inner(), Some(1));
        for (steps, has_left_out) in [
            (&[costly, (0.1, 0.0, true)][..], true),
            (&[(0.1, 0.0, false), (0.9, 0.0, true)], false),
            (&[costly], false),
        ] {
            assert_eq!(best(steps).has_left_out(), has_left_out, "{steps:?}");
        }
    }
}
