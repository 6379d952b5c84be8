//! Histograms by powers of two, in memory that all readings share.

/// The number of buckets: one for each bit of a number.
const BUCKETS: usize = 64;

/// The number of values in each range `[2^k, 2^(k+1))`.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    counts: [u64; BUCKETS],
    /// Bit k is set if `counts[k]` is not 0.
    used: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: [0; BUCKETS],
            used: 0,
        }
    }
}

impl Histogram {
    /// The buckets that are not empty, ascending: the exponent `k`, and the number of values.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u8, u64)> + Clone + '_ {
        let mut left = self.used;
        std::iter::from_fn(move || {
            let k = left.trailing_zeros();
            left &= left.checked_sub(1)?;
            Some((k as u8, self.counts[k as usize % BUCKETS]))
        })
    }

    /// The number of buckets that are not empty.
    pub(super) fn len(&self) -> usize {
        self.used.count_ones() as usize
    }

    /// True if there are no values.
    pub(super) fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// The number of values.
    pub(super) fn held(&self) -> u64 {
        self.iter().fold(0, |sum, (_, n)| sum.saturating_add(n))
    }

    /// Adds `n` values of bucket `k`. If there is no such bucket, adds them to the last one.
    pub(super) fn add(&mut self, k: usize, n: u64) {
        let k = k.min(BUCKETS - 1);
        self.set(k, self.counts[k].saturating_add(n));
    }

    /// Adds the values of another histogram.
    pub(super) fn add_all(&mut self, other: &Self) {
        other.iter().for_each(|(k, n)| self.add(k.into(), n));
    }

    /// Removes all values.
    pub(super) fn clear(&mut self) {
        while self.used != 0 {
            self.set(self.used.trailing_zeros() as usize, 0);
        }
    }

    /// Changes the number of values to `wanted`. Changes the fullest bucket, where one value
    /// matters least; an empty histogram gets them in bucket `otherwise`.
    pub(super) fn hold(&mut self, wanted: u64, otherwise: usize) {
        while let Some(surplus) = self.held().checked_sub(wanted).filter(|&n| n != 0) {
            let Some(fullest) = self.fullest() else {
                return;
            };
            self.set(fullest, self.counts[fullest].saturating_sub(surplus));
        }
        let missing = wanted.saturating_sub(self.held());
        self.add(self.fullest().unwrap_or(otherwise), missing);
    }

    /// The bucket with the most values. `None` if there are no values.
    fn fullest(&self) -> Option<usize> {
        let (k, _) = self.iter().max_by_key(|&(_, n)| n)?;
        Some(k.into())
    }

    /// Sets the number of values in bucket `k`.
    fn set(&mut self, k: usize, n: u64) {
        self.counts[k] = n;
        let bit = 1 << k;
        self.used = match n {
            0 => self.used & !bit,
            _ => self.used | bit,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(buckets: &[(usize, u64)]) -> Histogram {
        let mut histogram = Histogram::default();
        buckets.iter().for_each(|&(k, n)| histogram.add(k, n));
        histogram
    }

    fn of(histogram: &Histogram) -> Vec<(u8, u64)> {
        histogram.iter().collect()
    }

    #[test]
    fn buckets_are_those_that_hold_something() {
        let mut histogram = with(&[(5, 2), (63, 1), (0, 0), (200, 1), (5, u64::MAX)]);
        assert_eq!(of(&histogram), [(5, u64::MAX), (63, 2)]);
        assert_eq!((histogram.len(), histogram.held()), (2, u64::MAX));
        histogram.clear();
        assert!(histogram.is_empty() && histogram.held() == 0);
        histogram.add_all(&with(&[(1, 3), (2, 4)]));
        histogram.add_all(&with(&[(2, 1), (7, 1)]));
        assert_eq!(of(&histogram), [(1, 3), (2, 5), (7, 1)]);
    }

    #[test]
    fn it_holds_as_many_as_it_is_told_to() {
        let mut histogram = with(&[(1, 3), (2, 5), (4, 5)]);
        histogram.hold(12, 0);
        assert_eq!(of(&histogram), [(1, 3), (2, 5), (4, 4)]);
        histogram.hold(14, 0);
        assert_eq!(of(&histogram), [(1, 3), (2, 7), (4, 4)]);
        histogram.hold(2, 0);
        assert_eq!(histogram.held(), 2);
        histogram.hold(0, 0);
        histogram.hold(0, 9);
        assert!(histogram.is_empty());
        histogram.hold(3, 9);
        assert_eq!(of(&histogram), [(9, 3)]);
    }
}
