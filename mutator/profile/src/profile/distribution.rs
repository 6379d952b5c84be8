//! Estimates from histograms with power-of-two buckets.

use super::TimerStats;

mod bound;
#[cfg(test)]
mod tests;

/// A histogram with power-of-two buckets, and the statistics of its values that are known exactly.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distribution {
    /// Ascending, without empty buckets.
    buckets: Vec<(Bucket, u64)>,
    /// The number of values whose bucket is not known.
    elsewhere: u64,
    sum: i128,
    /// A lower bound of all values.
    min: i64,
    /// An upper bound of all values.
    max: i64,
}

/// A range of values: `k` stands for [2^k, 2^(k+1)), and 0 is in the first. `-1 - k` stands for the
/// values whose negatives are in bucket `k`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bucket(i16);

impl Bucket {
    /// The smallest value in the bucket.
    pub fn least(self) -> i128 {
        match self.0 {
            0 => 0,
            k if k > 0 => power(k),
            k => 1 - power(-k),
        }
    }

    /// The largest value in the bucket.
    pub fn most(self) -> i128 {
        match self.0 {
            k if k >= 0 => power(k + 1) - 1,
            k => -power(-k - 1),
        }
    }

    /// True if the minimum or the maximum lies beyond the adjacent bucket. When the runtime has no
    /// memory left for a histogram, it counts all values in one bucket.
    fn is_far_from(self, (min, max): (i64, i64)) -> bool {
        let (below, above) = (Self(self.0 - 1), self.next());
        i128::from(min) < below.least() || i128::from(max) > above.most()
    }

    /// By how many buckets `other` is above this one. 0 if it is not above.
    pub fn up_to(self, other: Self) -> usize {
        usize::try_from(other.0 - self.0).unwrap_or(0)
    }

    /// The bucket above this one.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// The sum of many distributions. Adding one costs no more than its number of buckets.
#[derive(Debug)]
pub struct Gathered {
    /// The number of values in each bucket, from the bucket of -2^63 to that of 2^63 - 1.
    counts: [u64; Gathered::BUCKETS],
    /// Everything but the buckets.
    rest: Distribution,
    /// True until values are added.
    is_empty: bool,
}

impl Default for Gathered {
    fn default() -> Self {
        Self {
            counts: [0; Self::BUCKETS],
            rest: Distribution::default(),
            is_empty: true,
        }
    }
}

impl Gathered {
    /// The number of the first bucket.
    const LOWEST: i16 = -64;
    /// The number of buckets.
    const BUCKETS: usize = 128;

    /// Adds the values of another distribution.
    pub fn add(&mut self, other: &Distribution) {
        if other.elsewhere == 0 && other.buckets.is_empty() {
            return;
        }
        let rest = &mut self.rest;
        (rest.min, rest.max) = if std::mem::replace(&mut self.is_empty, false) {
            (other.min, other.max)
        } else {
            (rest.min.min(other.min), rest.max.max(other.max))
        };
        rest.sum = rest.sum.saturating_add(other.sum);
        rest.elsewhere = rest.elsewhere.saturating_add(other.elsewhere);
        for &(bucket, n) in &other.buckets {
            let place = usize::try_from(bucket.0 - Self::LOWEST).ok();
            match place.and_then(|place| self.counts.get_mut(place)) {
                Some(count) => *count = count.saturating_add(n),
                None => rest.elsewhere = rest.elsewhere.saturating_add(n),
            }
        }
    }

    /// Returns the distribution of all added values.
    pub fn all(mut self) -> Distribution {
        let counts = self.counts.iter().zip(Self::LOWEST..);
        let held = counts.filter(|&(&n, _)| n != 0);
        self.rest.buckets = held.map(|(&n, k)| (Bucket(k), n)).collect();
        self.rest
    }
}

fn power(k: i16) -> i128 {
    // 64-bit values do not reach this limit.
    1 << k.clamp(0, 100)
}

impl Distribution {
    /// The distribution of one metric on one path, or on the sum of several.
    pub fn of(stats: &TimerStats) -> Self {
        let mut all = Self::default();
        all.add(stats);
        all
    }

    /// Replaces the values by the values of one path.
    pub fn set(&mut self, stats: &TimerStats) {
        self.clear();
        let is_plain = stats.hist_negative.is_empty() && stats.hist.len() > 1;
        if !is_plain {
            return self.add(stats);
        }
        let held = stats.hist.iter().filter(|&&(_, n)| n != 0);
        self.buckets.reserve_exact(stats.hist.len());
        self.buckets
            .extend(held.map(|&(k, n)| (Bucket(i16::from(k)), n)));
        (self.sum, self.min, self.max) = (stats.sum, stats.min, stats.max);
    }

    /// Adds the values of one path. If they are in a single bucket that contradicts their extremes,
    /// their buckets count as not known.
    pub fn add(&mut self, stats: &TimerStats) {
        let negative = stats.hist_negative.iter();
        let negative = negative.map(|&(k, n)| (Bucket(-1 - i16::from(k)), n));
        let others = stats.hist.iter().map(|&(k, n)| (Bucket(i16::from(k)), n));
        let buckets = negative.chain(others).filter(|&(_, n)| n != 0);
        let ends = (stats.min, stats.max);
        let mut held = buckets.clone();
        match (held.next(), held.next()) {
            (Some((only, n)), None) if only.is_far_from(ends) => {
                self.put(std::iter::empty(), n, ends, stats.sum);
            }
            _ => self.put(buckets, 0, ends, stats.sum),
        }
    }

    /// Adds the values of another distribution.
    pub fn merge(&mut self, other: &Self) {
        let buckets = other.buckets.iter().copied();
        self.put(buckets, other.elsewhere, (other.min, other.max), other.sum);
    }

    /// Adds values: those in `buckets`, `elsewhere` more whose bucket is not known, with the
    /// extremes and the sum of all of them.
    fn put(
        &mut self,
        buckets: impl Iterator<Item = (Bucket, u64)> + Clone,
        elsewhere: u64,
        (min, max): (i64, i64),
        sum: i128,
    ) {
        // The extremes of an empty distribution are 0.
        if elsewhere == 0 && buckets.clone().next().is_none() {
            return;
        }
        self.buckets.reserve_exact(if self.buckets.is_empty() {
            buckets.clone().count()
        } else {
            0
        });
        (self.min, self.max) = match self.held() {
            0 => (min, max),
            _ => (self.min.min(min), self.max.max(max)),
        };
        self.sum = self.sum.saturating_add(sum);
        self.elsewhere = self.elsewhere.saturating_add(elsewhere);
        for (bucket, n) in buckets {
            // There is one distribution for each path, so reserve no more than needed.
            if self.buckets.len() == self.buckets.capacity() {
                self.buckets.reserve_exact(1);
            }
            if self.buckets.last().is_none_or(|&(last, _)| last < bucket) {
                self.buckets.push((bucket, n));
                continue;
            }
            match self.buckets.binary_search_by_key(&bucket, |&(b, _)| b) {
                Ok(at) => self.buckets[at].1 = self.buckets[at].1.saturating_add(n),
                Err(at) => self.buckets.insert(at, (bucket, n)),
            }
        }
    }

    /// The values that were added since `before`, an earlier state of this distribution. Their sum
    /// is exact, and their extremes are bounds.
    pub fn since(&self, before: &Self) -> Self {
        let mut new = self.clone();
        new.sum = self.sum.saturating_sub(before.sum);
        if self.elsewhere > 0 {
            // Some of these values may have been in known buckets before.
            new.elsewhere = self.count().saturating_sub(before.count());
            new.buckets.clear();
            return new;
        }
        for (bucket, n) in &mut new.buckets {
            let was = before.buckets.binary_search_by_key(bucket, |&(b, _)| b);
            *n = n.saturating_sub(was.map_or(0, |at| before.buckets[at].1));
        }
        new.buckets.retain(|&(_, n)| n != 0);
        // The extremes are those of all values. The buckets bound the extremes of the new values.
        if let (Some(first), Some(last)) = (new.buckets.first(), new.buckets.last()) {
            let number = |n: i128| i64::try_from(n).ok();
            new.min = number(first.0.least()).map_or(self.min, |least| least.max(self.min));
            new.max = number(last.0.most()).map_or(self.max, |most| most.min(self.max));
        }
        new
    }

    /// Removes all values from the distribution.
    pub fn clear(&mut self) {
        self.buckets.clear();
        (self.elsewhere, self.sum) = (0, 0);
    }

    /// The number of values.
    pub fn count(&self) -> u64 {
        u64::try_from(self.held()).unwrap_or(u64::MAX)
    }

    /// The number of values, without an upper limit.
    fn held(&self) -> u128 {
        let placed = self.buckets.iter().map(|&(_, n)| u128::from(n));
        placed.sum::<u128>() + u128::from(self.elsewhere)
    }

    /// The sum of the values.
    pub fn sum(&self) -> i128 {
        self.sum
    }

    /// The minimum and the maximum, or bounds of them after [`Distribution::since`]. `None` if
    /// there are no values.
    pub fn ends(&self) -> Option<(i64, i64)> {
        (self.held() > 0).then_some((self.min, self.max))
    }

    /// True if the minimum, or its bound after [`Distribution::since`], is negative. False if there
    /// are no values.
    pub fn has_negative(&self) -> bool {
        self.held() > 0 && self.min < 0
    }

    /// The nonempty buckets, ascending, with the number of values in each. They lack values unless
    /// [`Distribution::is_known`].
    pub fn buckets(&self) -> &[(Bucket, u64)] {
        &self.buckets
    }

    /// The exact mean. `None` if there are no values.
    pub fn mean(&self) -> Option<f64> {
        let n = self.held();
        (n > 0).then(|| self.sum as f64 / n as f64)
    }

    /// True if the buckets hold all values.
    pub fn is_known(&self) -> bool {
        self.elsewhere == 0
    }

    /// The smallest value that at least `per_mille` thousandths of the values do not exceed. `None`
    /// if there are no values, or if the buckets do not hold all of them.
    ///
    /// The result is in the same bucket as the true quantile. Its place in the bucket is
    /// interpolated: the values of all buckets are distributed alike, so that their sum equals the
    /// exact sum.
    pub fn quantile(&self, per_mille: u32) -> Option<i128> {
        if !self.is_known() {
            return None;
        }
        let all = self.held();
        let place = self.above()?.place();
        let rank = (all * u128::from(per_mille))
            .div_ceil(1000)
            .clamp(1, all.max(1));
        let mut before = 0;
        for &(bucket, n) in &self.buckets {
            let n = u128::from(n);
            if rank <= before + n {
                let (low, high) = self.bounds(bucket);
                let value = match rank {
                    1 if all == 1 => self.sum,
                    1 => low,
                    _ if rank == all => high,
                    _ => between(low, high, ((rank - before) as f64 - 0.5) / n as f64, place),
                };
                return Some(value.clamp(low, high));
            }
            before += n;
        }
        None
    }

    /// The standard deviation, estimated. `None` if there are no values, or if the buckets do not
    /// hold all of them.
    ///
    /// The minimum, the maximum and the sum are exact. The other values are assumed to be placed in
    /// their buckets so that they add up to the sum. The error is at most the root mean square of
    /// the bucket widths, clipped to the range from the minimum to the maximum.
    pub fn deviation(&self) -> Option<f64> {
        if !self.is_known() {
            return None;
        }
        let n = self.held();
        let above = self.above()?;
        if n == 1 {
            return Some(0.0);
        }
        let mean = above.sum / n as f64;
        let place = above.place();
        let squares = above.others.iter().map(|&(low, width, held)| {
            let away = low + place * width - mean;
            // The variance of an even distribution, if the mean is in the middle of the bucket.
            let spread = width * width * place * (1.0 - place) / 3.0;
            held * (away * away + spread)
        });
        let range = above.range;
        let ends = mean * mean + (range - mean) * (range - mean);
        Some(((ends + squares.sum::<f64>()) / n as f64).sqrt())
    }

    /// The values relative to the minimum. `None` if there are no values.
    fn above(&self) -> Option<Above> {
        let n = self.held();
        let (&(first, _), &(last, _)) = (self.buckets.first()?, self.buckets.last()?);
        let min = self.bounds(first).0;
        let sum = i128::try_from(n)
            .ok()
            .and_then(|n| self.sum.checked_sub(n.checked_mul(min)?))
            .map_or_else(|| self.sum as f64 - n as f64 * min as f64, |s| s as f64);
        let others = self.buckets.iter().map(|&(bucket, held)| {
            let ends = u64::from(bucket == first) + u64::from(bucket == last);
            let (low, high) = self.bounds(bucket);
            let held = held.saturating_sub(ends) as f64;
            ((low - min) as f64, (high - low) as f64, held)
        });
        Some(Above {
            sum,
            range: (self.bounds(last).1 - min) as f64,
            others: others.collect(),
        })
    }

    /// The smallest and the largest value that a bucket can hold between the minimum and the
    /// maximum.
    fn bounds(&self, bucket: Bucket) -> (i128, i128) {
        let (min, max) = (
            i128::from(self.min),
            i128::from(self.max).max(self.min.into()),
        );
        (
            bucket.least().clamp(min, max),
            bucket.most().clamp(min, max),
        )
    }
}

/// Values relative to the minimum, so that large values keep their digits.
struct Above {
    /// The sum of the values minus as many times the minimum.
    sum: f64,
    /// The maximum minus the minimum.
    range: f64,
    /// The values except the minimum and the maximum, by bucket: its lower end, its width, and the
    /// number of values.
    others: Vec<(f64, f64, f64)>,
}

impl Above {
    /// The mean position of the values in their buckets, from 0 (lower end) to 1. It is the same in
    /// each bucket, and makes the values add up to the sum.
    fn place(&self) -> f64 {
        let total = |of: fn(&(f64, f64, f64)) -> f64| self.others.iter().map(of).sum::<f64>();
        let (lows, widths) = (total(|b| b.0 * b.2), total(|b| b.1 * b.2));
        if widths > 0.0 {
            ((self.sum - self.range - lows) / widths).clamp(0.0, 1.0)
        } else {
            0.0
        }
    }
}

/// The quantile `part` (0 to 1) of values from `low` to `high` with the mean position `place`.
fn between(low: i128, high: i128, part: f64, place: f64) -> i128 {
    /// Keeps the position away from 0 and 1, where the power below is infinite or 0.
    const LEAST: f64 = 1e-3;
    // The quantile x is at position x^power; the mean position is then 1 / (1 + power).
    let power = 1.0 / place.clamp(LEAST, 1.0 - LEAST) - 1.0;
    let width = (high - low) as f64;
    low + (width * part.powf(power)).round() as i128
}
