//! Whether two sets of calls differ by more than chance (docs/diff.md).

use crate::profile::Distribution;
use statrs::distribution::{ContinuousCDF, StudentsT};
use statrs::function::erf::erfc;

/// What a mean may be off by as one drawn from many: the deviation of the values, rather too large, by the root of how many there are.
pub fn standard_error(values: &Distribution) -> Option<f64> {
    let n = values.count() as f64;
    Some((values.cautious_variance()? / n).sqrt())
}

/// How likely two sets of calls drawn from the same distribution have means as far apart as these; none where one has fewer than
/// two values, or a histogram that does not hold all.
///
/// Were they the same, all values together would show how far they are spread: that is taken from the sums and histograms, rather too far, so what
/// comes out is too large rather than too small. Few values do not show it, so the distribution has the degrees of freedom of the
/// smaller set: Student's t with n - 1.
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

/// How likely two numbers of independent events of one rate are as far apart as these: of their sum, each event is in either with
/// the same likelihood (Przyborowski and Wilenski 1940). By the normal distribution, with half an event's correction at each end.
pub fn p_of_counts(old: u64, new: u64) -> Option<f64> {
    p_of_rates((old, 1), (new, 1))
}

/// [`p_of_counts`] for events that were counted over different times, each number with its time. If
/// the rates are equal, an event is one of the old ones with probability before / (before + after).
pub fn p_of_rates((old, before): (u64, u64), (new, after): (u64, u64)) -> Option<f64> {
    let all = old as f64 + new as f64;
    if all == 0.0 || before == 0 || after == 0 {
        return None;
    }
    let part = before as f64 / (before as f64 + after as f64);
    let apart = ((old as f64 - all * part).abs() - 0.5).max(0.0);
    Some(erfc(apart / (2.0 * all * part * (1.0 - part)).sqrt()))
}

/// Values of several runs.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// The number of values.
    pub n: f64,
    /// The arithmetic mean.
    pub mean: f64,
    /// The unbiased variance, 0 for one value.
    pub variance: f64,
}

impl Sample {
    /// The statistics of these values. `None` if there are none.
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

/// The standard error of the difference of two means, and its degrees of freedom. `None` if each side is a
/// single value.
///
/// If runs of both sides come from one distribution, their variances are equal (Student's t-test for two
/// samples).
fn error_of_difference(old: Sample, new: Sample) -> Option<(f64, f64)> {
    let freedom = old.n + new.n - 2.0;
    let squares = old.variance * (old.n - 1.0) + new.variance * (new.n - 1.0);
    let variance = squares / freedom;
    (freedom > 0.0).then(|| ((variance * (1.0 / old.n + 1.0 / new.n)).sqrt(), freedom))
}

/// The probability that the means of two sides are as far apart by chance, given how the runs of each side
/// differ. `None` if each side is a single run.
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

/// The smallest change of one path that is significant at `level`, as a part of the old mean, given how the
/// runs of each side differ. `None` if each side is a single run, or if the old mean is not positive.
pub fn smallest_change(old: &[f64], new: &[f64], level: f64) -> Option<f64> {
    let (old, new) = (Sample::of(old)?, Sample::of(new)?);
    let (error, freedom) = error_of_difference(old, new)?;
    let students = StudentsT::new(0.0, 1.0, freedom).ok()?;
    (old.mean > 0.0).then(|| students.inverse_cdf(1.0 - level / 2.0) * error / old.mean)
}

/// The same likelihoods where the smallest of all of them is looked for: with each at most as large as a level, the likelihood that
/// any is wrong is at most the level, however they depend on each other (Holm 1979).
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
