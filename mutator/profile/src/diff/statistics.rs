//! Tests for differences that are unlikely to be due to chance (docs/guide/diff.md).

use crate::profile::Distribution;
use statrs::distribution::{ContinuousCDF, StudentsT};
use statrs::function::erf::erfc;

/// The standard error of the mean. It uses the cautious deviation of the values, so it tends to be
/// too large. `None` if a histogram is incomplete or empty.
pub fn standard_error(values: &Distribution) -> Option<f64> {
    let n = values.count() as f64;
    Some((values.cautious_variance()? / n).sqrt())
}

/// The p-value of the difference of two means: the probability that two samples of the same
/// distribution have means at least as far apart. `None` if a set has fewer than two values, or an
/// incomplete histogram.
///
/// Under the null hypothesis, all values together show the deviation. It is estimated from sums and
/// histograms and tends to be too large, so the p-value tends to be too large as well. Few values
/// show the deviation poorly, so the test uses Student's t with the n - 1 degrees of freedom of the
/// smaller set.
pub fn p_of_means(old: &Distribution, new: &Distribution) -> Option<f64> {
    let (n, m) = (old.count(), new.count());
    let fewer = n.min(m);
    if fewer < 2 {
        return None;
    }
    let apart = (new.mean()? - old.mean()?).abs();
    if apart == 0.0 {
        return Some(1.0);
    }
    let mut all = old.clone();
    all.merge(new);
    let variance = all.cautious_variance()?;
    let error = (variance * (1.0 / n as f64 + 1.0 / m as f64)).sqrt();
    if error == 0.0 {
        return Some(0.0);
    }
    let students = StudentsT::new(0.0, 1.0, (fewer - 1) as f64).ok()?;
    Some((2.0 * students.sf(apart / error)).min(1.0))
}

/// The p-value of the difference of two counts of independent events. If the rates are equal, an
/// event is in either count with the same probability (Przyborowski and Wilenski 1940). Uses the
/// normal approximation with a continuity correction of half an event. `None` if nothing was
/// counted.
pub fn p_of_counts(old: u64, new: u64) -> Option<f64> {
    p_of_rates((old, 1), (new, 1))
}

/// [`p_of_counts`] for events that were counted over different times. Each number comes with its
/// time. If the rates are equal, the probability that an event is an old one is
/// `before / (before + after)`. `None` if nothing was counted, or if one of the times is 0.
pub fn p_of_rates((old, before): (u64, u64), (new, after): (u64, u64)) -> Option<f64> {
    let all = old as f64 + new as f64;
    if all == 0.0 || before == 0 || after == 0 {
        return None;
    }
    let part = before as f64 / (before as f64 + after as f64);
    let apart = ((old as f64 - all * part).abs() - 0.5).max(0.0);
    Some(erfc(apart / (2.0 * all * part * (1.0 - part)).sqrt()))
}

/// The statistics of values from several runs.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// The number of values.
    pub n: f64,
    /// The arithmetic mean of the values, in their unit.
    pub mean: f64,
    /// The unbiased variance of the values, 0 for one value.
    pub variance: f64,
}

impl Sample {
    /// Computes the statistics of these values. `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let n = values.len() as f64;
        if values.is_empty() {
            return None;
        }
        let mean = values.iter().sum::<f64>() / n;
        let squares = values.iter().map(|value| (value - mean).powi(2));
        Some(Self {
            n,
            mean,
            variance: squares.sum::<f64>() / (n - 1.0).max(1.0),
        })
    }

    /// The standard error of the mean. `None` with one value.
    pub fn standard_error(&self) -> Option<f64> {
        (self.n > 1.0).then(|| (self.variance / self.n).sqrt())
    }
}

/// The standard error of the difference of the means of two sides, and its degrees of freedom.
/// `None` if each side has a single value.
///
/// If the runs of both sides have the same distribution, their variances are equal (Student's
/// t-test for two samples).
fn error_of_difference(old: Sample, new: Sample) -> Option<(f64, f64)> {
    let freedom = old.n + new.n - 2.0;
    let squares = old.variance * (old.n - 1.0) + new.variance * (new.n - 1.0);
    let variance = squares / freedom;
    (freedom > 0.0).then(|| ((variance * (1.0 / old.n + 1.0 / new.n)).sqrt(), freedom))
}

/// The p-value of the difference of the means of two sides, given the variation between the runs of
/// each side. `None` if a side has no value, or if each side has one.
pub fn p_of_samples(old: &[f64], new: &[f64]) -> Option<f64> {
    let (old, new) = (Sample::of(old)?, Sample::of(new)?);
    let (error, freedom) = error_of_difference(old, new)?;
    let apart = (new.mean - old.mean).abs();
    if apart == 0.0 {
        return Some(1.0);
    }
    if error == 0.0 {
        return Some(0.0);
    }
    let students = StudentsT::new(0.0, 1.0, freedom).ok()?;
    Some((2.0 * students.sf(apart / error)).min(1.0))
}

/// The smallest change of one path that is significant at `level`, relative to the old mean, given
/// the variation between the runs of each side. `None` if a side has no value, if each side has
/// one, or if the old mean is not positive.
pub fn smallest_change(old: &[f64], new: &[f64], level: f64) -> Option<f64> {
    let (old, new) = (Sample::of(old)?, Sample::of(new)?);
    let (error, freedom) = error_of_difference(old, new)?;
    let students = StudentsT::new(0.0, 1.0, freedom).ok()?;
    (old.mean > 0.0).then(|| students.inverse_cdf(1.0 - level / 2.0) * error / old.mean)
}

/// The p-values adjusted for multiple comparisons (Holm 1979). If each adjusted value is compared
/// with a level, the probability of any false positive is at most that level, however the tests
/// depend on each other. The order is that of `alone`. `None` stays and does not count as a test.
pub fn adjusted(alone: &[Option<f64>]) -> Vec<Option<f64>> {
    let mut order: Vec<(usize, f64)> = (0..)
        .zip(alone)
        .filter_map(|(i, p)| Some((i, (*p)?)))
        .collect();
    order.sort_by(|a, b| a.1.total_cmp(&b.1));
    let number = order.len();
    let mut adjusted = vec![None; alone.len()];
    let mut least: f64 = 0.0;
    for (rank, (at, p)) in order.into_iter().enumerate() {
        least = least.max(((number - rank) as f64 * p).min(1.0));
        adjusted[at] = Some(least);
    }
    adjusted
}

#[cfg(test)]
mod tests;
