//! What a histogram by powers of two tells of the values in it.

use super::TimerStats;

mod bound;
#[cfg(test)]
mod tests;

/// Values by powers of two, and what is known exactly of all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distribution {
    /// Ascending, none of them empty.
    buckets: Vec<(Bucket, u64)>,
    /// Values of which it is not known in which bucket they lie.
    elsewhere: u64,
    sum: i128,
    /// No value is smaller.
    min: i64,
    /// No value is larger.
    max: i64,
}

/// A range of values: `k` for [2^k, 2^(k+1)), with 0 in the first, and `-1 - k` for the values whose negatives
/// lie there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bucket(i16);

impl Bucket {
    /// The smallest value in it.
    pub fn least(self) -> i128 {
        match self.0 {
            0 => 0,
            k if k > 0 => power(k),
            k => 1 - power(-k),
        }
    }

    /// The largest value in it.
    pub fn most(self) -> i128 {
        match self.0 {
            k if k >= 0 => power(k + 1) - 1,
            k => -power(-k - 1),
        }
    }

    /// True if the smallest or the largest value is further away than in the next bucket. Where the runtime has
    /// no memory left for a histogram, it counts all values in one bucket.
    fn is_far_from(self, (min, max): (i64, i64)) -> bool {
        let (below, above) = (Self(self.0 - 1), self.next());
        i128::from(min) < below.least() || i128::from(max) > above.most()
    }

    /// How many buckets `other` is above this one.
    pub fn up_to(self, other: Self) -> usize {
        usize::try_from(other.0 - self.0).unwrap_or(0)
    }

    /// The bucket above this one.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// The values of many distributions, added up: each costs no more than it has buckets.
#[derive(Debug)]
pub struct Gathered {
    /// From that of -2^63 to that of 2^63.
    counts: [u64; Gathered::BUCKETS],
    rest: Distribution,
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
    const LOWEST: i16 = -64;
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

    /// All of them.
    pub fn all(mut self) -> Distribution {
        let counts = self.counts.iter().zip(Self::LOWEST..);
        let held = counts.filter(|&(&n, _)| n != 0);
        self.rest.buckets = held.map(|(&n, k)| (Bucket(k), n)).collect();
        self.rest
    }
}

fn power(k: i16) -> i128 {
    // No value of 64 bits comes to this limit.
    1 << k.clamp(0, 100)
}

impl Distribution {
    /// Of one metric on one path, or of a sum of those.
    pub fn of(stats: &TimerStats) -> Self {
        let mut all = Self::default();
        all.add(stats);
        all
    }

    /// Takes the values of one path in the place of those that there were.
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

    /// Adds the values of another path.
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

    fn put(
        &mut self,
        buckets: impl Iterator<Item = (Bucket, u64)> + Clone,
        elsewhere: u64,
        (min, max): (i64, i64),
        sum: i128,
    ) {
        // The extremes of nothing are 0.
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
            // There is one of these for each path: no more room than is needed.
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

    /// The values that have come since `before`, of which no more is known exactly than the sum.
    pub fn since(&self, before: &Self) -> Self {
        let mut new = self.clone();
        new.sum = self.sum.saturating_sub(before.sum);
        if self.elsewhere > 0 {
            // Some of them can have been known before.
            new.elsewhere = self.count().saturating_sub(before.count());
            new.buckets.clear();
            return new;
        }
        for (bucket, n) in &mut new.buckets {
            let was = before.buckets.binary_search_by_key(bucket, |&(b, _)| b);
            *n = n.saturating_sub(was.map_or(0, |at| before.buckets[at].1));
        }
        new.buckets.retain(|&(_, n)| n != 0);
        // The extremes are of all time: those of the new ones are known as far as their buckets tell.
        if let (Some(first), Some(last)) = (new.buckets.first(), new.buckets.last()) {
            let number = |n: i128| i64::try_from(n).ok();
            new.min = number(first.0.least()).map_or(self.min, |least| least.max(self.min));
            new.max = number(last.0.most()).map_or(self.max, |most| most.min(self.max));
        }
        new
    }

    /// Forgets all values.
    pub fn clear(&mut self) {
        self.buckets.clear();
        (self.elsewhere, self.sum) = (0, 0);
    }

    /// How many values there are.
    pub fn count(&self) -> u64 {
        u64::try_from(self.held()).unwrap_or(u64::MAX)
    }

    fn held(&self) -> u128 {
        let placed = self.buckets.iter().map(|&(_, n)| u128::from(n));
        placed.sum::<u128>() + u128::from(self.elsewhere)
    }

    /// The sum of the values.
    pub fn sum(&self) -> i128 {
        self.sum
    }

    /// The smallest and the largest value; none without values.
    pub fn ends(&self) -> Option<(i64, i64)> {
        (self.held() > 0).then_some((self.min, self.max))
    }

    /// True if one of the values is negative.
    pub fn has_negative(&self) -> bool {
        self.held() > 0 && self.min < 0
    }

    /// The buckets that hold values, ascending, each with how many.
    pub fn buckets(&self) -> &[(Bucket, u64)] {
        &self.buckets
    }

    /// The mean, exact; none without values.
    pub fn mean(&self) -> Option<f64> {
        let n = self.held();
        (n > 0).then(|| self.sum as f64 / n as f64)
    }

    /// True if the buckets hold all values.
    pub fn is_known(&self) -> bool {
        self.elsewhere == 0
    }

    /// The smallest value that at least `per_mille` thousandths of the values do not exceed; none without
    /// values, and where the buckets do not hold all.
    ///
    /// It lies in the bucket of the true one, at the place that it has where the values of each bucket are spread alike, and so
    /// that the sum of all comes out.
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

    /// The standard deviation, estimated; none without values, and where the buckets do not hold all.
    ///
    /// Exact are the smallest value, the largest and the sum. The others are taken to lie in their buckets so
    /// that the sum comes out. It is off by no more than the root of the mean square of the widths
    /// of their buckets, as far as these lie between the smallest and the largest.
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
            // As of values spread evenly, where they are in the middle of the bucket.
            let spread = width * width * place * (1.0 - place) / 3.0;
            held * (away * away + spread)
        });
        let range = above.range;
        let ends = mean * mean + (range - mean) * (range - mean);
        Some(((ends + squares.sum::<f64>()) / n as f64).sqrt())
    }

    /// The values as they are above the smallest; none without values.
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

    /// The smallest and the largest value that a bucket can hold here.
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

/// Values from the smallest on, so that large ones keep their digits.
struct Above {
    sum: f64,
    /// From the smallest to the largest.
    range: f64,
    /// All but those two, by bucket: where it begins, its width, and how many.
    others: Vec<(f64, f64, f64)>,
}

impl Above {
    /// How far above the lower ends of their buckets values are on average, from 0 to 1 and the same in each, for the sum
    /// to come out.
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

/// Of values from `low` to `high` that are at `place` on average, the one that so large a part of them does not exceed.
fn between(low: i128, high: i128, part: f64, place: f64) -> i128 {
    /// Where all are at an end, the others are next to it.
    const LEAST: f64 = 1e-3;
    // Those at part x are at x to this power, of which 1 / (1 + power) is the mean.
    let power = 1.0 / place.clamp(LEAST, 1.0 - LEAST) - 1.0;
    let width = (high - low) as f64;
    low + (width * part.powf(power)).round() as i128
}
